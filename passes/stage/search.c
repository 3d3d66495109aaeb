/* The search over bottlenecks. F(m), the least sum of times of plans without a time above m, falls as m grows, and
 *
 *     T = min over m of  F(m) + (B - 1) * m .
 *
 * With F(m) known, no bottleneck between x and m gives less than F(m) + (B - 1) * x; so from a best plan T* the next
 * bottleneck worth a try is the largest x with F(m) + (B - 1) * x < T* - eps. Each try leaves that way more than one
 * value of the bottleneck, and in the end none is left: T* is within eps of the optimum. (Alpa tries all values from
 * below, and skips those closer than eps.) A few tries in the middle find a good T* first. */
#include "passes/stage/dp.h"

typedef struct point {
    int64_t most, bottleneck, sum; /* F is `sum` for all values from bottleneck to most */
} point;

typedef struct search {
    ap_stages_dp *d;
    ap_stages_pool *pool;
    ap_arena scratch;
    ap_stages_host *host;
    ap_stages_pick *path;
    AP_VEC(point) known;
    ap_arena *arena;
    int64_t floor; /* no plan has a bottleneck this small */
    int64_t least; /* sum without a bound */
    uint32_t trials;
} search;

/* A layer is in some stage, which takes as long at least. */
static int64_t shortest_bottleneck(const ap_stages_problem *p)
{
    int64_t most = 0;
    for (uint32_t l = 0; l < p->nlayers; l++) {
        int64_t least = AP_STAGES_LONGEST;
        for (uint32_t c = 0; c < p->nchoices; c++) {
            const uint32_t *n = &p->nlabels[(size_t)l * p->nchoices + c];
            const int64_t *time = p->table[(size_t)l * p->nchoices + c].time;
            for (size_t i = 0; i < (size_t)n[0] * n[p->nchoices]; i++)
                least = ap_min_i64(least, time[i]);
        }
        most = ap_max_i64(most, least);
    }
    return most;
}

static void add_path(search *s, uint32_t n)
{
    bool packed = s->d->family == AP_STAGES_PACKED;
    if (!packed || ap_stages_place_packed(&s->scratch, s->d->p, s->path, n))
        ap_stages_pool_add(s->pool, &s->scratch, s->path, n, packed);
    ap_arena_reset(&s->scratch);
}

/* F(most), and where it begins; the plan goes into the pool. */
static point try_bottleneck(search *s, int64_t most)
{
    for (uint32_t i = 0; i < s->known.len; i++)
        if (s->known.at[i].bottleneck <= most && most <= s->known.at[i].most)
            return s->known.at[i];
    point x = {.most = most, .sum = ap_stages_dp_run(s->d, most)};
    s->trials++;
    if (x.sum >= AP_STAGES_INF)
        return x;
    uint32_t n = ap_stages_dp_path(s->d, most, s->host, s->path);
    for (uint32_t i = 0; i < n; i++)
        x.bottleneck = ap_max_i64(x.bottleneck, ap_max_i64(s->path[i].time, s->path[i].transfer));
    add_path(s, n);
    ap_vec_push(s->arena, &s->known, x);
    return x;
}

/* The largest bottleneck below x's that may give less than the best, by more than eps. */
static int64_t next_bottleneck(const search *s, const point *x, int64_t eps)
{
    int64_t best = s->pool->n > 0 ? s->pool->plan[0].total : INT64_MAX, below = x->bottleneck - 1;
    __int128 room = (__int128)best - eps - 1 - x->sum;
    if (room < 0)
        return -1;
    room /= s->d->p->microbatches - 1;
    return room < below ? (int64_t)room : below;
}

/* Halves what is left a few times, towards the better side. */
static void probe(search *s, int64_t high)
{
    int64_t low = s->floor;
    for (uint32_t i = 0; i < 8 && high - low > high / 64; i++) {
        int64_t mid = low + (high - low) / 2, best = s->pool->n > 0 ? s->pool->plan[0].total : INT64_MAX;
        point x = try_bottleneck(s, mid);
        if (x.sum >= AP_STAGES_INF)
            s->floor = low = mid;
        else if (s->pool->n > 0 && s->pool->plan[0].total < best)
            high = x.bottleneck;
        else
            low = mid;
    }
}

/* All bottlenecks, but for those that cannot give less than the pool's best minus eps. */
static void search_family(search *s, int64_t eps)
{
    point x = try_bottleneck(s, AP_STAGES_LONGEST);
    s->least = x.sum;
    if (x.sum >= AP_STAGES_INF || s->d->p->microbatches == 1)
        return;
    int64_t next = next_bottleneck(s, &x, eps);
    probe(s, next);
    for (next = next_bottleneck(s, &x, eps); next > s->floor; next = next_bottleneck(s, &x, eps)) {
        x = try_bottleneck(s, next);
        if (x.sum >= AP_STAGES_INF)
            s->floor = next;
    }
}

static void search_init(search *s, ap_arena *arena, ap_stages_dp *d, ap_stages_pool *pool)
{
    const ap_stages_problem *p = d->p;
    *s = (search){.d = d, .pool = pool, .arena = arena, .floor = shortest_bottleneck(p) - 1};
    ap_arena_init(&s->scratch, arena->out_of_memory, arena->user);
    s->host = AP_NEW_ARRAY(arena, ap_stages_host, p->ngroups);
    s->path = AP_NEW_ARRAY(arena, ap_stages_pick, p->nlayers);
}

/* Does every row of parts of hosts that fills the hosts do so in pipeline order? */
static bool always_in_order(const ap_stages_problem *p)
{
    for (uint32_t g = 0; g < p->ngroups; g++) {
        int32_t part = 0, host = p->group[g].devices;
        for (uint32_t c = 0; c < p->nchoices; c++) {
            const ap_stages_choice *x = &p->choice[c];
            if (x->group != g || x->devices == host)
                continue;
            if (host % x->devices != 0 || (part != 0 && part != x->devices))
                return false;
            part = x->devices;
        }
    }
    return true;
}

typedef struct request {
    ap_ctx *ctx;
    ap_arena *work;
    const ap_stages_problem *p;
    const ap_stages_options *opt;
    ap_stages_ranges ranges;
    ap_stages_pool pool;
    ap_stages_result *out;
} request;

static ap_status solve_family(request *q, ap_stages_family family, bool idle)
{
    ap_stages_dp d;
    AP_TRY(ap_stages_dp_make(q->ctx, q->work, q->p, &q->ranges, family, idle, &d));
    search s;
    search_init(&s, q->work, &d, &q->pool);
    search_family(&s, q->opt->eps);
    if (family == AP_STAGES_IN_ORDER && s.least < AP_STAGES_INF && q->pool.wanted > 1)
        q->out->ranked = ap_stages_rank(&d, &q->pool, s.least, q->opt->work);
    q->out->trials += s.trials;
    ap_arena_deinit(&s.scratch);
    return AP_OK;
}

static ap_status solve_families(request *q, bool idle)
{
    AP_TRY(solve_family(q, AP_STAGES_IN_ORDER, idle));
    if (!always_in_order(q->p))
        AP_TRY(solve_family(q, AP_STAGES_PACKED, idle));
    q->out->idle = idle;
    return AP_OK;
}

/* How much more memory than it has would the fullest device need? The least bottleneck, when stages take what they
 * lack and transfers nothing. */
static ap_status find_missing_in(request *q, ap_stages_family family)
{
    ap_stages_dp d;
    AP_TRY(ap_stages_dp_make(q->ctx, q->work, q->p, &q->ranges, family, true, &d));
    for (uint32_t k = 0; k < d.classes; k++) {
        ap_stages_transfers *t = &d.transfers[k];
        for (size_t i = 0; i < (size_t)t->rows * t->rows; i++) {
            t->open[i] = t->open[i] == AP_STAGES_NONE ? AP_STAGES_NONE : 0;
            t->closed[i] = t->closed[i] == AP_STAGES_NONE ? AP_STAGES_NONE : 0;
        }
    }
    d.product = ap_minmax_get();
    int64_t least = ap_stages_dp_run(&d, AP_STAGES_LONGEST);
    if (least < AP_STAGES_INF)
        q->out->missing = ap_min_i64(q->out->missing, least);
    return AP_OK;
}

static ap_status find_missing(request *q)
{
    q->out->missing = AP_STAGES_NONE;
    for (uint32_t c = 0; c < q->p->nchoices; c++) {
        int64_t capacity = q->p->group[q->p->choice[c].group].capacity;
        size_t end = ap_stages_ranges_end(q->p, &q->ranges, c);
        for (size_t i = ap_stages_range(q->p, &q->ranges, c, 0, 1); i < end; i++) {
            int64_t memory = q->ranges.memory[i];
            q->ranges.usable[i] = memory == AP_STAGES_NONE ? AP_STAGES_INF : ap_max_i64(memory - capacity, 0);
        }
    }
    AP_TRY(find_missing_in(q, AP_STAGES_IN_ORDER));
    return find_missing_in(q, AP_STAGES_PACKED);
}

static ap_status solve(request *q)
{
    AP_TRY(ap_stages_check(q->ctx, q->p));
    AP_TRY(ap_stages_ranges_make(q->ctx, q->work, q->p, &q->ranges));
    ap_stages_ranges_fit(q->p, &q->ranges);
    ap_stages_pool_init(&q->pool, q->work, q->p, &q->ranges, q->opt->nplans > 0 ? q->opt->nplans : 1);
    q->out->ranked = true;
    AP_TRY(solve_families(q, q->opt->idle));
    if (q->pool.n == 0 && !q->opt->idle)
        AP_TRY(solve_families(q, true));
    return q->pool.n > 0 ? AP_OK : find_missing(q);
}

ap_status ap_stages_solve(ap_ctx *ctx, ap_arena *arena, const ap_stages_problem *p, const ap_stages_options *opt,
                          ap_stages_result *out)
{
    ap_arena work;
    ap_arena_init(&work, arena->out_of_memory, arena->user);
    *out = (ap_stages_result){0};
    request q = {.ctx = ctx, .work = &work, .p = p, .opt = opt, .out = out};
    ap_status status = solve(&q);
    if (status == AP_OK && q.pool.n > 0) {
        out->nplans = q.pool.n;
        out->plan = AP_NEW_ARRAY(arena, ap_stages_plan, out->nplans);
        for (uint32_t i = 0; i < out->nplans; i++) {
            out->plan[i] = q.pool.plan[i];
            out->plan[i].stage =
                ap_arena_memdup(arena, out->plan[i].stage, out->plan[i].nstages * sizeof *out->plan[i].stage);
        }
        out->bound = ap_max_i64(out->plan[0].total - opt->eps, 0);
    }
    ap_arena_deinit(&work);
    return status;
}
