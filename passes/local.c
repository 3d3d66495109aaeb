/* explicit -> local: the program of one device as data (ir/local.h, docs/local.md). This file keeps the order: ports,
 * items, groups, then one group after the other with whatever it needs before it, at last the arena. */
#include "passes/local.h"

#include <string.h>

ap_status ap_low_bug(ap_low *low, ap_loc loc, const char *what)
{
    return ap_fail(low->ctx, AP_ERR_BUG, loc, "lowering: %s", what);
}

/* ---- the frame of the program ---- */

/* The only mesh that the function's types name; a stage without values has one too. */
static ap_status find_mesh(ap_low *low)
{
    ap_mesh mesh = AP_NONE;
    for (ap_value v = 0; v < low->m->values.len; v++) {
        ap_sharding s = low->m->values.at[v].type ? ap_type_get(low->ctx, low->m->values.at[v].type).sharding : 0;
        if (!s)
            continue;
        ap_mesh of = ap_sharding_get(low->ctx, s)->mesh;
        if (mesh != AP_NONE && mesh != of)
            return ap_error(low->ctx, 0, "a function over several meshes cannot be lowered");
        mesh = of;
    }
    if (mesh == AP_NONE && low->m->meshes.len != 1)
        return AP_OK;
    mesh = mesh == AP_NONE ? 0 : mesh;
    low->mesh = low->m->meshes.at[mesh];
    return AP_OK;
}

static void fill_frame(ap_low *low, const char *name)
{
    ap_local *p = low->p;
    p->ctx = low->ctx;
    p->m = low->m;
    p->name = ap_name_make(low->ctx, name);
    p->naxes = low->mesh.naxes;
    p->ntime = low->mesh.ntime;
    p->first_rank = low->mesh.first_rank;
    p->nranks = ap_mesh_ranks(&low->mesh);
    int32_t stride = 1;
    for (int a = p->naxes - 1; a >= 0; a--) {
        p->axis_name[a] = low->mesh.axis_name[a];
        p->axis_size[a] = low->mesh.axis_size[a];
        p->axis_stride[a] = stride;
        stride *= low->mesh.axis_size[a];
    }
}

static ap_port make_port(const ap_low *low, ap_name name, const char *kind, uint32_t i, ap_type t)
{
    ap_port port = {.name = name ? name : ap_name_format(low->ctx, "%s%u", kind, i)};
    port.dtype = ap_type_dtype(low->ctx, t);
    port.rank = (uint8_t)ap_shape_dims(ap_type_shape(low->ctx, t), port.dim);
    return port;
}

/* The elements of one rank's shard. */
static ap_status make_slot(ap_low *low, ap_name name, ap_type t, ap_port *out)
{
    int64_t extent[AP_MAX_FACTORS], stride[AP_MAX_FACTORS];
    ap_int count[AP_MAX_FACTORS];
    *out = (ap_port){.name = name, .dtype = ap_type_dtype(low->ctx, t), .slot = true, .rank = 1};
    if (!ap_low_extents(low, t, extent, count) ||
        !ap_low_compact(ap_type_shape(low->ctx, t)->nfactors, extent, stride, &out->dim[0]))
        return ap_low_bug(low, 0, "slot does not fit its sharding");
    return AP_OK;
}

static ap_status add_ports(ap_low *low)
{
    const ap_func_info *f = &low->m->funcs.at[low->func];
    for (uint32_t i = 0; i < f->narguments; i++) {
        const ap_value_info *v = ap_value_at(low->m, f->argument[i]);
        low->value[f->argument[i]].nfactors = ap_value_shape(low->m, f->argument[i])->nfactors;
        if (!ap_low_extents(low, v->type, low->value[f->argument[i]].extent, low->value[f->argument[i]].count))
            return ap_low_bug(low, 0, "input does not fit its sharding");
        ap_port port = make_port(low, v->name, "input", i, v->type);
        if (f->argument_slot[i])
            AP_TRY(make_slot(low, v->name, v->type, &port));
        ap_vec_push(&low->ctx->arena, &low->p->inputs, port);
    }
    for (uint32_t i = 0; i < f->nresults; i++) {
        ap_sharding s = ap_type_get(low->ctx, f->result[i]).sharding;
        if (s && ap_sharding_partial_mask(ap_sharding_get(low->ctx, s)))
            return ap_low_bug(low, 0, "result of the function is partial");
        ap_port port = make_port(low, f->result_name[i], "output", i, f->result[i]);
        if (f->result_slot[i])
            AP_TRY(make_slot(low, f->result_name[i], f->result[i], &port));
        ap_vec_push(&low->ctx->arena, &low->p->outputs, port);
    }
    return AP_OK;
}

static ap_status check_symbols(ap_low *low)
{
    for (ap_symbol s = 0; s < low->m->symbols.len; s++) {
        const ap_symbol_info *si = &low->m->symbols.at[s];
        if (si->kind == AP_SYMBOL_STATE || si->kind == AP_SYMBOL_ACCUM)
            return ap_error(low->ctx, si->loc, "@%s: state and accumulators cannot be lowered yet",
                            ap_name_str(low->ctx, si->name));
    }
    return AP_OK;
}

/* ---- items that are no nests, products or exchanges ---- */

static bool is_empty(const ap_low_value *v)
{
    for (int f = 0; f < v->nfactors; f++) {
        if (v->extent[f] == 0)
            return true;
    }
    return false;
}

/* Operands that were not computed in place are copied there. */
static ap_status emit_concat(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    ap_low_place whole, part, from;
    ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, n->out[0]));
    ap_low_call call = {.name = "concat", .about = ap_low_about(low, it), .loc = it->loc};
    AP_TRY(ap_low_destination(low, n->out[0], &whole));
    for (uint32_t k = 0; k < n->nin; k++) {
        const ap_low_value *v = &low->value[n->in[k]];
        if (is_empty(v))
            continue;
        AP_TRY(ap_low_concat_part(low, it, k, &whole, &part));
        if (low->value[v->root].source == AP_LOW_SPLAT) {
            AP_TRY(ap_low_fill(low, n->in[k], v->nfactors, v->extent, v->count, &part, &call));
            continue;
        }
        AP_TRY(ap_low_place_of(low, n->in[k], &from));
        if (memcmp(&from.ref, &part.ref, sizeof from.ref) == 0)
            continue;
        AP_TRY(ap_low_copy(low, dtype, v->nfactors, v->extent, v->count, &from, &part, &call));
    }
    return AP_OK;
}

/* Everything is filled, then the operand copied into its box. */
static ap_status emit_pad(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    const ap_low_value *from = &low->value[n->in[0]], *to = &low->value[n->out[0]];
    const ap_shape_info *fs = ap_value_shape(low->m, n->in[0]), *ts = ap_value_shape(low->m, n->out[0]);
    ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, n->out[0]));
    ap_low_call call = {.name = "pad_fill", .about = ap_low_about(low, it), .loc = it->loc};
    ap_low_place whole, src, box;
    AP_TRY(ap_low_destination(low, n->out[0], &whole));
    AP_TRY(ap_low_fill(low, n->in[1], to->nfactors, to->extent, to->count, &whole, &call));
    memset(&box, 0, sizeof box);
    box.ref = whole.ref;
    for (int d = 0; d < fs->rank; d++) {
        int nf = fs->first[d + 1] - fs->first[d], nt = ts->first[d + 1] - ts->first[d];
        if (n->u.pad->lo[d] && nt != 1)
            return ap_low_bug(low, it->loc, "padded dimension of several factors");
        if (n->u.pad->lo[d])
            box.ref.offset.base += n->u.pad->lo[d] * whole.stride[ts->first[d]];
        for (int j = 0; j < nf; j++)
            box.stride[fs->first[d] + j] = whole.stride[ts->first[d] + j];
    }
    if (is_empty(from))
        return AP_OK;
    call.name = "pad_copy";
    if (low->value[from->root].source == AP_LOW_SPLAT)
        return ap_low_fill(low, n->in[0], from->nfactors, from->extent, from->count, &box, &call);
    AP_TRY(ap_low_place_of(low, n->in[0], &src));
    return ap_low_copy(low, dtype, from->nfactors, from->extent, from->count, &src, &box, &call);
}

/* Results that were not computed in place are copied, each by one of the ranks that have the same part. */
static ap_status emit_return(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    for (uint32_t i = 0; i < n->nin; i++) {
        const ap_low_value *v = &low->value[n->in[i]];
        bool slot = low->p->outputs.at[i].slot;
        ap_low_call call = {.name = slot ? "slot" : "output", .loc = it->loc};
        call.about = slot ? "a result for other stages" : "a result for the caller";
        ap_low_place to, from;
        if (low->value[v->root].direct || is_empty(v))
            continue;
        AP_TRY(ap_low_output(low, i, &to, &call.when_mask));
        call.when = call.when_mask ? AP_WHEN_ZERO : AP_WHEN_ALWAYS;
        if (v->root != AP_NONE && low->value[v->root].item != AP_NONE)
            call.loc = low->items.at[low->value[v->root].item].loc;
        if (low->value[v->root].source == AP_LOW_SPLAT) {
            AP_TRY(ap_low_fill(low, n->in[i], v->nfactors, v->extent, v->count, &to, &call));
            continue;
        }
        AP_TRY(ap_low_place_of(low, n->in[i], &from));
        ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, n->in[i]));
        AP_TRY(ap_low_copy(low, dtype, v->nfactors, v->extent, v->count, &from, &to, &call));
    }
    return AP_OK;
}

static ap_status emit_item(ap_low *low, uint32_t group)
{
    const ap_low_item *it = &low->items.at[low->groups.at[group].members.at[0].item];
    const ap_node_info *n = ap_node_at(low->m, it->node);
    bool used = it->kind == AP_LOW_RETURN;
    for (uint32_t i = 0; i < n->nout; i++)
        used = used || low->value[n->out[i]].nuses > 0;
    if (!used)
        return AP_OK;
    switch (it->kind) {
    case AP_LOW_CONTRACT:
        return ap_low_emit_contract(low, it);
    case AP_LOW_POOL:
        return ap_low_emit_pool(low, it);
    case AP_LOW_CONV:
        return ap_low_emit_conv(low, &low->groups.at[group]);
    case AP_LOW_CONCAT:
        return emit_concat(low, it);
    case AP_LOW_PAD:
        return emit_pad(low, it);
    case AP_LOW_SCATTER:
        return ap_low_emit_scatter(low, it);
    case AP_LOW_TOPK:
        return ap_low_emit_topk(low, it);
    case AP_LOW_CUMULATE:
        return ap_low_emit_cumulate(low, it);
    case AP_LOW_EXCHANGE:
        return ap_low_emit_exchange(low, it);
    case AP_LOW_RETURN:
        return emit_return(low, it);
    default: /* parts and reshapes are places: made when they are read */
        return AP_OK;
    }
}

/* ---- order ---- */

static ap_status emit_operands(ap_low *low, uint32_t group)
{
    const ap_low_group *g = &low->groups.at[group];
    for (uint32_t i = 0; i < g->members.len; i++) {
        const ap_node_info *n = ap_node_at(low->m, low->items.at[g->members.at[i].item].node);
        for (uint32_t k = 0; k < n->nin; k++) {
            uint32_t item = low->value[ap_low_root(low, n->in[k])].item;
            if (item != AP_NONE && ap_low_group_of(low, item) != group)
                AP_TRY(ap_low_emit_group(low, ap_low_group_of(low, item)));
        }
    }
    return AP_OK;
}

/* Emits what the members read, then the group itself. A group stands where its last member stood, or where one of its
 * values is first needed. */
ap_status ap_low_emit_group(ap_low *low, uint32_t group)
{
    ap_low_group *g = &low->groups.at[group];
    if (g->emitted || g->into != AP_NONE || g->followed_by)
        return AP_OK;
    if (g->busy)
        return ap_low_bug(low, low->items.at[g->members.at[0].item].loc, "kernels wait for each other");
    g->busy = true;
    if (g->follows)
        AP_TRY(emit_operands(low, ap_low_group_of(low, g->follows - 1)));
    AP_TRY(emit_operands(low, group));
    g->busy = false;
    g->emitted = true;
    bool done = false;
    if (g->follows)
        AP_TRY(ap_low_emit_followed(low, group, &done));
    if (done)
        return AP_OK;
    return g->nest ? ap_low_emit_nest(low, group) : emit_item(low, group);
}

static ap_status emit_all(ap_low *low)
{
    for (uint32_t i = 0; i < low->items.len; i++) {
        uint32_t group = ap_low_group_of(low, i);
        const ap_low_group *g = &low->groups.at[group];
        if (g->members.at[g->members.len - 1].item == i)
            AP_TRY(ap_low_emit_group(low, group));
    }
    return AP_OK;
}

/* What is given up for memory, one after the other. */
typedef enum frugality { IN_PARTS, IN_COPIES, THRIFTY, UNPACKED } frugality;

static ap_status lower(ap_ctx *ctx, ap_module *m, const char *name, const ap_lower_options *opt, frugality how,
                       ap_low *low)
{
    *low = (ap_low){.ctx = ctx, .scratch = &ctx->scratch, .m = m, .func = 0, .options = *opt};
    low->in_parts = how == IN_PARTS;
    low->thrift = how >= THRIFTY ? AP_NEW(low->scratch, ap_low_thrift) : NULL;
    low->unpacked = how == UNPACKED;
    low->p = AP_NEW(&ctx->arena, ap_local);
    AP_TRY(find_mesh(low));
    fill_frame(low, name);
    AP_TRY(check_symbols(low));
    AP_TRY(ap_low_flatten(low));
    AP_TRY(add_ports(low));
    ap_low_choose_layouts(low);
    AP_TRY(ap_low_fuse(low));
    ap_low_find_followers(low);
    AP_TRY(emit_all(low));
    if (opt->panels)
        AP_TRY(ap_low_panels(low));
    if (opt->prepared)
        ap_low_prepared(low);
    return ap_low_assign_arena(low);
}

/* explicit -> local, or a module without mesh: one function whose reshards are all elementary steps.
 *
 * Operands that are computed in their part of a concatenation need no copy, but then the whole result lives from the
 * first of them on, longer than the planner thinks. Where that makes the arena larger, they are copied. Where the arena
 * would be larger than was planned, less is fused (local_thrift.c); where that is not enough, no product packs its
 * operands, which the planner does not count.
 *
 * needs: types, shardings, at most one mesh */
ap_status ap_lower_local_for(ap_ctx *ctx, ap_module *m, const char *name, const ap_lower_options *opt, ap_local **out)
{
    ap_low low;
    uint32_t nparts = 0;
    if (m->funcs.len != 1)
        return ap_fail(ctx, AP_ERR_BUG, 0, "lowering: %u functions instead of one", m->funcs.len);
    for (frugality how = IN_PARTS; how <= UNPACKED; how++) {
        bool larger = how > IN_PARTS && opt->limited && (*out)->arena_bytes > opt->limit;
        if (how == IN_COPIES ? nparts == 0 : how > IN_COPIES && !larger)
            continue;
        AP_TRY(lower(ctx, m, name, opt, how, &low));
        if (how == IN_PARTS || low.p->arena_bytes < (*out)->arena_bytes)
            *out = low.p;
        nparts = low.nparts;
    }
    return AP_OK;
}

ap_status ap_lower_local(ap_ctx *ctx, ap_module *m, const char *name, ap_local **out)
{
    const ap_lower_options cpu = ap_lower_cpu();
    return ap_lower_local_for(ctx, m, name, &cpu, out);
}
