/* Stages as the planner sees them: slots, times of transfers, sums. */
#include "passes/pipe/parts.h"

#include "passes/batch.h"
#include "passes/pipe/transfer.h"
#include "passes/solve/problem.h"

int64_t ap_part_transfer(const ap_cluster *whole, const ap_module *from, ap_type made, const ap_module *to,
                         ap_type want)
{
    ap_ctx *ctx = from->ctx;
    ap_type_info a = ap_type_get(ctx, made), b = ap_type_get(ctx, want);
    ap_transfer_side src = {
        .mesh = &from->meshes.at[0], .shape = ap_shape_get(ctx, a.shape), .sharding = ap_sharding_get(ctx, a.sharding)};
    ap_transfer_side dst = {
        .mesh = &to->meshes.at[0], .shape = ap_shape_get(ctx, b.shape), .sharding = ap_sharding_get(ctx, b.sharding)};
    return ap_transfer_cost(whole, &ctx->scratch, &src, &dst, ap_dtype_bytes(a.dtype));
}

int8_t ap_part_batch(const ap_module *m, ap_type type)
{
    const ap_sharding_info *s = ap_sharding_get(m->ctx, ap_type_get(m->ctx, type).sharding);
    for (int f = 0; m->meshes.at[0].ntime && f < s->nfactors; f++)
        if (ap_axes_mask(s->axes[f]) & 1)
            return (int8_t)f;
    return AP_NO_BATCH;
}

/* ---- slots ---- */

typedef struct slot_use {
    const ap_pipeline *p;
    const ap_cluster *whole;
    const ap_wire *link; /* of an argument */
    const ap_pipe_pin *pin;
} slot_use;

static bool is_pinned_as(const ap_pipe_pin *pin, const ap_module *m, ap_type type)
{
    const ap_sharding_info *s = ap_sharding_get(m->ctx, ap_type_get(m->ctx, type).sharding);
    int time = m->meshes.at[0].ntime;
    bool same = pin->nfactors == s->nfactors;
    for (int f = 0; f < s->nfactors && same; f++) {
        ap_axes axes = 0;
        for (int i = 0; i < ap_axes_count(s->axes[f]); i++)
            if (ap_axes_get(s->axes[f], i) >= time)
                axes = ap_axes_append(axes, ap_axes_get(s->axes[f], i) - time);
        same = axes == pin->axes[f];
    }
    return same;
}

/* What it takes to have a slot in a sharding: an argument, given how its maker keeps it; a result may be pinned. */
static int64_t cost_of_use(void *user, const ap_module *m, ap_type type)
{
    const slot_use *u = user;
    if (u->pin && !is_pinned_as(u->pin, m, type))
        return AP_FORBIDDEN;
    if (!u->link)
        return 0;
    const ap_module *from = u->p->stages.at[u->link->from].m;
    return ap_part_transfer(u->whole, from, from->funcs.at[0].result[u->link->result], m, type);
}

static const ap_pipe_pin *pin_of(const ap_pipe_stage *s, ap_name slot, bool result)
{
    for (uint32_t i = 0; s && i < s->npins; i++)
        if (s->pin[i].slot == slot && s->pin[i].result == result)
            return &s->pin[i];
    return NULL;
}

static const ap_wire *link_of(const ap_pipeline *p, uint32_t stage, uint32_t index, bool result)
{
    for (uint32_t i = 0; i < p->links.len; i++) {
        const ap_wire *w = &p->links.at[i];
        if (result ? w->from == stage && w->result == index : w->to == stage && w->argument == index)
            return w;
    }
    return NULL;
}

ap_plan_slots ap_part_slots(ap_arena *arena, const ap_pipeline *p, const ap_cluster *whole, uint32_t stage,
                            const ap_pipe_stage *choice)
{
    const ap_module *m = p->stages.at[stage].m;
    const ap_func_info *f = &m->funcs.at[0];
    AP_VEC(ap_plan_slot) slots = {0};
    for (uint32_t i = 0; i < f->narguments + f->nresults; i++) {
        bool result = i >= f->narguments;
        uint32_t index = result ? i - f->narguments : i;
        const ap_wire *w = link_of(p, stage, index, result);
        if (!w)
            continue;
        slot_use *u = AP_NEW(arena, slot_use);
        *u = (slot_use){.p = p, .whole = whole, .link = result ? NULL : w, .pin = pin_of(choice, w->slot, result)};
        ap_plan_slot s = {.name = w->slot, .result = result, .user = u};
        s.depth = result ? w->from_depth : w->to_depth;
        s.cost = !result || u->pin ? cost_of_use : NULL;
        ap_vec_push(arena, &slots, s);
    }
    return (ap_plan_slots){slots.len, slots.at};
}

/* ---- times ---- */

void ap_part_times(const ap_cluster *whole, const ap_pipeline *p, uint32_t stage, ap_stage_result *out)
{
    out->time_ps = ap_sat_add(out->plan.compute_ps, out->plan.communication_ps);
    out->arrival_ps = out->plan.transfer_ps;
    out->sending_ps = 0;
    for (uint32_t i = 0; i < p->links.len; i++) {
        const ap_wire *w = &p->links.at[i];
        if (w->from != stage)
            continue;
        const ap_module *from = p->stages.at[stage].m, *to = p->stages.at[w->to].m;
        int64_t ps = ap_part_transfer(whole, from, from->funcs.at[0].result[w->result], to,
                                      ap_value_type(to, to->funcs.at[0].argument[w->argument]));
        out->sending_ps = ap_sat_add(out->sending_ps, ps);
    }
}

/* The smaller one of x and y * part / whole. */
static int64_t least_share(int64_t x, int64_t y, int64_t part, int64_t whole)
{
    return whole > 0 ? ap_min_i64(x, (int64_t)((unsigned __int128)y * (unsigned __int128)part / (uint64_t)whole)) : x;
}

static void add_stage(ap_plan_result *t, const ap_stage_result *s, int32_t microbatches)
{
    const ap_plan_result *r = &s->plan;
    t->compute_ps = ap_sat_add(t->compute_ps, ap_sat_mul(microbatches, r->compute_ps));
    t->communication_ps = ap_sat_add(t->communication_ps, ap_sat_mul(microbatches, r->communication_ps));
    t->transfer_ps = ap_sat_add(t->transfer_ps, ap_sat_mul(microbatches, r->transfer_ps));
    t->solver_seconds += r->solver_seconds;
    t->planning_seconds += r->planning_seconds;
    t->variables += r->variables;
    t->strategies += r->strategies;
    t->edges += r->edges;
    t->flops += r->flops;
    t->sharded_flops_fraction += r->flops * r->sharded_flops_fraction;
    if (r->peak_bytes > t->peak_bytes) {
        t->peak_bytes = r->peak_bytes;
        t->param_bytes = r->param_bytes;
        t->slot_bytes = r->slot_bytes;
    }
}

/* What passes between two microbatches of a stage. */
static int64_t period_of(const ap_stage_result *s, const ap_cluster *c)
{
    if (c->transfers_wait)
        return ap_sat_add(s->time_ps, s->arrival_ps);
    return ap_max_i64(s->time_ps, ap_max_i64(s->arrival_ps, s->sending_ps));
}

void ap_pipe_sum(ap_pipe_result *r, const ap_cluster *c, int32_t microbatches)
{
    ap_plan_result *t = &r->total;
    int64_t sum = 0, slowest = 0;
    *t = (ap_plan_result){.proof = "none"};
    for (uint32_t i = 0; i < r->nstages; i++) {
        const ap_stage_result *s = &r->stage[i];
        add_stage(t, s, microbatches);
        sum = ap_sat_add(sum, ap_sat_add(s->time_ps, s->arrival_ps));
        slowest = ap_max_i64(slowest, period_of(s, c));
        if (s->plan.proof)
            t->proof = s->plan.proof;
    }
    t->sharded_flops_fraction = t->flops > 0 ? t->sharded_flops_fraction / t->flops : 1.0;
    t->cost_ps = ap_sat_add(sum, ap_sat_mul(microbatches - 1, slowest));
    t->bound_ps = t->cost_ps;
    for (uint32_t i = 0; i < r->nstages; i++)
        t->bound_ps = least_share(t->bound_ps, t->cost_ps, r->stage[i].plan.bound_ps, r->stage[i].plan.cost_ps);
}

ap_status ap_pipe_evaluate(ap_ctx *ctx, ap_pipeline *p, const ap_cluster *c, ap_pipe_result *out)
{
    *out = (ap_pipe_result){.nstages = p->stages.len};
    out->stage = AP_NEW_ARRAY(&ctx->arena, ap_stage_result, p->stages.len);
    for (uint32_t s = 0; s < p->stages.len; s++) {
        ap_module *m = p->stages.at[s].m;
        const ap_mesh_info *mesh = ap_stage_mesh(&p->stages.at[s]);
        ap_cluster part;
        ap_cluster_part(c, mesh->first_rank, ap_mesh_ranks(mesh), &part);
        ap_plan_slots slots = ap_part_slots(&ctx->scratch, p, c, s, NULL);
        AP_TRY(ap_plan_evaluate_slots(ctx, m, &part, &slots, &out->stage[s].plan));
        out->stage[s].nodes = ap_block_at(m, m->funcs.at[0].body)->nodes.len - 1;
        ap_part_times(c, p, s, &out->stage[s]);
    }
    ap_pipe_sum(out, c, p->microbatches);
    return AP_OK;
}
