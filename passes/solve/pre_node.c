/* Reductions that look at one node: forbidden strategies go; a node with one strategy is folded into its neighbours;
 * a dominated strategy goes; a node without demands and with at most two neighbours is eliminated. */
#include "passes/solve/presolve.h"

#include <string.h>

/* Comparisons of strategies that one visit may spend: entries looked at. */
#define DOMINANCE_WORK ((uint64_t)1 << 24)
#define LINES_MAX ((uint64_t)1 << 22)
#define PAIR_WORK ((uint64_t)1 << 24)

static void drop_forbidden(ap_pre *s, uint32_t v)
{
    ap_pre_node *x = &s->node[v];
    bool any = false, *drop = AP_NEW_ARRAY(s->arena, bool, x->n);
    for (uint32_t i = 0; i < x->n; i++) {
        drop[i] = x->cost[i] == AP_FORBIDDEN;
        any |= drop[i];
    }
    if (any)
        ap_pre_filter(s, v, drop);
    if (x->n == 0)
        s->infeasible = true;
}

/* The only strategy of v: its cost is a constant, its edges are costs of the other ends. */
static void fix(ap_pre *s, uint32_t v)
{
    ap_pre_node *x = &s->node[v];
    s->constant = ap_pre_add(s, s->constant, x->cost[0]);
    for (uint32_t i = 0; i < x->edges.len; i++) {
        ap_pre_edge *e = &s->edge.at[x->edges.at[i]];
        ap_pre_node *y = &s->node[e->u == v ? e->v : e->u];
        for (uint32_t k = 0; k < y->n; k++)
            y->cost[k] = ap_pre_add(s, y->cost[k], e->cost[k]);
        for (uint32_t d = 0; d < e->demands.len; d++)
            ap_pre_demand_add(s, &y->demands, e->demands.at[d].lo, e->demands.at[d].hi, e->demands.at[d].usage, y->n);
        e->live = false;
        y->dirty = true;
    }
    for (uint32_t d = 0; d < x->demands.len; d++)
        ap_pre_hold(s, x->demands.at[d].lo, x->demands.at[d].hi, x->demands.at[d].usage[0]);
    ap_pre_log(s, v, AP_NONE, AP_NONE, ap_arena_memdup(s->arena, x->id, sizeof *x->id));
}

/* ---- dominance ---- */

static bool demands_no_worse(const ap_pre *s, uint32_t v, uint32_t j, uint32_t i)
{
    const ap_pre_node *x = &s->node[v];
    for (uint32_t d = 0; d < x->demands.len; d++)
        if (x->demands.at[d].usage[j] > x->demands.at[d].usage[i])
            return false;
    for (uint32_t a = 0; a < x->edges.len; a++) {
        const ap_pre_edge *e = &s->edge.at[x->edges.at[a]];
        ap_pre_view w = ap_pre_look(s, x->edges.at[a], v);
        for (uint32_t d = 0; d < e->demands.len; d++)
            for (uint32_t k = 0; k < w.n_other; k++) {
                const int64_t *usage = e->demands.at[d].usage;
                if (w.cost[i * w.row + k * w.column] != AP_FORBIDDEN &&
                    usage[j * w.row + k * w.column] > usage[i * w.row + k * w.column])
                    return false;
            }
    }
    return true;
}

/* The node's strategies with their edges' costs side by side: line i holds what i costs with every strategy of every
 * neighbour. best[i * edges + a] is the cheapest entry of edge a in line i. */
typedef struct lines {
    uint32_t edges;
    size_t width;
    uint32_t *at; /* first entry of an edge; at[edges]: width */
    int64_t *cost;
    uint32_t *best;
} lines;

static lines lines_make(ap_pre *s, ap_arena *a, uint32_t v)
{
    const ap_pre_node *x = &s->node[v];
    lines l = {.edges = x->edges.len, .at = AP_NEW_ARRAY(a, uint32_t, x->edges.len + 1)};
    for (uint32_t e = 0; e < l.edges; e++)
        l.at[e + 1] = l.at[e] + ap_pre_look(s, x->edges.at[e], v).n_other;
    l.width = l.at[l.edges];
    l.cost = AP_NEW_ARRAY(a, int64_t, x->n * l.width);
    l.best = AP_NEW_ARRAY(a, uint32_t, (size_t)x->n * l.edges);
    for (uint32_t e = 0; e < l.edges; e++) {
        ap_pre_view w = ap_pre_look(s, x->edges.at[e], v);
        uint32_t outer = w.column == 1 ? x->n : w.n_other, inner = w.column == 1 ? w.n_other : x->n;
        for (uint32_t p = 0; p < outer; p++)
            for (uint32_t q = 0; q < inner; q++) {
                uint32_t i = w.column == 1 ? p : q, k = w.column == 1 ? q : p;
                l.cost[i * l.width + l.at[e] + k] = w.cost[(size_t)p * inner + q];
            }
        for (uint32_t i = 0; i < x->n; i++) {
            uint32_t best = l.at[e];
            for (uint32_t k = l.at[e]; k < l.at[e + 1]; k++)
                if (l.cost[i * l.width + k] < l.cost[i * l.width + best])
                    best = k;
            l.best[(size_t)i * l.edges + e] = best;
        }
    }
    return l;
}

/* Largest increase of an edge's cost when i becomes j; false when j forbids what i allows. */
static bool edge_increase(const int64_t *cj, const int64_t *ci, uint32_t n, int64_t *out)
{
    bool any = false;
    int64_t most = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (ci[k] == AP_FORBIDDEN)
            continue;
        if (cj[k] == AP_FORBIDDEN)
            return false;
        most = any ? ap_max_i64(most, cj[k] - ci[k]) : cj[k] - ci[k];
        any = true;
    }
    *out = any ? most : -AP_COST_MAX;
    return true;
}

/* Whatever the neighbours choose, j is no dearer and holds no more than i. */
static bool dominates(const ap_pre *s, uint32_t v, const lines *l, uint32_t j, uint32_t i)
{
    const ap_pre_node *x = &s->node[v];
    const int64_t *cj = l->cost + j * l->width, *ci = l->cost + i * l->width;
    __int128 increase = (__int128)x->cost[j] - x->cost[i], least = increase;
    if (l->edges == 0 && increase > 0)
        return false;
    for (uint32_t a = 0; a < l->edges; a++) { /* where i is at its best: most pairs fail here */
        uint32_t k = l->best[(size_t)i * l->edges + a];
        if (ci[k] == AP_FORBIDDEN)
            continue;
        if (cj[k] == AP_FORBIDDEN)
            return false;
        least += cj[k] - ci[k];
    }
    if (least > 0)
        return false;
    for (uint32_t a = 0; a < l->edges; a++) {
        int64_t most;
        if (!edge_increase(cj + l->at[a], ci + l->at[a], l->at[a + 1] - l->at[a], &most))
            return false;
        increase += most;
    }
    return increase <= 0 && demands_no_worse(s, v, j, i);
}

static uint64_t row_entries(const ap_pre *s, uint32_t v)
{
    uint64_t sum = 1;
    for (uint32_t a = 0; a < s->node[v].edges.len; a++)
        sum += ap_pre_look(s, s->node[v].edges.at[a], v).n_other;
    return sum;
}

static void drop_dominated(ap_pre *s, uint32_t v)
{
    ap_pre_node *x = &s->node[v];
    uint64_t budget = DOMINANCE_WORK / row_entries(s, v);
    if (row_entries(s, v) * x->n > LINES_MAX)
        return;
    lines l = lines_make(s, &s->scratch, v);
    bool any = false, *drop = AP_NEW_ARRAY(&s->scratch, bool, x->n);
    for (uint32_t i = 0; i < x->n; i++) {
        for (uint32_t j = 0; j < x->n && budget > 0 && !drop[i]; j++) {
            if (j == i || drop[j])
                continue;
            budget--;
            drop[i] = dominates(s, v, &l, j, i);
        }
        any |= drop[i];
    }
    if (any)
        ap_pre_filter(s, v, drop);
    ap_arena_reset(&s->scratch);
}

/* ---- elimination of nodes without demands ---- */

static void eliminate_alone(ap_pre *s, uint32_t v)
{
    ap_pre_node *x = &s->node[v];
    uint32_t best = 0;
    for (uint32_t i = 1; i < x->n; i++)
        if (x->cost[i] < x->cost[best])
            best = i;
    s->constant = ap_pre_add(s, s->constant, x->cost[best]);
    ap_pre_log(s, v, AP_NONE, AP_NONE, ap_arena_memdup(s->arena, &x->id[best], sizeof *x->id));
}

/* The best strategy of v for the pair (ka, kb); kb is ignored without b. */
static uint32_t best_for(ap_pre *s, const ap_pre_node *x, const ap_pre_view *a, const ap_pre_view *b, uint32_t ka,
                         uint32_t kb, int64_t *out_cost)
{
    uint32_t best = 0;
    int64_t least = AP_FORBIDDEN;
    for (uint32_t i = 0; i < x->n; i++) {
        int64_t c = ap_pre_add(s, x->cost[i], a->cost[i * a->row + ka * a->column]);
        if (b)
            c = ap_pre_add(s, c, b->cost[i * b->row + kb * b->column]);
        if (c < least) {
            least = c;
            best = i;
        }
    }
    *out_cost = least;
    return x->id[best];
}

static void eliminate_leaf(ap_pre *s, uint32_t v)
{
    ap_pre_node *x = &s->node[v];
    ap_pre_view a = ap_pre_look(s, x->edges.at[0], v);
    ap_pre_node *y = &s->node[a.other];
    uint32_t *map = AP_NEW_ARRAY(s->arena, uint32_t, y->n);
    for (uint32_t k = 0; k < y->n; k++) {
        int64_t c;
        map[k] = best_for(s, x, &a, NULL, k, 0, &c);
        y->cost[k] = ap_pre_add(s, y->cost[k], c);
    }
    ap_pre_log(s, v, a.other, AP_NONE, map);
    s->edge.at[x->edges.at[0]].live = false;
    y->dirty = true;
}

static void eliminate_between(ap_pre *s, uint32_t v)
{
    ap_pre_node *x = &s->node[v];
    ap_pre_view a = ap_pre_look(s, x->edges.at[0], v), b = ap_pre_look(s, x->edges.at[1], v);
    uint32_t na = a.n_other, nb = b.n_other;
    /* The new table should not be larger than the two that it replaces. */
    uint64_t size = (uint64_t)na * nb, before = (uint64_t)x->n * (na + nb);
    if (size * x->n > PAIR_WORK || (size > before && size > 1024))
        return;
    uint32_t *map = AP_NEW_ARRAY(s->arena, uint32_t, size);
    int64_t *cost = AP_NEW_ARRAY(s->arena, int64_t, size);
    for (uint32_t i = 0; i < na; i++)
        for (uint32_t j = 0; j < nb; j++)
            map[(size_t)i * nb + j] = best_for(s, x, &a, &b, i, j, &cost[(size_t)i * nb + j]);
    ap_pre_log(s, v, a.other, b.other, map);
    s->edge.at[x->edges.at[0]].live = s->edge.at[x->edges.at[1]].live = false;
    uint32_t id = s->edge.len;
    ap_vec_push(s->arena, &s->edge,
                (ap_pre_edge){.live = true, .dirty = true, .u = a.other, .v = b.other, .cost = cost});
    ap_vec_push(s->arena, &s->node[a.other].edges, id);
    ap_vec_push(s->arena, &s->node[b.other].edges, id);
    s->node[a.other].dirty = s->node[b.other].dirty = true;
}

void ap_pre_node_reduce(ap_pre *s, uint32_t v)
{
    ap_pre_tidy(s, v);
    drop_forbidden(s, v);
    ap_pre_node *x = &s->node[v];
    if (s->infeasible || x->keep)
        return;
    if (x->n > 1 && (s->rules & AP_PRE_DOMINATED) && !s->quick)
        drop_dominated(s, v);
    if (x->n == 1 && (s->rules & AP_PRE_SINGLE)) {
        fix(s, v);
        return;
    }
    if (s->quick || !(s->rules & AP_PRE_ELIMINATE) || x->edges.len > 2 || ap_pre_has_demands(s, v))
        return;
    if (x->edges.len == 0)
        eliminate_alone(s, v);
    else if (x->edges.len == 1)
        eliminate_leaf(s, v);
    else
        eliminate_between(s, v);
}
