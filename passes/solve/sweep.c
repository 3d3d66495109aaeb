/* The search in the graph of states: see sweep.h. */
#include "passes/solve/sweep.h"

#include <stdlib.h>
#include <string.h>

#define LABELS_MOST 2000000u
#define DEPTH_MOST 4
#define ROUNDS 40
#define NEVER (INT64_MAX / 2) /* no path */

/* A part of the graph: what windows have left of it. States are numbered anew, 0 is the start, the last the end. */
typedef struct part_arc {
    uint32_t from, to, id;
    int32_t resident, room;
    int64_t cost;
} part_arc;
typedef struct part {
    uint32_t nstates, narcs;
    part_arc *arc;
    int64_t lo, hi; /* window of the resident sum */
} part;

typedef struct path {
    bool found;
    int64_t cost, resident, room;
} path;

typedef struct search {
    const ap_kernel *k;
    const ap_sweep_order *order;
    const ap_sweep_bound *bound;
    int64_t unit;
    const ap_sweep_graph *g;
    ap_local *local;
    ap_effort *effort;
    ap_arena *arena, *scratch; /* of the graph in hand, of the call */
    int64_t best;              /* only what costs less matters */
    ap_sweep_sizes sizes;
    int64_t open; /* bound of windows that were not finished */
    int shift;    /* costs are multiplied by 2^shift where there is a price */
    int64_t price_most;
    int64_t *down, *up; /* per state: least to get here, from here to the end */
    uint32_t *by;       /* per state: the arc that `down` takes */
    int64_t *resident_down, *resident_up;
    uint32_t *chain; /* arcs of the path in hand, from its end */
    uint32_t nchain;
    uint32_t *choice; /* scratch, per node */
    uint32_t *number; /* scratch, per state */
} search;

static __int128 scaled(const search *s, int64_t cost)
{
    return (__int128)cost * ((__int128)1 << s->shift);
}

static int64_t weight(const search *s, const part_arc *a, int64_t price)
{
    return a->cost * ((int64_t)1 << s->shift) + price * a->resident;
}

static void charge(search *s, uint32_t arcs)
{
    ap_effort_charge(s->effort, arcs / 128 + 1);
}

/* ---- paths ---- */

/* Least weights from the start; `price` < 0: only resident counts. */
static void go_down(search *s, const part *p, int64_t price, int64_t *down)
{
    for (uint32_t i = 1; i < p->nstates; i++)
        down[i] = NEVER;
    down[0] = 0;
    for (uint32_t i = 0; i < p->narcs; i++) {
        const part_arc *a = &p->arc[i];
        if (down[a->from] == NEVER)
            continue;
        int64_t w = down[a->from] + (price < 0 ? a->resident : weight(s, a, price));
        if (w < down[a->to]) {
            down[a->to] = w;
            s->by[a->to] = i;
        }
    }
    charge(s, p->narcs);
}

static void go_up(search *s, const part *p, int64_t price, int64_t *up)
{
    for (uint32_t i = 0; i + 1 < p->nstates; i++)
        up[i] = NEVER;
    up[p->nstates - 1] = 0;
    for (uint32_t i = p->narcs; i-- > 0;) {
        const part_arc *a = &p->arc[i];
        if (up[a->to] == NEVER)
            continue;
        int64_t w = up[a->to] + (price < 0 ? a->resident : weight(s, a, price));
        up[a->from] = ap_min_i64(up[a->from], w);
    }
    charge(s, p->narcs);
}

/* The chain in hand as a choice, if it is a better one. */
static void offer(search *s, const path *x)
{
    if (x->resident > x->room || x->cost >= s->best)
        return;
    for (uint32_t i = 0; i < s->nchain; i++) {
        const ap_sweep_arc *a = &s->g->arcs.at[s->chain[i]];
        uint32_t step = s->g->nsteps - 1 - i;
        s->choice[s->order->node[step]] = a->strategy;
    }
    ap_local_set(s->local, s->choice);
    if (ap_local_keep(s->local))
        s->best = ap_min_i64(s->best, s->local->best_cost);
}

/* The path that the last go_down found. */
static path trace(search *s, const part *p)
{
    path x = {.found = s->down[p->nstates - 1] != NEVER, .room = INT64_MAX};
    s->nchain = 0;
    for (uint32_t at = p->nstates - 1; x.found && at != 0;) {
        const part_arc *a = &p->arc[s->by[at]];
        x.cost += a->cost;
        x.resident += a->resident;
        x.room = ap_min_i64(x.room, a->room);
        s->chain[s->nchain++] = a->id;
        at = a->from;
    }
    return x;
}

static path best_path(search *s, const part *p, int64_t price)
{
    go_down(s, p, price, s->down);
    path x = trace(s, p);
    if (x.found)
        offer(s, &x);
    return x;
}

/* ---- the price of a window ---- */

static int64_t value_of(const search *s, const part *p, const path *x, int64_t price)
{
    return x->cost * ((int64_t)1 << s->shift) + price * (x->resident - p->hi);
}

/* The price at which the least of path + price * (resident - hi) is greatest, between the lines of two paths, one
 * above hi and one within. False: no path is within. */
static bool find_price(search *s, const part *p, int64_t *out_price, path *out)
{
    path over = best_path(s, p, 0), in;
    *out_price = 0;
    *out = over;
    if (!over.found)
        return false;
    if (over.resident <= p->hi)
        return true;
    in = best_path(s, p, -1);
    if (in.resident > p->hi)
        return false;
    for (int i = 0; i < ROUNDS; i++) {
        __int128 d = ((__int128)in.cost - over.cost) * ((__int128)1 << s->shift);
        int64_t price = ap_min_i64(s->price_most, (int64_t)(d / (over.resident - in.resident)));
        path x = best_path(s, p, price);
        *out_price = price;
        *out = in;
        if (value_of(s, p, &x, price) >= value_of(s, p, &over, price) ||
            value_of(s, p, &x, price) >= value_of(s, p, &in, price))
            break;
        if (x.resident > p->hi)
            over = x;
        else
            in = x;
    }
    return true;
}

/* Of the weight that the last go_down found at `price`: a bound on the cost of every path of the window. */
static int64_t bound_at(const search *s, const part *p, int64_t price)
{
    __int128 w = (__int128)s->down[p->nstates - 1] - (__int128)price * p->hi;
    __int128 unit = (__int128)1 << s->shift, q = w / unit;
    return (int64_t)(w > q * unit ? q + 1 : q);
}

/* ---- smaller graphs ---- */

/* Keeps the arcs that may lie on a path of the window that costs less than the best. */
static void filter(search *s, part *p, int64_t price)
{
    go_down(s, p, price, s->down);
    go_up(s, p, price, s->up);
    go_down(s, p, -1, s->resident_down);
    go_up(s, p, -1, s->resident_up);
    __int128 most = scaled(s, s->best) + (__int128)price * p->hi;
    uint32_t n = 0, states = 0;
    uint32_t *number = s->number;
    memset(number, 0xff, p->nstates * sizeof *number);
    for (uint32_t i = 0; i < p->narcs; i++) {
        const part_arc *a = &p->arc[i];
        if (a->room < p->lo || s->down[a->from] == NEVER || s->up[a->to] == NEVER)
            continue;
        int64_t resident = s->resident_down[a->from] + a->resident + s->resident_up[a->to];
        if ((__int128)s->down[a->from] + weight(s, a, price) + s->up[a->to] >= most || resident > p->hi ||
            resident > a->room)
            continue;
        number[a->from] = number[a->to] = 0;
        p->arc[n++] = *a;
    }
    for (uint32_t i = 0; i < p->nstates; i++)
        number[i] = number[i] == AP_NONE && i != 0 && i + 1 != p->nstates ? AP_NONE : states++;
    for (uint32_t i = 0; i < n; i++) {
        p->arc[i].from = number[p->arc[i].from];
        p->arc[i].to = number[p->arc[i].to];
    }
    p->narcs = n;
    p->nstates = states;
}

/* ---- labels ---- */

typedef struct label {
    int64_t cost;
    int32_t resident, room;
    uint32_t before, arc; /* label, arc of the part */
    uint32_t next;        /* of the same state */
} label;

static int compare_labels(const void *a, const void *b)
{
    const label *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    if (x->resident != y->resident)
        return x->resident < y->resident ? -1 : 1;
    if (x->room != y->room)
        return x->room > y->room ? -1 : 1;
    return x->before < y->before ? -1 : x->before > y->before;
}

typedef struct labels {
    AP_VEC(label) all;  /* what stays */
    AP_VEC(label) line; /* those of the state in hand */
    uint32_t *head;     /* per state: labels waiting, in `all` */
    AP_VEC(label) wait;
    uint64_t work;
} labels;

static bool may_lead_below(const search *s, const part *p, int64_t price, const label *l, uint32_t state)
{
    int64_t resident = l->resident + s->resident_up[state];
    __int128 w = scaled(s, l->cost) + (__int128)price * l->resident + s->up[state];
    return s->up[state] != NEVER && resident <= p->hi && resident <= l->room &&
           w < scaled(s, s->best) + (__int128)price * p->hi;
}

/* Takes what waits at the state, in order of cost, without what another is no worse than. */
static void settle(labels *x, ap_arena *arena, uint32_t state)
{
    x->line.len = 0;
    for (uint32_t i = x->head[state]; i != AP_NONE; i = x->wait.at[i].next)
        ap_vec_push(arena, &x->line, x->wait.at[i]);
    if (x->line.len > 1)
        qsort(x->line.at, x->line.len, sizeof *x->line.at, compare_labels);
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->line.len; i++) {
        bool worse = false;
        for (uint32_t j = 0; j < n && !worse; j++)
            worse = x->line.at[j].resident <= x->line.at[i].resident && x->line.at[j].room >= x->line.at[i].room;
        x->work += n;
        if (!worse)
            x->line.at[n++] = x->line.at[i];
    }
    x->line.len = n;
}

static void label_path(search *s, const part *p, const labels *x, const label *end)
{
    path found = {true, end->cost, end->resident, end->room};
    s->nchain = 0;
    for (const label *l = end; l->before != AP_NONE; l = &x->all.at[l->before])
        s->chain[s->nchain++] = p->arc[l->arc].id;
    offer(s, &found);
}

/* All that matters of the window, exactly; false when there is too much of it. Needs `up` and `resident_up`. */
static bool run_labels(search *s, const part *p, int64_t price)
{
    labels x = {0};
    ap_arena arena;
    ap_arena_init(&arena, s->arena->out_of_memory, s->arena->user);
    x.head = AP_NEW_ARRAY(&arena, uint32_t, p->nstates);
    memset(x.head, 0xff, p->nstates * sizeof *x.head);
    ap_vec_push(&arena, &x.wait, ((label){.room = INT32_MAX, .before = AP_NONE, .next = AP_NONE}));
    x.head[0] = 0;
    bool all = true;
    for (uint32_t state = 0, at = 0; state < p->nstates && all; state++) {
        uint32_t first = x.all.len;
        settle(&x, &arena, state);
        for (uint32_t i = 0; i < x.line.len; i++)
            ap_vec_push(&arena, &x.all, x.line.at[i]);
        if (state + 1 == p->nstates && x.line.len > 0)
            label_path(s, p, &x, &x.all.at[first]);
        for (; at < p->narcs && p->arc[at].from == state; at++)
            for (uint32_t i = first; i < x.all.len; i++) {
                const part_arc *a = &p->arc[at];
                label l = {x.all.at[i].cost + a->cost,
                           x.all.at[i].resident + a->resident,
                           (int32_t)ap_min_i64(p->hi, ap_min_i64(x.all.at[i].room, a->room)),
                           i,
                           at,
                           x.head[a->to]};
                if (!may_lead_below(s, p, price, &l, a->to))
                    continue;
                x.head[a->to] = x.wait.len;
                ap_vec_push(&arena, &x.wait, l);
            }
        x.work += x.all.len - first + 8;
        all = x.wait.len <= LABELS_MOST && x.work < 400 * (uint64_t)LABELS_MOST;
        if (state % 64 == 0 && ap_effort_late(s->effort))
            all = false;
    }
    ap_effort_charge(s->effort, x.wait.len / 16 + x.work / 512);
    ap_arena_deinit(&arena);
    return all;
}

/* ---- windows ---- */

static void leave_open(search *s, int64_t bound)
{
    s->open = ap_min_i64(s->open, bound);
}

static void run_window(search *s, part *p, int64_t bound, int depth);

static void split(search *s, const part *p, const path *x, int64_t bound, int depth)
{
    /* either way the path of the bound is out, if it does not fit */
    int64_t at = x->room < x->resident && x->room >= p->lo && x->room < p->hi ? x->room : p->lo + (p->hi - p->lo) / 2;
    if (depth > 6 || at <= p->lo + (p->hi - p->lo) / 16 || at >= p->hi - (p->hi - p->lo) / 16)
        at = p->lo + (p->hi - p->lo) / 2;
    for (int i = 0; i < 2; i++) {
        part half = *p;
        ap_arena arena;
        ap_arena_init(&arena, s->arena->out_of_memory, s->arena->user);
        half.arc = ap_arena_memdup(&arena, p->arc, p->narcs * sizeof *p->arc);
        half.lo = i == 0 ? at + 1 : p->lo;
        half.hi = i == 0 ? p->hi : at;
        run_window(s, &half, bound, depth + 1);
        ap_arena_deinit(&arena);
    }
}

/* Everything with a resident sum within the window that costs less than the best; `bound`: known of it. */
static void run_window(search *s, part *p, int64_t bound, int depth)
{
    if (bound >= s->best)
        return;
    if (ap_effort_spent(s->effort)) {
        leave_open(s, bound);
        return;
    }
    int64_t price;
    path x;
    filter(s, p, 0);
    if (p->narcs == 0 || !find_price(s, p, &price, &x))
        return;
    go_down(s, p, price, s->down);
    bound = ap_max_i64(bound, bound_at(s, p, price));
    if (bound >= s->best)
        return;
    filter(s, p, price);
    if (p->narcs == 0)
        return;
    if (p->narcs <= s->sizes.label_arcs) {
        go_up(s, p, price, s->up);
        go_up(s, p, -1, s->resident_up);
        if (run_labels(s, p, price))
            return;
    }
    if (p->lo < p->hi)
        split(s, p, &x, bound, depth);
    else
        leave_open(s, bound);
}

static void choose_scale(search *s)
{
    ap_kernel_range range;
    ap_kernel_range_get(s->k, &range);
    for (s->shift = 0; s->shift < 20 && range.magnitude < (__int128)1 << (58 - s->shift);)
        s->shift++;
    s->price_most = ((int64_t)1 << 60) / (s->g->most_resident + 1);
}

static void search_graph(search *s, ap_arena *arena, const ap_sweep_graph *g, const ap_sweep_limits *limits,
                         int64_t bound)
{
    part p = {.nstates = g->nstates, .narcs = g->arcs.len, .lo = limits->lo, .hi = limits->hi};
    p.arc = AP_NEW_ARRAY(arena, part_arc, g->arcs.len + 1);
    for (uint32_t i = 0; i < g->arcs.len; i++) {
        const ap_sweep_arc *a = &g->arcs.at[i];
        p.arc[i] = (part_arc){a->from, a->to, i, a->resident, a->room, a->cost};
    }
    s->g = g;
    s->arena = arena;
    s->down = AP_NEW_ARRAY(arena, int64_t, g->nstates);
    s->up = AP_NEW_ARRAY(arena, int64_t, g->nstates);
    s->resident_down = AP_NEW_ARRAY(arena, int64_t, g->nstates);
    s->resident_up = AP_NEW_ARRAY(arena, int64_t, g->nstates);
    s->by = AP_NEW_ARRAY(arena, uint32_t, g->nstates);
    s->number = AP_NEW_ARRAY(arena, uint32_t, g->nstates);
    s->chain = AP_NEW_ARRAY(arena, uint32_t, g->nsteps + 1);
    choose_scale(s);
    run_window(s, &p, bound, 0);
}

/* The graph of a window, or of its halves where it is too large. */
static void explore(search *s, ap_sweep_limits limits, int64_t bound, int depth)
{
    ap_arena arena;
    ap_sweep_graph g;
    bool halves = depth < DEPTH_MOST && limits.lo < limits.hi;
    limits.best = s->best;
    limits.most = halves ? s->sizes.arcs : 2 * s->sizes.arcs; /* halved, if the graph came past the middle */
    if (bound >= s->best)
        return;
    ap_arena_init(&arena, s->scratch->out_of_memory, s->scratch->user);
    g.nsteps_made = 0;
    bool made = !ap_effort_spent(s->effort) &&
                ap_sweep_graph_make(&arena, s->k, s->order, s->bound, s->unit, &limits, s->effort, &g);
    if (made && !g.empty)
        search_graph(s, &arena, &g, &limits, bound);
    ap_arena_deinit(&arena);
    if (made)
        return;
    if (!halves || g.nsteps_made * 2 < s->order->n || ap_effort_spent(s->effort)) {
        leave_open(s, bound);
        return;
    }
    int64_t middle = limits.lo + (limits.hi - limits.lo) / 2, hi = limits.hi;
    limits.hi = middle;
    explore(s, limits, bound, depth + 1);
    limits.lo = middle + 1;
    limits.hi = hi;
    explore(s, limits, bound, depth + 1);
}

/* The resident sum is at least what the least strategies hold, at most what the smallest right side allows. */
static ap_sweep_limits all_windows(const ap_kernel *k, int64_t unit)
{
    ap_sweep_limits w = {.hi = INT32_MAX / 2};
    for (uint32_t d = 0; d < k->p.ndemands; d++) {
        int64_t least = INT64_MAX;
        for (uint32_t i = 0; i < k->p.nstrategies[k->p.demand[d].node]; i++)
            least = ap_min_i64(least, k->p.demand[d].usage[i]);
        w.lo += ap_sweep_is_resident(k, &k->p.demand[d]) ? least / unit : 0;
    }
    for (uint32_t r = 0; r < k->nrows; r++)
        w.hi = ap_min_i64(w.hi, k->rhs[r] < 0 ? -1 : k->rhs[r] / unit);
    return w;
}

void ap_sweep_run(ap_arena *arena, const ap_kernel *k, ap_dual *d, ap_local *l, int64_t cutoff,
                  const ap_sweep_sizes *sizes, ap_effort *effort, ap_sweep_result *out)
{
    ap_sweep_order order;
    ap_sweep_bound bound;
    search s = {
        .k = k, .local = l, .effort = effort, .scratch = arena, .best = cutoff, .sizes = *sizes, .open = INT64_MAX};
    *out = (ap_sweep_result){.bound = INT64_MIN};
    s.unit = ap_sweep_unit(k);
    if (!s.unit)
        return;
    if (l->found)
        s.best = ap_min_i64(s.best, l->best_cost);
    ap_sweep_order_make(arena, k, &order);
    ap_sweep_bound_make(arena, k, &order, d, effort, &bound);
    s.order = &order;
    s.bound = &bound;
    s.choice = ap_arena_calloc(arena, (size_t)k->p.nnodes + 1, sizeof *s.choice);
    explore(&s, all_windows(k, s.unit), d->bound, 0);
    out->made = true;
    out->complete = s.open == INT64_MAX;
    out->bound = ap_min_i64(s.open, s.best);
}
