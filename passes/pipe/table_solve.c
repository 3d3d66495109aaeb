/* One table: the layer is parsed and its planning problem built in a context of its own, which goes when the numbers
 * are there.
 *
 *     in -- ... steps, holders ... -- out        all but the two ends are eliminated
 *
 * Costs that are eliminated are scaled, so that among equal sums of time and price the fewest bytes win:
 *     2^shift * (time + price * MiB) + bytes / 2^grain */
#include "passes/pipe/tables.h"

#include "ir/text_form.h"
#include "passes/plan_problem.h"
#include "passes/solve/ends.h"

#include <stdio.h>
#include <string.h>

#define MOST ((int64_t)1 << 57) /* sums of scaled costs stay below */
enum { MIB = 20, GRAIN_SUM = 16, ADDITIONS = 1 << 27 };

typedef struct solver {
    ap_layer_task *t;
    ap_ctx *ctx;
    ap_arena *arena;
    ap_module *m;
    ap_planning p;
    ap_plan_options opt;
    ap_plan_reduced r;              /* p without what others decide; symbols and the two ends stay */
    ap_problem q;                   /* r without strategies that cannot be taken, the ends' to those with labels */
    uint32_t **pick;                /* per variable of r: strategies that q has */
    uint32_t in, out;               /* variables of p, AP_NONE */
    const int64_t *in_bytes;        /* per strategy of `in` */
    uint32_t *in_label, *out_label; /* per strategy of the variable: label of the task, AP_NONE */
    int64_t **resident;             /* per variable: bytes per strategy, or NULL */
    bool *skips;                    /* per demand: of a symbol */
    int shift, grain;
    int64_t *change; /* per point + 1, scratch */
} solver;

/* ---- the problem ---- */

/* Slots take nothing here: what they hold depends on how many there are, and is added up by the search over stages. */
static void empty_slots(solver *s)
{
    const ap_func_info *f = &s->m->funcs.at[0];
    ap_plan_slot *at = AP_NEW_ARRAY(s->arena, ap_plan_slot, (size_t)f->narguments + f->nresults);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->narguments; i++)
        if (f->argument_slot && f->argument_slot[i])
            at[n++] = (ap_plan_slot){.name = ap_value_at(s->m, f->argument[i])->name};
    for (uint32_t i = 0; i < f->nresults; i++)
        if (f->result_slot && f->result_slot[i])
            at[n++] = (ap_plan_slot){.name = f->result_name[i], .result = true};
    s->opt.slots = (ap_plan_slots){n, at};
}

static ap_status parse(solver *s)
{
    const ap_layer_form *f = s->t->form;
    AP_TRY(ap_module_parse(s->ctx, "layer", f->text, f->size, &s->m));
    s->opt.mesh = ap_pipe_view_mesh(s->ctx, &s->t->view);
    s->opt.batch = f->batch;
    s->opt.memory = INT64_MAX;
    ap_cluster_part(s->t->cluster, s->t->view.first_rank, ap_pipe_view_ranks(&s->t->view), &s->opt.cluster);
    empty_slots(s);
    return ap_planning_open(s->ctx, s->arena, s->m, &s->opt, &s->p);
}

static bool is_label(const ap_sharding_info *s, uint8_t ntime, const ap_label *l)
{
    if (s->nfactors != l->nfactors)
        return false;
    for (int f = 0; f < s->nfactors; f++) {
        ap_axes axes = 0;
        for (int i = 0; i < ap_axes_count(s->axes[f]); i++)
            if (ap_axes_get(s->axes[f], i) >= ntime)
                axes = ap_axes_append(axes, ap_axes_get(s->axes[f], i) - ntime);
        if (axes != l->axes[f])
            return false;
    }
    return true;
}

/* The variable of a boundary's value, and which label each of its strategies is. */
static uint32_t find_end(solver *s, ap_value v, uint32_t n, const ap_label *label, uint32_t **out_of)
{
    const ap_plan_holder *h = &s->p.holders.at[s->p.holder_of[v]];
    *out_of = AP_NEW_ARRAY(s->arena, uint32_t, h->n);
    for (uint32_t i = 0; i < h->n; i++) {
        (*out_of)[i] = AP_NONE;
        for (uint32_t l = 0; l < n && (*out_of)[i] == AP_NONE; l++)
            if (is_label(ap_sharding_get(s->ctx, h->kept[i]), s->opt.mesh.ntime, &label[l]))
                (*out_of)[i] = l;
    }
    return h->var;
}

static void find_ends(solver *s)
{
    const ap_layer_form *f = s->t->form;
    const ap_func_info *func = &s->m->funcs.at[0];
    const ap_block_info *body = ap_block_at(s->m, func->body);
    const ap_node_info *ret = ap_node_at(s->m, body->nodes.at[body->nodes.len - 1]);
    s->in = s->out = AP_NONE;
    if (f->in != AP_NONE) {
        s->in = find_end(s, func->argument[f->in], s->t->nin, s->t->in, &s->in_label);
        s->in_bytes = s->p.holders.at[s->p.holder_of[func->argument[f->in]]].bytes;
    }
    if (f->out != AP_NONE)
        s->out = find_end(s, ret->in[f->out], s->t->nout, s->t->out, &s->out_label);
}

/* Parameters are what is held all the time; their demands count apart. */
static void find_residents(solver *s)
{
    s->resident = AP_NEW_ARRAY(s->arena, int64_t *, s->p.problem.nnodes);
    s->skips = AP_NEW_ARRAY(s->arena, bool, s->p.problem.ndemands);
    for (uint32_t h = 0; h < s->p.holders.len; h++)
        if (s->p.holders.at[h].resident)
            s->resident[s->p.holders.at[h].var] = s->p.holders.at[h].bytes;
    for (uint32_t d = 0; d < s->p.problem.ndemands; d++) {
        const ap_demand *x = &s->p.problem.demand[d];
        s->skips[d] = s->resident[x->node] && x->usage == s->resident[x->node];
    }
}

static int64_t largest(const int64_t *x, size_t n)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = x[i] == AP_FORBIDDEN ? most : ap_max_i64(most, x[i]);
    return most;
}

static int64_t priced(int64_t bytes, int64_t price)
{
    __int128 x = (__int128)bytes * price >> MIB;
    return x > MOST ? MOST : (int64_t)x;
}

/* As fine as fits: every sum of costs stays below MOST, every sum of bytes' parts below 2^shift. */
static bool find_scale(solver *s)
{
    const ap_problem *q = &s->p.problem;
    __int128 time = 1, bytes = 1;
    for (uint32_t v = 0; v < q->nnodes; v++) {
        time += largest(q->cost[v], q->nstrategies[v]);
        for (uint32_t i = 0; s->resident[v] && i < s->t->nprices; i++)
            time += priced(largest(s->resident[v], q->nstrategies[v]), s->t->price[i]);
        bytes += s->resident[v] ? largest(s->resident[v], q->nstrategies[v]) : 0;
    }
    for (uint32_t e = 0; e < q->nedges; e++)
        time += largest(q->edge[e].cost, (size_t)q->nstrategies[q->edge[e].u] * q->nstrategies[q->edge[e].v]);
    s->shift = GRAIN_SUM;
    while (s->shift > 0 && time << s->shift > MOST)
        s->shift--;
    s->grain = 0;
    while (s->grain < 62 && bytes >> s->grain >= (__int128)1 << s->shift)
        s->grain++;
    return time <= MOST;
}

/* ---- the smaller problem ---- */

static void list_picks(solver *s, uint32_t v, uint32_t reduced, uint32_t *out_n)
{
    uint32_t n = s->r.problem.nstrategies[reduced];
    const uint32_t *label = v == s->in ? s->in_label : v == s->out ? s->out_label : NULL;
    uint32_t *pick = AP_NEW_ARRAY(s->arena, uint32_t, n), kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (s->r.problem.cost[reduced][i] != AP_FORBIDDEN && (!label || label[i] != AP_NONE))
            pick[kept++] = i;
    s->pick[reduced] = pick;
    *out_n = kept;
}

static const int64_t *pick_costs(const solver *s, const ap_problem_edge *e, const uint32_t *n)
{
    uint32_t columns = s->r.problem.nstrategies[e->v];
    int64_t *cost = AP_NEW_ARRAY(s->arena, int64_t, (size_t)n[e->u] * n[e->v]);
    for (uint32_t i = 0; i < n[e->u]; i++)
        for (uint32_t j = 0; j < n[e->v]; j++)
            cost[(size_t)i * n[e->v] + j] = e->cost[(size_t)s->pick[e->u][i] * columns + s->pick[e->v][j]];
    return cost;
}

/* False when a variable has nothing left. */
static bool reduce(solver *s)
{
    const ap_problem *p = &s->p.problem;
    bool *stays = AP_NEW_ARRAY(s->arena, bool, p->nnodes);
    for (uint32_t v = 0; v < p->nnodes; v++)
        stays[v] = s->resident[v] || v == s->in || v == s->out;
    ap_planning_reduce_but(&s->p, stays, &s->r);
    const ap_problem *r = &s->r.problem;
    uint32_t *n = AP_NEW_ARRAY(s->arena, uint32_t, r->nnodes);
    bool any = true;
    s->pick = AP_NEW_ARRAY(s->arena, uint32_t *, r->nnodes);
    for (uint32_t v = 0; v < p->nnodes; v++) {
        if (s->r.number[v] == AP_NONE)
            continue;
        list_picks(s, v, s->r.number[v], &n[s->r.number[v]]);
        any = any && n[s->r.number[v]] > 0;
    }
    ap_problem_edge *edge = AP_NEW_ARRAY(s->arena, ap_problem_edge, r->nedges);
    for (uint32_t e = 0; e < r->nedges && any; e++)
        edge[e] = (ap_problem_edge){r->edge[e].u, r->edge[e].v, pick_costs(s, &r->edge[e], n)};
    s->q = (ap_problem){.nnodes = r->nnodes, .nstrategies = n, .nedges = r->nedges, .edge = edge, .limit = INT64_MAX};
    return any;
}

/* A choice of q as one of p. */
static void expand(const solver *s, const uint32_t *small, uint32_t *reduced, uint32_t *choice)
{
    for (uint32_t v = 0; v < s->q.nnodes; v++)
        reduced[v] = s->pick[v][small[v]];
    ap_planning_expand(&s->p, &s->r, reduced, choice);
}

/* ---- costs of a price ---- */

static const int64_t *const *price_nodes(const solver *s, int64_t price)
{
    const int64_t **out = AP_NEW_ARRAY(s->arena, const int64_t *, s->q.nnodes);
    for (uint32_t v = 0; v < s->p.problem.nnodes; v++) {
        uint32_t k = s->r.number[v];
        if (k == AP_NONE)
            continue;
        int64_t *cost = AP_NEW_ARRAY(s->arena, int64_t, s->q.nstrategies[k]);
        out[k] = cost;
        for (uint32_t i = 0; i < s->q.nstrategies[k]; i++) {
            uint32_t x = s->pick[k][i];
            int64_t bytes = s->resident[v] ? s->resident[v][x] : 0;
            int64_t sum = s->r.problem.cost[k][x] + priced(bytes, price);
            cost[i] = sum * ((int64_t)1 << s->shift) + (bytes >> s->grain);
        }
    }
    return out;
}

/* ---- what a choice takes ---- */

static int64_t time_of(const ap_problem *q, const uint32_t *choice)
{
    int64_t sum = 0;
    for (uint32_t v = 0; v < q->nnodes; v++)
        sum += q->cost[v][choice[v]];
    for (uint32_t e = 0; e < q->nedges; e++)
        sum += q->edge[e].cost[(size_t)choice[q->edge[e].u] * q->nstrategies[q->edge[e].v] + choice[q->edge[e].v]];
    return sum;
}

static int64_t resident_of(const solver *s, const uint32_t *choice)
{
    int64_t sum = 0;
    for (uint32_t v = 0; v < s->p.problem.nnodes; v++)
        sum = s->resident[v] ? ap_sat_add(sum, s->resident[v][choice[v]]) : sum;
    return sum;
}

/* The highest sum of demands that are not of symbols, and what enters the layer, as if it stayed to the end. */
static int64_t peak_of(const solver *s, const uint32_t *choice)
{
    const ap_problem *q = &s->p.problem;
    memset(s->change, 0, ((size_t)s->p.npoints + 1) * sizeof *s->change);
    for (uint32_t d = 0; d < q->ndemands; d++) {
        const ap_demand *x = &q->demand[d];
        if (s->skips[d])
            continue;
        s->change[x->lo] += x->usage[choice[x->node]];
        s->change[x->hi] -= x->usage[choice[x->node]];
    }
    for (uint32_t d = 0; d < q->npair_demands; d++) {
        const ap_pair_demand *x = &q->pair_demand[d];
        const ap_problem_edge *e = &q->edge[x->edge];
        int64_t bytes = x->usage[(size_t)choice[e->u] * q->nstrategies[e->v] + choice[e->v]];
        s->change[x->lo] += bytes;
        s->change[x->hi] -= bytes;
    }
    int64_t sum = 0, most = 0;
    for (uint32_t t = 0; t < s->p.npoints; t++) {
        sum += s->change[t];
        most = ap_max_i64(most, sum);
    }
    return s->in == AP_NONE ? most : ap_sat_add(most, s->in_bytes[choice[s->in]]);
}

/* ---- the table ---- */

typedef struct entry {
    int64_t value;
    uint32_t i, j; /* strategies of the ends */
} entry;

static uint32_t label_of(const solver *s, uint32_t var, const uint32_t *label, uint32_t small)
{
    return var == AP_NONE ? 0 : label[s->pick[s->r.number[var]][small]];
}

/* Labels that several strategies have take the best of them, the first among equals. */
static void gather_entries(const solver *s, const int64_t *total, uint32_t ni, uint32_t nj, entry *out)
{
    for (uint32_t k = 0; k < s->t->nin * s->t->nout; k++)
        out[k].value = AP_FORBIDDEN;
    for (uint32_t i = 0; i < ni; i++)
        for (uint32_t j = 0; j < nj; j++) {
            uint32_t a = label_of(s, s->in, s->in_label, i), b = label_of(s, s->out, s->out_label, j);
            int64_t value = total[(size_t)i * nj + j];
            if (value < out[a * s->t->nout + b].value)
                out[a * s->t->nout + b] = (entry){value, i, j};
        }
}

static uint32_t small_of(const solver *s, uint32_t var)
{
    return var == AP_NONE ? AP_NONE : s->r.number[var];
}

static bool fill_price(solver *s, ap_ends *e, uint32_t price)
{
    ap_layer_task *t = s->t;
    uint32_t size = t->nin * t->nout, in = small_of(s, s->in), out = small_of(s, s->out);
    uint32_t ni = in == AP_NONE ? 1 : s->q.nstrategies[in], nj = out == AP_NONE ? 1 : s->q.nstrategies[out];
    int64_t *total = AP_NEW_ARRAY(s->arena, int64_t, (size_t)ni * nj);
    entry *entries = AP_NEW_ARRAY(s->arena, entry, size);
    uint32_t *small = AP_NEW_ARRAY(s->arena, uint32_t, s->q.nnodes);
    uint32_t *reduced = AP_NEW_ARRAY(s->arena, uint32_t, s->q.nnodes);
    uint32_t *choice = AP_NEW_ARRAY(s->arena, uint32_t, s->p.problem.nnodes);
    if (!ap_ends_run(e, price_nodes(s, t->price[price]), ADDITIONS, total))
        return false;
    gather_entries(s, total, ni, nj, entries);
    for (uint32_t k = 0; k < size; k++) {
        size_t at = (size_t)price * size + k;
        t->time[at] = AP_FORBIDDEN;
        if (entries[k].value == AP_FORBIDDEN)
            continue;
        ap_ends_decode(e, entries[k].i, entries[k].j, small);
        expand(s, small, reduced, choice);
        t->time[at] = time_of(&s->p.problem, choice);
        t->resident[at] = resident_of(s, choice);
        t->peak[at] = peak_of(s, choice);
    }
    return true;
}

static ap_status fill(solver *s)
{
    AP_TRY(parse(s));
    find_ends(s);
    find_residents(s);
    if (!find_scale(s))
        return ap_fail(s->ctx, AP_ERR_MODEL, 0, "the layer that begins here takes more time than can be counted");
    for (size_t i = 0; i < (size_t)s->t->nprices * s->t->nin * s->t->nout; i++)
        s->t->time[i] = AP_FORBIDDEN;
    if (!reduce(s))
        return AP_OK;
    s->change = AP_NEW_ARRAY(s->arena, int64_t, (size_t)s->p.npoints + 1);
    uint32_t in = small_of(s, s->in), out = small_of(s, s->out);
    ap_ends *e = ap_ends_create(s->arena, &s->q, (int64_t)1 << s->shift, in, out);
    for (uint32_t i = 0; i < s->t->nprices && !s->t->wide; i++)
        s->t->wide = !fill_price(s, e, i);
    return AP_OK;
}

static void tell(ap_layer_task *t, ap_ctx *ctx, ap_status status)
{
    t->status = status;
    if (status != AP_OK && ctx->diags.len > 0)
        snprintf(t->message, sizeof t->message, "%s", ctx->diags.at[0].text);
}

void ap_layer_task_run(ap_layer_task *t)
{
    ap_ctx *ctx = ap_ctx_create();
    t->status = AP_ERR_ENV;
    snprintf(t->message, sizeof t->message, "out of memory");
    if (!ctx)
        return;
    jmp_buf buf;
    if (setjmp(*ap_ctx_guard(ctx, &buf)) == 0) {
        solver *s = AP_NEW(&ctx->arena, solver);
        *s = (solver){.t = t, .ctx = ctx, .arena = &ctx->scratch};
        tell(t, ctx, fill(s));
    }
    ap_ctx_release(ctx);
}
