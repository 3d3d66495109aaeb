/* The next best plans: a depth-first search over cuts and choices (labels are kept as vectors), bounded by what the
 * DP knows of the rest: its least sum without times above some value, and its least bottleneck. Plans are looked for
 * in slices of bottlenecks, so that both belong to much the same plan, and below a limit that grows until there are
 * enough of them. */
#include "passes/stage/dp.h"

#include <stdlib.h>
#include <string.h>

typedef struct child {
    __int128 bound;
    uint32_t closed; /* groups whose open host is left */
    uint32_t choice, last;
} child;

typedef struct node {
    uint32_t level, u;
    int64_t bottleneck; /* at least */
    ap_stages_pick s;   /* the stage that ended here */
    int64_t *sum;       /* per out label of it */
    ap_stages_host *host;
} node;

typedef struct ranking {
    ap_stages_dp *d, *bottlenecks;
    ap_stages_pool *pool;
    ap_arena *arena, scratch;
    __int128 limit;
    int64_t most;
    uint64_t work;
    node *node; /* per depth; node[0] is before the first stage */
    AP_VEC(child) todo;
    int64_t *in, *out; /* scratch, per label */
    ap_stages_pick *path;
} ranking;

static __int128 limit_now(const ranking *r)
{
    __int128 cutoff = ap_stages_pool_cutoff(r->pool);
    return cutoff < r->limit ? cutoff : r->limit;
}

static uint32_t close_groups(const ap_stages_dp *d, uint32_t u, uint32_t groups)
{
    for (uint32_t g = 0; g < d->p->ngroups; g++)
        if (groups >> g & 1)
            u = ap_stages_close(d, g, u);
    return u;
}

/* Of a plan with this sum and bottleneck so far, and these to come. */
static __int128 bound_of(const ranking *r, int64_t sum, int64_t sum_left, int64_t bottleneck, int64_t bottleneck_left)
{
    if (sum >= AP_STAGES_INF || sum_left >= AP_STAGES_INF)
        return INT64_MAX;
    return sum + sum_left + (__int128)(r->d->p->microbatches - 1) * ap_max_i64(bottleneck, bottleneck_left);
}

/* Least sums at the start of a stage with `choice` after the node, per in label; returns what no such plan beats. */
static __int128 enter(const ranking *r, const node *n, uint32_t u, uint32_t level, uint32_t choice, int64_t *in)
{
    const ap_stages_dp *d = r->d;
    const ap_stages_problem *p = d->p;
    uint32_t first = n->s.last, nin = p->nlabels[(size_t)first * p->nchoices + choice];
    uint32_t nout = first > 0 ? p->nlabels[(size_t)first * p->nchoices + n->s.choice] : 0;
    __int128 least = INT64_MAX;
    for (uint32_t i = 0; i < nin; i++) {
        in[i] = first > 0 ? AP_STAGES_INF : 0;
        for (uint32_t q = 0; q < nout; q++) {
            int64_t x = ap_stages_dp_transfer(d, first, u, n->s.choice, q, choice, i);
            if (x <= r->most && n->sum[q] < AP_STAGES_INF)
                in[i] = ap_min_i64(in[i], n->sum[q] + x);
        }
        __int128 bound = bound_of(r, in[i], ap_stages_start_row(d, level, first, choice, i)[u], n->bottleneck,
                                  ap_stages_start_row(r->bottlenecks, level, first, choice, i)[u]);
        least = bound < least ? bound : least;
    }
    return least;
}

/* Least sums at the end of that stage, per out label; returns its least time. */
static int64_t leave(const ranking *r, uint32_t first, uint32_t last, uint32_t choice, const int64_t *in, int64_t *out)
{
    const ap_stages_problem *p = r->d->p;
    uint32_t nin = p->nlabels[(size_t)first * p->nchoices + choice];
    uint32_t nout = p->nlabels[(size_t)last * p->nchoices + choice];
    const int64_t *time = r->d->ranges->usable + ap_stages_range(p, r->d->ranges, choice, first, last);
    int64_t shortest = AP_STAGES_INF;
    for (uint32_t q = 0; q < nout; q++) {
        out[q] = AP_STAGES_INF;
        for (uint32_t i = 0; i < nin; i++) {
            int64_t t = time[(size_t)i * nout + q];
            if (t > r->most || in[i] >= AP_STAGES_INF)
                continue;
            out[q] = ap_min_i64(out[q], in[i] + t);
            shortest = ap_min_i64(shortest, t);
        }
    }
    return shortest;
}

static void add_children(ranking *r, const node *n, uint32_t level, uint32_t choice, uint32_t closed)
{
    const ap_stages_dp *d = r->d;
    const ap_stages_problem *p = d->p;
    uint32_t u = close_groups(d, n->u, closed), first = n->s.last;
    if (!d->fits[(size_t)choice * d->ld + u])
        return;
    if (enter(r, n, u, level, choice, r->in) >= limit_now(r))
        return;
    for (uint32_t last = first + 1; last <= d->next_cut[first] && r->work > 0; last++) {
        if (!ap_stages_may_be(d, level, first, last))
            continue;
        r->work--;
        int64_t bottleneck = ap_max_i64(n->bottleneck, leave(r, first, last, choice, r->in, r->out));
        child c = {INT64_MAX, closed, choice, last};
        for (uint32_t q = 0; q < p->nlabels[(size_t)last * p->nchoices + choice]; q++) {
            uint32_t after = u + d->shift[choice];
            __int128 bound = bound_of(r, r->out[q], ap_stages_rest_row(d, level, last, choice, q)[after], bottleneck,
                                      ap_stages_rest_row(r->bottlenecks, level, last, choice, q)[after]);
            c.bound = bound < c.bound ? bound : c.bound;
        }
        if (c.bound < limit_now(r))
            ap_vec_push(r->arena, &r->todo, c);
    }
}

static int compare_children(const void *x, const void *y)
{
    const child *a = x, *b = y;
    if (a->bound != b->bound)
        return a->bound < b->bound ? -1 : 1;
    if (a->last != b->last)
        return a->last > b->last ? -1 : 1;
    if (a->choice != b->choice)
        return a->choice < b->choice ? -1 : 1;
    return a->closed < b->closed ? -1 : 1;
}

/* The node after one more stage. */
static void descend(ranking *r, const node *n, const child *c, uint32_t level, node *to)
{
    const ap_stages_dp *d = r->d;
    uint32_t u = close_groups(d, n->u, c->closed);
    memcpy(to->host, n->host, d->p->ngroups * sizeof *to->host);
    for (uint32_t g = 0; g < d->p->ngroups; g++)
        if (c->closed >> g & 1)
            to->host[g].fill = 0;
    to->s = (ap_stages_pick){.first = n->s.last, .last = c->last, .choice = c->choice};
    ap_stages_hosts_take(d->p, to->host, &to->s);
    enter(r, n, u, level, c->choice, r->in);
    int64_t shortest = leave(r, n->s.last, c->last, c->choice, r->in, to->sum);
    to->bottleneck = ap_max_i64(n->bottleneck, shortest);
    to->u = u + d->shift[c->choice];
    to->level = level;
}

static void visit(ranking *r, uint32_t depth);

static void visit_children(ranking *r, uint32_t depth, uint32_t level)
{
    const ap_stages_dp *d = r->d;
    const node *n = &r->node[depth];
    uint32_t begin = r->todo.len, open = 0;
    for (uint32_t g = 0; d->idle && g < d->p->ngroups; g++)
        open |= (uint32_t)(ap_stages_close(d, g, n->u) != n->u) << g;
    for (uint32_t closed = 0; closed <= open; closed++)
        for (uint32_t c = 0; (closed & ~open) == 0 && c < d->p->nchoices; c++)
            add_children(r, n, level, c, closed);
    if (r->todo.len > begin)
        qsort(r->todo.at + begin, r->todo.len - begin, sizeof *r->todo.at, compare_children);
    for (uint32_t i = begin; i < r->todo.len && r->todo.at[i].bound < limit_now(r); i++) {
        child c = r->todo.at[i];
        descend(r, n, &c, level, &r->node[depth + 1]);
        visit(r, depth + 1);
    }
    r->todo.len = begin;
}

static void visit(ranking *r, uint32_t depth)
{
    const ap_stages_dp *d = r->d;
    const node *n = &r->node[depth];
    if (depth > 0)
        r->path[depth - 1] = n->s;
    if (n->s.last == d->p->nlayers) {
        ap_stages_pool_add(r->pool, &r->scratch, r->path, depth, false);
        ap_arena_reset(&r->scratch);
        return;
    }
    uint32_t level = depth == 0 ? 0 : ap_stages_next_level(d, n->level);
    if (level != AP_NONE)
        visit_children(r, depth, level);
}

static void make_nodes(ranking *r)
{
    const ap_stages_problem *p = r->d->p;
    uint32_t most = 1;
    for (size_t i = 0; i < (size_t)(p->nlayers + 1) * p->nchoices; i++)
        most = p->nlabels[i] > most ? p->nlabels[i] : most;
    r->node = AP_NEW_ARRAY(r->arena, node, p->nlayers + 1);
    for (uint32_t i = 0; i <= p->nlayers; i++) {
        r->node[i].sum = AP_NEW_ARRAY(r->arena, int64_t, most);
        r->node[i].host = AP_NEW_ARRAY(r->arena, ap_stages_host, p->ngroups);
    }
    r->in = AP_NEW_ARRAY(r->arena, int64_t, most);
    r->out = AP_NEW_ARRAY(r->arena, int64_t, most);
    r->path = AP_NEW_ARRAY(r->arena, ap_stages_pick, p->nlayers);
}

/* All plans shorter than `limit`, in slices of bottlenecks from above; false: out of work. sum: the least of all. */
static bool rank_below(ranking *r, int64_t sum, __int128 limit, int64_t width)
{
    int64_t waits = r->d->p->microbatches - 1, least = ap_stages_dp_least(r->bottlenecks), most = AP_STAGES_LONGEST;
    r->limit = limit;
    while (most >= least && r->work > 0) {
        __int128 room = limit_now(r) - 1 - sum;
        if (room < 0)
            break;
        if (waits > 0 && room / waits < most) { /* as in search.c */
            most = (int64_t)(room / waits);
            sum = ap_stages_dp_run(r->d, most);
            if (sum >= AP_STAGES_INF)
                break;
            continue;
        }
        if (most == AP_STAGES_LONGEST)
            ap_stages_dp_run(r->d, most);
        r->most = most;
        int64_t lower = waits > 0 && most > width ? most - width : -1;
        r->node[0].bottleneck = lower + 1;
        visit(r, 0);
        most = lower;
        if (most >= least)
            sum = ap_stages_dp_run(r->d, most);
        if (sum >= AP_STAGES_INF)
            break;
    }
    return r->work > 0;
}

bool ap_stages_rank(ap_stages_dp *d, ap_stages_pool *pool, int64_t sum, uint64_t work)
{
    ap_stages_dp bottlenecks;
    ap_stages_dp_bottlenecks(pool->arena, d, &bottlenecks);
    ranking r = {
        .d = d, .bottlenecks = &bottlenecks, .pool = pool, .arena = pool->arena, .work = work > 0 ? work : 2000000};
    ap_arena_init(&r.scratch, pool->arena->out_of_memory, pool->arena->user);
    make_nodes(&r);
    bool done = false;
    __int128 best = pool->n > 0 ? pool->plan[0].total : INT64_MAX - 1;
    for (uint32_t part = 64; !done; part /= 4) {
        __int128 limit = part > 0 ? best + best / part + 1 : INT64_MAX;
        /* a slice is worth a small part of what is looked for */
        __int128 width =
            part > 0 ? (best / 256 + best / part / 8) / ap_max_i64(d->p->microbatches - 1, 1) + 1 : INT64_MAX;
        if (!rank_below(&r, sum, limit, (int64_t)width))
            break;
        done = part == 0 || ap_stages_pool_cutoff(pool) <= limit;
    }
    ap_arena_deinit(&r.scratch);
    return done;
}
