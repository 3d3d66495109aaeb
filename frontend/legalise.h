/* Lowering of ONNX operators to core operators, node by node in topological order.
 *
 * All types are static here, so a lowering reads shapes of its operands and emits core nodes. Errors latch:
 * after the first one every emitter does nothing and gives AP_NONE, and reading a shape of AP_NONE gives rank
 * 0, so lowerings are written as expressions and need no checks in between; the caller looks at
 * `status` at the end.
 *
 * What feeds shapes is computed on the way: a node whose operands are all constants, and whose result is small,
 * is evaluated at once and becomes a constant. Parameters are never folded; their contents are read only when a
 * shape, an axis or an index depends on them (ap_known). */
#ifndef AP_FRONTEND_LEGALISE_H
#define AP_FRONTEND_LEGALISE_H

#include "frontend/graph.h"
#include "ir/eval.h"
#include "ir/op.h"

#define AP_FOLD_MAX 65536 /* elements of a result that is folded */

typedef struct ap_legal {
    ap_ctx *ctx;
    ap_module *m;
    ap_module *folder; /* where nodes stand while they are folded */
    ap_func func;
    ap_block block;
    const ap_onnx_graph *graph;
    const ap_onnx_node *node; /* the one being lowered; NULL between nodes */
    ap_loc loc;
    ap_status status;
    ap_value *value; /* by graph value; AP_NONE: not there yet */
    bool *used;      /* by graph value: a live node or an output reads it */
    bool *taken;     /* by name (ids below ntaken): a value of the function has it */
    uint32_t ntaken;
    AP_VEC(const ap_tensor *) known; /* by IR value: contents, or NULL */
} ap_legal;

typedef void ap_lower_fn(ap_legal *l);

/* One row of frontend/onnx_ops.def. */
typedef struct ap_onnx_op {
    const char *domain, *name;
    int since, until;            /* opsets; until 0: still there */
    int min_in, max_in, max_out; /* max -1: any number */
    ap_lower_fn *lower;
    ap_op core;          /* what `lower` needs to know: a core operator, */
    ap_reduce_kind kind; /* a reduction, */
    int variant;         /* or anything */
    const char *attrs;   /* attributes that are understood, space separated */
} ap_onnx_op;

/* The row for a node, or NULL with the reason in *out_why (constant text or in ctx->arena). */
const ap_onnx_op *ap_onnx_op_find(ap_ctx *ctx, const ap_onnx_node *n, const char **out_why);
uint32_t ap_onnx_op_count(void);
const ap_onnx_op *ap_onnx_op_at(uint32_t i);

/* ---- sources (source.c) ---- */
/* An initializer or a Constant: a parameter, or a constant when it is small (docs/frontend.md). */
ap_value ap_emit_source(ap_legal *l, const ap_onnx_tensor *t, ap_name name, bool is_initializer);
void ap_set_name(ap_legal *l, ap_value v, ap_name name); /* unless it has one, or another value has it */

/* ---- the node being lowered ---- */
ap_value ap_in(ap_legal *l, uint32_t i); /* AP_NONE: left out */
bool ap_has_in(const ap_legal *l, uint32_t i);
bool ap_wants_out(const ap_legal *l, uint32_t i);
void ap_set_out(ap_legal *l, uint32_t i, ap_value v);
int64_t ap_opset(const ap_legal *l);
void ap_refuse(ap_legal *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

int64_t ap_attr_int(ap_legal *l, const char *name, int64_t otherwise);
double ap_attr_float(ap_legal *l, const char *name, double otherwise);
const char *ap_attr_str(ap_legal *l, const char *name, const char *otherwise);
bool ap_has_attr(const ap_legal *l, const char *name);
/* AP_NONE-like -1 when absent; else the number of integers, at most `max`. */
int ap_attr_ints(ap_legal *l, const char *name, int64_t *out, int max);
int ap_attr_floats(ap_legal *l, const char *name, float *out, int max);

/* ---- types ---- */
typedef struct ap_dims {
    int rank;
    int64_t at[AP_MAX_RANK];
} ap_dims;
ap_dims ap_dims_of(const ap_legal *l, ap_value v);
ap_dtype ap_dtype_of(const ap_legal *l, ap_value v);
int64_t ap_dims_count(const ap_dims *d); /* saturating */
bool ap_dims_equal(const ap_dims *a, const ap_dims *b);
const char *ap_dims_str(ap_legal *l, const ap_dims *d);
/* numpy's rule; refuses and gives rank 0 when they do not fit. */
ap_dims ap_dims_broadcast(ap_legal *l, const ap_dims *a, const ap_dims *b);
/* -rank <= axis < rank (or <= rank with `past`), made non-negative; refuses otherwise. */
int ap_axis(ap_legal *l, int64_t axis, int rank);
/* A list of axes as a mask; refuses doubles. */
uint32_t ap_axes_mask_of(ap_legal *l, const int64_t *axes, int n, int rank);

/* ---- contents known at compile time ---- */
const ap_tensor *ap_known(ap_legal *l, ap_value v); /* NULL: not known */
/* Integers that must be known: refuses by the input's name. Returns how many. */
int ap_known_ints(ap_legal *l, ap_value v, const char *what, int64_t *out, int max);
bool ap_known_scalar(ap_legal *l, ap_value v, double *out); /* one element, or all equal */

/* ---- emitters ---- */
ap_value ap_emit(ap_legal *l, ap_op op, uint32_t nin, const ap_value *in, const ap_node_info *attributes, ap_type type);
ap_value ap_emit1(ap_legal *l, ap_op op, ap_value x);
ap_value ap_emit2(ap_legal *l, ap_op op, ap_value x, ap_value y);
ap_value ap_emit_select(ap_legal *l, ap_value c, ap_value x, ap_value y);
ap_value ap_emit_cast(ap_legal *l, ap_value x, ap_dtype t);
ap_value ap_emit_tensor(ap_legal *l, const ap_tensor *t);    /* a constant; splat when all elements agree */
ap_value ap_emit_data(ap_legal *l, const ap_onnx_tensor *t); /* likewise; of data that is already in memory */
ap_value ap_emit_splat(ap_legal *l, ap_dtype t, const ap_dims *d, ap_scalar x);
ap_value ap_emit_number(ap_legal *l, ap_dtype t, double x);  /* rank 0 */
ap_value ap_emit_ints(ap_legal *l, int n, const int64_t *x); /* i64[n] */
ap_value ap_emit_iota(ap_legal *l, ap_dtype t, const ap_dims *d, int dim);

/* Result dimension i is operand dimension from[i], or new (-1); operand dimensions that are not named have
 * extent 1. Where the extents differ the operand's is 1 (expand). */
ap_value ap_emit_view(ap_legal *l, ap_value x, const ap_dims *d, const int *from);
ap_value ap_emit_transpose(ap_legal *l, ap_value x, const int *perm);
ap_value ap_emit_expand(ap_legal *l, ap_value x, const ap_dims *d);
ap_value ap_emit_reshape(ap_legal *l, ap_value x, const ap_dims *d);
ap_value ap_emit_reduce(ap_legal *l, ap_reduce_kind kind, ap_value x, uint32_t axes, bool keep);
ap_value ap_emit_mean(ap_legal *l, ap_value x, uint32_t axes, bool keep);
/* Letters per dimension of operands and result; letters of extent 1 may stand against other extents. A letter of
 * one operand only that the result lacks is summed first. */
ap_value ap_emit_contract(ap_legal *l, ap_value a, ap_value b, const char *la, const char *lb, const char *lr);
ap_value ap_emit_slice(ap_legal *l, ap_value x, const int64_t *start, const int64_t *count, const int64_t *step);
ap_value ap_emit_part(ap_legal *l, ap_value x, int dim, int64_t start, int64_t count);
ap_value ap_emit_pad(ap_legal *l, ap_value x, const int64_t *lo, const int64_t *hi, ap_value fill);
ap_value ap_emit_concat(ap_legal *l, int n, const ap_value *x, int dim);
/* Indices into n entries, made non-negative; known ones are checked. */
ap_value ap_emit_index(ap_legal *l, ap_value indices, int64_t n);
/* Constant indices made non-negative and checked. NULL when they are not constant or an error was found. */
const ap_tensor *ap_constant_indices(ap_legal *l, ap_value indices, int64_t n, bool *out_changed);
/* letters: of the dimensions of base, indices and updates; `dim` of the base is indexed. Indices as from
 * ap_emit_index. */
ap_value ap_emit_scatter(ap_legal *l, ap_scatter_kind kind, ap_value base, ap_value ids, ap_value updates, int dim,
                         const char *const letters[3]);
/* values and positions */
void ap_emit_topk(ap_legal *l, ap_value x, int axis, int64_t k, bool largest, ap_value out[2]);
ap_value ap_emit_cumulate(ap_legal *l, ap_reduce_kind kind, ap_value x, int axis, bool exclusive, bool reverse);
/* One number per tuple of n indices into dimensions of these extents, each checked. ids: [..., n] */
ap_value ap_emit_joined_index(ap_legal *l, ap_value ids, const int64_t *extent, int n);
/* A gather by the letters of the dimensions of data, indices and result. */
ap_value ap_emit_gather_letters(ap_legal *l, ap_value data, ap_value ids, const char *ld, const char *li,
                                const char *lr);
ap_value ap_emit_gather(ap_legal *l, ap_value data, ap_value indices, int axis);
/* y[b, m, t] = x[b, id[b, m], t] for the first `batch` dimensions of both */
ap_value ap_emit_gather_in_batches(ap_legal *l, ap_value data, ap_value ids, int batch);

/* Composed ones that several operators share (legalise_norm.c, legalise_unary.c). */
ap_value ap_emit_softmax(ap_legal *l, ap_value x, uint32_t axes, bool logarithm);
/* (x - mean) / √(var + ε) over `axes`, without the mean for RMS; half precision works in f32. y is in the type of x. */
typedef struct ap_normed {
    ap_value y, mean, deviation;
} ap_normed;
ap_normed ap_emit_normalise(ap_legal *l, ap_value x, uint32_t axes, double epsilon, bool centre);
/* y * scale + bias, either of which may be AP_NONE; they must not enlarge y. */
ap_value ap_emit_scale_and_shift(ap_legal *l, ap_value y, ap_value scale, ap_value bias);
ap_value ap_emit_gelu(ap_legal *l, ap_value x, bool tanh_form);
/* The convolution that the node's attributes describe, without bias. */
ap_value ap_emit_conv_node(ap_legal *l, ap_value x, ap_value weights);
ap_value ap_emit_matmul(ap_legal *l, ap_value a, ap_value b, bool trans_a, bool trans_b);

/* Lowers every node of graph->order. The sources (inputs, initializers) must have values already. */
ap_status ap_legalise(ap_legal *l);

/* clang-format off */
#define AP_LOWERINGS(X) \
    X(unary) X(binary) X(compare_swapped) X(variadic) X(mean) X(pow) X(mod) X(where) X(clip) X(leaky_relu) X(elu) \
    X(hard_sigmoid) X(hard_swish) X(softplus) X(softsign) X(selu) X(celu) X(thresholded_relu) X(prelu) X(mish) \
    X(swish) X(gelu) X(fast_gelu) X(bias_gelu) X(quick_gelu) X(tan) X(bitwise_not) X(is_nan) X(is_inf) X(cast) X(cast_like) \
    X(bit_shift) X(shrink) X(swiglu) X(window) X(identity) X(dropout) X(shape) X(size) X(constant) X(constant_of_shape) X(range) X(eye_like) X(one_hot) \
    X(trilu) X(matmul) X(fused_matmul) X(gemm) X(einsum) X(softmax) X(layer_norm) X(rms_norm) X(skip_layer_norm) \
    X(reduce) X(arg) X(reshape) X(transpose) X(squeeze) X(unsqueeze) X(flatten) X(expand) X(tile) X(concat) X(split) \
    X(slice) X(gather) X(gather_elements) X(pad) X(cumulate) X(scatter_elements) X(scatter_nd) X(tensor_scatter) X(topk) X(hardmax) X(reverse_sequence) X(compress) \
    X(non_zero) X(unique) X(nll_loss) X(softmax_loss) X(quantize) X(dequantize) X(dynamic_quantize) X(matmul_integer) \
    X(conv_integer) X(qlinear_matmul) X(qlinear_conv) X(space_depth) X(attention) X(rotary) X(ort_attention) \
    X(multi_head_attention) X(ort_rotary) X(group_attention) X(embed_layer_norm) X(batch_norm) X(gather_nd) X(conv) X(conv_transpose) X(fused_conv) X(global_pool) X(max_pool) X(average_pool) \
    X(lp_pool) X(lrn) X(resize) X(instance_norm) X(group_norm) X(mean_variance_norm) X(lp_norm) \
    X(grid_sample) X(affine_grid) X(max_unpool) X(col2im) X(center_crop_pad)
/* clang-format on */
#define X(name) ap_lower_fn ap_lower_##name;
AP_LOWERINGS(X)
#undef X

#endif
