/* What each core operator means: the columns of ir/op.def and ir/op/pointwise.def as one table. */
#ifndef AP_IR_OP_H
#define AP_IR_OP_H

#include "ir/module.h"
#include "ir/pointwise.h"
#include "ir/rule.h"

typedef enum ap_result_kind { AP_RESULT_SAME, AP_RESULT_BOOLEAN, AP_RESULT_CAST } ap_result_kind;
typedef enum ap_domain {
    AP_DOMAIN_FLOAT,
    AP_DOMAIN_NUMBER,
    AP_DOMAIN_INTEGER,
    AP_DOMAIN_BOOLEAN,
    AP_DOMAIN_ANY
} ap_domain;

/* What passes/local.c makes of it: it knows these classes and no operators. STEP covers all changes of sharding, which
 * are read off the types. Pointwise operators and terminators need none. */
typedef enum ap_lowering {
    AP_LOWER_NONE,
    AP_LOWER_CONSTANT,
    AP_LOWER_IOTA,
    AP_LOWER_CONTRACT,
    AP_LOWER_CONV,
    AP_LOWER_REDUCE,
    AP_LOWER_VIEW,
    AP_LOWER_GATHER,
    AP_LOWER_SCATTER,
    AP_LOWER_INDEX,
    AP_LOWER_TOPK,
    AP_LOWER_CUMULATE,
    AP_LOWER_SLICE,
    AP_LOWER_PAD,
    AP_LOWER_CONCAT,
    AP_LOWER_POOL,
    AP_LOWER_RESHAPE,
    AP_LOWER_BODY,
    AP_LOWER_STEP,
} ap_lowering;

struct ap_tensor;
struct ap_eval; /* ir/eval.h */

typedef struct ap_op_info {
    const char *name;
    int8_t nin, nout; /* -1: any number */
    /* Sets the types of the results from operands and attributes; reports what does not fit.
     * A result type already set (cast, view, reshape, constant, iota) is checked instead. */
    ap_status (*infer)(ap_module *m, ap_node n);
    /* Fills the factor mapping; only when the types are known. */
    void (*rule)(const ap_module *m, ap_node n, ap_rule *out);
    /* Floating-point operations for the given logical types; NULL: one per result element for pointwise
     * operators, none for the others. */
    int64_t (*flops)(const ap_module *m, ap_node n);
    ap_status (*eval)(struct ap_eval *e, ap_node n);
    bool shares_buffer; /* the result lives in the operand's buffer */
    bool has_body, terminator;
    bool planned, collective, step; /* in which states it may stand: see ir/verify.h */
    bool pointwise;
    ap_lowering lower;
    ap_result_kind result;
    ap_domain domain;
    uint8_t linear[2]; /* operand masks; 0: none */
    uint8_t flops_per_element;
} ap_op_info;

const ap_op_info *ap_op_get(ap_op op);
bool ap_op_from_str(const char *s, ap_op *out);

static inline bool ap_op_is_pointwise(ap_op op)
{
    return op > AP_OP_POINTWISE_BASE_ && op < AP_OP_COUNT;
}

/* The scalar operator of a pointwise one. */
static inline ap_pointwise ap_op_scalar(ap_op op)
{
    return (ap_pointwise)(op - AP_OP_POINTWISE_FIRST_);
}

/* Extent of a spatial dimension of a convolution's result; -1 when it overflows. */
int64_t ap_conv_extent(const ap_conv_dim *d, int64_t operand, int64_t kernel);
/* Types of the results of `n` from its operands. */
ap_status ap_node_infer(ap_module *m, ap_node n);
/* Logical floating-point operations, saturating. A multiply and an add count as two. */
int64_t ap_node_flops(const ap_module *m, ap_node n);

#endif
