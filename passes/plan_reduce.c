/* A smaller problem with the same optimum, where memory cannot bind: where at no point all that any choices hold
 * exceeds the limit. Two kinds of variables are then decided by the others:
 *
 *   a free holder (argument, symbol)   whole on every device: every part of it is there for nothing
 *   a holder with one reader           kept as it was made or as it is read: reshards obey the triangle inequality, so
 *                                      making it in m and reading it in r costs the path from m to r, whatever lies
 * between
 *
 * The first disappear into the costs of their readers, the second into an edge from the maker to the reader, which
 * takes one look at a path for each pair instead of one for each pair and label. Pinned holders stay. The solution is
 * written back into the whole problem, where ties are broken and everything is checked. */
#include "passes/plan_problem.h"

#include <string.h>

/* ---- memory ---- */

static void add_most(int64_t *change, uint32_t npoints, uint32_t lo, uint32_t hi, const int64_t *usage, size_t n)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = ap_max_i64(most, usage[i]);
    if (lo >= hi || hi > npoints)
        return;
    change[lo] = ap_sat_add(change[lo], most);
    change[hi] -= most;
}

/* Whether the largest demands of all variables and pairs together fit at every point. */
static bool memory_is_loose(const ap_planning *p)
{
    const ap_problem *q = &p->problem;
    int64_t *change = AP_NEW_ARRAY(p->arena, int64_t, (size_t)p->npoints + 1), sum = 0;
    for (uint32_t i = 0; i < q->ndemands; i++) {
        const ap_demand *d = &q->demand[i];
        add_most(change, p->npoints, d->lo, d->hi, d->usage, q->nstrategies[d->node]);
    }
    for (uint32_t i = 0; i < q->npair_demands; i++) {
        const ap_pair_demand *d = &q->pair_demand[i];
        const ap_problem_edge *e = &q->edge[d->edge];
        add_most(change, p->npoints, d->lo, d->hi, d->usage, (size_t)q->nstrategies[e->u] * q->nstrategies[e->v]);
    }
    for (uint32_t t = 0; t < p->npoints; t++) {
        if (__builtin_add_overflow(sum, change[t], &sum) || sum > q->limit)
            return false;
    }
    return true;
}

/* ---- which variables go ---- */

/* Where it costs nothing: ap_cost_replicated. */
static uint32_t replicated_label(const ap_planning *p, const ap_plan_holder *h)
{
    uint8_t time = ap_mesh_time_mask(&p->m->meshes.at[p->mesh]);
    for (uint32_t l = 0; l < h->n; l++) {
        const ap_sharding_info *s = ap_sharding_get(p->ctx, h->kept[l]);
        if (!(ap_sharding_split_mask(s) & ~time) && !ap_sharding_partial_mask(s))
            return p->problem.cost[h->var][l] == 0 ? l : AP_NONE;
    }
    return AP_NONE;
}

static void decide(const ap_planning *p, const bool *stays, ap_plan_reduced *r)
{
    uint32_t n = p->problem.nnodes, *reads = AP_NEW_ARRAY(p->arena, uint32_t, n);
    for (uint32_t v = 0; v < n; v++)
        r->fixed[v] = r->made[v] = r->read[v] = AP_NONE;
    for (uint32_t e = 0; e < p->edges.len; e++) {
        uint32_t v = p->holders.at[p->edges.at[e].holder].var;
        if (p->edges.at[e].makes)
            r->made[v] = e;
        else
            r->read[v] = e;
        reads[v] += !p->edges.at[e].makes;
    }
    for (uint32_t i = 0; i < p->holders.len; i++) {
        const ap_plan_holder *h = &p->holders.at[i];
        if (h->view || h->pinned || h->var == AP_NONE || (stays && stays[h->var]))
            continue;
        if (h->step == AP_NONE)
            r->fixed[h->var] = replicated_label(p, h);
        r->goes[h->var] = r->fixed[h->var] != AP_NONE ||
                          (!h->returned && h->nuses == 1 && reads[h->var] == 1 && r->made[h->var] != AP_NONE);
    }
}

/* ---- the smaller problem ---- */

typedef struct builder {
    ap_planning *p;
    ap_plan_reduced *r;
    int64_t **cost; /* per variable that stays: a copy once something is added */
    AP_VEC(ap_problem_edge) edges;
} builder;

static int64_t *own_cost(builder *b, uint32_t v)
{
    const ap_problem *q = &b->p->problem;
    if (!b->cost[v])
        b->cost[v] = ap_arena_memdup(b->p->arena, q->cost[v], q->nstrategies[v] * sizeof *q->cost[v]);
    return b->cost[v];
}

static int64_t plus(int64_t a, int64_t b)
{
    return a == AP_FORBIDDEN || b == AP_FORBIDDEN ? AP_FORBIDDEN : ap_sat_add(a, b);
}

/* The reading edge of a holder with one label left. */
static void add_to_reader(builder *b, const ap_problem_edge *e)
{
    uint32_t n = b->p->problem.nstrategies[e->v], label = b->r->fixed[e->u];
    int64_t *cost = own_cost(b, e->v);
    for (uint32_t i = 0; i < n; i++)
        cost[i] = plus(cost[i], e->cost[(size_t)label * n + i]);
}

/* From maker to reader. A view that can read in place what was made reads another sharding only where that is kept,
 * which the making edge may forbid: the view of what comes before the last slice does as well. */
static void join(builder *b, uint32_t v)
{
    ap_planning *p = b->p;
    const ap_plan_edge *made = &p->edges.at[b->r->made[v]], *read = &p->edges.at[b->r->read[v]];
    const ap_plan_step *from = &p->steps.at[made->step], *to = &p->steps.at[read->step];
    const ap_plan_holder *h = &p->holders.at[made->holder];
    const int64_t *keep = p->problem.edge[b->r->made[v]].cost;
    const ap_reshard_path **path =
        ap_planning_paths(p, h->value, made->kinds.n, made->kinds.at, read->kinds.n, read->kinds.at);
    uint32_t *label = AP_NEW_ARRAY(p->arena, uint32_t, read->kinds.n); /* that keeps a kind as it is read */
    for (uint32_t k = 0; k < read->kinds.n; k++)
        while (label[k] < h->n && h->kept[label[k]] != read->kinds.at[k])
            label[k]++;
    int64_t *cost = AP_NEW_ARRAY(p->arena, int64_t, (size_t)from->n * to->n);
    for (uint32_t i = 0; i < from->n; i++) {
        uint32_t a = made->kinds.of[i];
        bool in_place = to->view && ap_plan_view_in_place(to, made->kinds.at[a]) != AP_NONE;
        for (uint32_t j = 0; j < to->n; j++) {
            uint32_t z = read->kinds.of[j];
            const ap_reshard_path *way = path[(size_t)a * read->kinds.n + z];
            int64_t *c = &cost[(size_t)i * to->n + j];
            if (in_place && way && way->nsteps > 0)
                *c = label[z] < h->n ? keep[(size_t)i * h->n + label[z]] : AP_FORBIDDEN;
            else
                *c = way ? way->cost : AP_FORBIDDEN;
        }
    }
    ap_vec_push(p->arena, &b->edges, (ap_problem_edge){.u = from->var, .v = to->var, .cost = cost});
}

static void number_variables(builder *b)
{
    const ap_problem *q = &b->p->problem;
    uint32_t n = 0, *strategies = AP_NEW_ARRAY(b->p->arena, uint32_t, q->nnodes);
    const int64_t **cost = AP_NEW_ARRAY(b->p->arena, const int64_t *, q->nnodes);
    for (uint32_t v = 0; v < q->nnodes; v++) {
        b->r->number[v] = b->r->goes[v] ? AP_NONE : n;
        if (b->r->goes[v])
            continue;
        strategies[n] = q->nstrategies[v];
        cost[n++] = b->cost[v] ? b->cost[v] : q->cost[v];
    }
    for (uint32_t e = 0; e < b->edges.len; e++) {
        b->edges.at[e].u = b->r->number[b->edges.at[e].u];
        b->edges.at[e].v = b->r->number[b->edges.at[e].v];
    }
    b->r->problem = (ap_problem){.nnodes = n,
                                 .nstrategies = strategies,
                                 .cost = cost,
                                 .nedges = b->edges.len,
                                 .edge = b->edges.at,
                                 .limit = INT64_MAX};
}

void ap_planning_reduce_but(ap_planning *p, const bool *stays, ap_plan_reduced *out)
{
    uint32_t n = p->problem.nnodes;
    *out = (ap_plan_reduced){.fixed = AP_NEW_ARRAY(p->arena, uint32_t, n),
                             .made = AP_NEW_ARRAY(p->arena, uint32_t, n),
                             .read = AP_NEW_ARRAY(p->arena, uint32_t, n),
                             .number = AP_NEW_ARRAY(p->arena, uint32_t, n),
                             .goes = AP_NEW_ARRAY(p->arena, bool, n)};
    builder b = {.p = p, .r = out, .cost = AP_NEW_ARRAY(p->arena, int64_t *, n)};
    decide(p, stays, out);
    for (uint32_t e = 0; e < p->edges.len; e++) {
        const ap_problem_edge *edge = &p->problem.edge[e];
        uint32_t v = p->holders.at[p->edges.at[e].holder].var;
        if (!out->goes[v])
            ap_vec_push(p->arena, &b.edges, *edge);
        else if (out->fixed[v] != AP_NONE)
            add_to_reader(&b, edge);
        else if (!p->edges.at[e].makes)
            join(&b, v);
    }
    number_variables(&b);
}

bool ap_planning_reduce(ap_planning *p, ap_plan_reduced *out)
{
    if (!memory_is_loose(p))
        return false;
    ap_planning_reduce_but(p, NULL, out);
    return true;
}

/* The cheapest label between maker and reader; among equal ones that of fewest bytes. */
static uint32_t label_between(const ap_planning *p, const ap_plan_reduced *r, uint32_t v, const uint32_t *choice)
{
    const ap_problem_edge *made = &p->problem.edge[r->made[v]], *read = &p->problem.edge[r->read[v]];
    const ap_plan_holder *h = &p->holders.at[p->edges.at[r->made[v]].holder];
    uint32_t best = 0, nv = p->problem.nstrategies[read->v];
    int64_t least = AP_FORBIDDEN;
    for (uint32_t l = 0; l < h->n; l++) {
        int64_t c = plus(made->cost[(size_t)choice[made->u] * h->n + l], read->cost[(size_t)l * nv + choice[read->v]]);
        if (c < least || (c == least && h->bytes[l] < h->bytes[best])) {
            best = l;
            least = c;
        }
    }
    return best;
}

void ap_planning_expand(const ap_planning *p, const ap_plan_reduced *r, const uint32_t *choice, uint32_t *out)
{
    for (uint32_t v = 0; v < p->problem.nnodes; v++)
        out[v] = r->goes[v] ? r->fixed[v] : choice[r->number[v]];
    for (uint32_t v = 0; v < p->problem.nnodes; v++)
        if (r->goes[v] && r->fixed[v] == AP_NONE)
            out[v] = label_between(p, r, v, out);
}
