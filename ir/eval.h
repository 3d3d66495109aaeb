/* The evaluator: what a module means, in every state. It is the reference that emitted code, passes and
 * runtimes are compared with, so it is simple and slow. In states with meshes every rank is emulated: a
 * value has one local tensor per rank.
 *
 * A partial value holds addends (or candidates of max, min) on the ranks along the partial axes.
 * reshard and all elementary steps mean "the same logical value under the new sharding": it is put
 * together from the shards (partials folded in rank order) and cut anew. */
#ifndef AP_IR_EVAL_H
#define AP_IR_EVAL_H

#include "ir/module.h"
#include "ir/tensor.h"

typedef struct ap_eval {
    ap_module *m;
    ap_arena *arena;   /* where tensors are made */
    int32_t nranks;    /* 1 in states without mesh */
    int32_t rank;      /* of the node evaluation in progress */
    ap_tensor **value; /* [value * nranks + rank]; NULL until computed */
    bool round_f32;    /* round every float result to its dtype (default true); false: keep f64 */
} ap_eval;

/* Evaluates a function. `inputs` are whole logical tensors with plain dimensions, one per argument; `outputs`
 * likewise, made in `arena`, one per result. AP_ERR_MODEL for what the model does wrong at run time (index
 * out of range: names the node), AP_ERR_ENV when data is missing. */
ap_status ap_eval_func(ap_module *m, ap_func f, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs);

/* One node whose operands are all constants: results as whole tensors (for folding). */
ap_status ap_eval_node(ap_module *m, ap_node n, ap_arena *arena, const ap_tensor *const *operands, ap_tensor *results);

/* Largest |a-b| and largest |b|; integers count as numbers. NaN equals NaN; infinities of one sign too; a NaN on one
 * side only gives infinity. Shapes must agree. */
void ap_tensor_compare(const ap_tensor *a, const ap_tensor *b, double *out_abs, double *out_scale);

#endif
