/* What is still to come, at least: see sweep.h. Tables are made from the last step back. */
#include "passes/solve/sweep.h"

#include <string.h>

#define TABLE_MOST ((size_t)1 << 18)
#define TABLES_MOST ((size_t)1 << 24)

/* An edge from the node that joins to one before it. */
typedef struct arc {
    uint32_t place; /* in the step's scope, AP_NONE: left out */
    size_t own_stride, other_stride;
    const int64_t *cost; /* place AP_NONE: the least, per own strategy */
} arc;

typedef struct maker {
    ap_arena *arena, scratch;
    const ap_kernel *k;
    const ap_sweep_order *o;
    ap_sweep_bound *b;
    AP_VEC(arc) arcs;
    uint32_t *at;   /* strategies of the scope */
    int64_t *sum;   /* per strategy of the node that joins */
    size_t *stride; /* per node of the scope: in the next table */
    size_t own;     /* of the node that joins there */
} maker;

static uint32_t size_of(const maker *m, uint32_t v)
{
    return m->k->p.nstrategies[v];
}

static bool waits(const maker *m, uint32_t u, uint32_t step)
{
    for (uint32_t i = m->o->edge_at[u]; i < m->o->edge_at[u + 1]; i++)
        if (m->o->step[ap_sweep_other(m->k, m->o->edge_of[i], u)] > step)
            return true;
    return false;
}

/* Scopes, from the first step on: what was in the last one or joins, and waits; the largest go where it is too much. */
static void make_scopes(maker *m)
{
    uint32_t n = m->o->n, *list = AP_NEW_ARRAY(&m->scratch, uint32_t, n + 2);
    m->b->nscope = ap_arena_calloc(m->arena, (size_t)n + 1, sizeof *m->b->nscope);
    m->b->scope = AP_NEW_ARRAY(m->arena, uint32_t *, n + 1);
    m->b->value = AP_NEW_ARRAY(m->arena, int64_t *, n + 1);
    m->b->scope[0] = list;
    size_t all = 0;
    for (uint32_t s = 0; s < n; s++) {
        uint32_t count = 0;
        size_t size = 1;
        for (uint32_t i = 0; i <= m->b->nscope[s]; i++) {
            uint32_t u = i < m->b->nscope[s] ? m->b->scope[s][i] : m->o->node[s];
            if (!waits(m, u, s))
                continue;
            list[count++] = u;
            size *= size_of(m, u);
            while (count > 0 && (size > TABLE_MOST || all + size > TABLES_MOST)) {
                uint32_t worst = 0;
                for (uint32_t j = 1; j < count; j++)
                    worst = size_of(m, list[j]) > size_of(m, list[worst]) ? j : worst;
                size /= size_of(m, list[worst]);
                memmove(list + worst, list + worst + 1, (--count - worst) * sizeof *list);
            }
        }
        all += size;
        m->b->nscope[s + 1] = count;
        m->b->scope[s + 1] = ap_arena_memdup(m->arena, list, (count + 1) * sizeof *list);
    }
}

static uint32_t place_in(const uint32_t *list, uint32_t n, uint32_t v)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == v)
            return i;
    return AP_NONE;
}

/* For each own strategy the least over the other end's. */
static const int64_t *least_over(maker *m, const arc *a, uint32_t own, uint32_t other)
{
    int64_t *least = AP_NEW_ARRAY(&m->scratch, int64_t, own);
    for (uint32_t i = 0; i < own; i++) {
        least[i] = AP_ELIM_INF;
        for (uint32_t j = 0; j < other; j++)
            least[i] = ap_min_i64(least[i], a->cost[i * a->own_stride + j * a->other_stride]);
    }
    return least;
}

static void find_arcs(maker *m, uint32_t s, uint32_t v)
{
    m->arcs.len = 0;
    for (uint32_t i = m->o->edge_at[v]; i < m->o->edge_at[v + 1]; i++) {
        uint32_t edge = m->o->edge_of[i], w = ap_sweep_other(m->k, edge, v);
        const ap_problem_edge *e = &m->k->p.edge[edge];
        if (m->o->step[w] > s)
            continue;
        uint32_t n = m->k->p.nstrategies[e->v];
        arc a = {place_in(m->b->scope[s], m->b->nscope[s], w), e->u == v ? n : 1, e->u == v ? 1 : n, m->b->edge[edge]};
        if (a.place == AP_NONE) {
            a.cost = least_over(m, &a, size_of(m, v), size_of(m, w));
            a.own_stride = 1;
        }
        ap_vec_push(&m->scratch, &m->arcs, a);
    }
    size_t stride = 1;
    memset(m->stride, 0, (m->b->nscope[s] + 1) * sizeof *m->stride);
    m->own = 0;
    for (uint32_t j = m->b->nscope[s + 1]; j-- > 0;) {
        uint32_t u = m->b->scope[s + 1][j];
        if (u == v)
            m->own = stride;
        else
            m->stride[place_in(m->b->scope[s], m->b->nscope[s], u)] = stride;
        stride *= size_of(m, u);
    }
}

/* The least over the strategies of the node that joins, for the strategies `at` of the scope. */
static int64_t least_at(maker *m, uint32_t s, uint32_t v)
{
    uint32_t n = size_of(m, v);
    const int64_t *next = m->b->value[s + 1];
    size_t base = 0;
    int64_t least = AP_ELIM_INF;
    memcpy(m->sum, m->b->node[v], n * sizeof *m->sum);
    for (uint32_t j = 0; j < m->b->nscope[s]; j++)
        base += m->stride[j] * m->at[j];
    for (uint32_t l = 0; l < m->arcs.len; l++) {
        const arc *a = &m->arcs.at[l];
        const int64_t *c = a->cost + (a->place == AP_NONE ? 0 : m->at[a->place] * a->other_stride);
        for (uint32_t i = 0; i < n; i++) /* sums of forbidden ones stay forbidden and within the range */
            m->sum[i] = ap_min_i64(AP_ELIM_INF, m->sum[i] + c[i * a->own_stride]);
    }
    for (uint32_t i = 0; i < n; i++)
        least = ap_min_i64(least, m->sum[i] + next[base + i * m->own]);
    return ap_min_i64(least, AP_ELIM_INF);
}

static void make_table(maker *m, uint32_t s, ap_effort *effort)
{
    uint32_t v = m->o->node[s], scopes = m->b->nscope[s];
    size_t size = 1;
    for (uint32_t j = 0; j < scopes; j++)
        size *= size_of(m, m->b->scope[s][j]);
    m->b->value[s] = AP_NEW_ARRAY(m->arena, int64_t, size);
    find_arcs(m, s, v);
    memset(m->at, 0, (scopes + 1) * sizeof *m->at);
    for (size_t i = 0; i < size; i++) {
        m->b->value[s][i] = least_at(m, s, v);
        for (uint32_t j = scopes; j-- > 0;) {
            if (++m->at[j] < size_of(m, m->b->scope[s][j]))
                break;
            m->at[j] = 0;
        }
    }
    ap_effort_charge(effort, size * size_of(m, v) * (m->arcs.len + 1) / 1000 + 1);
}

void ap_sweep_bound_make(ap_arena *arena, const ap_kernel *k, const ap_sweep_order *o, ap_dual *d, ap_effort *effort,
                         ap_sweep_bound *out)
{
    maker m = {.arena = arena, .k = k, .o = o, .b = out};
    uint32_t widest = 1;
    ap_arena_init(&m.scratch, arena->out_of_memory, arena->user);
    int64_t **edge = AP_NEW_ARRAY(arena, int64_t *, k->p.nedges + 1);
    ap_dual_price(d, edge);
    *out = (ap_sweep_bound){.scale = d->scale, .back = d->back, .node = d->node_cost, .edge = edge};
    for (uint32_t v = 0; v < k->p.nnodes; v++)
        widest = k->p.nstrategies[v] > widest ? k->p.nstrategies[v] : widest;
    make_scopes(&m);
    m.at = AP_NEW_ARRAY(&m.scratch, uint32_t, o->n + 1);
    m.stride = AP_NEW_ARRAY(&m.scratch, size_t, o->n + 1);
    m.sum = AP_NEW_ARRAY(&m.scratch, int64_t, widest);
    out->value[o->n] = ap_arena_calloc(arena, 1, sizeof(int64_t));
    for (uint32_t s = o->n; s-- > 0;)
        make_table(&m, s, effort);
    ap_arena_deinit(&m.scratch);
}
