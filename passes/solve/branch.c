/* The tree: see branch.h. */
#include "passes/solve/branch.h"

#include <math.h>
#include <string.h>

#define MESSAGES_MAX ((size_t)200000) /* kept at every level of the tree */
#define STEPS_MOST 60
#define STEPS_LOOK 10
#define REPAIRS 32

static void state_save(ap_branch *b, ap_branch_level *l)
{
    const ap_net *net = b->net;
    const ap_ascent *a = b->climb->a;
    memcpy(l->message, a->message, net->messages * sizeof *l->message);
    memcpy(l->offset, a->offset, net->n * sizeof *l->offset);
    memcpy(l->edge_offset, a->edge_offset, net->k->p.nedges * sizeof *l->edge_offset);
    memcpy(l->lambda, a->prices->lambda, net->k->nrows * sizeof *l->lambda);
    memcpy(l->ban, b->ban, net->at[net->n] * sizeof *l->ban);
    l->total = a->total;
}

static void state_restore(ap_branch *b, const ap_branch_level *l)
{
    const ap_net *net = b->net;
    ap_ascent *a = b->climb->a;
    memcpy(a->message, l->message, net->messages * sizeof *l->message);
    memcpy(a->offset, l->offset, net->n * sizeof *l->offset);
    memcpy(a->edge_offset, l->edge_offset, net->k->p.nedges * sizeof *l->edge_offset);
    memcpy(a->prices->lambda, l->lambda, net->k->nrows * sizeof *l->lambda);
    memcpy(b->ban, l->ban, net->at[net->n] * sizeof *l->ban);
    a->total = l->total;
}

static uint32_t alive(const ap_branch *b, uint32_t v, uint32_t *out_one)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->net->size[v]; i++) {
        if (b->ban[b->net->at[v] + i])
            continue;
        n++;
        *out_one = i;
    }
    return n;
}

bool ap_branch_takes(const ap_net *net)
{
    return net->messages <= MESSAGES_MAX && net->k->nrows <= MESSAGES_MAX;
}

ap_branch *ap_branch_create(ap_arena *arena, ap_climb *climb, ap_search *search, ap_local *local)
{
    const ap_net *net = climb->a->net;
    ap_branch *b = AP_NEW(arena, ap_branch);
    *b = (ap_branch){
        .net = net, .climb = climb, .search = search, .local = local, .bound = climb->bound, .parent = climb->bound};
    b->lost = INT64_MAX;
    for (uint32_t d = 0; d < AP_BRANCH_DEPTH + 2; d++) {
        ap_branch_level *l = d < AP_BRANCH_DEPTH ? &b->level[d] : d == AP_BRANCH_DEPTH ? &b->root : &b->spare;
        l->message = AP_NEW_ARRAY(arena, int64_t, net->messages);
        l->offset = AP_NEW_ARRAY(arena, int64_t, net->n);
        l->edge_offset = AP_NEW_ARRAY(arena, int64_t, net->k->p.nedges);
        l->lambda = AP_NEW_ARRAY(arena, double, net->k->nrows);
        l->ban = AP_NEW_ARRAY(arena, bool, net->at[net->n]);
        l->second = AP_NEW_ARRAY(arena, bool, net->widest);
    }
    b->ban = AP_NEW_ARRAY(arena, bool, net->at[net->n]);
    b->gap = AP_NEW_ARRAY(arena, int64_t, net->at[net->n]);
    b->least = AP_NEW_ARRAY(arena, int64_t, (size_t)net->k->nrows + 1);
    b->line = AP_NEW_ARRAY(arena, int64_t, 2 * (size_t)net->widest);
    ap_ledger_init(&b->ledger, arena, net->k->nrows);
    state_save(b, &b->root);
    return b;
}

void ap_branch_to_root(ap_branch *b)
{
    state_save(b, &b->spare);
    state_restore(b, &b->root);
    ap_ascent_ban(b->climb->a, NULL);
    ap_climb_restart(b->climb, 0.05);
    memcpy(b->climb->best, b->root.lambda, b->net->k->nrows * sizeof *b->root.lambda);
}

void ap_branch_back(ap_branch *b)
{
    state_restore(b, &b->spare);
    b->climb->bound = b->bound;
}

/* ---- memory ---- */

static int64_t least_held(const ap_branch *b, const ap_demand *d)
{
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < b->net->size[d->node]; i++)
        if (!b->ban[b->net->at[d->node] + i])
            least = ap_min_i64(least, d->usage[i]);
    return least;
}

/* The least per strategy of the first end, then of the other; INT64_MAX: no pair is left. Returns the least of all. */
static int64_t least_pairs(ap_branch *b, const ap_pair_demand *d, int64_t *of_u, int64_t *of_v)
{
    const ap_net *net = b->net;
    const ap_problem_edge *e = &net->k->p.edge[d->edge];
    const bool *ban_u = b->ban + net->at[e->u], *ban_v = b->ban + net->at[e->v];
    int64_t least = INT64_MAX;
    uint32_t nu = net->size[e->u], nv = net->size[e->v];
    for (uint32_t j = 0; j < nv; j++)
        of_v[j] = INT64_MAX;
    for (uint32_t i = 0; i < nu; i++) {
        const int64_t *usage = d->usage + (size_t)i * nv, *cost = e->cost + (size_t)i * nv;
        of_u[i] = INT64_MAX;
        for (uint32_t j = 0; j < nv && !ban_u[i]; j++) {
            if (ban_v[j] || cost[j] == AP_FORBIDDEN)
                continue;
            of_u[i] = ap_min_i64(of_u[i], usage[j]);
            of_v[j] = ap_min_i64(of_v[j], usage[j]);
        }
        least = ap_min_i64(least, of_u[i]);
    }
    b->work += (uint64_t)nu * nv;
    return least;
}

static bool ban_above(ap_branch *b, uint32_t v, const int64_t *least, int64_t most)
{
    bool changed = false;
    for (uint32_t i = 0; i < b->net->size[v]; i++) {
        bool *ban = &b->ban[b->net->at[v] + i];
        if (!*ban && least[i] > most)
            *ban = changed = true;
    }
    return changed;
}

/* Adds what pairs hold at least to b->least. False when one has none left. */
static bool add_pairs(ap_branch *b)
{
    const ap_prices *prices = b->climb->a->prices;
    for (uint32_t d = 0; d < prices->joint[prices->njoint].first; d++) {
        const ap_pair_demand *x = prices->pair[d];
        int64_t least = least_pairs(b, x, b->line, b->line + b->net->widest);
        if (least == INT64_MAX)
            return false;
        b->least[x->lo] += least;
        b->least[x->hi] -= least;
    }
    return true;
}

static bool ban_by_pairs(ap_branch *b)
{
    const ap_prices *prices = b->climb->a->prices;
    bool changed = false;
    for (uint32_t d = 0; d < prices->joint[prices->njoint].first; d++) {
        const ap_pair_demand *x = prices->pair[d];
        const ap_problem_edge *e = &b->net->k->p.edge[x->edge];
        int64_t *of_u = b->line, *of_v = b->line + b->net->widest;
        int64_t least = least_pairs(b, x, of_u, of_v);
        if (least == INT64_MAX)
            continue; /* bans of this turn: the next one sees it */
        int64_t most = least - ap_ledger_most(&b->ledger, x->lo, x->hi);
        changed |= ban_above(b, e->u, of_u, most);
        changed |= ban_above(b, e->v, of_v, most);
    }
    return changed;
}

/* Bans what does not fit beside the least of the others. False when something cannot fit at all. */
static bool ban_by_memory(ap_branch *b, bool *changed)
{
    const ap_net *net = b->net;
    uint32_t rows = net->k->nrows, one;
    *changed = false;
    memset(b->least, 0, ((size_t)rows + 1) * sizeof *b->least);
    for (uint32_t v = 0; v < net->n; v++)
        if (alive(b, v, &one) == 0)
            return false;
    for (uint32_t q = 0; q < net->span_at[net->n]; q++) {
        int64_t least = least_held(b, &net->held[q]);
        b->least[net->held[q].lo] += least;
        b->least[net->held[q].hi] -= least;
    }
    if (!add_pairs(b))
        return false;
    for (uint32_t r = 1; r < rows; r++)
        b->least[r] += b->least[r - 1];
    ap_ledger_set(&b->ledger, b->least, net->room);
    if (!ap_ledger_fits(&b->ledger))
        return false;
    for (uint32_t q = 0; q < net->span_at[net->n]; q++) {
        const ap_demand *d = &net->held[q];
        int64_t most = least_held(b, d) - ap_ledger_most(&b->ledger, d->lo, d->hi);
        *changed |= ban_above(b, d->node, d->usage, most);
    }
    *changed |= ban_by_pairs(b);
    b->work += 20 * (uint64_t)rows + 200 * (uint64_t)net->span_at[net->n];
    return true;
}

/* ---- bounds ---- */

/* Between the node's bound and the cutoff; without one, a guess. */
static int64_t room_for(const ap_branch *b, int64_t cutoff)
{
    const ap_climb *c = b->climb;
    double guess = 0.05 * fabs((double)c->bound + c->constant) + 1;
    return cutoff == INT64_MAX ? (int64_t)guess : cutoff - c->bound;
}

static bool late(const ap_branch *b)
{
    return b->effort && ap_effort_late(b->effort);
}

/* Raises the bound as long as that pays. */
static void climb_here(ap_branch *b, int64_t cutoff)
{
    ap_climb *c = b->climb;
    uint64_t before = c->work;
    ap_climb_restart(c, 0.1);
    int64_t mark = b->parent;
    for (int i = 1; i <= STEPS_MOST && c->bound < cutoff && !late(b); i++) {
        ap_climb_step(c, cutoff);
        if (i % STEPS_LOOK != 0)
            continue;
        /* Worth going on if the same gain over the steps left could close a good part of the gap. */
        if (c->bound - mark < room_for(b, cutoff) / 30)
            break;
        mark = c->bound;
    }
    if (c->bound < cutoff)
        ap_climb_settle(c);
    b->work += c->work - before;
}

/* ---- branching ---- */

typedef struct split {
    uint32_t node;
    bool by_price;
    int64_t at; /* prices up to it on one side */
    uint32_t best;
    int64_t score;
} split;

static int64_t price_of(const ap_branch *b, size_t i)
{
    return b->climb->a->prices->unary[i] - b->climb->a->prices->base[i];
}

static uint32_t cheapest(const ap_branch *b, uint32_t v)
{
    uint32_t best = AP_NONE;
    for (uint32_t i = 0; i < b->net->size[v]; i++)
        if (!b->ban[b->net->at[v] + i] && (best == AP_NONE || b->gap[b->net->at[v] + i] < b->gap[b->net->at[v] + best]))
            best = i;
    return best;
}

/* The node whose good strategies differ most in the price of what they hold. */
static split split_by_price(const ap_branch *b, int64_t near)
{
    const ap_net *net = b->net;
    split best = {.node = AP_NONE, .score = near / 1000};
    for (uint32_t v = 0; v < net->n; v++) {
        int64_t lo = INT64_MAX, hi = INT64_MIN;
        for (uint32_t i = 0; i < net->size[v]; i++) {
            size_t at = net->at[v] + i;
            if (b->ban[at] || b->gap[at] > near)
                continue;
            lo = ap_min_i64(lo, price_of(b, at));
            hi = ap_max_i64(hi, price_of(b, at));
        }
        if (lo < hi && hi - lo > best.score)
            best = (split){v, true, lo + (hi - lo) / 2, cheapest(b, v), hi - lo};
    }
    return best;
}

/* What the relaxation's choice costs above the bound stands in certain nodes and edges: the node with most of it. */
static split split_by_loss(ap_branch *b, int64_t *out_total)
{
    const ap_net *net = b->net;
    const ap_ascent *a = b->climb->a;
    const uint32_t *x = b->climb->x;
    split best = {.node = AP_NONE, .score = INT64_MIN};
    uint32_t one;
    *out_total = 0;
    for (uint32_t v = 0; v < net->n; v++) {
        int64_t own = a->prices->unary[net->at[v] + x[v]] - a->offset[v], score;
        int64_t shared = 0;
        for (uint32_t i = net->arc_at[v]; i < net->arc_at[v + 1]; i++) {
            const ap_arc *y = &net->arc[i];
            own += a->message[y->in + x[v]];
            shared += a->prices->to[i][(size_t)x[v] * net->padded[y->other] + x[y->other]] - a->message[y->in + x[v]] -
                      a->message[y->out + x[y->other]] - a->edge_offset[y->edge];
        }
        *out_total += own + shared / 2;
        score = own + shared;
        if (score > best.score && alive(b, v, &one) > 1)
            best = (split){v, false, 0, cheapest(b, v), score};
    }
    return best;
}

static double unused_memory(ap_branch *b, bool *out_fits)
{
    const ap_kernel *k = b->net->k;
    const double *lambda = b->climb->a->prices->lambda;
    double sum = 0;
    ap_prices_use(b->net, b->climb->x, b->least);
    *out_fits = true;
    for (uint32_t r = 0; r < k->nrows; r++) {
        sum += lambda[r] * (double)(k->rhs[r] - b->least[r]);
        *out_fits &= b->least[r] <= k->rhs[r];
    }
    return ldexp(sum, b->net->shift);
}

/* By price where memory is what keeps the relaxation's choice from being the answer. */
static bool choose_split(ap_branch *b, int64_t cutoff, split *out)
{
    int64_t near = (room_for(b, cutoff) / 8 + 1) * ((int64_t)1 << b->net->shift), loss;
    bool fits;
    split by_loss = split_by_loss(b, &loss);
    double unused = unused_memory(b, &fits);
    *out = !fits || unused > (double)loss ? split_by_price(b, near) : by_loss;
    if (out->node == AP_NONE)
        *out = by_loss;
    return out->node != AP_NONE;
}

/* The branch with the cheapest strategy first, the other waits. */
static void descend(ap_branch *b, const split *s)
{
    const ap_net *net = b->net;
    ap_branch_level *l = &b->level[b->depth++];
    state_save(b, l);
    l->node = s->node;
    l->bound = b->climb->bound;
    size_t first = net->at[s->node];
    bool low = s->by_price && price_of(b, first + s->best) <= s->at;
    for (uint32_t i = 0; i < net->size[s->node]; i++) {
        bool with_best = s->by_price ? (price_of(b, first + i) <= s->at) == low : i == s->best;
        l->second[i] = with_best;
        b->ban[first + i] |= !with_best;
    }
    b->parent = l->bound;
}

/* The node in hand is done with: to the nearest branch that waits. */
static void back(ap_branch *b, int64_t cutoff)
{
    while (b->depth > 0) {
        ap_branch_level *l = &b->level[--b->depth];
        if (l->bound >= cutoff)
            continue;
        state_restore(b, l);
        for (uint32_t i = 0; i < b->net->size[l->node]; i++)
            b->ban[b->net->at[l->node] + i] |= l->second[i];
        b->parent = l->bound;
        return;
    }
    b->done = true;
}

static void update_bound(ap_branch *b, int64_t cutoff)
{
    int64_t least = ap_min_i64(b->done ? cutoff : b->parent, b->lost);
    for (uint32_t d = 0; d < b->depth; d++)
        least = ap_min_i64(least, b->level[d].bound);
    b->bound = ap_max_i64(b->bound, ap_min_i64(least, cutoff));
}

static int64_t best_known(const ap_branch *b, int64_t cutoff)
{
    if (b->search && b->search->found)
        cutoff = ap_min_i64(cutoff, b->search->best_cost);
    if (b->local && b->local->found)
        cutoff = ap_min_i64(cutoff, b->local->best_cost);
    return cutoff;
}

static void try_choice(ap_branch *b)
{
    if (b->local) {
        uint64_t before = b->local->work;
        ap_local_offer(b->local, b->climb->x, REPAIRS);
        b->work += b->local->work - before + 10 * (uint64_t)b->net->k->p.nedges;
        return;
    }
    uint64_t before = b->search->work;
    ap_search_try(b->search, b->climb->x);
    b->work += b->search->work - before;
}

void ap_branch_step(ap_branch *b, int64_t cutoff)
{
    bool possible = true, changed = true;
    b->nodes++;
    cutoff = best_known(b, cutoff);
    for (int i = 0; i < 4 && possible && changed; i++)
        possible = ban_by_memory(b, &changed);
    split s;
    if (possible) {
        ap_ascent_ban(b->climb->a, b->ban);
        climb_here(b, cutoff);
        ap_ascent *a = b->climb->a;
        if (b->climb->bound < cutoff) {
            try_choice(b);
            ap_ascent_fix(a, cutoff, b->ban, b->gap);
            b->work += ap_ascent_work(b->net) / 2;
        }
        cutoff = best_known(b, cutoff);
        possible = b->climb->bound < cutoff;
    }
    b->climb->bound = ap_max_i64(b->climb->bound, b->parent);
    bool deeper = possible && choose_split(b, cutoff, &s);
    if (deeper && b->depth < AP_BRANCH_DEPTH) {
        descend(b, &s);
    } else {
        b->lost = deeper ? ap_min_i64(b->lost, b->climb->bound) : b->lost;
        back(b, cutoff);
    }
    update_bound(b, cutoff);
}
