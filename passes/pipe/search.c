/* The search for a pipeline. The number of microbatches is found by walking up and down the powers of two with the
 * coarse offer (one axis per sub-mesh), as long as that helps; what is best there is looked at finely.
 *
 *     coarse: B = 2^k, 2^(k+1), ... 2^(k-1), ... 1        fine: the best of them
 *
 * The best few plans of the DP are then solved exactly and simulated. */
#include "passes/pipe/search.h"
#include "ir/physical.h"

#include "ir/base/text.h"
#include "passes/pipe/offer.h"
#include "passes/pipe/sim_model.h"

#include <assert.h>
#include <string.h>
#include <time.h>

enum {
    CANDIDATES = 3,
    FEW_DEVICES = 16, /* layers: at least as many as there are devices, up to so many */
    POWERS = 40,
    PRICES = 3,     /* plans that may differ in the price of memory only */
    HOPELESS = 20,  /* a twentieth longer by the tables than what is built: not looked at */
    EFFORT = 40000, /* strategies of exact problems, about so many are solved; the best plan always is */
};

typedef struct candidate {
    ap_offer *offer;
    const ap_stages_plan *plan;
} candidate;

typedef struct searcher {
    ap_ctx *ctx;
    ap_arena arena;
    const ap_module *m;
    const ap_plan_options *opt;
    const ap_pipe_search_options *search;
    ap_pipe_search_report report;
    ap_layers l;
    ap_layer_forms forms;
    ap_batch batch;
    bool has_batch;
    ap_offer_input in;
    int64_t coarse[POWERS]; /* per power of two: predicted time; 0: not tried, INT64_MAX: no plan */
    int64_t missing;        /* least bytes that were missing; AP_STAGES_NONE */
    AP_VEC(candidate) candidates;
} searcher;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- layers ---- */

static ap_status find_batch(searcher *s)
{
    const int8_t *dim = s->search->batch_dim, *argument;
    uint32_t told = s->ctx->diags.len;
    bool must = s->search->microbatches > 1;
    if (!dim && !must)
        return AP_OK;
    if (!dim)
        return ap_batch_missing(s->ctx, s->m, s->search->microbatches);
    ap_status status = ap_batch_arguments(s->ctx, s->m, dim, must ? s->search->microbatches : 1, &argument);
    if (status == AP_OK)
        status = ap_batch_find(s->ctx, s->m, argument, &s->arena, &s->batch);
    s->has_batch = status == AP_OK && s->batch.extent > 0;
    if (must || status == AP_ERR_ENV)
        return status;
    s->ctx->diags.len = told; /* one microbatch it is, then */
    return AP_OK;
}

static ap_status find_layers(searcher *s)
{
    int32_t devices = ap_cluster_devices(&s->opt->cluster);
    if (ap_block_at(s->m, s->m->funcs.at[0].body)->nodes.len == 1)
        return ap_fail(s->ctx, AP_ERR_USAGE, 0, "the model cannot be cut into stages: it computes nothing");
    uint32_t least = devices < FEW_DEVICES ? (uint32_t)devices : FEW_DEVICES;
    least = s->search->nstages > least ? s->search->nstages : least;
    ap_layers_options lo = {
        .cluster = &s->opt->cluster, .least = least, .stage = s->search->stage, .nstages = s->search->nstages};
    AP_TRY(ap_layers_cut(s->ctx, &s->arena, s->m, &lo, &s->l));
    const int8_t *batch = s->has_batch ? s->batch.factor : NULL;
    AP_TRY(ap_layer_forms_list(s->ctx, &s->arena, s->m, &s->l, batch, &s->forms));
    s->report.layers = s->l.n;
    s->report.forms = s->forms.n;
    if (s->search->nstages > s->l.n)
        return ap_fail(s->ctx, AP_ERR_USAGE, 0, "the model cannot be cut into %u stages (--stages): it has %u layer%s",
                       s->search->nstages, s->l.n, s->l.n == 1 ? "" : "s");
    return AP_OK;
}

static const uint32_t *pinned_layers(searcher *s)
{
    if (!s->search->stage)
        return NULL;
    uint32_t *of = AP_NEW_ARRAY(&s->arena, uint32_t, s->l.n);
    for (uint32_t l = 0; l < s->l.n; l++) {
        of[l] = AP_NONE;
        for (uint32_t k = s->l.first[l]; k < s->l.first[l + 1]; k++)
            of[l] = s->search->stage[k] != AP_NONE ? s->search->stage[k] : of[l];
    }
    return of;
}

/* ---- one number of microbatches ---- */

/* One microbatch meets no other, even where the DP was told that one follows (offer.c). */
static int64_t predicted(int32_t microbatches, const ap_stages_plan *plan)
{
    return microbatches == 1 ? plan->sum : plan->total;
}

static ap_status try_microbatches(searcher *s, int32_t microbatches, bool fine, int64_t *out_total)
{
    double start = now();
    ap_offer *o = AP_NEW(&s->arena, ap_offer);
    ap_stages_result r;
    uint32_t n = s->search->ncandidates ? s->search->ncandidates : CANDIDATES;
    AP_TRY(ap_offer_make(s->ctx, &s->arena, &s->in, microbatches, fine, o));
    s->report.tables += o->ntables;
    s->report.table_seconds += now() - start;
    start = now();
    /* Devices that would only slow the others down may rest, unless it was said how they are to be divided. */
    ap_stages_options so = {.nplans = fine ? PRICES * n : 1, .idle = s->search->nstages == 0 && !s->search->mesh};
    AP_TRY(ap_stages_solve(s->ctx, &s->arena, &o->problem, &so, &r));
    s->report.stage_seconds += now() - start;
    s->report.trials += !fine;
    *out_total = r.nplans > 0 ? predicted(microbatches, &r.plan[0]) : INT64_MAX;
    if (r.nplans == 0)
        s->missing = ap_min_i64(s->missing, r.missing);
    if (fine && r.nplans > 0 && o->problem.microbatches == microbatches)
        s->report.bound_ps = s->report.bound_ps ? ap_min_i64(s->report.bound_ps, r.bound) : r.bound;
    for (uint32_t i = 0; i < r.nplans && fine; i++)
        ap_vec_push(&s->arena, &s->candidates, (candidate){o, &r.plan[i]});
    return AP_OK;
}

/* That power of two, or less where some would be empty. */
static int32_t microbatches_of(const searcher *s, int power)
{
    return power == 0 ? 1 : ap_microbatches_filled(s->batch.extent, (int32_t)1 << power);
}

static ap_status try_coarse(searcher *s, int power)
{
    if (s->coarse[power] == 0)
        AP_TRY(try_microbatches(s, microbatches_of(s, power), false, &s->coarse[power]));
    return AP_OK;
}

/* From `from` in steps as long as it gets better, or nothing fits yet. */
static ap_status walk(searcher *s, int from, int step, int last, int *best)
{
    for (int at = from + step; step > 0 ? at <= last : at >= last; at += step) {
        AP_TRY(try_coarse(s, at));
        bool any = s->coarse[at] != INT64_MAX || s->coarse[*best] != INT64_MAX;
        if (any && s->coarse[at] >= s->coarse[*best])
            return AP_OK;
        if (s->coarse[at] < s->coarse[*best])
            *best = at;
    }
    return AP_OK;
}

/* As many as there could be stages is where the walk begins: below, most devices wait for others. */
static ap_status find_microbatches(searcher *s, int32_t *out)
{
    int last = 0, start = 0, best;
    if (s->search->microbatches > 0) {
        *out = s->search->microbatches;
        return AP_OK;
    }
    *out = 1;
    while (s->has_batch && last < 30 && (int64_t)2 << last <= s->batch.extent)
        last++;
    bool one = s->search->latency || s->search->nstages == 1 || ap_cluster_devices(&s->opt->cluster) == 1;
    while (!one && start < last && (1 << start) < ap_cluster_devices(&s->opt->cluster))
        start++;
    best = start;
    AP_TRY(try_coarse(s, start));
    if (s->search->latency && s->coarse[start] != INT64_MAX)
        return AP_OK;
    AP_TRY(walk(s, start, 1, last, &best));
    if (best == start && start > 0)
        AP_TRY(walk(s, start, -1, 0, &best));
    AP_TRY(try_coarse(s, 0)); /* stages of their own may not be worth it at all */
    best = s->coarse[0] <= s->coarse[best] ? 0 : best;
    *out = microbatches_of(s, best);
    return AP_OK;
}

/* ---- candidates ---- */

static ap_mesh_info stage_mesh(const searcher *s, const candidate *c, const ap_stages_pick *pick)
{
    ap_pipe_view v = c->offer->view_of[pick->choice]->view;
    v.microbatches = 1;
    v.first_rank = pick->rank;
    if (!s->search->mesh)
        return ap_pipe_view_mesh(s->ctx, &v);
    ap_mesh_info mesh = *s->search->mesh;
    mesh.first_rank = pick->rank;
    return mesh;
}

static ap_pipe_choice choice_of(searcher *s, const candidate *c)
{
    ap_pipe_stage *stage = AP_NEW_ARRAY(&s->arena, ap_pipe_stage, c->plan->nstages);
    for (uint32_t i = 0; i < c->plan->nstages; i++) {
        const ap_stages_pick *pick = &c->plan->stage[i];
        stage[i] = (ap_pipe_stage){.first = s->l.first[pick->first], .last = s->l.first[pick->last]};
        stage[i].mesh = stage_mesh(s, c, pick);
    }
    return (ap_pipe_choice){c->plan->nstages, stage, c->offer->microbatches};
}

static ap_status simulate(searcher *s, const ap_pipeline *p, const ap_pipe_result *r, int64_t *out_ps)
{
    ap_sim_model *model;
    ap_sim_result sim;
    AP_TRY(ap_sim_of_pipeline(p, &s->opt->cluster, r, &s->arena, &model));
    AP_TRY(ap_simulate(&model->in, &s->arena, false, &sim));
    *out_ps = sim.ps;
    return AP_OK;
}

typedef struct winner {
    ap_pipeline *p;
    ap_pipe_result result;
    int64_t ps, predicted;
    uint64_t effort, last; /* strategies solved so far; of the last candidate */
} winner;

static void count_effort(const ap_pipe_result *r, winner *w)
{
    w->last = 0;
    for (uint32_t i = 0; i < r->nstages; i++)
        w->last += r->stage[i].plan.strategies;
    w->last = w->last * r->solved / r->nstages;
    w->effort += w->last;
}

/* A candidate whose exact plan does not fit is passed over; `told` stays as long as there is no winner. */
static ap_status build_candidate(searcher *s, const candidate *c, winner *w)
{
    ap_pipeline *p;
    ap_pipe_result r;
    int64_t ps;
    const int8_t *argument = NULL;
    ap_plan_options opt = *s->opt;
    ap_pipe_choice choice = choice_of(s, c);
    if (choice.microbatches > 1)
        AP_TRY(ap_batch_arguments(s->ctx, s->m, s->search->batch_dim, choice.microbatches, &argument));
    opt.batch = argument;
    for (uint32_t i = 0; i < c->plan->nstages; i++)
        opt.memory_price = ap_max_i64(opt.memory_price, c->offer->problem.choice[c->plan->stage[i].choice].price);
    opt.memory_price = ap_max_i64(opt.memory_price, 1);
    AP_TRY(ap_pipe_build(s->ctx, s->m, &opt, &choice, &p, &r));
    AP_TRY(simulate(s, p, &r, &ps));
    count_effort(&r, w);
    if (!w->p || ps < w->ps)
        *w = (winner){p, r, ps, predicted(c->offer->microbatches, c->plan), w->effort, w->last};
    return AP_OK;
}

static int by_total(const candidate *a, const candidate *b)
{
    return (a->plan->total > b->plan->total) - (a->plan->total < b->plan->total);
}

/* The best by the tables first; sorted by insertion, so that equals keep their order. */
static void sort_candidates(searcher *s)
{
    for (uint32_t i = 1; i < s->candidates.len; i++)
        for (uint32_t k = i; k > 0 && by_total(&s->candidates.at[k], &s->candidates.at[k - 1]) < 0; k--) {
            candidate x = s->candidates.at[k];
            s->candidates.at[k] = s->candidates.at[k - 1];
            s->candidates.at[k - 1] = x;
        }
}

/* The same stages at another price of memory are the same exact problem. */
static bool same_stages(const candidate *a, const candidate *b)
{
    bool same = a->plan->nstages == b->plan->nstages && a->offer->microbatches == b->offer->microbatches;
    for (uint32_t i = 0; i < a->plan->nstages && same; i++) {
        const ap_stages_pick *x = &a->plan->stage[i], *y = &b->plan->stage[i];
        const ap_pipe_view *v = &a->offer->view_of[x->choice]->view, *u = &b->offer->view_of[y->choice]->view;
        same = x->first == y->first && x->last == y->last && x->rank == y->rank && v->naxes == u->naxes &&
               memcmp(v->size, u->size, sizeof v->size) == 0;
    }
    return same;
}

static bool is_new(const searcher *s, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (same_stages(&s->candidates.at[k], &s->candidates.at[i]))
            return false;
    return true;
}

static bool is_hopeless(const candidate *c, const winner *w)
{
    return w->p && predicted(c->offer->microbatches, c->plan) > w->ps + w->ps / HOPELESS;
}

static ap_status build_best(searcher *s, winner *w)
{
    double start = now();
    uint32_t told = s->ctx->diags.len, n = s->search->ncandidates ? s->search->ncandidates : CANDIDATES, built = 0;
    ap_status status = AP_OK;
    sort_candidates(s);
    for (uint32_t i = 0; i < s->candidates.len && built < n && w->effort + w->last <= EFFORT; i++) {
        if (!is_new(s, i) || is_hopeless(&s->candidates.at[i], w))
            continue;
        status = build_candidate(s, &s->candidates.at[i], w);
        if (status != AP_OK && status != AP_ERR_NO_PLAN)
            return status;
        built += status == AP_OK;
        if (w->p)
            s->ctx->diags.len = told;
    }
    s->report.build_seconds = now() - start;
    return w->p ? AP_OK : status;
}

/* ---- when nothing fits ---- */

/* What was asked for that no row of sub-meshes has. */
static ap_status no_division(const searcher *s)
{
    const ap_cluster *c = &s->opt->cluster;
    ap_text asked;
    ap_text_init(&asked, &s->ctx->scratch);
    if (s->search->nstages)
        ap_text_addf(&asked, "%u stages (--stages)", s->search->nstages);
    else
        ap_text_add(&asked, "stages");
    if (s->search->mesh)
        ap_text_addf(&asked, " of %d devices each (--mesh)", ap_mesh_ranks(s->search->mesh));
    if (s->search->stage)
        ap_text_addf(&asked, " as %s says", s->opt->pin_file);
    return ap_fail(s->ctx, AP_ERR_NO_PLAN, 0,
                   "no plan: the %d devices of cluster %s cannot be divided among %s: a stage has a part of a host, or "
                   "whole hosts of one kind",
                   ap_cluster_devices(c), c->name, ap_text_str(&asked));
}

static ap_status no_plan(const searcher *s)
{
    const ap_cluster *c = &s->opt->cluster;
    long long have = (long long)(s->opt->memory > 0 ? s->opt->memory : c->memory_bytes);
    if (s->missing == AP_STAGES_NONE)
        return no_division(s);
    return ap_fail(s->ctx, AP_ERR_NO_PLAN, 0,
                   "no plan fits in %lld bytes per device of cluster %s: %lld more on each would do; more memory per "
                   "device (--memory), more devices, a smaller batch or more microbatches would help",
                   have, c->name, (long long)s->missing);
}

/* ---- all of it ---- */

static ap_status search(searcher *s, winner *w)
{
    int32_t microbatches;
    int64_t total;
    AP_TRY(find_batch(s));
    AP_TRY(find_layers(s));
    s->in = (ap_offer_input){.m = s->m,
                             .opt = s->opt,
                             .search = s->search,
                             .l = &s->l,
                             .forms = &s->forms,
                             .batch = s->has_batch ? &s->batch : NULL,
                             .stage_of = pinned_layers(s)};
    s->missing = AP_STAGES_NONE;
    AP_TRY(find_microbatches(s, &microbatches));
    AP_TRY(try_microbatches(s, microbatches, true, &total));
    if (s->candidates.len == 0)
        return no_plan(s);
    return build_best(s, w);
}

ap_status ap_pipe_search(ap_ctx *ctx, const ap_module *m, const ap_plan_options *opt,
                         const ap_pipe_search_options *options, ap_pipeline **out, ap_pipe_result *result,
                         ap_pipe_search_report *report)
{
    assert(m->state == AP_STATE_NORMAL && m->funcs.len == 1);
    searcher *s = AP_NEW(&ctx->scratch, searcher);
    *s = (searcher){.ctx = ctx, .m = m, .opt = opt, .search = options};
    winner w = {0};
    ap_arena_init(&s->arena, ctx->scratch.out_of_memory, ctx->scratch.user);
    ap_status status = search(s, &w);
    if (status == AP_OK) {
        *out = w.p;
        *result = w.result;
        s->report.simulated_ps = w.ps;
        s->report.predicted_ps = w.predicted;
    }
    if (report)
        *report = s->report;
    ap_arena_deinit(&s->arena);
    return status;
}
