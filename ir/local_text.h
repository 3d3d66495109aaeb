/* Words and limits that printing, parsing and verifying local programs share. The syntax: docs/ir.md. */
#ifndef AP_IR_LOCAL_TEXT_H
#define AP_IR_LOCAL_TEXT_H

#include "ir/lex.h"
#include "ir/local.h"
#include "ir/mesh.h"

#define AP_LOCAL_MAX_RANKS 65536
#define AP_LOCAL_MAX_POINTS (1 << 20) /* ranks times microbatches */
#define AP_LOCAL_MAX_OPERANDS 255
#define AP_LOCAL_MAX_SECTIONS 16
#define AP_LOCAL_MAX_TEMPS 8

extern const char *const ap_kernel_text[AP_KERNEL_COUNT];          /* nest, gemm, ... */
extern const char *const ap_space_text[AP_SPACE_COUNT];            /* arena, param, input, output */
extern const char *const ap_exchange_text[AP_EXCHANGE_KIND_COUNT]; /* all_gather, ... */
extern const char *const ap_sop_text[AP_SOP_KIND_COUNT];           /* POINTWISE: NULL, its own name stands there */

/* Which fields of an exchange mean something. */
static inline bool ap_exchange_folds(ap_exchange_kind k)
{
    return k == AP_EXCHANGE_REDUCE_SCATTER || k == AP_EXCHANGE_ALL_REDUCE;
}
static inline bool ap_exchange_has_me(ap_exchange_kind k)
{
    return k == AP_EXCHANGE_REDUCE_SCATTER || k == AP_EXCHANGE_ALL_TO_ALL;
}
static inline bool ap_exchange_has_peer(ap_exchange_kind k)
{
    return k == AP_EXCHANGE_ALL_GATHER || k == AP_EXCHANGE_ALL_TO_ALL;
}

/* How many sops an operation reads through `arg`. */
static inline int ap_sop_nargs(const ap_sop *s)
{
    switch (s->kind) {
    case AP_SOP_POINTWISE:
        return s->pw < AP_PW_COUNT ? ap_pointwise_nin((ap_pointwise)s->pw) : 0;
    case AP_SOP_GATHER:
    case AP_SOP_CHECK:
    case AP_SOP_REDUCE:
    case AP_SOP_SCAN:
    case AP_SOP_STORE:
    case AP_SOP_TEMP_STORE:
        return 1;
    case AP_SOP_UPDATE:
        return s->imm.i >= 0 ? 2 : 1;
    default:
        return 0;
    }
}
static inline bool ap_sop_has_value(const ap_sop *s)
{
    return s->kind != AP_SOP_STORE && s->kind != AP_SOP_UPDATE && s->kind != AP_SOP_TEMP_STORE;
}
/* Kernels whose loops are in the record `nest`, and whose operands have a stride for each. */
static inline bool ap_kernel_has_loops(const ap_kernel *k)
{
    return k->kind == AP_KERNEL_NEST || k->kind == AP_KERNEL_TOPK;
}

/* ---- local_parse.c, local_parse_kernel.c ---- */
/* A local program up to the end of the text or a `}` that closes what is around it. */
ap_status ap_local_parse_lines(ap_lex *l, ap_local **out);
/* After `kernel`: one whole kernel. */
ap_status ap_local_parse_kernel(ap_lex *l, ap_kernel *out);
/* "[1,2,3]", at most `max` numbers. */
ap_status ap_local_parse_list(ap_lex *l, const char *what, int max, int64_t *out, uint8_t *out_n);

/* ---- local_epilogue.c ---- */
static inline bool ap_kernel_has_epilogue(const ap_kernel *k)
{
    return k->kind == AP_KERNEL_GEMM && k->nest.nsops > 0;
}
/* Loops and strides of C in what follows a product, from the product. */
void ap_local_epilogue_loops(ap_kernel *k);
const char *ap_local_epilogue_fault(const ap_kernel *k);

/* ---- local_topk.c ---- */
void ap_local_print_topk(const ap_topk *k, ap_text *out);
ap_status ap_local_parse_topk(ap_lex *l, ap_topk *out);
const char *ap_local_topk_fault(const ap_kernel *k);

/* ---- ports: `"x" f32[8,32]` ---- */
void ap_port_print(const ap_ctx *ctx, const ap_port *port, ap_text *out);
/* A line each, "input" or "output" before it. */
void ap_ports_print(const ap_ctx *ctx, uint32_t ninputs, const ap_port *input, uint32_t noutputs, const ap_port *output,
                    ap_text *out);
ap_status ap_port_parse(ap_lex *l, ap_port *out);

/* ---- local_print.c, local_print_kernel.c ---- */
void ap_local_print_list(ap_text *out, int n, const int64_t *at);
void ap_local_print_kernel(const ap_ctx *ctx, const ap_kernel *k, ap_text *out);

/* ---- local_pool.c: what concerns kernels of class POOL ---- */
void ap_local_print_pool(const ap_pooling *p, ap_text *out);
ap_status ap_local_parse_pool(ap_lex *l, ap_pooling *p);
/* `int 2` after an extent: 1 + its number, or 0 when there is none (local_parse_kernel.c). */
ap_status ap_local_parse_turns(ap_lex *l, uint32_t *out);

/* ---- local_conv.c: what concerns kernels of class CONV ---- */
void ap_local_print_conv(const ap_conv *c, ap_text *out);
ap_status ap_local_parse_conv(ap_lex *l, ap_conv *c);
const char *ap_local_conv_fault(const ap_kernel *k);
bool ap_local_conv_turns_fit(const ap_conv *c, const int64_t *ints);
/* How the elements of the operands are read and written; false: outside of the buffer. */
typedef struct ap_conv_memory {
    void *user;
    bool (*load)(void *user, uint32_t operand, int64_t offset, ap_scalar *out);
    bool (*store)(void *user, uint32_t operand, int64_t offset, ap_scalar x);
} ap_conv_memory;
bool ap_local_conv_eval(const ap_conv *c, const int64_t *ints, const ap_conv_memory *mem);

/* ---- local_verify_kernel.c ---- */
/* Elements that an operand touches, relative to its start: all of them lie in lo..hi. */
typedef struct ap_reach {
    bool any;
    int64_t lo, hi;
} ap_reach;
/* What is wrong with a kernel, or NULL. `out_sop`: at which operation, AP_NONE: at none. */
const char *ap_local_kernel_fault(const ap_kernel *k, uint32_t *out_sop);
/* For kernels without fault, on a rank where its ints have these values (NULL: the most that any rank can do). False
 * when it overflows. */
bool ap_local_kernel_reach(const ap_kernel *k, const int64_t *ints, uint32_t operand, ap_reach *out);
/* Rows of its table that a lookup can find on the rank; none where this is not positive. */
int64_t ap_local_lookup_rows(const ap_sop *s, const int64_t *ints);
/* Whether no loop has more turns than its extent, or fewer than none. */
bool ap_local_turns_fit(const ap_kernel *k, const int64_t *ints);
const char *ap_local_pool_fault(const ap_kernel *k);
bool ap_local_pool_reach(const ap_pooling *p, const int64_t *ints, uint32_t operand, ap_reach *out);
bool ap_local_conv_reach(const ap_conv *c, const int64_t *ints, uint32_t operand, ap_reach *out);
/* One more loop of `extent` turns with this stride. */
bool ap_reach_loop(ap_reach *r, int64_t extent, int64_t stride);

/* ---- local_overlap.c ---- */
/* May an operand that the kernel writes lie in the memory of another one, which starts `delta` bytes behind it? Yes if
 * they never meet, or if the kernel works in place. `ints` as above. */
bool ap_local_may_share(const ap_kernel *k, const int64_t *ints, uint32_t written, uint32_t other, int64_t delta);

#endif
