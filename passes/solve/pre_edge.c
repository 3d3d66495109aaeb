/* Reductions that look at one edge: strategies without a partner go; row and column minima move into the nodes, and
 * an edge of zeros goes (so one that is u(i) + v(j) goes); where every strategy of one end allows exactly one of the
 * other, the other end follows and becomes part of the first. */
#include "passes/solve/presolve.h"

#include <string.h>

/* Entries that the matrices of a follower may grow to when they are restated for its leader. */
#define FOLLOW_ENTRIES ((uint64_t)1 << 22)

/* Least entries of the lines of edge e that belong to its end v, matrix read row by row. */
static void least_entries(ap_pre *s, uint32_t e, uint32_t v, int64_t *least)
{
    const ap_pre_edge *x = &s->edge.at[e];
    uint32_t nu = s->node[x->u].n, nv = s->node[x->v].n;
    for (uint32_t i = 0; i < s->node[v].n; i++)
        least[i] = AP_FORBIDDEN;
    for (uint32_t i = 0; i < nu; i++) {
        const int64_t *row = x->cost + (size_t)i * nv;
        if (x->u == v) {
            int64_t most = AP_FORBIDDEN;
            for (uint32_t j = 0; j < nv; j++)
                most = row[j] < most ? row[j] : most;
            least[i] = most;
        } else {
            for (uint32_t j = 0; j < nv; j++)
                least[j] = row[j] < least[j] ? row[j] : least[j];
        }
    }
}

static void take_off(ap_pre *s, uint32_t e, uint32_t v, const int64_t *least)
{
    ap_pre_edge *x = &s->edge.at[e];
    uint32_t nu = s->node[x->u].n, nv = s->node[x->v].n;
    for (uint32_t i = 0; i < nu; i++) {
        int64_t *row = x->cost + (size_t)i * nv;
        if (x->u == v && least[i] == 0)
            continue;
        for (uint32_t j = 0; j < nv; j++) {
            int64_t off = least[x->u == v ? i : j];
            if (off != 0 && off != AP_FORBIDDEN)
                row[j] = ap_pre_add(s, row[j], -off);
        }
    }
}

/* Takes the least finite entry of every line off and adds it to the node's costs. True when a cost changed. */
static bool take_minima(ap_pre *s, uint32_t e, uint32_t v)
{
    ap_pre_node *x = &s->node[v];
    int64_t *least = s->line;
    bool changed = false;
    least_entries(s, e, v, least);
    for (uint32_t i = 0; i < x->n; i++) {
        if (least[i] == 0 || x->cost[i] == AP_FORBIDDEN) {
            least[i] = 0;
            continue;
        }
        x->cost[i] = ap_pre_add(s, x->cost[i], least[i]); /* no partner: forbidden */
        changed = true;
    }
    if (changed) {
        take_off(s, e, v, least);
        x->dirty = true;
    }
    return changed;
}

/* Strategies without a partner, and nothing else. True when there are some. */
static bool take_lonely(ap_pre *s, uint32_t e)
{
    bool lonely = false;
    const ap_pre_edge *x = &s->edge.at[e];
    ap_pre_node *u = &s->node[x->u], *v = &s->node[x->v];
    int64_t *met = s->line;
    memset(met, 0, v->n * sizeof *met);
    for (uint32_t i = 0; i < u->n; i++) {
        const int64_t *row = x->cost + (size_t)i * v->n;
        int64_t any = 0;
        for (uint32_t j = 0; j < v->n; j++) {
            int64_t allowed = row[j] != AP_FORBIDDEN;
            met[j] |= allowed;
            any |= allowed;
        }
        if (any == 0 && u->cost[i] != AP_FORBIDDEN) {
            u->cost[i] = AP_FORBIDDEN;
            u->dirty = lonely = true;
        }
    }
    for (uint32_t j = 0; j < v->n; j++)
        if (met[j] == 0 && v->cost[j] != AP_FORBIDDEN) {
            v->cost[j] = AP_FORBIDDEN;
            v->dirty = lonely = true;
        }
    s->edge.at[e].dirty |= lonely; /* forbidden strategies go first: come back then */
    return lonely;
}

static bool is_zero(const int64_t *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c[i] != 0)
            return false;
    return true;
}

/* For each strategy of v the only one allowed at the other end; NULL when some strategy allows more. */
static uint32_t *only_partner(ap_pre *s, uint32_t e, uint32_t v)
{
    ap_pre_view w = ap_pre_look(s, e, v);
    for (uint32_t i = 0; i < s->node[v].n; i++) {
        uint32_t allowed = 0;
        for (uint32_t k = 0; k < w.n_other && allowed < 2; k++)
            allowed += w.cost[i * w.row + k * w.column] != AP_FORBIDDEN;
        if (allowed != 1)
            return NULL;
    }
    uint32_t *map = AP_NEW_ARRAY(s->arena, uint32_t, s->node[v].n);
    for (uint32_t i = 0; i < s->node[v].n; i++)
        for (uint32_t k = 0; k < w.n_other; k++)
            if (w.cost[i * w.row + k * w.column] != AP_FORBIDDEN)
                map[i] = k;
    return map;
}

/* A matrix of edge (v, w) as seen by the leader of v: row i is row map[i]. */
static int64_t *restate(ap_pre *s, const int64_t *m, const ap_pre_view *w, const uint32_t *map, uint32_t n)
{
    int64_t *out = AP_NEW_ARRAY(s->arena, int64_t, (size_t)n * w->n_other);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < w->n_other; k++)
            out[(size_t)i * w->n_other + k] = m[map[i] * w->row + k * w->column];
    return out;
}

static void move_edge(ap_pre *s, uint32_t id, uint32_t u, uint32_t v, const uint32_t *map)
{
    ap_pre_view w = ap_pre_look(s, id, v);
    ap_pre_edge *x = &s->edge.at[id];
    uint32_t n = s->node[u].n;
    int64_t *cost = restate(s, x->cost, &w, map, n);
    for (uint32_t d = 0; d < x->demands.len; d++)
        x->demands.at[d].usage = restate(s, x->demands.at[d].usage, &w, map, n);
    x->cost = cost;
    x->u = u;
    x->v = w.other;
    x->dirty = true;
    s->node[w.other].dirty = true;
    ap_vec_push(s->arena, &s->node[u].edges, id);
}

static bool follow_fits(const ap_pre *s, uint32_t e, uint32_t u, uint32_t v)
{
    const ap_pre_node *y = &s->node[v];
    uint64_t before = 0, after = 0;
    for (uint32_t i = 0; i < y->edges.len; i++) {
        if (y->edges.at[i] == e)
            continue;
        uint64_t other = ap_pre_look(s, y->edges.at[i], v).n_other;
        before += other * y->n;
        after += other * s->node[u].n;
    }
    return after <= 2 * before || after <= FOLLOW_ENTRIES;
}

/* Node v takes map[i] whenever u takes i: costs, demands and edges of v become u's. */
static bool follow(ap_pre *s, uint32_t e, uint32_t u, uint32_t v, const uint32_t *map)
{
    ap_pre_node *x = &s->node[u], *y = &s->node[v];
    ap_pre_tidy(s, v); /* may merge a parallel edge into e: the partners stay the only ones */
    if (!s->edge.at[e].live || !follow_fits(s, e, u, v))
        return false;
    ap_pre_view w = ap_pre_look(s, e, u);
    int64_t *usage = AP_NEW_ARRAY(s->arena, int64_t, x->n);
    uint32_t *id = AP_NEW_ARRAY(s->arena, uint32_t, x->n);
    for (uint32_t i = 0; i < x->n; i++) {
        id[i] = y->id[map[i]];
        x->cost[i] = ap_pre_add(s, x->cost[i], ap_pre_add(s, y->cost[map[i]], w.cost[i * w.row + map[i] * w.column]));
    }
    for (uint32_t d = 0; d < y->demands.len; d++) {
        for (uint32_t i = 0; i < x->n; i++)
            usage[i] = y->demands.at[d].usage[map[i]];
        ap_pre_demand_add(s, &x->demands, y->demands.at[d].lo, y->demands.at[d].hi, usage, x->n);
    }
    ap_pre_edge *own = &s->edge.at[e];
    for (uint32_t d = 0; d < own->demands.len; d++) {
        for (uint32_t i = 0; i < x->n; i++)
            usage[i] = own->demands.at[d].usage[i * w.row + map[i] * w.column];
        ap_pre_demand_add(s, &x->demands, own->demands.at[d].lo, own->demands.at[d].hi, usage, x->n);
    }
    own->live = false;
    for (uint32_t i = 0; i < y->edges.len; i++)
        if (y->edges.at[i] != e)
            move_edge(s, y->edges.at[i], u, v, map);
    ap_pre_log(s, v, u, AP_NONE, id);
    x->dirty = true;
    return true;
}

/* Tries both directions; where both are possible, the end with fewer edges follows. */
static void follow_either(ap_pre *s, uint32_t e, uint32_t u, uint32_t v)
{
    uint32_t *map_u = s->node[v].keep ? NULL : only_partner(s, e, u);
    uint32_t *map_v = s->node[u].keep ? NULL : only_partner(s, e, v);
    bool v_first = map_u && (!map_v || s->node[v].edges.len <= s->node[u].edges.len);
    if (v_first && follow(s, e, u, v, map_u))
        return;
    if (map_v && follow(s, e, v, u, map_v))
        return;
    if (map_u && !v_first)
        follow(s, e, u, v, map_u);
}

/* True when e is gone or has to wait for its ends. */
static bool reduce_costs(ap_pre *s, uint32_t e, uint32_t u, uint32_t v)
{
    if (s->rules & AP_PRE_MINIMA) {
        take_minima(s, e, u);
        take_minima(s, e, v);
    }
    if ((s->rules & AP_PRE_MINIMA) && s->edge.at[e].demands.len == 0 &&
        is_zero(s->edge.at[e].cost, (size_t)s->node[u].n * s->node[v].n)) {
        s->edge.at[e].live = false;
        s->node[u].dirty = s->node[v].dirty = true;
        return true;
    }
    /* forbidden strategies go first: come back then */
    return s->edge.at[e].dirty = s->node[u].dirty || s->node[v].dirty;
}

void ap_pre_edge_reduce(ap_pre *s, uint32_t e)
{
    uint32_t u = s->edge.at[e].u, v = s->edge.at[e].v;
    if (s->quick ? take_lonely(s, e) : reduce_costs(s, e, u, v))
        return;
    if (s->rules & AP_PRE_FOLLOW)
        follow_either(s, e, u, v);
}
