/* Building a pipeline from a choice: carve all stages, find the links and their depths, then plan in order. */
#include "passes/pipe/build.h"

#include "ir/op.h"
#include "ir/physical.h"
#include "passes/pipe/carve.h"
#include "passes/pipe/parts.h"
#include "passes/pipe/schedule.h"

#include <assert.h>
#include <string.h>

typedef struct builder {
    ap_ctx *ctx;
    ap_arena *work;
    const ap_module *whole;
    const ap_plan_options *opt;
    const ap_pipe_choice *choice;
    ap_carved *part; /* per stage; once planned, the module is that of the pipeline */
    ap_pipeline *p;
    ap_pipe_result *result;
    bool *pin_matched;
    int64_t batch_extent; /* physical, the same in all stages */
    const char **key;     /* per stage: ap_part_key of what was solved, NULL for stages that were not */
} builder;

/* ---- stages and links ---- */

static ap_mesh_info with_time(ap_ctx *ctx, const ap_mesh_info *mesh, int32_t microbatches)
{
    ap_mesh_info m = *mesh;
    if (microbatches == 1)
        return m;
    assert(m.naxes < AP_MAX_AXES && !m.ntime);
    for (int a = m.naxes; a > 0; a--) {
        m.axis_name[a] = m.axis_name[a - 1];
        m.axis_size[a] = m.axis_size[a - 1];
    }
    m.axis_name[0] = ap_name_make(ctx, AP_TIME_AXIS);
    m.axis_size[0] = microbatches;
    m.naxes++;
    m.ntime = 1;
    return m;
}

/* One stage keeps what no node reads. */
static void carve_stages(builder *b)
{
    uint32_t n = b->choice->nstages;
    b->part = AP_NEW_ARRAY(b->work, ap_carved, n);
    if (n == 1) {
        b->part[0].m = ap_module_clone(b->whole);
        b->part[0].argument = b->whole->funcs.at[0].argument;
        return;
    }
    ap_carver *c = ap_carver_create(b->work, b->whole);
    assert(b->choice->stage[0].first == 0 && b->choice->stage[n - 1].last == ap_carver_nnodes(c));
    for (uint32_t s = 0; s < n; s++) {
        assert(s == 0 || b->choice->stage[s].first == b->choice->stage[s - 1].last);
        ap_carve(c, &b->ctx->arena, b->choice->stage[s].first, b->choice->stage[s].last, &b->part[s]);
    }
}

static void add_ports(builder *b)
{
    const ap_module *m = b->whole;
    const ap_func_info *f = &m->funcs.at[0];
    for (uint32_t i = 0; i < f->narguments; i++) {
        const ap_value_info *v = ap_value_at(m, f->argument[i]);
        ap_vec_push(&b->ctx->arena, &b->p->inputs, ap_port_of(m, v->name, v->type));
    }
    for (uint32_t i = 0; i < f->nresults; i++)
        ap_vec_push(&b->ctx->arena, &b->p->outputs, ap_port_of(m, f->result_name[i], f->result[i]));
}

/* The stage that makes the slot, and which of its results. */
static void find_maker(const builder *b, ap_name slot, ap_wire *w)
{
    for (w->from = 0;; w->from++) {
        const ap_func_info *f = &b->part[w->from].m->funcs.at[0];
        for (w->result = 0; w->result < f->nresults; w->result++)
            if (f->result_slot[w->result] && f->result_name[w->result] == slot)
                return;
    }
}

static void add_links(builder *b)
{
    for (uint32_t s = 0; s < b->choice->nstages; s++) {
        const ap_module *m = b->part[s].m;
        const ap_func_info *f = &m->funcs.at[0];
        for (uint32_t i = 0; i < f->narguments; i++) {
            if (!f->argument_slot[i])
                continue;
            ap_wire w = {.slot = ap_value_at(m, f->argument[i])->name, .to = s, .argument = i};
            find_maker(b, w.slot, &w);
            ap_vec_push(&b->ctx->arena, &b->p->links, w);
        }
    }
}

static ap_status open_pipeline(builder *b)
{
    ap_ctx *ctx = b->ctx;
    b->p = ap_pipeline_create(ctx, b->whole->funcs.at[0].name);
    b->p->microbatches = b->choice->microbatches;
    add_ports(b);
    carve_stages(b);
    for (uint32_t s = 0; s < b->choice->nstages; s++) {
        const ap_mesh_info *mesh = &b->choice->stage[s].mesh;
        ap_stage stage = {.name = ap_name_format(ctx, "stage%u", s), .m = b->part[s].m};
        ap_vec_push(&ctx->arena, &b->p->stages, stage);
        int32_t end = mesh->first_rank + ap_mesh_ranks(mesh);
        b->p->nranks = end > b->p->nranks ? end : b->p->nranks;
    }
    add_links(b);
    ap_wiring w = ap_pipeline_wiring(b->p, b->work);
    return ap_schedule_depths(&w, b->p->links.at);
}

/* ---- planning ---- */

/* The factor of each argument that is the batch: of inputs as the whole says, of slots as they were made. */
static const int8_t *batch_of_stage(const builder *b, uint32_t stage)
{
    const ap_func_info *f = &b->p->stages.at[stage].m->funcs.at[0];
    int8_t *batch = AP_NEW_ARRAY(b->work, int8_t, f->narguments);
    for (uint32_t i = 0; i < f->narguments; i++) {
        uint32_t link = ap_pipeline_link(b->p, stage, i);
        const ap_wire *w = link == AP_NONE ? NULL : &b->p->links.at[link];
        const ap_module *from = w ? b->p->stages.at[w->from].m : NULL;
        batch[i] = from ? ap_part_batch(from, from->funcs.at[0].result[w->result])
                        : b->opt->batch[ap_value_at(b->whole, b->part[stage].argument[i])->index];
    }
    return batch;
}

static ap_plan_options options_of_stage(const builder *b, uint32_t stage)
{
    ap_plan_options o = *b->opt;
    const ap_mesh_info *mesh = &b->choice->stage[stage].mesh;
    ap_cluster_part(&b->opt->cluster, mesh->first_rank, ap_mesh_ranks(mesh), &o.cluster);
    o.mesh = with_time(b->ctx, mesh, b->choice->microbatches);
    o.batch = o.mesh.ntime ? batch_of_stage(b, stage) : NULL;
    o.batch_extent = b->batch_extent;
    o.slots = ap_part_slots(b->work, b->p, &b->opt->cluster, stage, &b->choice->stage[stage]);
    o.stage = stage;
    o.pin_matched = b->pin_matched;
    if (b->choice->nstages > 1)
        o.problem_path = NULL;
    return o;
}

/* Where an earlier stage was the same problem, its plan is this one's. */
static bool plan_like_earlier(builder *b, uint32_t stage, const ap_plan_options *o, const char *key)
{
    const ap_pipe_stage *at = b->choice->stage;
    for (uint32_t e = 0; e < stage; e++) {
        if (!b->key[e] || strcmp(b->key[e], key) != 0 ||
            !ap_part_same_place(&b->opt->cluster, b->p, e, &at[e].mesh, stage, &at[stage].mesh))
            continue;
        ap_module *m = ap_part_copy_plan(b->p->stages.at[e].m, b->p->stages.at[stage].m, o);
        ap_plan_result again, *r = &b->result->stage[e].plan;
        if (ap_plan_evaluate_slots(b->ctx, m, &o->cluster, &o->slots, &again) != AP_OK || again.cost_ps != r->cost_ps ||
            again.peak_bytes != r->peak_bytes)
            continue;
        b->p->stages.at[stage].m = m;
        b->result->stage[stage].plan = *r;
        return true;
    }
    return false;
}

static ap_status name_stage(const builder *b, uint32_t stage, uint32_t told, ap_status status)
{
    if (b->choice->nstages == 1 || status != AP_ERR_NO_PLAN)
        return status; /* others name a node, or a line of a file */
    for (uint32_t i = told; i < b->ctx->diags.len; i++) {
        ap_diag *d = &b->ctx->diags.at[i];
        d->text = ap_name_str(b->ctx, ap_name_format(b->ctx, "stage %u: %s", stage, d->text));
    }
    return status;
}

static const char *key_of(const builder *b, uint32_t stage, const ap_plan_options *o)
{
    return ap_part_key(b->work, b->p, stage, &b->choice->stage[stage], o);
}

static uint32_t count_nodes(const ap_module *m)
{
    return ap_block_at(m, m->funcs.at[0].body)->nodes.len - 1;
}

static ap_status plan_stage(builder *b, uint32_t stage)
{
    ap_stage_result *r = &b->result->stage[stage];
    ap_module *m = b->p->stages.at[stage].m;
    ap_plan_options o = options_of_stage(b, stage);
    uint32_t told = b->ctx->diags.len;
    const char *key = b->opt->npins || b->choice->nstages == 1 ? NULL : key_of(b, stage, &o);
    r->first = b->choice->stage[stage].first;
    r->last = b->choice->stage[stage].last;
    r->nodes = count_nodes(m);
    if (key && plan_like_earlier(b, stage, &o, key))
        return AP_OK;
    ap_status s = ap_pass_plan(b->ctx, m, &o, &r->plan);
    b->key[stage] = key;
    b->result->solved++;
    return s == AP_OK ? s : name_stage(b, stage, told, s);
}

static ap_status check_pins(const builder *b)
{
    for (uint32_t i = 0; b->pin_matched && i < b->opt->npins; i++)
        if (!b->pin_matched[i])
            return ap_fail(b->ctx, AP_ERR_USAGE, 0, "%s:%d: no value matches \"%s\"", b->opt->pin_file,
                           b->opt->pin[i].line, b->opt->pin[i].pattern);
    return AP_OK;
}

/* So many equal microbatches that the stage that pads most can split them as it likes. */
static void find_batch(builder *b)
{
    int64_t batch = 0;
    for (uint32_t i = 0; b->choice->microbatches > 1 && i < b->whole->funcs.at[0].narguments; i++)
        if (b->opt->batch[i] >= 0)
            batch = ap_value_shape(b->whole, b->whole->funcs.at[0].argument[i])->logical[b->opt->batch[i]];
    for (uint32_t s = 0; batch && s < b->choice->nstages; s++) {
        ap_mesh_info mesh = with_time(b->ctx, &b->choice->stage[s].mesh, b->choice->microbatches);
        b->batch_extent = ap_max_i64(b->batch_extent, ap_physical_batch(&mesh, batch, b->opt->split_force));
    }
}

static ap_status build(builder *b)
{
    uint32_t n = b->choice->nstages;
    b->result->nstages = n;
    b->result->stage = AP_NEW_ARRAY(&b->ctx->arena, ap_stage_result, n);
    b->key = AP_NEW_ARRAY(b->work, const char *, n);
    if (n > 1)
        b->pin_matched = AP_NEW_ARRAY(b->work, bool, b->opt->npins);
    AP_TRY(open_pipeline(b));
    find_batch(b);
    for (uint32_t s = 0; s < n; s++) {
        AP_TRY(plan_stage(b, s));
        ap_arena_reset(&b->ctx->scratch);
    }
    AP_TRY(check_pins(b));
    ap_wiring w = ap_pipeline_wiring(b->p, b->work);
    for (uint32_t s = 0; s < n; s++)
        ap_vec_push(&b->ctx->arena, &b->p->lists, (ap_list){0});
    ap_schedule_forward(&w, &b->ctx->arena, b->p->lists.at);
    for (uint32_t s = 0; s < n; s++)
        ap_part_times(&b->opt->cluster, b->p, s, &b->result->stage[s]);
    ap_pipe_sum(b->result, &b->opt->cluster, b->p->microbatches);
    return AP_OK;
}

ap_status ap_pipe_build(ap_ctx *ctx, const ap_module *m, const ap_plan_options *opt, const ap_pipe_choice *choice,
                        ap_pipeline **out, ap_pipe_result *result)
{
    /* A scratch arena of our own, because planning fills it once per stage. */
    ap_arena scratch = ctx->scratch, work;
    builder b = {.ctx = ctx, .work = &work, .whole = m, .opt = opt, .choice = choice, .result = result};
    *result = (ap_pipe_result){0};
    ap_arena_init(&work, ctx->arena.out_of_memory, ctx->arena.user);
    ap_arena_init(&ctx->scratch, ctx->arena.out_of_memory, ctx->arena.user);
    ap_status s = build(&b);
    ap_arena_deinit(&ctx->scratch);
    ap_arena_deinit(&work);
    ctx->scratch = scratch;
    *out = s == AP_OK ? b.p : NULL;
    return s;
}
