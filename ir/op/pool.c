/* The operator `pool`: types, rule, flops, evaluation on one rank. Dimensions with a window are whole; the others are
 * parallel. */
#include "ir/op/columns.h"

#include "ir/pool.h"
#include "ir/text_form.h"

#include <inttypes.h>

static ap_status check_window(ap_module *m, ap_node n, const ap_window *w, int d, int64_t *out_count)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *x = ap_value_shape(m, node->in[0]);
    int64_t extent = ap_shape_dim(x, d);
    if (x->first[d + 1] - x->first[d] > 1)
        return ap_error(m->ctx, node->loc, "a dimension with a window is factored: %s", ap_shape_text(m, x));
    bool fits = w->kernel >= 1 && w->stride >= 1 && w->dilation >= 1 && w->lo >= 0 && w->hi >= 0 &&
                w->kernel <= AP_WINDOW_MAX && w->stride <= AP_WINDOW_MAX && w->dilation <= AP_WINDOW_MAX &&
                w->lo <= AP_WINDOW_MAX && w->hi <= AP_WINDOW_MAX;
    if (!fits)
        return ap_error(m->ctx, node->loc,
                        "a window of %" PRId64 " elements, stride %" PRId64 ", dilation %" PRId64 ", padding %" PRId64
                        " and %" PRId64,
                        w->kernel, w->stride, w->dilation, w->lo, w->hi);
    *out_count = ap_window_count(w, extent, node->u.pool->ceil);
    return AP_OK;
}

ap_status infer_pool(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_pool_attr *pool = node->u.pool;
    const ap_shape_info *x = ap_value_shape(m, node->in[0]);
    ap_dtype dtype = ap_type_dtype(m->ctx, ap_value_type(m, node->in[0]));
    bool mean = pool->kind == AP_POOL_AVG || pool->kind == AP_POOL_AVG_PADS;
    if (dtype == AP_BOOL || (mean && !ap_dtype_is_float(dtype)))
        return ap_error(m->ctx, node->loc, "pool %s of %s", ap_pool_text[pool->kind], ap_dtype_str(dtype));
    ap_shape_info r;
    ap_shape_init(&r);
    for (int d = 0; d < x->rank; d++) {
        const ap_window *w = &pool->window[d];
        int64_t count = 0;
        if (w->kernel)
            AP_TRY(check_window(m, n, w, d, &count));
        bool ok =
            ap_shape_open_dim(&r) && (w->kernel ? ap_shape_add_factor(&r, count, count) : ap_shape_copy_dim(&r, x, d));
        if (!ok)
            return ap_error(m->ctx, node->loc, "too many factors: %s", ap_shape_text(m, x));
        if (w->kernel && count != 1)
            ap_shape_take_physical(m, n, &r);
    }
    return ap_infer_set(m, n, 0, pool->kind == AP_POOL_ARGMAX ? AP_I64 : dtype, &r);
}

void rule_pool(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_pool_attr *pool = node->u.pool;
    const ap_shape_info *x = ap_value_shape(m, node->in[0]), *r = ap_value_shape(m, node->out[0]);
    for (int d = 0; d < x->rank; d++) {
        for (int f = x->first[d], rf = r->first[d]; !pool->window[d].kernel && f < x->first[d + 1]; f++, rf++)
            out->operand[0][f] = out->result[0][rf] = ap_rule_add_letter(out, AP_LETTER_PARALLEL, x, f);
    }
    if (pool->kind != AP_POOL_MAX && pool->kind != AP_POOL_ARGMAX)
        out->group[out->ngroups++] = 1;
}

int64_t flops_pool(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *x = ap_value_shape(m, node->in[0]);
    int64_t flops = ap_shape_count(ap_value_shape(m, node->out[0]));
    for (int d = 0; d < x->rank; d++)
        flops = ap_sat_mul(flops, ap_max_i64(1, node->u.pool->window[d].kernel));
    return flops;
}

/* ---- evaluation ---- */

typedef struct source {
    const ap_tensor *x;
    int64_t base;
} source;

static ap_scalar load_element(void *user, int64_t offset)
{
    const source *s = user;
    return s->x->at[s->base + offset];
}

/* Local dimensions; `step`: per factor of the result, the operand's stride (0 for windows). False when what the rank
 * has does not fit together. */
static bool local_dims(const ap_pool_attr *pool, const ap_shape_info *x, const ap_shape_info *r, ap_pool_dim *dim,
                       int *window_of, int64_t *step, int *out_n)
{
    int64_t from[AP_MAX_FACTORS];
    ap_tensor_strides(x, from);
    *out_n = 0;
    for (int d = 0; d < x->rank; d++) {
        int f = x->first[d], rf = r->first[d], nf = x->first[d + 1] - f, nr = r->first[d + 1] - rf;
        if (pool->window[d].kernel) {
            ap_pool_dim p = {.extent = ap_shape_dim(x, d), .window = pool->window[d], .from = nf ? from[f] : 0};
            p.count = ap_window_count(&p.window, p.extent, pool->ceil);
            if (p.count != ap_shape_dim(r, d))
                return false;
            if (nr)
                window_of[rf] = *out_n;
            dim[(*out_n)++] = p;
            continue;
        }
        for (int i = 0; i < nf && nf == nr; i++) {
            step[rf + i] = from[f + i];
            if (x->logical[f + i] != r->logical[rf + i])
                return false;
        }
        if (nf != nr)
            return false;
    }
    return true;
}

ap_status eval_pool(ap_eval *e, ap_node n)
{
    const ap_pool_attr *pool = ap_node_at(e->m, n)->u.pool;
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    ap_pool_dim dim[AP_MAX_RANK];
    int window_of[AP_MAX_FACTORS], windows;
    int64_t step[AP_MAX_FACTORS] = {0}, index[AP_MAX_FACTORS] = {0}, at[AP_MAX_RANK] = {0};
    for (int f = 0; f < AP_MAX_FACTORS; f++)
        window_of[f] = -1;
    source s = {.x = ap_eval_operand(e, n, 0)};
    if (!local_dims(pool, &s.x->shape, &r->shape, dim, window_of, step, &windows))
        return ap_eval_mismatch(e, n);
    for (int64_t i = 0; i < r->count; i++) {
        s.base = 0;
        for (int f = 0; f < r->shape.nfactors; f++) {
            s.base += index[f] * step[f];
            if (window_of[f] >= 0)
                at[window_of[f]] = index[f];
        }
        r->at[i] = ap_pool_fold(pool->kind, s.x->dtype, windows, dim, at, load_element, &s);
        for (int f = r->shape.nfactors - 1; f >= 0 && ++index[f] == r->shape.logical[f]; f--)
            index[f] = 0;
    }
    ap_eval_round(e, n, 0, r);
    return AP_OK;
}
