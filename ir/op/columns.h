/* The columns of ir/op.def, one function per distinct entry, and the few helpers that they share. Only the
 * files of ir/op/, ir/op.c, ir/rule.c and ir/eval.c include this. */
#ifndef AP_IR_OP_COLUMNS_H
#define AP_IR_OP_COLUMNS_H

#include "ir/eval.h"
#include "ir/op.h"

/* ---- infer: types of the results ---- */
ap_status infer_none(ap_module *m, ap_node n);
ap_status infer_same(ap_module *m, ap_node n);
ap_status infer_given(ap_module *m, ap_node n);
ap_status infer_iota(ap_module *m, ap_node n);
ap_status infer_pointwise(ap_module *m, ap_node n);
ap_status infer_contract(ap_module *m, ap_node n);
ap_status infer_conv(ap_module *m, ap_node n);
ap_status infer_reduce(ap_module *m, ap_node n);
ap_status infer_view(ap_module *m, ap_node n);
ap_status infer_gather(ap_module *m, ap_node n);
ap_status infer_scatter(ap_module *m, ap_node n);
ap_status infer_index(ap_module *m, ap_node n);
ap_status infer_topk(ap_module *m, ap_node n);
ap_status infer_cumulate(ap_module *m, ap_node n);
ap_status infer_slice(ap_module *m, ap_node n);
ap_status infer_pad(ap_module *m, ap_node n);
ap_status infer_concat(ap_module *m, ap_node n);
ap_status infer_pool(ap_module *m, ap_node n);
ap_status infer_reshape(ap_module *m, ap_node n);
ap_status infer_composite(ap_module *m, ap_node n);

/* ---- rule: factors and letters. `out` comes with its arrays, all AP_RULE_NONE ---- */
void rule_source(const ap_module *m, ap_node n, ap_rule *out);
void rule_pointwise(const ap_module *m, ap_node n, ap_rule *out);
void rule_contract(const ap_module *m, ap_node n, ap_rule *out);
void rule_conv(const ap_module *m, ap_node n, ap_rule *out);
void rule_reduce(const ap_module *m, ap_node n, ap_rule *out);
void rule_view(const ap_module *m, ap_node n, ap_rule *out);
void rule_gather(const ap_module *m, ap_node n, ap_rule *out);
void rule_scatter(const ap_module *m, ap_node n, ap_rule *out);
void rule_index(const ap_module *m, ap_node n, ap_rule *out);
void rule_topk(const ap_module *m, ap_node n, ap_rule *out);
void rule_cumulate(const ap_module *m, ap_node n, ap_rule *out);
void rule_slice(const ap_module *m, ap_node n, ap_rule *out);
void rule_pad(const ap_module *m, ap_node n, ap_rule *out);
void rule_concat(const ap_module *m, ap_node n, ap_rule *out);
void rule_pool(const ap_module *m, ap_node n, ap_rule *out);
void rule_reshape(const ap_module *m, ap_node n, ap_rule *out);
void rule_composite(const ap_module *m, ap_node n, ap_rule *out);

/* A new letter with the extents of factor f; AP_RULE_NONE (whole) when letters run out. */
int8_t ap_rule_add_letter(ap_rule *out, ap_letter_kind kind, const ap_shape_info *s, int f);
/* A linear group, unless the results are booleans, which do not add up. */
void ap_rule_add_group(const ap_module *m, ap_node n, ap_rule *out, uint32_t mask);
/* Is it a constant of zeros, however it is cut? A sum of as many as one likes is zero again. */
bool ap_rule_is_zero(const ap_module *m, ap_value v);
/* One rule letter per spec letter, in order of the operands, then of the result; letter_of by ap_letter_index. */
void ap_rule_letters_of_spec(const ap_module *m, ap_node n, const ap_spec *spec, ap_rule *out, int8_t *letter_of);
/* The partial kind of a result when a letter is split; false when it is complete. */
bool ap_rule_partial(const ap_rule *r, int letter, uint32_t result, ap_partial *out);

/* ---- flops ---- */
int64_t flops_contract(const ap_module *m, ap_node n);
int64_t flops_conv(const ap_module *m, ap_node n);
int64_t flops_operands(const ap_module *m, ap_node n);
int64_t flops_scatter(const ap_module *m, ap_node n);
int64_t flops_topk(const ap_module *m, ap_node n);
int64_t flops_pool(const ap_module *m, ap_node n);
int64_t flops_composite(const ap_module *m, ap_node n);

/* ---- eval: one node on one rank (e->rank); composite, reshard and the steps on all ranks at once ---- */
ap_status eval_constant(ap_eval *e, ap_node n);
ap_status eval_iota(ap_eval *e, ap_node n);
ap_status eval_pointwise(ap_eval *e, ap_node n);
ap_status eval_contract(ap_eval *e, ap_node n);
ap_status eval_conv(ap_eval *e, ap_node n);
ap_status eval_reduce(ap_eval *e, ap_node n);
ap_status eval_view(ap_eval *e, ap_node n);
ap_status eval_gather(ap_eval *e, ap_node n);
ap_status eval_scatter(ap_eval *e, ap_node n);
ap_status eval_index(ap_eval *e, ap_node n);
ap_status eval_topk(ap_eval *e, ap_node n);
ap_status eval_cumulate(ap_eval *e, ap_node n);
ap_status eval_slice(ap_eval *e, ap_node n);
ap_status eval_pad(ap_eval *e, ap_node n);
ap_status eval_concat(ap_eval *e, ap_node n);
ap_status eval_pool(ap_eval *e, ap_node n);
ap_status eval_reshape(ap_eval *e, ap_node n);
ap_status eval_composite(ap_eval *e, ap_node n);
ap_status eval_reshard(ap_eval *e, ap_node n);

/* ---- shapes under construction: dimensions left to right, factors inside ---- */
void ap_shape_init(ap_shape_info *s);
bool ap_shape_open_dim(ap_shape_info *s); /* opens a dimension; false when there are too many */
/* Adds a factor to the last dimension (none when its extent is 1); false when there are too many. */
bool ap_shape_add_factor(ap_shape_info *s, int64_t logical, int64_t physical);
/* Makes the last factor as long physically as the declared type of result 0 does: for extents that are new. */
void ap_shape_take_physical(const ap_module *m, ap_node n, ap_shape_info *s);
/* All factors of dimension d of `from`. */
bool ap_shape_copy_dim(ap_shape_info *s, const ap_shape_info *from, int d);
/* Equal factors, logical and physical, in dimension da of a and db of b. */
bool ap_shape_same_dim(const ap_shape_info *a, int da, const ap_shape_info *b, int db);
const char *ap_shape_text(const ap_module *m, const ap_shape_info *s); /* "[8,3.4]", in the context's arena */

/* Binds the letters of a spec to the factors of the operands and reads off the shape of the result. */
ap_status ap_infer_spec(ap_module *m, ap_node n, const ap_spec *spec, ap_shape_info *out);
ap_status ap_infer_bad_letters(ap_module *m, ap_node n, const ap_spec *spec, const char *why);
/* Sets the type of result i, or checks dtype and factored shape when it has one (its sharding stays). */
ap_status ap_infer_set(ap_module *m, ap_node n, uint32_t i, ap_dtype dtype, const ap_shape_info *shape);

/* concat: whether the result has a new leading factor (the operands' number) in the dimension. */
bool ap_concat_stacks(const ap_module *m, ap_node n);

/* scatter: the factor of operand 0 that the indices address; -1 unless there is exactly one. */
int ap_scatter_indexed(const ap_spec *spec);

/* The letters of a spec as small numbers, 0..51. */
#define AP_SPEC_LETTERS 52
static inline int ap_letter_index(char c)
{
    return c >= 'a' ? c - 'a' : c - 'A' + 26;
}

/* ---- evaluation ---- */
/* The tensor of operand i on the current rank. */
const ap_tensor *ap_eval_operand(const ap_eval *e, ap_node n, uint32_t i);
/* A zeroed tensor of the local shape of result i on the current rank, entered as its value. */
ap_status ap_eval_result(ap_eval *e, ap_node n, uint32_t i, ap_tensor **out);
/* What result i is rounded to: its dtype; f32 for partial sums of shorter floats; f64 for floats without rounding. */
ap_dtype ap_eval_dtype(const ap_eval *e, ap_node n, uint32_t i);
void ap_eval_round(const ap_eval *e, ap_node n, uint32_t i, ap_tensor *t);
/* Where the shard of each factor of value v starts on the current rank. */
void ap_eval_starts(const ap_eval *e, ap_value v, int64_t start[AP_MAX_FACTORS]);
/* What folding nothing gives, in the type in which the evaluator folds. */
ap_scalar ap_eval_identity(ap_reduce_kind kind, ap_dtype t);
/* All ranks of one node. */
ap_status ap_eval_all_ranks(ap_eval *e, ap_node n);
ap_status ap_eval_mismatch(const ap_eval *e, ap_node n); /* AP_ERR_BUG: local shapes that do not fit together */

/* Row-major strides over the logical extents. */
void ap_tensor_strides(const ap_shape_info *s, int64_t stride[AP_MAX_FACTORS]);
/* dst[sum i*dst_stride] = src[sum i*src_stride] for all i in the box. */
void ap_tensor_copy_box(ap_scalar *dst, const int64_t *dst_stride, const ap_scalar *src, const int64_t *src_stride,
                        int n, const int64_t *extent);
/* out[i][j] = sum over k of a[i][k] * b[j][k], packed rows, in order of k; floats in f64, integers modulo 2^64. */
void ap_tensor_matmul(bool is_float, const ap_scalar *a, const ap_scalar *b, int64_t rows_a, int64_t rows_b, int64_t k,
                      ap_scalar *out);

/* A logical tensor (row-major over logical extents) as a whole tensor of the given factored shape; and
 * back, with plain dimensions. */
bool ap_tensor_from_logical(ap_arena *arena, const ap_tensor *logical, const ap_shape_info *shape, ap_tensor *out);
bool ap_tensor_to_logical(ap_ctx *ctx, ap_arena *arena, const ap_tensor *whole, ap_tensor *out);
/* The whole tensor of a constant's or parameter's data. */
ap_status ap_tensor_from_data(ap_module *m, ap_arena *arena, const ap_data *d, ap_type type, ap_loc loc,
                              ap_tensor *out);
/* Puts a value together from its shards (all ranks), folding partials in rank order and comparing replicas. */
ap_status ap_tensor_assemble(ap_ctx *ctx, ap_arena *arena, const ap_mesh_info *mesh, ap_type type,
                             ap_tensor *const *shard, ap_loc loc, ap_tensor *out);
/* Cuts a whole tensor for all ranks; a partial value is held by coordinate 0. */
ap_status ap_tensor_scatter(ap_ctx *ctx, ap_arena *arena, const ap_mesh_info *mesh, ap_type type, ap_tensor *whole,
                            int32_t nranks, ap_loc loc, ap_tensor **out);

#endif
