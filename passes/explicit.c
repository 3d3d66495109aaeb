/* Where a value changes its sharding, the elementary steps of the cheapest path take the place of the one
 * `reshard` (DESIGN §5, Resharding). A composite with reshards inside is cut: its body stands in the block, collectives
 * between the pieces; the local lowering makes kernels of these.
 *
 *     %r = reshard %o : f32[8,128] @m[tp,-]           %o: sum(tp)
 *     %r = reduce_scatter %o over tp : f32[8,128] @m[tp,-]
 *
 * needs: state planned   keeps: types of what the reshards gave   gives: state explicit, no reshard left */
#include "ir/op.h"
#include "passes/pass.h"
#include "passes/plan.h"
#include "passes/reshard.h"

typedef struct steps {
    ap_ctx *ctx;
    ap_module *m;
    ap_resharder *resharder;
    AP_VEC(ap_node) order;
    uint32_t nvalues;  /* of the module as it came */
    ap_value *instead; /* [value]: who takes its uses, AP_NONE without */
} steps;

static ap_value resolve(const steps *s, ap_value v)
{
    while (v < s->nvalues && s->instead[v] != AP_NONE)
        v = s->instead[v];
    return v;
}

/* All uses at once, when everything is written. */
static void replace_uses(const steps *s)
{
    for (ap_node n = 0; n < s->m->nodes.len; n++)
        for (uint32_t k = 0; k < s->m->nodes.at[n].nin; k++)
            s->m->nodes.at[n].in[k] = resolve(s, s->m->nodes.at[n].in[k]);
}

/* The last step takes over the result of the reshard, name and uses included. */
static ap_status write_steps(steps *s, ap_node n)
{
    ap_module *m = s->m;
    ap_value v = resolve(s, ap_node_at(m, n)->in[0]), result = ap_node_at(m, n)->out[0];
    ap_loc loc = ap_node_at(m, n)->loc;
    ap_type_info from = ap_type_get(s->ctx, ap_value_type(m, v)), to = ap_type_get(s->ctx, ap_value_type(m, result));
    const ap_reshard_path *path;
    if (!ap_reshard_find(s->resharder, from.dtype, from.shape, from.sharding, to.sharding, &path))
        return ap_fail(s->ctx, AP_ERR_MODEL, loc, "no steps lead from one sharding to the other");
    for (int i = 0; i < path->nsteps; i++) {
        ap_node step = ap_module_add_node(m, path->step[i].op, 1, &v, 1, loc);
        v = ap_node_at(m, step)->out[0];
        ap_node_at(m, step)->u.axes.mask = path->step[i].axes;
        ap_value_at(m, v)->type = ap_type_make(s->ctx, from.dtype, from.shape, path->step[i].to);
        ap_vec_push(&s->ctx->scratch, &s->order, step);
    }
    if (path->nsteps > 0) {
        ap_value_at(m, v)->name = ap_value_at(m, result)->name;
        ap_value_at(m, result)->name = 0;
    }
    s->instead[result] = v;
    ap_node_at(m, n)->block = AP_NONE;
    return AP_OK;
}

static bool has_reshard(const ap_module *m, ap_block block)
{
    const ap_block_info *b = ap_block_at(m, block);
    for (uint32_t i = 0; i < b->nodes.len; i++) {
        const ap_node_info *node = ap_node_at(m, b->nodes.at[i]);
        if (ap_op_get(node->op)->planned || (node->body != AP_NONE && has_reshard(m, node->body)))
            return true;
    }
    return false;
}

static ap_status write_nodes(steps *s, ap_block block);

/* A composite that is cut: its nodes, in pieces between the collectives, take its place. Names of a body may stand
 * elsewhere too, so only those of the composite's results stay. */
static ap_status write_pieces(steps *s, ap_node n)
{
    ap_module *m = s->m;
    ap_block body = ap_node_at(m, n)->body;
    const ap_block_info *b = ap_block_at(m, body);
    for (uint32_t i = 0; i < b->nodes.len; i++) {
        ap_node_info *node = ap_node_at(m, b->nodes.at[i]);
        node->loc = node->loc ? node->loc : ap_node_at(m, n)->loc;
        for (uint32_t k = 0; k < node->nout; k++)
            ap_value_at(m, node->out[k])->name = 0;
    }
    AP_TRY(write_nodes(s, body));
    ap_node yield = ap_block_at(m, body)->nodes.at[ap_block_at(m, body)->nodes.len - 1];
    for (uint32_t k = 0; k < ap_node_at(m, n)->nout; k++) {
        ap_value result = ap_node_at(m, n)->out[k], v = resolve(s, ap_node_at(m, yield)->in[k]);
        if (ap_value_at(m, v)->kind == AP_VALUE_RESULT && ap_value_at(m, v)->name == 0) {
            ap_value_at(m, v)->name = ap_value_at(m, result)->name;
            ap_value_at(m, result)->name = 0;
        }
        s->instead[result] = v;
    }
    ap_node_at(m, yield)->block = AP_NONE;
    ap_node_at(m, n)->block = AP_NONE;
    ap_block_at(m, body)->nodes.len = 0;
    return AP_OK;
}

/* Appends what stands for the nodes of a block, its terminator excepted if it is a body. */
static ap_status write_nodes(steps *s, ap_block block)
{
    bool in_body = ap_block_at(s->m, block)->parent != AP_NONE;
    for (uint32_t i = 0; i < ap_block_at(s->m, block)->nodes.len; i++) {
        ap_node n = ap_block_at(s->m, block)->nodes.at[i];
        const ap_node_info *node = ap_node_at(s->m, n);
        if (ap_op_get(node->op)->planned)
            AP_TRY(write_steps(s, n));
        else if (node->body != AP_NONE && has_reshard(s->m, node->body))
            AP_TRY(write_pieces(s, n));
        else if (!in_body || !ap_op_get(node->op)->terminator)
            ap_vec_push(&s->ctx->scratch, &s->order, n);
    }
    return AP_OK;
}

static ap_status write_block(steps *s, ap_block block)
{
    s->order.len = 0;
    AP_TRY(write_nodes(s, block));
    ap_block_at(s->m, block)->nodes.len = 0;
    for (uint32_t i = 0; i < s->order.len; i++)
        ap_block_append(s->m, block, s->order.at[i]);
    return AP_OK;
}

ap_status ap_explicit_run(ap_ctx *ctx, ap_module *m, const ap_cluster *c)
{
    steps s = {.ctx = ctx, .m = m, .resharder = ap_resharder_create(&ctx->scratch, m, c), .nvalues = m->values.len};
    s.instead = AP_NEW_ARRAY(&ctx->scratch, ap_value, m->values.len);
    for (ap_value v = 0; v < m->values.len; v++)
        s.instead[v] = AP_NONE;
    for (uint32_t f = 0; f < m->funcs.len; f++)
        AP_TRY(write_block(&s, m->funcs.at[f].body));
    replace_uses(&s);
    m->state = AP_STATE_EXPLICIT;
    return AP_OK;
}

/* On one axis the shortest paths are the same on every machine; on several, the plan's cluster is to be given. */
ap_status ap_pass_explicit(ap_ctx *ctx, ap_module *m)
{
    int32_t ranks = 1;
    for (uint32_t i = 0; i < m->meshes.len; i++)
        ranks = (int32_t)ap_max_i64(ranks, ap_mesh_ranks(&m->meshes.at[i]));
    ap_cluster c;
    ap_cluster_local(ranks, &c);
    return ap_explicit_run(ctx, m, &c);
}
