/* Evaluation of sources (constant, iota) on one rank, and of what concerns all ranks at once: composites and
 * changes of sharding. */
#include "ir/op/columns.h"

#include <string.h>

static bool split_or_partial(const ap_eval *e, ap_value v)
{
    ap_sharding s = ap_type_get(e->m->ctx, ap_value_type(e->m, v)).sharding;
    const ap_sharding_info *info = ap_sharding_get(e->m->ctx, s);
    return s && (ap_sharding_split_mask(info) | ap_sharding_partial_mask(info));
}

ap_status eval_constant(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    ap_value v = node->out[0];
    ap_type_info t = ap_type_get(e->m->ctx, ap_value_type(e->m, v));
    ap_tensor **mine = &e->value[(size_t)v * (size_t)e->nranks];
    if (e->rank > 0 && !split_or_partial(e, v)) {
        mine[e->rank] = mine[0];
        return AP_OK;
    }
    ap_tensor *whole = AP_NEW(e->arena, ap_tensor);
    AP_TRY(ap_tensor_from_data(e->m, e->arena, node->u.constant, ap_value_type(e->m, v), node->loc, whole));
    if (!t.sharding) {
        mine[e->rank] = whole;
        return AP_OK;
    }
    const ap_sharding_info *s = ap_sharding_get(e->m->ctx, t.sharding);
    const ap_mesh_info *mesh = &e->m->meshes.at[s->mesh];
    int32_t coords[AP_MAX_AXES];
    ap_mesh_coords(mesh, e->rank, coords);
    mine[e->rank] = AP_NEW(e->arena, ap_tensor);
    if (!ap_tensor_shard(e->arena, whole, mesh, ap_shape_get(e->m->ctx, t.shape), s, coords, mine[e->rank]))
        return ap_eval_mismatch(e, n);
    return AP_OK;
}

ap_status eval_iota(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    const ap_shape_info *whole = ap_value_shape(e->m, node->out[0]);
    int d = node->u.iota.dim;
    int64_t start[AP_MAX_FACTORS], index[AP_MAX_FACTORS] = {0};
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    ap_eval_starts(e, node->out[0], start);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t x = 0; /* the logical index along d */
        for (int f = whole->first[d]; f < whole->first[d + 1]; f++)
            x = x * whole->logical[f] + start[f] + index[f];
        if (ap_dtype_is_float(r->dtype))
            r->at[i].f = (double)x;
        else
            r->at[i].i = x;
        for (int f = whole->nfactors - 1; f >= 0 && ++index[f] == r->shape.physical[f]; f--)
            index[f] = 0;
    }
    ap_eval_round(e, n, 0, r);
    return AP_OK;
}

ap_status eval_composite(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    const ap_block_info *body = ap_block_at(e->m, node->body);
    for (uint32_t i = 0; i + 1 < body->nodes.len; i++)
        AP_TRY(ap_eval_all_ranks(e, body->nodes.at[i]));
    const ap_node_info *yield = ap_node_at(e->m, body->nodes.at[body->nodes.len - 1]);
    for (uint32_t k = 0; k < node->nout; k++) {
        size_t to = (size_t)node->out[k] * (size_t)e->nranks, from = (size_t)yield->in[k] * (size_t)e->nranks;
        for (int32_t r = 0; r < e->nranks; r++)
            e->value[to + (size_t)r] = e->value[from + (size_t)r];
    }
    return AP_OK;
}

ap_status eval_reshard(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    ap_ctx *ctx = e->m->ctx;
    ap_type from = ap_value_type(e->m, node->in[0]), to = ap_value_type(e->m, node->out[0]);
    ap_sharding s = ap_type_get(ctx, from).sharding, r = ap_type_get(ctx, to).sharding;
    if (!s || !r || ap_sharding_get(ctx, s)->mesh != ap_sharding_get(ctx, r)->mesh)
        return ap_fail(ctx, AP_ERR_BUG, node->loc, "a change of sharding without shardings on one mesh");
    const ap_mesh_info *mesh = &e->m->meshes.at[ap_sharding_get(ctx, s)->mesh];
    ap_tensor *whole = AP_NEW(e->arena, ap_tensor);
    AP_TRY(ap_tensor_assemble(ctx, e->arena, mesh, from, &e->value[(size_t)node->in[0] * (size_t)e->nranks], node->loc,
                              whole));
    return ap_tensor_scatter(ctx, e->arena, mesh, to, whole, e->nranks, node->loc,
                             &e->value[(size_t)node->out[0] * (size_t)e->nranks]);
}
