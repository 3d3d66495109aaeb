/* The state of the presolver: making it, the loop to the fixpoint, taking the rest out, undoing. */
#include "passes/solve/presolve.h"

#include <assert.h>
#include <string.h>

int64_t ap_pre_add(ap_pre *s, int64_t a, int64_t b)
{
    if (a == AP_FORBIDDEN || b == AP_FORBIDDEN)
        return AP_FORBIDDEN;
    int64_t r;
    if (__builtin_add_overflow(a, b, &r) || r >= AP_COST_MAX || r <= -AP_COST_MAX) {
        s->overflow = true;
        return 0;
    }
    return r;
}

void ap_pre_hold(ap_pre *s, uint32_t lo, uint32_t hi, int64_t bytes)
{
    if (bytes != 0)
        for (uint32_t r = lo; r < hi; r++)
            s->rhs[r] -= bytes;
}

void ap_pre_demand_add(ap_pre *s, ap_pre_demands *list, uint32_t lo, uint32_t hi, const int64_t *usage, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        any |= usage[i] != 0;
    if (lo >= hi || !any)
        return;
    for (uint32_t d = 0; d < list->len; d++) {
        if (list->at[d].lo == lo && list->at[d].hi == hi) {
            for (uint32_t i = 0; i < n; i++)
                list->at[d].usage[i] += usage[i];
            return;
        }
    }
    ap_vec_push(s->arena, list, (ap_pre_demand){lo, hi, ap_arena_memdup(s->arena, usage, n * sizeof *usage)});
}

bool ap_pre_has_demands(const ap_pre *s, uint32_t v)
{
    if (s->node[v].demands.len > 0)
        return true;
    for (uint32_t i = 0; i < s->node[v].edges.len; i++) {
        const ap_pre_edge *e = &s->edge.at[s->node[v].edges.at[i]];
        if (e->live && (e->u == v || e->v == v) && e->demands.len > 0)
            return true;
    }
    return false;
}

static ap_pre_edge edge_make(ap_pre *s, const ap_kernel *k, uint32_t e)
{
    const ap_problem_edge *x = &k->p.edge[e];
    size_t size = (size_t)k->p.nstrategies[x->u] * k->p.nstrategies[x->v];
    return (ap_pre_edge){.live = true,
                         .dirty = true,
                         .u = x->u,
                         .v = x->v,
                         .cost = ap_arena_memdup(s->arena, x->cost, size * sizeof *x->cost)};
}

ap_pre *ap_pre_create(ap_arena *arena, const ap_kernel *k)
{
    ap_pre *s = AP_NEW(arena, ap_pre);
    *s = (ap_pre){.arena = arena, .rules = AP_PRE_ALL, .nnodes = k->p.nnodes, .nrows = k->nrows};
    s->node = AP_NEW_ARRAY(arena, ap_pre_node, k->p.nnodes);
    uint32_t widest = 1;
    for (uint32_t v = 0; v < k->p.nnodes; v++)
        widest = k->p.nstrategies[v] > widest ? k->p.nstrategies[v] : widest;
    s->line = AP_NEW_ARRAY(arena, int64_t, widest);
    s->stamp = AP_NEW_ARRAY(arena, uint32_t, k->p.nnodes);
    s->rhs = ap_arena_memdup(arena, k->rhs, k->nrows * sizeof *k->rhs);
    s->hint = k->hint ? ap_arena_memdup(arena, k->hint, k->nrows * sizeof *k->hint) : NULL;
    s->work = AP_NEW_ARRAY(arena, int64_t, k->nrows + 1);
    s->work2 = AP_NEW_ARRAY(arena, int64_t, k->nrows + 1);
    s->row_map = AP_NEW_ARRAY(arena, uint32_t, k->nrows + 1);
    for (uint32_t v = 0; v < k->p.nnodes; v++) {
        ap_pre_node *x = &s->node[v];
        *x = (ap_pre_node){.live = true, .dirty = true, .n = k->p.nstrategies[v]};
        x->cost = ap_arena_memdup(arena, k->p.cost[v], x->n * sizeof *x->cost);
        x->id = AP_NEW_ARRAY(arena, uint32_t, x->n);
        for (uint32_t i = 0; i < x->n; i++)
            x->id[i] = i;
    }
    for (uint32_t e = 0; e < k->p.nedges; e++) {
        ap_vec_push(arena, &s->edge, edge_make(s, k, e));
        ap_vec_push(arena, &s->node[k->p.edge[e].u].edges, e);
        ap_vec_push(arena, &s->node[k->p.edge[e].v].edges, e);
    }
    for (uint32_t d = 0; d < k->p.ndemands; d++) {
        const ap_demand *x = &k->p.demand[d];
        ap_pre_demand_add(s, &s->node[x->node].demands, x->lo, x->hi, x->usage, s->node[x->node].n);
    }
    for (uint32_t d = 0; d < k->p.npair_demands; d++) {
        const ap_pair_demand *x = &k->p.pair_demand[d];
        ap_pre_edge *e = &s->edge.at[x->edge];
        ap_pre_demand_add(s, &e->demands, x->lo, x->hi, x->usage, s->node[e->u].n * s->node[e->v].n);
    }
    return s;
}

/* Rows and columns of a matrix whose flag is set go; in place. */
static void matrix_filter(int64_t *m, uint32_t nu, uint32_t nv, const bool *drop, bool rows)
{
    size_t to = 0;
    for (uint32_t i = 0; i < nu; i++)
        for (uint32_t j = 0; j < nv; j++)
            if (!drop[rows ? i : j])
                m[to++] = m[(size_t)i * nv + j];
}

void ap_pre_filter(ap_pre *s, uint32_t v, const bool *drop)
{
    ap_pre_node *x = &s->node[v];
    for (uint32_t i = 0; i < x->edges.len; i++) {
        ap_pre_edge *e = &s->edge.at[x->edges.at[i]];
        if (!e->live || (e->u != v && e->v != v))
            continue;
        uint32_t nu = s->node[e->u].n, nv = s->node[e->v].n;
        matrix_filter(e->cost, nu, nv, drop, e->u == v);
        for (uint32_t d = 0; d < e->demands.len; d++)
            matrix_filter(e->demands.at[d].usage, nu, nv, drop, e->u == v);
        e->dirty = true;
        s->node[e->u == v ? e->v : e->u].dirty = true;
    }
    for (uint32_t d = 0; d < x->demands.len; d++)
        matrix_filter(x->demands.at[d].usage, x->n, 1, drop, true);
    uint32_t to = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        if (!drop[i]) {
            x->cost[to] = x->cost[i];
            x->id[to++] = x->id[i];
        }
    }
    x->n = to;
    x->dirty = true;
}

/* Adds edge `from` into `to`, which joins the same nodes. */
static void edge_merge(ap_pre *s, uint32_t to, uint32_t from)
{
    ap_pre_edge *a = &s->edge.at[to], *b = &s->edge.at[from];
    uint32_t nu = s->node[a->u].n, nv = s->node[a->v].n;
    bool same = a->u == b->u;
    for (uint32_t i = 0; i < nu; i++)
        for (uint32_t j = 0; j < nv; j++) {
            int64_t *c = &a->cost[(size_t)i * nv + j];
            *c = ap_pre_add(s, *c, b->cost[same ? (size_t)i * nv + j : (size_t)j * nu + i]);
        }
    for (uint32_t d = 0; d < b->demands.len; d++) {
        ap_pre_demand *x = &b->demands.at[d];
        int64_t *usage = AP_NEW_ARRAY(s->arena, int64_t, (size_t)nu * nv);
        for (uint32_t i = 0; i < nu; i++)
            for (uint32_t j = 0; j < nv; j++)
                usage[(size_t)i * nv + j] = x->usage[same ? (size_t)i * nv + j : (size_t)j * nu + i];
        ap_pre_demand_add(s, &a->demands, x->lo, x->hi, usage, nu * nv);
    }
    a->dirty = true;
    b->live = false;
}

/* Forgets edges that are gone and merges parallel ones. */
void ap_pre_tidy(ap_pre *s, uint32_t v)
{
    ap_pre_node *x = &s->node[v];
    uint32_t to = 0;
    for (uint32_t i = 0; i < x->edges.len; i++) {
        uint32_t id = x->edges.at[i];
        ap_pre_edge *e = &s->edge.at[id];
        if (!e->live || (e->u != v && e->v != v))
            continue;
        uint32_t w = e->u == v ? e->v : e->u;
        if (s->stamp[w] == id + 1)
            continue; /* listed twice */
        if (s->stamp[w] != 0) {
            edge_merge(s, s->stamp[w] - 1, id);
            s->node[w].dirty = true;
            continue;
        }
        s->stamp[w] = id + 1;
        x->edges.at[to++] = id;
    }
    x->edges.len = to;
    for (uint32_t i = 0; i < to; i++) {
        const ap_pre_edge *e = &s->edge.at[x->edges.at[i]];
        s->stamp[e->u == v ? e->v : e->u] = 0;
    }
}

void ap_pre_log(ap_pre *s, uint32_t v, uint32_t a, uint32_t b, uint32_t *map)
{
    ap_pre_line line = {.node = v, .a = a, .b = b, .na = 1, .nb = 1, .map = map};
    if (a != AP_NONE) {
        line.na = s->node[a].n;
        line.id_a = ap_arena_memdup(s->arena, s->node[a].id, line.na * sizeof *line.id_a);
    }
    if (b != AP_NONE) {
        line.nb = s->node[b].n;
        line.id_b = ap_arena_memdup(s->arena, s->node[b].id, line.nb * sizeof *line.id_b);
    }
    ap_vec_push(s->arena, &s->log, line);
    s->node[v].live = false;
}

#define VISITS 16 /* between two looks at the clock */

static bool stuck(ap_pre *s)
{
    s->late = s->late || (++s->visits % VISITS == 0 && ap_effort_late(&s->effort));
    return s->infeasible || s->overflow || s->late;
}

/* Every dirty node and edge once. */
static bool graph_reduce(ap_pre *s)
{
    bool changed = false;
    for (uint32_t v = 0; v < s->nnodes && !stuck(s); v++) {
        if (s->node[v].live && s->node[v].dirty) {
            s->node[v].dirty = false;
            ap_pre_node_reduce(s, v);
            changed = true;
        }
    }
    for (uint32_t e = 0; e < s->edge.len && !stuck(s); e++) {
        if (s->edge.at[e].live && s->edge.at[e].dirty) {
            s->edge.at[e].dirty = false;
            ap_pre_edge_reduce(s, e);
            changed = true;
        }
    }
    return changed;
}

static void all_dirty(ap_pre *s)
{
    for (uint32_t v = 0; v < s->nnodes; v++)
        s->node[v].dirty = true;
    for (uint32_t e = 0; e < s->edge.len; e++)
        s->edge.at[e].dirty = true;
}

/* Large problems consist mostly of followers: those first. Rows look at everything, so they wait until the graph has
 * come to rest. */
void ap_pre_run(ap_pre *s)
{
    ap_arena_init(&s->scratch, s->arena->out_of_memory, s->arena->user);
    s->quick = (s->rules & AP_PRE_FOLLOW) && (s->rules & AP_PRE_MINIMA);
    while (s->quick && !stuck(s) && graph_reduce(s))
        ;
    if (s->effort.deadline != 0) /* the rest gets half of what is left, and is left out where nothing is */
        s->effort.deadline = ap_effort_now() + ap_effort_left(&s->effort) / 2;
    s->quick = false;
    all_dirty(s);
    if (!stuck(s))
        ap_pre_rows_reduce(s);
    do {
        while (!stuck(s) && graph_reduce(s))
            ;
    } while (!stuck(s) && ap_pre_rows_reduce(s));
    for (uint32_t r = 0; s->late && r < s->nrows; r++) /* perhaps nobody is left who holds something */
        s->infeasible |= s->rhs[r] < 0;
    ap_arena_deinit(&s->scratch);
}

/* ---- what is left ---- */

static void extract_demands(ap_pre *s, const uint32_t *edge_place, ap_problem *q)
{
    AP_VEC(ap_demand) demand = {0};
    AP_VEC(ap_pair_demand) pair = {0};
    for (uint32_t v = 0; v < s->nnodes; v++) {
        const ap_pre_demands *list = &s->node[v].demands;
        for (uint32_t d = 0; s->node[v].live && d < list->len; d++)
            if (list->at[d].lo < list->at[d].hi)
                ap_vec_push(s->arena, &demand,
                            (ap_demand){s->place[v], list->at[d].lo, list->at[d].hi, list->at[d].usage});
    }
    for (uint32_t e = 0; e < s->edge.len; e++) {
        const ap_pre_demands *list = &s->edge.at[e].demands;
        for (uint32_t d = 0; s->edge.at[e].live && d < list->len; d++)
            if (list->at[d].lo < list->at[d].hi)
                ap_vec_push(s->arena, &pair,
                            (ap_pair_demand){edge_place[e], list->at[d].lo, list->at[d].hi, list->at[d].usage});
    }
    q->ndemands = demand.len;
    q->demand = demand.at;
    q->npair_demands = pair.len;
    q->pair_demand = pair.at;
}

void ap_pre_extract(ap_pre *s, ap_kernel *out)
{
    *out = (ap_kernel){.nrows = s->nrows, .rhs = s->rhs, .hint = s->hint};
    out->p.limit = INT64_MAX;
    s->place = AP_NEW_ARRAY(s->arena, uint32_t, s->nnodes);
    uint32_t *edge_place = AP_NEW_ARRAY(s->arena, uint32_t, s->edge.len);
    uint32_t *n = AP_NEW_ARRAY(s->arena, uint32_t, s->nnodes);
    const int64_t **cost = AP_NEW_ARRAY(s->arena, const int64_t *, s->nnodes);
    ap_problem_edge *edge = AP_NEW_ARRAY(s->arena, ap_problem_edge, s->edge.len);
    for (uint32_t v = 0; v < s->nnodes; v++) {
        s->place[v] = AP_NONE;
        if (!s->node[v].live)
            continue;
        s->place[v] = out->p.nnodes;
        n[out->p.nnodes] = s->node[v].n;
        cost[out->p.nnodes++] = s->node[v].cost;
    }
    for (uint32_t e = 0; e < s->edge.len; e++) {
        const ap_pre_edge *x = &s->edge.at[e];
        if (!x->live)
            continue;
        edge_place[e] = out->p.nedges;
        edge[out->p.nedges++] = (ap_problem_edge){s->place[x->u], s->place[x->v], x->cost};
    }
    out->p.nstrategies = n;
    out->p.cost = cost;
    out->p.edge = edge;
    extract_demands(s, edge_place, &out->p);
}

static uint32_t index_of(const uint32_t *id, uint32_t n, uint32_t x)
{
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (id[mid] < x)
            lo = mid + 1;
        else
            hi = mid;
    }
    assert(lo < n && id[lo] == x);
    return lo;
}

void ap_pre_undo(const ap_pre *s, const uint32_t *choice, uint32_t *out)
{
    for (uint32_t v = 0; v < s->nnodes; v++)
        if (s->place[v] != AP_NONE)
            out[v] = s->node[v].id[choice[s->place[v]]];
    for (uint32_t i = s->log.len; i-- > 0;) {
        const ap_pre_line *x = &s->log.at[i];
        uint32_t a = x->a == AP_NONE ? 0 : index_of(x->id_a, x->na, out[x->a]);
        uint32_t b = x->b == AP_NONE ? 0 : index_of(x->id_b, x->nb, out[x->b]);
        out[x->node] = x->map[(size_t)a * x->nb + b];
    }
}
