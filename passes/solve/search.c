/* Forest moves, prices that follow what is exceeded, and polish: see search.h. */
#include "passes/solve/search.h"

#include <math.h>
#include <string.h>

#define SURCHARGES 4096
#define LOOK 256 /* nodes between two looks at the clock */

ap_search *ap_search_create(ap_arena *arena, const ap_net *net, uint64_t seed)
{
    ap_search *s = AP_NEW(arena, ap_search);
    uint32_t n = net->n;
    s->net = net;
    s->random = seed;
    s->prices = ap_prices_create(arena, net);
    ap_ledger_init(&s->ledger, arena, net->k->nrows);
    s->x = AP_NEW_ARRAY(arena, uint32_t, n);
    s->best = AP_NEW_ARRAY(arena, uint32_t, n);
    s->use = AP_NEW_ARRAY(arena, int64_t, (size_t)net->k->nrows + 1);
    s->order = AP_NEW_ARRAY(arena, uint32_t, n);
    s->up = AP_NEW_ARRAY(arena, uint32_t, n);
    s->next = AP_NEW_ARRAY(arena, uint32_t, n);
    s->part = AP_NEW_ARRAY(arena, uint32_t, n);
    s->queue = AP_NEW_ARRAY(arena, uint32_t, n);
    s->parent = AP_NEW_ARRAY(arena, uint32_t, n);
    s->proposal = AP_NEW_ARRAY(arena, uint32_t, n);
    s->kept = AP_NEW_ARRAY(arena, uint32_t, n);
    s->origin = AP_NEW_ARRAY(arena, uint32_t, n);
    s->base = AP_NEW_ARRAY(arena, uint32_t, n);
    s->in = AP_NEW_ARRAY(arena, bool, n);
    s->node_sum = AP_NEW_ARRAY(arena, int64_t, net->at[n]);
    s->first = AP_NEW_ARRAY(arena, double, net->k->nrows);
    s->sum = AP_NEW_ARRAY(arena, int64_t, net->widest);
    s->noisy = ap_arena_memdup(arena, net->cost, net->at[n] * sizeof *net->cost);
    s->surcharge = AP_NEW_ARRAY(arena, double, SURCHARGES);
    for (int i = 0; i < SURCHARGES; i++)
        s->surcharge[i] = -log((i + 0.5) / SURCHARGES);
    s->link = AP_NEW_ARRAY(arena, const ap_arc *, n);
    for (uint32_t v = 0; v < n; v++)
        s->order[v] = v;
    return s;
}

static bool late(const ap_search *s)
{
    return s->effort && ap_effort_late(s->effort);
}

static uint64_t next_random(ap_search *s)
{
    uint64_t z = (s->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t below(ap_search *s, uint32_t n)
{
    return (uint32_t)(((next_random(s) >> 32) * n) >> 32);
}

/* ---- forests ---- */

static uint32_t root(ap_search *s, uint32_t v)
{
    while (s->up[v] != v) {
        s->up[v] = s->up[s->up[v]];
        v = s->up[v];
    }
    return v;
}

/* v joins unless that closes a ring. */
static void try_join(ap_search *s, uint32_t v)
{
    const ap_net *net = s->net;
    uint32_t n = 0;
    for (uint32_t i = net->arc_at[v]; i < net->arc_at[v + 1]; i++) {
        uint32_t w = net->arc[i].other;
        if (!s->in[w])
            continue;
        uint32_t r = root(s, w);
        for (uint32_t j = 0; j < n; j++)
            if (s->next[j] == r)
                return;
        s->next[n++] = r;
    }
    s->in[v] = true;
    s->up[v] = v;
    for (uint32_t j = 0; j < n; j++)
        s->up[s->next[j]] = v;
}

/* A forest over all nodes, grown in random order. */
static void grow_forest(ap_search *s)
{
    uint32_t n = s->net->n;
    memset(s->in, 0, n * sizeof *s->in);
    for (uint32_t i = n; i-- > 1;) {
        uint32_t j = below(s, i + 1), t = s->order[i];
        s->order[i] = s->order[j];
        s->order[j] = t;
    }
    for (uint32_t i = 0; i < n; i++)
        try_join(s, s->order[i]);
}

/* Orders the forest from its roots; returns how many nodes it has. */
static uint32_t walk_forest(ap_search *s)
{
    const ap_net *net = s->net;
    uint32_t head = 0, tail = 0;
    memset(s->part, 0, net->n * sizeof *s->part);
    for (uint32_t i = 0; i < net->n; i++) {
        uint32_t v = s->order[i];
        if (!s->in[v] || s->part[v])
            continue;
        s->part[v] = 1;
        s->link[v] = NULL;
        s->queue[tail++] = v;
        while (head < tail) {
            uint32_t u = s->queue[head++];
            for (uint32_t a = net->arc_at[u]; a < net->arc_at[u + 1]; a++) {
                uint32_t w = net->arc[a].other;
                if (!s->in[w] || s->part[w])
                    continue;
                s->part[w] = 1;
                s->parent[w] = u;
                s->link[w] = &net->arc[a]; /* seen from the parent */
                s->queue[tail++] = w;
            }
        }
    }
    return tail;
}

static void add_to(int64_t *sum, const int64_t *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        sum[i] += c[i];
}

/* Best strategies of the forest in `in`, at the node costs `unary`, the rest as in x. */
static void solve_forest(ap_search *s, const int64_t *unary, const uint32_t *x, uint32_t *out)
{
    const ap_net *net = s->net;
    uint32_t count = walk_forest(s);
    for (uint32_t q = 0; q < count; q++) {
        uint32_t v = s->queue[q], n = net->padded[v];
        int64_t *sum = s->node_sum + net->at[v];
        memcpy(sum, unary + net->at[v], n * sizeof *sum);
        for (uint32_t a = net->arc_at[v]; a < net->arc_at[v + 1]; a++)
            if (!s->in[net->arc[a].other])
                add_to(sum, net->arc[a].from + (size_t)x[net->arc[a].other] * n, n);
        s->work += (net->arc_at[v + 1] - net->arc_at[v] + 1) * (n + 40u) / 2;
    }
    for (uint32_t q = count; q-- > 0;) {
        uint32_t v = s->queue[q];
        if (!s->link[v])
            continue;
        uint32_t p = s->parent[v], m = net->size[p];
        /* link is the parent's arc: its `from` leads from v's strategies to the parent's */
        net->minplus(s->sum, s->node_sum + net->at[v], s->link[v]->from, net->all, net->size[v], net->padded[p]);
        add_to(s->node_sum + net->at[p], s->sum, m);
        s->work += (uint64_t)net->size[v] * net->padded[p] / 2 + 50;
    }
    for (uint32_t q = 0; q < count; q++) {
        uint32_t v = s->queue[q], n = net->size[v], best = 0;
        int64_t *sum = s->node_sum + net->at[v];
        if (s->link[v])
            add_to(sum, s->link[v]->to + (size_t)out[s->parent[v]] * net->padded[v], n);
        for (uint32_t i = 1; i < n; i++)
            best = sum[i] < sum[best] ? i : best;
        if (sum[x[v]] == sum[best])
            best = x[v];
        out[v] = best;
    }
}

/* ---- memory ---- */

static void measure(ap_search *s)
{
    ap_prices_use(s->net, s->x, s->use);
    s->work += 2 * (uint64_t)s->net->k->nrows + 4 * (uint64_t)s->net->k->p.ndemands;
}

static void hold(ap_search *s, uint32_t v, uint32_t from, uint32_t to)
{
    const ap_net *net = s->net;
    for (uint32_t i = net->span_at[v]; i < net->span_at[v + 1]; i++) {
        const ap_demand *d = &net->held[i];
        ap_ledger_add(&s->ledger, d->lo, d->hi, d->usage[to] - d->usage[from]);
    }
    s->work += (net->span_at[v + 1] - net->span_at[v]) * 100;
}

/* ---- noise ---- */

/* The strategies' costs with prices and, at a temperature, an exponential surcharge each: what is almost as good
 * gets its turn. */
static const int64_t *heated(ap_search *s)
{
    const ap_net *net = s->net;
    if (s->heat <= 0)
        return s->prices->unary;
    for (uint32_t v = 0; v < net->n; v++) {
        uint64_t bits = 0;
        for (size_t i = net->at[v]; i < net->at[v] + net->size[v]; i++) {
            if (bits == 0)
                bits = next_random(s) | 1;
            s->noisy[i] = s->prices->unary[i] + (int64_t)(s->heat * s->surcharge[bits & (SURCHARGES - 1)]);
            bits >>= 12;
        }
    }
    s->work += 3 * (uint64_t)net->at[net->n];
    return s->noisy;
}

/* ---- polish ---- */

static void keep(ap_search *s)
{
    int64_t cost;
    s->work += 20 * (uint64_t)s->net->k->p.nedges;
    if (!ap_kernel_cost(s->net->k, s->x, &cost) || (s->found && cost >= s->best_cost))
        return;
    s->found = true;
    s->best_cost = cost;
    memcpy(s->best, s->x, s->net->n * sizeof *s->x);
}

/* What changing v from x[v] to y[v] does to the cost, given x around it. */
static int64_t change_of(const ap_search *s, uint32_t v, uint32_t to)
{
    const ap_net *net = s->net;
    uint32_t from = s->x[v], n = net->padded[v];
    int64_t sum = net->cost[net->at[v] + to] - net->cost[net->at[v] + from];
    for (uint32_t a = net->arc_at[v]; a < net->arc_at[v + 1]; a++) {
        const int64_t *row = net->arc[a].from + (size_t)s->x[net->arc[a].other] * n;
        sum += row[to] - row[from];
    }
    return sum;
}

static int64_t move(ap_search *s, uint32_t v, uint32_t to)
{
    int64_t change = change_of(s, v, to);
    s->work += (s->net->arc_at[v + 1] - s->net->arc_at[v]) * 40;
    hold(s, v, s->x[v], to);
    s->x[v] = to;
    return change;
}

/* Takes each connected part of the difference between x and y that lowers the cost and fits. True when one was. */
static bool take_parts(ap_search *s, const uint32_t *y)
{
    const ap_net *net = s->net;
    bool any = false;
    memset(s->part, 0, net->n * sizeof *s->part);
    for (uint32_t i = 0; i < net->n; i++) {
        uint32_t first = s->order[i], head = 0, tail = 0;
        if (y[first] == s->x[first] || s->part[first])
            continue;
        int64_t change = 0;
        s->part[first] = 1;
        s->queue[tail++] = first;
        while (head < tail) {
            uint32_t v = s->queue[head++];
            for (uint32_t a = net->arc_at[v]; a < net->arc_at[v + 1]; a++) {
                uint32_t w = net->arc[a].other;
                if (s->part[w] || y[w] == s->x[w])
                    continue;
                s->part[w] = 1;
                s->queue[tail++] = w;
            }
            s->base[v] = s->x[v];
            change += move(s, v, y[v]);
        }
        if (change < 0 && ap_ledger_fits(&s->ledger)) {
            any = true;
            continue;
        }
        for (uint32_t q = 0; q < tail; q++) {
            hold(s, s->queue[q], s->x[s->queue[q]], s->base[s->queue[q]]);
            s->x[s->queue[q]] = s->base[s->queue[q]];
        }
    }
    return any;
}

static bool node_fits(const ap_search *s, uint32_t v, uint32_t to)
{
    const ap_net *net = s->net;
    uint32_t from = s->x[v];
    for (uint32_t i = net->span_at[v]; i < net->span_at[v + 1]; i++) {
        const ap_demand *d = &net->held[i];
        int64_t more = d->usage[to] - d->usage[from];
        if (more > 0 && ap_ledger_most(&s->ledger, d->lo, d->hi) + more > 0)
            return false;
    }
    return true;
}

/* What each strategy of v costs, given x around it; in s->sum. */
static void sum_around(ap_search *s, uint32_t v)
{
    const ap_net *net = s->net;
    uint32_t n = net->padded[v];
    memcpy(s->sum, net->cost + net->at[v], n * sizeof *s->sum);
    for (uint32_t a = net->arc_at[v]; a < net->arc_at[v + 1]; a++)
        add_to(s->sum, net->arc[a].from + (size_t)s->x[net->arc[a].other] * n, n);
    s->work += (net->arc_at[v + 1] - net->arc_at[v] + 1) * (n + 40u) / 2;
}

/* The best single change of v that fits. */
static bool improve_node(ap_search *s, uint32_t v)
{
    const ap_net *net = s->net;
    uint32_t size = net->size[v];
    int64_t *sum = s->sum;
    sum_around(s, v);
    for (;;) {
        uint32_t best = s->x[v];
        for (uint32_t i = 0; i < size; i++)
            best = sum[i] < sum[best] ? i : best;
        if (best == s->x[v])
            return false;
        if (node_fits(s, v, best)) {
            hold(s, v, s->x[v], best);
            s->x[v] = best;
            return true;
        }
        s->work += 200;
        sum[best] = INT64_MAX;
    }
}

static void improve(ap_search *s)
{
    bool changed = true;
    for (int sweep = 0; sweep < 10 && changed; sweep++) {
        changed = false;
        for (uint32_t v = 0; v < s->net->n; v++) {
            if (v % LOOK == 0 && late(s))
                return;
            changed |= improve_node(s, v);
        }
    }
}

/* ---- repair ---- */

/* What v holds at a row more than the least of its strategies; the demand in *out. */
static const ap_demand *demand_at_row(const ap_search *s, uint32_t v, uint32_t row)
{
    const ap_net *net = s->net;
    for (uint32_t i = net->span_at[v]; i < net->span_at[v + 1]; i++) {
        const ap_demand *d = &net->held[i];
        if (d->lo <= row && row < d->hi && d->usage[s->x[v]] > 0)
            return d;
    }
    return NULL;
}

/* No row may come to exceed its side by more than `worst` through the change. */
static bool stays_below(const ap_search *s, uint32_t v, uint32_t to, int64_t worst)
{
    const ap_net *net = s->net;
    for (uint32_t i = net->span_at[v]; i < net->span_at[v + 1]; i++) {
        const ap_demand *d = &net->held[i];
        int64_t more = d->usage[to] - d->usage[s->x[v]];
        if (more > 0 && ap_ledger_most(&s->ledger, d->lo, d->hi) + more >= worst)
            return false;
    }
    return true;
}

/* Changes strategies of nodes that hold memory in the worst row, least cost per byte first, until x fits. */
static bool repair(ap_search *s, uint32_t moves)
{
    const ap_net *net = s->net;
    ap_ledger_set(&s->ledger, s->use, net->k->rhs);
    for (uint32_t m = 0; m < moves && !ap_ledger_fits(&s->ledger) && !late(s); m++) {
        uint32_t row = ap_ledger_worst(&s->ledger), best_v = AP_NONE, best_to = 0;
        int64_t worst = s->ledger.most[1];
        double best = 0;
        for (uint32_t v = 0; v < net->n; v++) {
            const ap_demand *d = demand_at_row(s, v, row);
            s->work += 5 * (net->span_at[v + 1] - net->span_at[v]);
            if (!d)
                continue;
            sum_around(s, v);
            for (uint32_t i = 0; i < net->size[v]; i++) {
                int64_t less = d->usage[s->x[v]] - d->usage[i];
                if (less <= 0)
                    continue;
                double score = (double)(s->sum[i] - s->sum[s->x[v]]) / (double)(less < worst ? less : worst);
                if ((best_v == AP_NONE || score < best) && stays_below(s, v, i, worst)) {
                    best = score;
                    best_v = v;
                    best_to = i;
                }
            }
        }
        if (best_v == AP_NONE)
            return false;
        hold(s, best_v, s->x[best_v], best_to);
        s->x[best_v] = best_to;
    }
    return ap_ledger_fits(&s->ledger);
}

/* x fits: moves that keep it fitting. */
static void polish(ap_search *s)
{
    improve(s);
    for (int round = 0; round < 4 && !late(s); round++) {
        grow_forest(s);
        memcpy(s->proposal, s->x, s->net->n * sizeof *s->x);
        solve_forest(s, round % 2 ? s->net->cost : s->prices->unary, s->x, s->proposal);
        take_parts(s, s->proposal);
    }
    improve(s);
    keep(s);
}

/* ---- the walk ---- */

void ap_search_prices(ap_search *s, const uint32_t *x, const double *lambda)
{
    memcpy(s->origin, x, s->net->n * sizeof *x);
    memcpy(s->first, lambda, s->net->k->nrows * sizeof *lambda);
}

void ap_search_tell(ap_search *s, const uint32_t *x, int64_t cost)
{
    if (s->found && s->best_cost <= cost)
        return;
    s->found = true;
    s->best_cost = cost;
    memcpy(s->best, x, s->net->n * sizeof *x);
}

void ap_search_start(ap_search *s, const uint32_t *x, const double *lambda, double constant)
{
    int64_t cost;
    ap_search_prices(s, x, lambda);
    memcpy(s->x, x, s->net->n * sizeof *x);
    memcpy(s->prices->lambda, lambda, s->net->k->nrows * sizeof *lambda);
    ap_prices_set(s->prices);
    s->step = 0.05;
    if (ap_kernel_cost(s->net->k, s->x, &cost))
        s->unit = 0.01 * fabs((double)cost + constant);
}

/* Dearer where x holds too much, cheaper where there is room. */
static void correct_prices(ap_search *s)
{
    const ap_kernel *k = s->net->k;
    double *lambda = s->prices->lambda, total = 0;
    int64_t worst = 1;
    for (uint32_t r = 0; r < k->nrows; r++) {
        total += lambda[r];
        worst = ap_max_i64(worst, s->use[r] - k->rhs[r]);
    }
    for (uint32_t r = 0; r < k->nrows; r++) {
        double over = (double)(s->use[r] - k->rhs[r]);
        if (over > 0)
            lambda[r] += s->step * (lambda[r] + 0.02 * total * over / (double)worst);
        else if (lambda[r] > 0) {
            double room = -over / ((double)k->rhs[r] + 1);
            lambda[r] *= 1 - s->step * fmin(1, 5 * room);
        }
    }
    s->work += 4 * (uint64_t)k->nrows + 4 * s->net->at[s->net->n];
}

#define CYCLE 60

/* The walk goes along the border, so most choices almost fit; not every one is worth the effort. */
static bool worth_repair(ap_search *s)
{
    int64_t worst = 0, limit = 1;
    for (uint32_t r = 0; r < s->net->k->nrows; r++) {
        worst = ap_max_i64(worst, s->use[r] - s->net->k->rhs[r]);
        limit = ap_max_i64(limit, s->net->k->rhs[r]);
    }
    if (worst == 0)
        return true;
    return s->rounds % 4 == 0 && (!s->found || worst < limit / 10);
}

void ap_search_try(ap_search *s, const uint32_t *x)
{
    memcpy(s->x, x, s->net->n * sizeof *x);
    measure(s);
    if (repair(s, 40))
        polish(s);
}

/* A cycle starts from the best choice, warm, or from the relaxation's, cold. */
static void start_cycle(ap_search *s)
{
    static const double level[] = {0.01, 0.03, 0.1, 0.3, 1};
    const ap_net *net = s->net;
    bool cold = !s->found || below(s, 3) == 0;
    double gap = s->found ? fmin((double)(s->best_cost - s->bound), s->unit) : s->unit;
    s->top = cold ? 0 : level[below(s, 5)] * gap * exp2(net->shift) / net->n;
    memcpy(s->x, cold ? s->origin : s->best, net->n * sizeof *s->x);
    if (cold || below(s, 2) == 0)
        memcpy(s->prices->lambda, s->first, net->k->nrows * sizeof *s->first);
    ap_prices_set(s->prices);
}

void ap_search_round(ap_search *s)
{
    uint32_t at = s->rounds++ % CYCLE;
    if (at == 0)
        start_cycle(s);
    double left = 1 - (double)at / (CYCLE - 10);
    s->heat = left > 0 ? s->top * left * left : 0;
    for (int i = 0; i < 3 && !late(s); i++) {
        grow_forest(s);
        solve_forest(s, heated(s), s->x, s->x);
        s->work += 30 * (uint64_t)s->net->n;
    }
    if (late(s))
        return;
    measure(s);
    correct_prices(s);
    if (left < 0.5 && worth_repair(s)) {
        memcpy(s->kept, s->x, s->net->n * sizeof *s->x);
        if (repair(s, 40))
            polish(s);
        memcpy(s->x, s->kept, s->net->n * sizeof *s->x);
    }
    ap_prices_set(s->prices);
}
