/* The graph of states: see sweep.h. The layout of a state is the same for all states of a step, so a state is a row of
 * 32-bit numbers: strategies of pending nodes, then units held per interval. */
#include "passes/solve/sweep.h"

#include <string.h>

/* Rows [lo, hi) of something held; lo is at least the first row that is not complete. */
typedef struct span {
    uint32_t lo, hi;
} span;

typedef struct layout {
    uint32_t npending, *pending; /* nodes */
    uint32_t nspans;
    span *span;
    uint32_t row; /* first row that is not complete */
} layout;

/* Something that joins at a step: held[strategy] or, of a pair, held[own * own_stride + other * other_stride]. */
typedef struct item {
    uint32_t span;  /* in the step's wide layout */
    uint32_t other; /* place among the pending, AP_NONE: a node's own */
    size_t own_stride, other_stride;
    const int64_t *usage;
} item;

typedef struct link {
    uint32_t other; /* place among the pending */
    size_t own_stride, other_stride;
    const int64_t *cost, *priced;
} link;

typedef struct builder {
    ap_arena *arena; /* of the result */
    ap_arena scratch;
    const ap_kernel *k;
    const ap_sweep_order *o;
    const ap_sweep_bound *bound;
    const ap_sweep_limits *limits;
    int64_t unit;
    ap_effort *effort;
    ap_sweep_graph *g;
    uint32_t step;          /* in hand */
    uint32_t *row_step;     /* per row: the step that completes it */
    int64_t *rest;          /* per row: the least that nodes still to come hold */
    int64_t least_resident; /* units, of all nodes */
    int64_t rest_resident;  /* of nodes still to come */
    int64_t floor;          /* room that any path of the window needs */
    __int128 most;          /* priced sums from here on lead to nothing better */
    layout now, next;
    span *wide;            /* spans of now, then those of what joins, with starts as they are */
    uint32_t nwide, *fold; /* wide -> span of next, AP_NONE: over */
    AP_VEC(item) items;
    AP_VEC(link) links;
    int32_t *resident;     /* units, per strategy of the node that joins */
    uint32_t *keep;        /* per pending of next: place among those of now, AP_NONE: the node that joins */
    int32_t *state, *made; /* states of now, of next: rows of width npending + nspans */
    uint32_t nnow, nnext, capacity;
    int64_t *down, *next_down; /* per state: the least priced sum that leads to it */
    int64_t *held, *next_held; /* per state: the least resident sum */
    uint32_t *scope;           /* per node of the bound's table: place among next's pending */
    uint32_t *table, mask;     /* hash of next's states */
    int64_t *line;             /* scratch: units per wide span */
    int32_t *row;              /* scratch: a state of next */
} builder;

int64_t ap_sweep_unit(const ap_kernel *k)
{
    const ap_problem *p = &k->p;
    int64_t unit = 0;
    __int128 total = 0;
    for (uint32_t d = 0; d < p->ndemands; d++) {
        int64_t most = 0;
        for (uint32_t i = 0; i < p->nstrategies[p->demand[d].node]; i++) {
            unit = ap_gcd_i64(unit, p->demand[d].usage[i]);
            most = ap_max_i64(most, p->demand[d].usage[i]);
        }
        total += most;
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        const ap_problem_edge *e = &p->edge[p->pair_demand[d].edge];
        size_t n = (size_t)p->nstrategies[e->u] * p->nstrategies[e->v];
        int64_t most = 0;
        for (size_t i = 0; i < n; i++) {
            unit = ap_gcd_i64(unit, p->pair_demand[d].usage[i]);
            most = ap_max_i64(most, p->pair_demand[d].usage[i]);
        }
        total += most;
    }
    unit = unit ? unit : 1;
    return total / unit < INT32_MAX / 2 ? unit : 0;
}

/* ---- rows ---- */

static void complete_later(builder *b, uint32_t lo, uint32_t hi, uint32_t step)
{
    for (uint32_t r = lo; r < hi; r++)
        if (b->row_step[r] < step)
            b->row_step[r] = step;
}

static int64_t least_of(const int64_t *usage, size_t n)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < n; i++)
        least = ap_min_i64(least, usage[i]);
    return least;
}

static void rest_add(builder *b, uint32_t lo, uint32_t hi, int64_t units)
{
    for (uint32_t r = lo; r < hi && units; r++)
        b->rest[r] += units;
}

static uint32_t pair_step(const builder *b, const ap_pair_demand *d)
{
    const ap_problem_edge *e = &b->k->p.edge[d->edge];
    return b->o->step[e->u] > b->o->step[e->v] ? b->o->step[e->u] : b->o->step[e->v];
}

static void find_rows(builder *b)
{
    const ap_problem *p = &b->k->p;
    b->row_step = ap_arena_calloc(&b->scratch, (size_t)b->k->nrows + 1, sizeof *b->row_step);
    b->rest = ap_arena_calloc(&b->scratch, (size_t)b->k->nrows + 1, sizeof *b->rest);
    for (uint32_t d = 0; d < p->ndemands; d++) {
        const ap_demand *x = &p->demand[d];
        int64_t least = least_of(x->usage, p->nstrategies[x->node]) / b->unit;
        if (ap_sweep_is_resident(b->k, x)) {
            int64_t most = 0;
            for (uint32_t i = 0; i < p->nstrategies[x->node]; i++)
                most = ap_max_i64(most, x->usage[i] / b->unit);
            b->least_resident += least;
            b->g->most_resident += most;
            continue;
        }
        complete_later(b, x->lo, x->hi, b->o->step[x->node]);
        rest_add(b, x->lo, x->hi, least);
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        const ap_pair_demand *x = &p->pair_demand[d];
        const ap_problem_edge *e = &p->edge[x->edge];
        complete_later(b, x->lo, x->hi, pair_step(b, x));
        rest_add(b, x->lo, x->hi, least_of(x->usage, (size_t)p->nstrategies[e->u] * p->nstrategies[e->v]) / b->unit);
    }
}

/* ---- the layout of a step ---- */

static uint32_t add_span(span *list, uint32_t *n, uint32_t lo, uint32_t hi)
{
    for (uint32_t i = 0; i < *n; i++)
        if (list[i].lo == lo && list[i].hi == hi)
            return i;
    list[*n] = (span){lo, hi};
    return (*n)++;
}

static uint32_t place_of(const layout *l, uint32_t node)
{
    for (uint32_t i = 0; i < l->npending; i++)
        if (l->pending[i] == node)
            return i;
    return AP_NONE;
}

static void add_item(builder *b, uint32_t lo, uint32_t hi, item it)
{
    lo = lo > b->now.row ? lo : b->now.row;
    if (lo >= hi)
        return;
    it.span = add_span(b->wide, &b->nwide, lo, hi);
    ap_vec_push(&b->scratch, &b->items, it);
}

static void add_resident(builder *b, const ap_demand *d)
{
    for (uint32_t i = 0; i < b->k->p.nstrategies[d->node]; i++)
        b->resident[i] += (int32_t)(d->usage[i] / b->unit);
}

/* What joins with node v at step s. */
static void find_items(builder *b, uint32_t s, uint32_t v)
{
    const ap_problem *p = &b->k->p;
    b->items.len = b->links.len = 0;
    memset(b->resident, 0, p->nstrategies[v] * sizeof *b->resident);
    memcpy(b->wide, b->now.span, b->now.nspans * sizeof *b->wide);
    b->nwide = b->now.nspans;
    for (uint32_t d = 0; d < p->ndemands; d++) {
        const ap_demand *x = &p->demand[d];
        if (x->node != v)
            continue;
        if (ap_sweep_is_resident(b->k, x))
            add_resident(b, x);
        else
            add_item(b, x->lo, x->hi, (item){.other = AP_NONE, .own_stride = 1, .usage = x->usage});
    }
    for (uint32_t i = b->o->edge_at[v]; i < b->o->edge_at[v + 1]; i++) {
        const ap_problem_edge *e = &p->edge[b->o->edge_of[i]];
        uint32_t w = ap_sweep_other(b->k, b->o->edge_of[i], v), n = p->nstrategies[e->v];
        if (b->o->step[w] > s)
            continue;
        ap_vec_push(&b->scratch, &b->links,
                    ((link){place_of(&b->now, w), e->u == v ? n : 1, e->u == v ? 1 : n, e->cost,
                            b->bound->edge[b->o->edge_of[i]]}));
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        const ap_pair_demand *x = &p->pair_demand[d];
        const ap_problem_edge *e = &p->edge[x->edge];
        if ((e->u != v && e->v != v) || pair_step(b, x) != s)
            continue;
        uint32_t n = p->nstrategies[e->v];
        add_item(b, x->lo, x->hi,
                 (item){.other = place_of(&b->now, e->u == v ? e->v : e->u),
                        .own_stride = e->u == v ? n : 1,
                        .other_stride = e->u == v ? 1 : n,
                        .usage = x->usage});
    }
}

/* Nodes after the step that still have a neighbour to come. */
static void next_pending(builder *b, uint32_t s, uint32_t v)
{
    layout *l = &b->next;
    l->npending = 0;
    for (uint32_t i = 0; i <= b->now.npending; i++) {
        uint32_t u = i < b->now.npending ? b->now.pending[i] : v;
        bool waits = false;
        for (uint32_t j = b->o->edge_at[u]; j < b->o->edge_at[u + 1]; j++)
            waits |= b->o->step[ap_sweep_other(b->k, b->o->edge_of[j], u)] > s;
        if (!waits)
            continue;
        b->keep[l->npending] = i < b->now.npending ? i : AP_NONE;
        l->pending[l->npending++] = u;
    }
}

static void next_layout(builder *b, uint32_t s, uint32_t v)
{
    layout *l = &b->next;
    next_pending(b, s, v);
    l->row = b->now.row;
    while (l->row < b->k->nrows && b->row_step[l->row] <= s)
        l->row++;
    l->nspans = 0;
    for (uint32_t i = 0; i < b->nwide; i++) {
        uint32_t lo = b->wide[i].lo > l->row ? b->wide[i].lo : l->row;
        b->fold[i] = lo < b->wide[i].hi ? add_span(l->span, &l->nspans, lo, b->wide[i].hi) : AP_NONE;
    }
}

/* The least that what joins would have held is no longer to come. */
static void take_from_rest(builder *b, uint32_t s, uint32_t v)
{
    const ap_problem *p = &b->k->p;
    for (uint32_t d = 0; d < p->ndemands; d++) {
        const ap_demand *x = &p->demand[d];
        if (x->node == v && !ap_sweep_is_resident(b->k, x))
            rest_add(b, x->lo, x->hi, -(least_of(x->usage, p->nstrategies[v]) / b->unit));
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        const ap_pair_demand *x = &p->pair_demand[d];
        const ap_problem_edge *e = &p->edge[x->edge];
        size_t n = (size_t)p->nstrategies[e->u] * p->nstrategies[e->v];
        if ((e->u == v || e->v == v) && pair_step(b, x) == s)
            rest_add(b, x->lo, x->hi, -(least_of(x->usage, n) / b->unit));
    }
}

/* ---- states ---- */

static uint32_t width(const layout *l)
{
    return l->npending + l->nspans;
}

static uint32_t hash_row(const int32_t *row, uint32_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ (uint32_t)row[i]) * 0xbf58476d1ce4e5b9u;
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 32);
}

static void table_clear(builder *b, uint32_t slots)
{
    b->mask = slots - 1;
    b->table = AP_NEW_ARRAY(&b->scratch, uint32_t, slots);
    memset(b->table, 0xff, slots * sizeof *b->table);
}

static void table_put(builder *b, uint32_t state)
{
    uint32_t n = width(&b->next), at = hash_row(b->made + (size_t)state * n, n) & b->mask;
    while (b->table[at] != AP_NONE)
        at = (at + 1) & b->mask;
    b->table[at] = state;
}

static int64_t *grown(builder *b, const int64_t *list)
{
    int64_t *more = AP_NEW_ARRAY(&b->scratch, int64_t, (size_t)b->capacity * 2);
    memcpy(more, list, b->capacity * sizeof *more);
    return more;
}

/* The number of b->row among next's states. */
static uint32_t find_state(builder *b)
{
    uint32_t n = width(&b->next), at = hash_row(b->row, n) & b->mask;
    for (; b->table[at] != AP_NONE; at = (at + 1) & b->mask)
        if (memcmp(b->made + (size_t)b->table[at] * n, b->row, n * sizeof *b->row) == 0)
            return b->table[at];
    if (b->nnext == b->capacity) {
        int32_t *more = AP_NEW_ARRAY(&b->scratch, int32_t, (size_t)b->capacity * 2 * n + 1);
        memcpy(more, b->made, (size_t)b->capacity * n * sizeof *more);
        b->made = more;
        b->next_down = grown(b, b->next_down);
        b->next_held = grown(b, b->next_held);
        b->capacity *= 2;
        table_clear(b, b->capacity * 4);
        for (uint32_t i = 0; i < b->nnext; i++)
            table_put(b, i);
    }
    memcpy(b->made + (size_t)b->nnext * n, b->row, n * sizeof *b->row);
    table_put(b, b->nnext);
    b->next_down[b->nnext] = b->next_held[b->nnext] = INT64_MAX;
    return b->nnext++;
}

/* ---- arcs ---- */

static int64_t held_in(const builder *b, uint32_t row)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < b->nwide; i++)
        sum += b->wide[i].lo <= row && row < b->wide[i].hi ? b->line[i] : 0;
    return sum;
}

/* The least room in rows that are complete; false when what is held fits nowhere. */
static bool find_room(const builder *b, int64_t *out)
{
    *out = INT32_MAX;
    for (uint32_t r = b->now.row; r < b->next.row; r++) {
        /* only where something starts can there be less room than before, or at a smaller right side */
        int64_t rhs = b->k->rhs[r] < 0 ? -1 : b->k->rhs[r] / b->unit;
        *out = ap_min_i64(*out, rhs - held_in(b, r));
        if (*out < b->floor)
            return false;
    }
    for (uint32_t i = 0; i < b->nwide; i++) {
        uint32_t r = b->wide[i].lo > b->next.row ? b->wide[i].lo : b->next.row;
        if (r >= b->wide[i].hi)
            continue;
        int64_t rhs = b->k->rhs[r] < 0 ? -1 : b->k->rhs[r] / b->unit;
        if (rhs - held_in(b, r) - b->rest[r] < b->floor)
            return false;
    }
    return true;
}

static bool arc_cost(const builder *b, uint32_t v, uint32_t i, const int32_t *state, int64_t *out, int64_t *out_priced)
{
    int64_t sum = b->k->p.cost[v][i], priced = b->bound->node[v][i];
    if (sum == AP_FORBIDDEN)
        return false;
    for (uint32_t l = 0; l < b->links.len; l++) {
        const link *x = &b->links.at[l];
        size_t at = i * x->own_stride + (size_t)state[x->other] * x->other_stride;
        if (x->cost[at] == AP_FORBIDDEN)
            return false;
        sum += x->cost[at];
        priced += x->priced[at];
    }
    *out = sum;
    *out_priced = priced;
    return true;
}

/* The least priced sum from b->row to the end. */
static int64_t togo(const builder *b, uint32_t step)
{
    size_t at = 0;
    for (uint32_t j = 0; j < b->bound->nscope[step]; j++)
        at = at * b->k->p.nstrategies[b->bound->scope[step][j]] + (size_t)b->row[b->scope[j]];
    return b->bound->value[step][at];
}

/* An arc of the same state to the same one that is no worse? */
static bool is_dominated(const builder *b, uint32_t first, const ap_sweep_arc *a)
{
    for (uint32_t i = first; i < b->g->arcs.len; i++) {
        const ap_sweep_arc *x = &b->g->arcs.at[i];
        if (x->to == a->to && x->cost <= a->cost && x->resident <= a->resident && x->room >= a->room)
            return true;
    }
    return false;
}

/* b->line: what is held if node v takes strategy i. */
static void add_items(builder *b, uint32_t i, const int32_t *state)
{
    for (uint32_t j = 0; j < b->nwide; j++)
        b->line[j] = j < b->now.nspans ? state[b->now.npending + j] : 0;
    for (uint32_t j = 0; j < b->items.len; j++) {
        const item *it = &b->items.at[j];
        size_t at = i * it->own_stride + (it->other == AP_NONE ? 0 : (size_t)state[it->other] * it->other_stride);
        b->line[it->span] += it->usage[at] / b->unit;
    }
}

static void make_row(builder *b, uint32_t i, const int32_t *state)
{
    for (uint32_t j = 0; j < b->next.npending; j++)
        b->row[j] = b->keep[j] == AP_NONE ? (int32_t)i : state[b->keep[j]];
    memset(b->row + b->next.npending, 0, b->next.nspans * sizeof *b->row);
    for (uint32_t j = 0; j < b->nwide; j++)
        if (b->fold[j] != AP_NONE)
            b->row[b->next.npending + b->fold[j]] += (int32_t)b->line[j];
}

static void make_arc(builder *b, uint32_t v, uint32_t i, uint32_t from, uint32_t first_arc, uint32_t base)
{
    const int32_t *state = b->state + (size_t)from * width(&b->now);
    ap_sweep_arc a = {.from = b->g->first[b->step] + from, .strategy = i};
    int64_t room, priced;
    if (!arc_cost(b, v, i, state, &a.cost, &priced))
        return;
    a.resident = b->resident[i];
    int64_t held = b->held[from] + a.resident;
    if (held + b->rest_resident > b->limits->hi)
        return;
    add_items(b, i, state);
    if (!find_room(b, &room) || held + b->rest_resident > room)
        return;
    make_row(b, i, state);
    int64_t rest = togo(b, b->step + 1);
    if (AP_ELIM_FORBIDDEN(rest) || (__int128)b->down[from] + priced + rest >= b->most)
        return;
    a.room = (int32_t)room;
    uint32_t to = find_state(b);
    a.to = base + to;
    b->next_down[to] = ap_min_i64(b->next_down[to], b->down[from] + priced);
    b->next_held[to] = ap_min_i64(b->next_held[to], held);
    if (!is_dominated(b, first_arc, &a))
        ap_vec_push(b->arena, &b->g->arcs, a);
}

static bool make_arcs(builder *b, uint32_t v)
{
    uint32_t base = b->g->first[b->step] + b->nnow;
    for (uint32_t from = 0; from < b->nnow; from++) {
        uint32_t first = b->g->arcs.len;
        for (uint32_t i = 0; i < b->k->p.nstrategies[v]; i++)
            make_arc(b, v, i, from, first, base);
        ap_effort_charge(b->effort, b->k->p.nstrategies[v] / 8 + 1);
        if (b->g->arcs.len > b->limits->most || (from % 1024 == 0 && ap_effort_spent(b->effort)))
            return false;
    }
    return true;
}

/* Where the nodes of the bound's table stand in states after the step. */
static void find_scope(builder *b)
{
    for (uint32_t j = 0; j < b->bound->nscope[b->step + 1]; j++)
        b->scope[j] = place_of(&b->next, b->bound->scope[b->step + 1][j]);
}

/* Each demand's least by itself, as in find_rows. */
static int64_t least_resident_of(const builder *b, uint32_t v)
{
    const ap_problem *p = &b->k->p;
    int64_t sum = 0;
    for (uint32_t d = 0; d < p->ndemands; d++)
        if (p->demand[d].node == v && ap_sweep_is_resident(b->k, &p->demand[d]))
            sum += least_of(p->demand[d].usage, p->nstrategies[v]) / b->unit;
    return sum;
}

/* False when the graph becomes too large. */
static bool make_step(builder *b)
{
    uint32_t s = b->step, v = b->o->node[s];
    find_items(b, s, v);
    next_layout(b, s, v);
    take_from_rest(b, s, v);
    find_scope(b);
    b->rest_resident -= least_resident_of(b, v);
    b->capacity = 256;
    b->made = AP_NEW_ARRAY(&b->scratch, int32_t, (size_t)b->capacity * width(&b->next) + 1);
    b->next_down = AP_NEW_ARRAY(&b->scratch, int64_t, b->capacity);
    b->next_held = AP_NEW_ARRAY(&b->scratch, int64_t, b->capacity);
    b->nnext = 0;
    table_clear(b, b->capacity * 4);
    if (!make_arcs(b, v))
        return false;
    b->g->first[s + 1] = b->g->first[s] + b->nnow;
    b->state = b->made;
    b->down = b->next_down;
    b->held = b->next_held;
    b->nnow = b->nnext;
    layout l = b->now;
    b->now = b->next;
    b->next = l;
    return true;
}

static void init_layouts(builder *b)
{
    const ap_problem *p = &b->k->p;
    size_t spans = (size_t)p->ndemands + p->npair_demands + 1;
    for (int i = 0; i < 2; i++) {
        layout *l = i ? &b->next : &b->now;
        *l = (layout){.pending = AP_NEW_ARRAY(&b->scratch, uint32_t, p->nnodes + 1),
                      .span = AP_NEW_ARRAY(&b->scratch, span, spans)};
    }
    b->wide = AP_NEW_ARRAY(&b->scratch, span, 2 * spans);
    b->fold = AP_NEW_ARRAY(&b->scratch, uint32_t, 2 * spans);
    b->line = AP_NEW_ARRAY(&b->scratch, int64_t, 2 * spans);
    b->keep = AP_NEW_ARRAY(&b->scratch, uint32_t, p->nnodes + 1);
    b->row = AP_NEW_ARRAY(&b->scratch, int32_t, p->nnodes + 2 * spans);
    uint32_t widest = 1;
    for (uint32_t v = 0; v < p->nnodes; v++)
        widest = p->nstrategies[v] > widest ? p->nstrategies[v] : widest;
    b->resident = AP_NEW_ARRAY(&b->scratch, int32_t, widest);
    b->scope = AP_NEW_ARRAY(&b->scratch, uint32_t, p->nnodes + 1);
    b->state = ap_arena_calloc(&b->scratch, 1, sizeof *b->state);
    b->down = ap_arena_calloc(&b->scratch, 1, sizeof *b->down);
    b->held = ap_arena_calloc(&b->scratch, 1, sizeof *b->held);
    b->nnow = 1;
    b->g->first = ap_arena_calloc(b->arena, (size_t)p->nnodes + 2, sizeof *b->g->first);
}

static bool make(builder *b)
{
    find_rows(b);
    init_layouts(b);
    b->rest_resident = b->least_resident;
    b->floor = ap_max_i64(b->least_resident, b->limits->lo);
    b->most = b->limits->best == INT64_MAX ? (__int128)1 << 100
                                           : (__int128)b->limits->best * b->bound->scale + b->bound->back;
    b->g->nsteps = b->o->n;
    for (; b->step < b->o->n && b->nnow > 0; b->step++)
        if (!make_step(b)) {
            b->g->nsteps_made = b->step;
            return false;
        }
    b->g->nstates = b->g->first[b->step] + b->nnow;
    b->g->empty = b->nnow == 0;
    return true;
}

bool ap_sweep_graph_make(ap_arena *arena, const ap_kernel *k, const ap_sweep_order *o, const ap_sweep_bound *bound,
                         int64_t unit, const ap_sweep_limits *limits, ap_effort *effort, ap_sweep_graph *out)
{
    builder b = {
        .arena = arena, .k = k, .o = o, .bound = bound, .limits = limits, .unit = unit, .effort = effort, .g = out};
    *out = (ap_sweep_graph){0};
    ap_arena_init(&b.scratch, arena->out_of_memory, arena->user);
    bool made = make(&b);
    ap_arena_deinit(&b.scratch);
    return made;
}
