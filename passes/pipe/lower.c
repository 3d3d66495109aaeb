/* Lowering of a pipeline: stages one by one, then slots and channels between them.
 *
 *     arena of a rank:  values of the stage | slots of argument 0 | ... | slots of result 0 | ... */
#include "passes/pipe/lower.h"

#include "passes/local.h"
#include "passes/pipe/transfer.h"
#include "passes/plan.h"

/* What lowering should keep to. */
static ap_status note_memory(ap_ctx *ctx, ap_stage *s, const ap_cluster *c)
{
    ap_plan_result r;
    s->priced = s->m->state == AP_STATE_PLANNED;
    if (!s->priced)
        return AP_OK;
    AP_TRY(ap_plan_evaluate(ctx, s->m, c, &r));
    s->planned_bytes = r.peak_bytes - r.param_bytes - r.slot_bytes;
    return AP_OK;
}

ap_status ap_pipe_explicit(ap_ctx *ctx, ap_pipeline *p, const ap_cluster *cluster)
{
    for (uint32_t s = 0; s < p->stages.len; s++) {
        ap_module *m = p->stages.at[s].m;
        ap_cluster part = *cluster;
        if (m->meshes.len) {
            ap_cluster_part(cluster, m->meshes.at[0].first_rank, ap_mesh_ranks(&m->meshes.at[0]), &part);
            AP_TRY(note_memory(ctx, &p->stages.at[s], &part));
        }
        AP_TRY(ap_explicit_run(ctx, m, &part));
    }
    return AP_OK;
}

void ap_program_price(ap_program *p, const ap_cluster *cluster)
{
    for (uint32_t s = 0; s < p->stages.len; s++) {
        ap_local *l = p->stages.at[s];
        ap_cluster part;
        ap_cluster_part(cluster, l->first_rank, l->nranks, &part);
        ap_local_price(l, &part);
    }
}

/* ---- slots ---- */

/* Bytes of one slot of a port. */
static ap_status slot_bytes(ap_ctx *ctx, const ap_port *port, int64_t *out)
{
    if (!ap_mul_i64(port->dim[0], ap_dtype_bytes(port->dtype), out) || *out > INT64_MAX / 4)
        return ap_fail(ctx, AP_ERR_NO_PLAN, 0, "slot %%%s is larger than the address space",
                       ap_name_str(ctx, port->name));
    *out = ap_align_bytes(*out);
    return AP_OK;
}

/* Takes the next `depth` slots of the arena, which ends at *end. */
static ap_status place_slots(ap_ctx *ctx, const ap_port *port, int32_t depth, int64_t *end, int64_t *out_at,
                             int64_t *out_bytes)
{
    int64_t size;
    AP_TRY(slot_bytes(ctx, port, out_bytes));
    *out_at = *end;
    if (!ap_mul_i64(*out_bytes, depth, &size) || !ap_add_i64(*end, size, end) || *end > INT64_MAX / 4)
        return ap_fail(ctx, AP_ERR_NO_PLAN, 0, "the slots of %%%s are larger than the address space",
                       ap_name_str(ctx, port->name));
    return AP_OK;
}

/* The slots of stage s: arguments, then results; those of one result serve all channels that leave it. */
static ap_status place_stage(ap_program *g, uint32_t s)
{
    const ap_local *l = g->stages.at[s];
    int64_t end = ap_align_bytes(l->arena_bytes);
    for (uint32_t i = 0; i < g->channels.len; i++) {
        ap_channel *c = &g->channels.at[i];
        if (c->dst_stage == s)
            AP_TRY(place_slots(g->ctx, &l->inputs.at[c->dst_input], c->dst_depth, &end, &c->dst_at, &c->dst_bytes));
    }
    for (uint32_t port = 0; port < l->outputs.len; port++) {
        int32_t depth = 0;
        int64_t at, bytes;
        for (uint32_t i = 0; i < g->channels.len; i++)
            if (g->channels.at[i].src_stage == s && g->channels.at[i].src_output == port)
                depth = g->channels.at[i].src_depth; /* the same for all of them */
        if (!depth)
            continue;
        AP_TRY(place_slots(g->ctx, &l->outputs.at[port], depth, &end, &at, &bytes));
        for (uint32_t i = 0; i < g->channels.len; i++) {
            ap_channel *c = &g->channels.at[i];
            if (c->src_stage != s || c->src_output != port)
                continue;
            c->src_at = at;
            c->src_bytes = bytes;
        }
    }
    return AP_OK;
}

/* ---- channels ---- */

static ap_transfer_side side_of(const ap_stage *stage, ap_type t)
{
    const ap_module *m = stage->m;
    ap_type_info info = ap_type_get(m->ctx, t);
    return (ap_transfer_side){&m->meshes.at[0], ap_shape_get(m->ctx, info.shape),
                              ap_sharding_get(m->ctx, info.sharding)};
}

static ap_status make_channel(ap_program *g, const ap_pipeline *p, const ap_wire *w, const ap_cluster *cluster)
{
    ap_ctx *ctx = g->ctx;
    const ap_stage *from = &p->stages.at[w->from], *to = &p->stages.at[w->to];
    ap_type sent = from->m->funcs.at[0].result[w->result];
    ap_transfer_side a = side_of(from, sent);
    ap_transfer_side b = side_of(to, ap_value_type(to->m, to->m->funcs.at[0].argument[w->argument]));
    ap_transfer t;
    AP_TRY(ap_transfer_find(ctx, &ctx->arena, cluster, &a, &b, &t));
    if (t.src_count != g->stages.at[w->from]->outputs.at[w->result].dim[0] ||
        t.dst_count != g->stages.at[w->to]->inputs.at[w->argument].dim[0])
        return ap_fail(ctx, AP_ERR_BUG, 0, "slot %%%s is not what is sent", ap_name_str(ctx, w->slot));
    ap_channel c = {.name = w->slot, .dtype = ap_type_dtype(ctx, sent), .padded = t.padded};
    c.src_stage = w->from;
    c.dst_stage = w->to;
    c.src_output = w->result;
    c.dst_input = w->argument;
    c.src_depth = w->from_depth;
    c.dst_depth = w->to_depth;
    c.npieces = t.npieces;
    c.piece = t.piece;
    ap_vec_push(&ctx->arena, &g->channels, c);
    return AP_OK;
}

/* ---- the program ---- */

static ap_status lower_stages(ap_ctx *ctx, const ap_pipeline *p, const char *name, const ap_lower_options *options,
                              ap_program *g)
{
    for (uint32_t s = 0; s < p->stages.len; s++) {
        ap_local *l;
        const char *stage = p->stages.len == 1 ? name : ap_name_str(ctx, p->stages.at[s].name);
        ap_lower_options opt = options ? options[s] : ap_lower_cpu();
        opt.limited = p->stages.at[s].priced;
        opt.limit = p->stages.at[s].planned_bytes;
        AP_TRY(ap_lower_local_for(ctx, p->stages.at[s].m, stage, &opt, &l));
        ap_vec_push(&ctx->arena, &g->stages, l);
    }
    if (g->stages.len > 1)
        ap_low_share_kernels(ctx, g->stages.len, g->stages.at);
    return AP_OK;
}

ap_status ap_lower_program(ap_ctx *ctx, const ap_pipeline *p, const ap_cluster *cluster, const char *name,
                           ap_program **out)
{
    return ap_lower_program_for(ctx, p, cluster, name, NULL, out);
}

ap_status ap_lower_program_for(ap_ctx *ctx, const ap_pipeline *p, const ap_cluster *cluster, const char *name,
                               const ap_lower_options *options, ap_program **out)
{
    ap_program *g = AP_NEW(&ctx->arena, ap_program);
    *g =
        (ap_program){.ctx = ctx, .name = ap_name_make(ctx, name), .nranks = p->nranks, .microbatches = p->microbatches};
    for (uint32_t i = 0; i < p->inputs.len; i++)
        ap_vec_push(&ctx->arena, &g->inputs, p->inputs.at[i]);
    for (uint32_t i = 0; i < p->outputs.len; i++)
        ap_vec_push(&ctx->arena, &g->outputs, p->outputs.at[i]);
    if (p->lists.len != p->stages.len)
        return ap_fail(ctx, AP_ERR_BUG, 0, "a pipeline without instruction lists cannot be lowered");
    for (uint32_t i = 0; i < p->lists.len; i++)
        ap_vec_push(&ctx->arena, &g->lists, p->lists.at[i]);
    AP_TRY(lower_stages(ctx, p, name, options, g));
    for (uint32_t i = 0; i < p->links.len; i++)
        AP_TRY(make_channel(g, p, &p->links.at[i], cluster));
    for (uint32_t s = 0; s < g->stages.len; s++)
        AP_TRY(place_stage(g, s));
    *out = g;
    return AP_OK;
}
