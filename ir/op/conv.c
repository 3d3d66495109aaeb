/* Convolution: x [n,g,c,...] with weights [g,m,c,...] gives [n,g,m,...], the sum over channels c and kernel elements.
 * Batch n, groups g and result channels m are parallel, c is summed, spatial dimensions and the kernel stay whole.
 * Other orders of dimensions are views. What a spatial dimension does is ap_conv_dim (ir/module.h); with holes it is
 * the transposed convolution, so the gradients of a convolution are convolutions. */
#include "ir/op/columns.h"

#include <inttypes.h>
#include <string.h>

int64_t ap_conv_extent(const ap_conv_dim *d, int64_t operand, int64_t kernel)
{
    int64_t span = 0, reach;
    if (operand > 0 && (!ap_mul_i64(operand - 1, d->hole, &span) || !ap_add_i64(span, 1, &span)))
        return -1;
    if (!ap_add_i64(span, d->lo, &span) || !ap_add_i64(span, d->hi, &span) ||
        !ap_mul_i64(kernel - 1, d->dilate, &reach) || !ap_add_i64(reach, 1, &reach))
        return -1;
    return span < reach ? 0 : (span - reach) / d->stride + 1;
}

/* ---- infer ---- */

static ap_status check_operands(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *x = ap_value_shape(m, node->in[0]), *w = ap_value_shape(m, node->in[1]);
    ap_dtype tx = ap_type_dtype(m->ctx, ap_value_type(m, node->in[0]));
    ap_dtype tw = ap_type_dtype(m->ctx, ap_value_type(m, node->in[1]));
    if (tx != tw)
        return ap_error(m->ctx, node->loc, "operand types differ: %s and %s", ap_dtype_str(tx), ap_dtype_str(tw));
    if (tx == AP_BOOL)
        return ap_error(m->ctx, node->loc, "conv works on numbers, not on bool");
    if (!node->u.conv)
        return ap_fail(m->ctx, AP_ERR_BUG, node->loc, "a convolution without window");
    if (x->rank < 3 || x->rank != w->rank || !ap_shape_same_dim(x, 1, w, 0) || !ap_shape_same_dim(x, 2, w, 2))
        return ap_error(m->ctx, node->loc, "operand %s and weights %s of a convolution do not go together",
                        ap_shape_text(m, x), ap_shape_text(m, w));
    for (int d = 3; d < x->rank; d++) {
        const ap_conv_dim *c = &node->u.conv->dim[d - 3];
        if (c->stride < 1 || c->dilate < 1 || c->hole < 1)
            return ap_error(m->ctx, node->loc,
                            "stride %" PRId64 ", dilation %" PRId64 " and %" PRId64 " must be positive", c->stride,
                            c->dilate, c->hole);
        if (x->first[d + 1] - x->first[d] > 1 || w->first[d + 1] - w->first[d] > 1)
            return ap_error(m->ctx, node->loc, "a spatial dimension is factored: %s, %s", ap_shape_text(m, x),
                            ap_shape_text(m, w));
        if (ap_shape_dim(w, d) == 0)
            return ap_error(m->ctx, node->loc, "a kernel without elements: %s", ap_shape_text(m, w));
    }
    return AP_OK;
}

ap_status infer_conv(ap_module *m, ap_node n)
{
    AP_TRY(check_operands(m, n));
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *x = ap_value_shape(m, node->in[0]), *w = ap_value_shape(m, node->in[1]);
    ap_shape_info r;
    ap_shape_init(&r);
    bool ok = true;
    for (int d = 0; d < 3; d++)
        ok = ok && ap_shape_open_dim(&r) && (d < 2 ? ap_shape_copy_dim(&r, x, d) : ap_shape_copy_dim(&r, w, 1));
    for (int d = 3; d < x->rank && ok; d++) {
        int64_t extent = ap_conv_extent(&node->u.conv->dim[d - 3], ap_shape_dim(x, d), ap_shape_dim(w, d));
        if (extent < 0)
            return ap_error(m->ctx, node->loc, "an extent of the convolution overflows");
        ok = ap_shape_open_dim(&r) && ap_shape_add_factor(&r, extent, extent);
        if (extent != 1)
            ap_shape_take_physical(m, n, &r);
    }
    if (!ok)
        return ap_error(m->ctx, node->loc, "more than %d dimensions or %d factors", AP_MAX_RANK, AP_MAX_FACTORS);
    return ap_infer_set(m, n, 0, ap_type_dtype(m->ctx, ap_value_type(m, node->in[0])), &r);
}

/* ---- rule, flops ---- */

typedef struct side {
    const ap_shape_info *s;
    int8_t *letter;
    int dim;
} side;

/* Factor by factor one letter for a dimension of two or three sides. */
static void share_dim(ap_rule *out, ap_letter_kind kind, int nsides, const side *at)
{
    for (int f = at->s->first[at->dim], j = 0; f < at->s->first[at->dim + 1]; f++, j++) {
        if (out->nletters == AP_MAX_LETTERS)
            return;
        int8_t l = (int8_t)out->nletters++;
        out->kind[l] = kind;
        out->logical[l] = at->s->logical[f];
        out->physical[l] = at->s->physical[f];
        for (int i = 0; i < nsides; i++)
            at[i].letter[at[i].s->first[at[i].dim] + j] = l;
    }
}

void rule_conv(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *x = ap_value_shape(m, node->in[0]), *w = ap_value_shape(m, node->in[1]);
    const ap_shape_info *y = ap_value_shape(m, node->out[0]);
    share_dim(out, AP_LETTER_PARALLEL, 2, (side[]){{x, out->operand[0], 0}, {y, out->result[0], 0}});
    share_dim(out, AP_LETTER_PARALLEL, 3,
              (side[]){{x, out->operand[0], 1}, {w, out->operand[1], 0}, {y, out->result[0], 1}});
    share_dim(out, AP_LETTER_SUM, 2, (side[]){{x, out->operand[0], 2}, {w, out->operand[1], 2}});
    share_dim(out, AP_LETTER_PARALLEL, 2, (side[]){{w, out->operand[1], 1}, {y, out->result[0], 2}});
    out->ngroups = 2;
    out->group[0] = 1;
    out->group[1] = 2;
}

int64_t flops_conv(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *w = ap_value_shape(m, node->in[1]);
    int64_t flops = ap_sat_mul(2, ap_shape_count(ap_value_shape(m, node->out[0])));
    for (int d = 2; d < w->rank; d++)
        flops = ap_sat_mul(flops, ap_shape_dim(w, d));
    return flops;
}

/* ---- eval: per batch element and group a product of patches with weights ---- */

typedef struct conv {
    const ap_conv_attr *attr;
    int nspatial;
    int64_t n, g, c, m, in[AP_MAX_SPATIAL], kernel[AP_MAX_SPATIAL], out[AP_MAX_SPATIAL];
    int64_t points, plane, taps; /* products of out, in, kernel */
} conv;

static int64_t local_dim(const ap_shape_info *s, int d)
{
    int64_t extent = 1;
    for (int f = s->first[d]; f < s->first[d + 1]; f++)
        extent *= s->physical[f];
    return extent;
}

static bool read_conv(const ap_node_info *node, const ap_tensor *x, const ap_tensor *w, const ap_tensor *y, conv *out)
{
    *out = (conv){.attr = node->u.conv, .nspatial = x->shape.rank - 3, .points = 1, .plane = 1, .taps = 1};
    out->n = local_dim(&x->shape, 0);
    out->g = local_dim(&x->shape, 1);
    out->c = local_dim(&x->shape, 2);
    out->m = local_dim(&w->shape, 1);
    for (int d = 0; d < out->nspatial; d++) {
        out->plane *= out->in[d] = local_dim(&x->shape, d + 3);
        out->taps *= out->kernel[d] = local_dim(&w->shape, d + 3);
        out->points *= out->out[d] = local_dim(&y->shape, d + 3);
    }
    return local_dim(&y->shape, 0) == out->n && local_dim(&y->shape, 1) == out->g &&
           local_dim(&w->shape, 0) == out->g && local_dim(&y->shape, 2) == out->m && local_dim(&w->shape, 2) == out->c;
}

/* Offset in the plane of what result `at` and kernel element `tap` meet; -1: a zero. */
static int64_t meet(const conv *v, const int64_t *at, int64_t tap)
{
    int64_t offset = 0, index[AP_MAX_SPATIAL];
    for (int d = v->nspatial - 1; d >= 0; d--) {
        index[d] = tap % v->kernel[d];
        tap /= v->kernel[d];
    }
    for (int d = 0; d < v->nspatial; d++) {
        const ap_conv_dim *w = &v->attr->dim[d];
        int64_t k = w->flip ? v->kernel[d] - 1 - index[d] : index[d];
        int64_t i = at[d] * w->stride + k * w->dilate - w->lo;
        if (i < 0 || i % w->hole || i / w->hole >= v->in[d])
            return -1;
        offset = offset * v->in[d] + i / w->hole;
    }
    return offset;
}

/* Rows [c][taps] for `count` points from `first` on. */
static void gather_patches(const conv *v, const ap_scalar *x, int64_t first, int64_t count, ap_scalar *out)
{
    for (int64_t p = 0; p < count; p++) {
        int64_t at[AP_MAX_SPATIAL], rest = first + p;
        for (int d = v->nspatial - 1; d >= 0; d--) {
            at[d] = rest % v->out[d];
            rest /= v->out[d];
        }
        for (int64_t t = 0; t < v->taps; t++) {
            int64_t offset = meet(v, at, t);
            for (int64_t c = 0; c < v->c; c++)
                out[(p * v->c + c) * v->taps + t] = offset < 0 ? (ap_scalar){0} : x[c * v->plane + offset];
        }
    }
}

static void conv_group(const conv *v, ap_dtype t, const ap_scalar *x, const ap_scalar *w, ap_scalar *patches,
                       ap_scalar *product, int64_t chunk, ap_scalar *y)
{
    int64_t k = v->c * v->taps;
    for (int64_t first = 0; first < v->points; first += chunk) {
        int64_t count = ap_min_i64(chunk, v->points - first);
        gather_patches(v, x, first, count, patches);
        ap_tensor_matmul(ap_dtype_is_float(t), w, patches, v->m, count, k, product);
        for (int64_t i = 0; i < v->m; i++)
            memcpy(y + i * v->points + first, product + i * count, (size_t)count * sizeof *y);
    }
}

ap_status eval_conv(ap_eval *e, ap_node n)
{
    const ap_tensor *x = ap_eval_operand(e, n, 0), *w = ap_eval_operand(e, n, 1);
    ap_tensor *y;
    conv v;
    AP_TRY(ap_eval_result(e, n, 0, &y));
    if (!read_conv(ap_node_at(e->m, n), x, w, y, &v))
        return ap_eval_mismatch(e, n);
    ap_arena tmp;
    ap_arena_init(&tmp, e->m->ctx->scratch.out_of_memory, e->m->ctx->scratch.user);
    int64_t k = ap_max_i64(v.c * v.taps, 1), chunk = ap_min_i64(ap_max_i64((1 << 18) / k, 8), ap_max_i64(v.points, 1));
    ap_scalar *patches = AP_NEW_ARRAY(&tmp, ap_scalar, chunk * k),
              *product = AP_NEW_ARRAY(&tmp, ap_scalar, chunk * v.m);
    for (int64_t i = 0; i < v.n * v.g && y->count; i++)
        conv_group(&v, x->dtype, x->at + i * v.c * v.plane, w->at + i % v.g * v.m * v.c * v.taps, patches, product,
                   chunk, y->at + i * v.m * v.points);
    ap_arena_deinit(&tmp);
    ap_eval_round(e, n, 0, y);
    return AP_OK;
}
