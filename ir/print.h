/* Pieces that the text form of modules and that of local programs have in common, and the table that says
 * which attributes stand in the line of an operator. */
#ifndef AP_IR_PRINT_H
#define AP_IR_PRINT_H

#include "ir/base/text.h"
#include "ir/module.h"
#include "ir/pointwise.h"

/* What follows the operands of a node, and where it is kept. */
typedef enum ap_attr_kind {
    AP_ATTR_NONE,
    AP_ATTR_SPEC,      /* {bk,kn->bn}       u.spec */
    AP_ATTR_REDUCE,    /* max ... {bk->b}   u.reduce */
    AP_ATTR_SCATTER,   /* add ... {vh,b,bh->vh}   u.scatter */
    AP_ATTR_INDEX,     /* of 64             u.index */
    AP_ATTR_TOPK,      /* dim 1 largest 4   u.topk */
    AP_ATTR_CUMULATE,  /* sum ... dim 1 exclusive reverse   u.cumulate */
    AP_ATTR_SLICE,     /* [-,0:1.-]         u.slice */
    AP_ATTR_PAD,       /* [1:1,-]           u.pad */
    AP_ATTR_CONV,      /* [1:1 stride 2,-]  u.conv */
    AP_ATTR_POOL,      /* max ... [-,3/2+1:1]  u.pool */
    AP_ATTR_CONCAT,    /* dim 2             u.concat */
    AP_ATTR_IOTA,      /* dim 0             u.iota */
    AP_ATTR_CONSTANT,  /* splat 0x1p+0      u.constant */
    AP_ATTR_COMPOSITE, /* name(...)  { }    u.composite */
    AP_ATTR_AXES,      /* over dp,tp        u.axes */
} ap_attr_kind;
ap_attr_kind ap_op_attr(ap_op op);

extern const char *const ap_symbol_kind_text[AP_SYMBOL_KIND_COUNT];
extern const char *const ap_state_text[AP_STATE_COUNT];
extern const char *const ap_reduce_text[AP_REDUCE_KIND_COUNT];
extern const char *const ap_scatter_text[AP_SCATTER_KIND_COUNT];
extern const char *const ap_partial_text[AP_PARTIAL_COUNT];

/* Inline constants of up to so many elements are printed as a list of numbers. */
#define AP_PRINT_LIST_MAX 16

void ap_print_name(const ap_ctx *ctx, ap_name n, ap_text *out);  /* bare or quoted */
void ap_print_axis(const ap_ctx *ctx, ap_name n, ap_text *out);  /* word or quoted */
void ap_print_loc(const ap_ctx *ctx, ap_loc loc, ap_text *out);  /* `  loc("fc1", "MatMul")` or nothing */
void ap_print_scalar(ap_dtype dtype, ap_scalar x, ap_text *out); /* exact */
void ap_print_conv_dim(const ap_conv_dim *d, ap_text *out);      /* 1:1 stride 2 dilate 2 hole 2 flip, or - */
void ap_print_conv(const ap_shape_info *operand, const ap_conv_attr *a, ap_text *out); /* ` [1:1 stride 2,-]` */
void ap_print_data(const ap_ctx *ctx, const ap_data *d, ap_text *out); /* splat 0x1p+0 | [1,2] | hex"00" | data(...) */
void ap_print_data_in_parens(const ap_ctx *ctx, const ap_data *d, ap_text *out); /* data(...) around all of them */

#endif
