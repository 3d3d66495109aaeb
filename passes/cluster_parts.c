/* Where the ranks of a cluster are, and what part of it a stage is priced by.
 *
 *     group     0               1
 *     host      0       1       2   3         groups of like hosts, in order
 *     rank      0 1 2 3 4 5 6 7 8 9 10 11     host by host
 *
 * A collective over a mesh axis runs in all its groups at once. What matters of where they lie is a *span*: how many
 * ranks of a group are in an island, in a host, and how many ranks share what leads out of these. */
#include "passes/cluster.h"

#include <assert.h>
#include <string.h>

int32_t ap_cluster_devices(const ap_cluster *c)
{
    return c->hosts * c->devices_per_host; /* at most AP_CLUSTER_MAX_DEVICES */
}

/* ---- ranks ---- */

typedef struct place {
    const ap_cluster *group;
    int32_t index, hosts, ranks; /* of the group; hosts and ranks before it */
} place;

static place find_place(const ap_cluster *c, int32_t rank)
{
    place p = {.group = c};
    if (c->ngroups == 0)
        return p;
    p.group = c->group;
    while (p.index + 1 < c->ngroups && rank - p.ranks >= ap_cluster_devices(p.group)) {
        p.ranks += ap_cluster_devices(p.group);
        p.hosts += p.group->hosts;
        p.group++;
        p.index++;
    }
    return p;
}

int32_t ap_cluster_group(const ap_cluster *c, int32_t rank)
{
    return find_place(c, rank).index;
}

int32_t ap_cluster_host(const ap_cluster *c, int32_t rank)
{
    place p = find_place(c, rank);
    return p.hosts + (rank - p.ranks) / p.group->devices_per_host;
}

int32_t ap_cluster_host_device(const ap_cluster *c, int32_t rank)
{
    place p = find_place(c, rank);
    return (rank - p.ranks) % p.group->devices_per_host;
}

/* The first rank of an island names it. */
int32_t ap_cluster_island(const ap_cluster *c, int32_t rank)
{
    place p = find_place(c, rank);
    int32_t device = (rank - p.ranks) % p.group->devices_per_host;
    return rank - (p.group->island > 0 ? device % p.group->island : device);
}

const ap_cluster *ap_cluster_at(const ap_cluster *c, int32_t rank)
{
    return find_place(c, rank).group;
}

/* ---- the slowest of several ---- */

static void slower(ap_level *a, const ap_level *b)
{
    a->latency_ps = ap_max_i64(a->latency_ps, b->latency_ps);
    a->bytes_per_second = ap_min_i64(a->bytes_per_second, b->bytes_per_second);
    if (a->shared_bytes_per_second == 0 ||
        (b->shared_bytes_per_second != 0 && b->shared_bytes_per_second < a->shared_bytes_per_second))
        a->shared_bytes_per_second = b->shared_bytes_per_second;
}

/* A type that one of both has no rate for is computed as f32 there, so its rate is that of f32 there. */
static void slower_rates(ap_cluster *a, const ap_cluster *b)
{
    const int64_t *x = a->flops_per_second, *y = b->flops_per_second;
    int64_t least[AP_DTYPE_COUNT] = {0};
    for (int t = 0; t < AP_DTYPE_COUNT; t++)
        if (x[t] != 0 || y[t] != 0)
            least[t] = ap_min_i64(x[t] ? x[t] : x[AP_F32], y[t] ? y[t] : y[AP_F32]);
    for (int t = 0; t < AP_DTYPE_COUNT; t++)
        a->flops_per_second[t] = least[t];
}

/* Memories that only one of both has are none to count on; the far ones are the same by place. */
static void slower_tiers(ap_cluster *a, const ap_cluster *b)
{
    a->ntiers = a->ntiers < b->ntiers ? a->ntiers : b->ntiers;
    for (int32_t i = 0; i < a->ntiers; i++) {
        ap_memory_tier *x = &a->tier[i];
        const ap_memory_tier *y = &b->tier[i];
        x->bytes = ap_min_i64(x->bytes, y->bytes);
        x->bytes_per_second = ap_min_i64(x->bytes_per_second, y->bytes_per_second);
        x->latency_ps = ap_max_i64(x->latency_ps, y->latency_ps);
        x->shared_by = x->shared_by > y->shared_by ? x->shared_by : y->shared_by;
    }
}

/* Level by level; levels that only one of both has are none. */
static void slower_caches(ap_cluster *a, const ap_cluster *b)
{
    a->ncaches = a->ncaches < b->ncaches ? a->ncaches : b->ncaches;
    for (int32_t i = 0; i < a->ncaches; i++) {
        a->cache[i].bytes = ap_min_i64(a->cache[i].bytes, b->cache[i].bytes);
        a->cache[i].bytes_per_second = ap_min_i64(a->cache[i].bytes_per_second, b->cache[i].bytes_per_second);
    }
}

/* 0 of the one that has no figure of its own: then it is as fast there as in other work. */
static int64_t slower_rate(int64_t a, int64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static void slower_arithmetic(ap_cluster *a, const ap_cluster *b)
{
    a->function_flops_per_second = slower_rate(a->function_flops_per_second, b->function_flops_per_second);
    a->conv_step_elements_per_second = slower_rate(a->conv_step_elements_per_second, b->conv_step_elements_per_second);
    a->lanes = a->lanes > b->lanes ? a->lanes : b->lanes;
    a->tile_columns = a->tile_columns > b->tile_columns ? a->tile_columns : b->tile_columns;
    a->tile_depth = a->tile_depth > b->tile_depth ? a->tile_depth : b->tile_depth;
    a->fold_ps = ap_max_i64(a->fold_ps, b->fold_ps);
    a->product_call_ps = ap_max_i64(a->product_call_ps, b->product_call_ps);
    a->conv_call_ps = ap_max_i64(a->conv_call_ps, b->conv_call_ps);
}

static void slower_device(ap_cluster *a, const ap_cluster *b)
{
    slower_rates(a, b);
    slower_tiers(a, b);
    if (b->contract_efficiency < a->contract_efficiency) {
        a->contract_efficiency = b->contract_efficiency;
        a->nreached = b->nreached;
        memcpy(a->reached, b->reached, sizeof a->reached);
    }
    for (int k = 0; k < AP_PRODUCT_KINDS; k++)
        if (b->conv_efficiency[k] < a->conv_efficiency[k]) /* 0, as products, is told by these */
            a->conv_efficiency[k] = b->conv_efficiency[k];
    slower_caches(a, b);
    slower_arithmetic(a, b);
    a->vector_flops_per_second = ap_min_i64(a->vector_flops_per_second, b->vector_flops_per_second);
    a->memory_bytes_per_second = ap_min_i64(a->memory_bytes_per_second, b->memory_bytes_per_second);
    a->memory_bytes = ap_min_i64(a->memory_bytes, b->memory_bytes);
    a->launch_ps = ap_max_i64(a->launch_ps, b->launch_ps);
    a->transfers_wait = a->transfers_wait || b->transfers_wait;
    a->cpu = a->cpu || b->cpu;
    slower(&a->inside, &b->inside);
    slower(&a->across, &b->across);
    slower(&a->between, &b->between);
}

void ap_cluster_part(const ap_cluster *c, int32_t first_rank, int32_t nranks, ap_cluster *out)
{
    assert(first_rank >= 0 && nranks >= 1);
    ap_cluster part = *c;
    if (c->ngroups > 0) {
        int32_t first = ap_cluster_group(c, first_rank), last = ap_cluster_group(c, first_rank + nranks - 1);
        part = c->group[first];
        for (int32_t g = first + 1; g <= last; g++)
            slower_device(&part, &c->group[g]);
        part.name = c->name;
        part.cost = c->cost;
        part.hosts = c->hosts;
        part.devices_per_host = c->devices_per_host;
        part.ngroups = c->ngroups;
        part.group = c->group;
    }
    *out = part;
}

bool ap_cluster_part_equal(const ap_cluster *c, int32_t first_a, int32_t first_b, int32_t nranks)
{
    for (int32_t i = 0; i < nranks; i++) {
        int32_t a = first_a + i, b = first_b + i;
        if (ap_cluster_group(c, a) != ap_cluster_group(c, b))
            return false;
        bool starts_host = ap_cluster_host_device(c, a) == 0, starts_island = ap_cluster_island(c, a) == a;
        if (i > 0 &&
            (starts_host != (ap_cluster_host_device(c, b) == 0) || starts_island != (ap_cluster_island(c, b) == b)))
            return false;
    }
    return true;
}

static int32_t common_divisor(int32_t a, int32_t b)
{
    while (b != 0) {
        int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void ap_cluster_join(ap_ctx *ctx, const char *name, const ap_cluster *group, int32_t ngroups, ap_cluster *out)
{
    assert(ngroups >= 1 && ngroups <= AP_MAX_GROUPS);
    ap_cluster whole = group[0];
    int32_t devices = ap_cluster_devices(&group[0]);
    for (int32_t g = 1; g < ngroups; g++) {
        devices += ap_cluster_devices(&group[g]);
        whole.devices_per_host = common_divisor(whole.devices_per_host, group[g].devices_per_host);
        slower_device(&whole, &group[g]);
    }
    whole.name = name;
    whole.hosts = devices / whole.devices_per_host;
    if (ngroups > 1) {
        whole.ngroups = ngroups;
        whole.group = ap_arena_memdup(&ctx->arena, group, (size_t)ngroups * sizeof *group);
    }
    *out = whole;
}

/* ---- links ---- */

int64_t ap_level_rate(const ap_level *l, int32_t users)
{
    if (l->shared_bytes_per_second == 0 || users < 1)
        return l->bytes_per_second;
    return ap_max_i64(1, ap_min_i64(l->bytes_per_second, l->shared_bytes_per_second / users));
}

ap_level ap_cluster_level(const ap_cluster *c, int32_t rank_a, int32_t rank_b)
{
    const ap_cluster *a = ap_cluster_at(c, rank_a), *b = ap_cluster_at(c, rank_b);
    if (ap_cluster_host(c, rank_a) == ap_cluster_host(c, rank_b))
        return ap_cluster_island(c, rank_a) == ap_cluster_island(c, rank_b) ? a->inside : a->across;
    ap_level l = a->between;
    if (a != b)
        slower(&l, &b->between);
    return l;
}

/* ---- spans ---- */

/* Groups of ranks: listed, or those of a mesh axis. */
typedef struct groups {
    const int32_t *list;
    int32_t first, stride, count, size;
} groups;

static int32_t rank_of(const groups *g, int32_t group, int32_t k)
{
    if (g->list)
        return g->first + g->list[group * g->size + k];
    return g->first + group / g->stride * g->stride * g->size + group % g->stride + k * g->stride;
}

/* The ranks of a group that are in one unit stand together. `most`: of a unit, `least`: of a unit; units: how many. */
typedef struct tally {
    int32_t least, most, units, last, run;
} tally;

static void close_run(tally *t)
{
    if (t->run == 0)
        return;
    t->least = t->units == 0 || t->run < t->least ? t->run : t->least;
    t->most = t->run > t->most ? t->run : t->most;
    t->units++;
    t->run = 0;
}

static void count_in(tally *t, int32_t unit)
{
    if (t->run > 0 && unit != t->last)
        close_run(t);
    t->last = unit;
    t->run++;
}

/* What one group adds. `even` stays while all groups are alike. */
static void add_group(const ap_cluster *c, const groups *g, int32_t group, ap_span *s)
{
    tally island = {0}, host = {0};
    for (int32_t k = 0; k < g->size; k++) {
        int32_t rank = rank_of(g, group, k);
        count_in(&island, ap_cluster_island(c, rank));
        count_in(&host, ap_cluster_host(c, rank));
    }
    close_run(&island);
    close_run(&host);
    int32_t top = host.units > 1 ? AP_LEVEL_BETWEEN : island.units > 1 ? AP_LEVEL_ACROSS : AP_LEVEL_INSIDE;
    s->top = top > s->top ? top : s->top;
    if (group == 0) {
        s->count[AP_LEVEL_INSIDE] = island.most;
        s->count[AP_LEVEL_ACROSS] = host.most / island.most;
        s->count[AP_LEVEL_BETWEEN] = host.units;
        s->least[AP_LEVEL_ACROSS] = island.least;
        s->least[AP_LEVEL_BETWEEN] = host.least;
    }
    s->even = s->even && island.least == island.most && host.least == host.most && host.most % island.most == 0 &&
              island.most == s->count[AP_LEVEL_INSIDE] && host.units == s->count[AP_LEVEL_BETWEEN];
    if (island.least < s->least[AP_LEVEL_ACROSS])
        s->least[AP_LEVEL_ACROSS] = island.least;
    if (host.least < s->least[AP_LEVEL_BETWEEN])
        s->least[AP_LEVEL_BETWEEN] = host.least;
}

/* The ranks of all groups together are consecutive: a mesh, or all devices of a program. */
static void count_users(const ap_cluster *c, int32_t first, int32_t n, ap_span *s)
{
    tally island = {0}, host = {0};
    for (int32_t rank = first; rank < first + n; rank++) {
        count_in(&island, ap_cluster_island(c, rank));
        count_in(&host, ap_cluster_host(c, rank));
    }
    close_run(&island);
    close_run(&host);
    s->users[AP_LEVEL_INSIDE] = 1;
    s->users[AP_LEVEL_ACROSS] = island.most;
    s->users[AP_LEVEL_BETWEEN] = host.most;
}

static void find_span(const ap_cluster *c, const groups *g, int32_t first, ap_span *out)
{
    *out = (ap_span){.ranks = g->size, .even = true, .least = {1, 0, 0}};
    for (int32_t i = 0; i < g->count; i++)
        add_group(c, g, i, out);
    count_users(c, first, g->count * g->size, out);
}

void ap_cluster_span(const ap_cluster *c, const ap_mesh_info *mesh, int axis, ap_span *out)
{
    assert(axis >= mesh->ntime && axis < mesh->naxes);
    groups g = {.first = mesh->first_rank, .stride = 1, .size = mesh->axis_size[axis]};
    for (int a = axis + 1; a < mesh->naxes; a++)
        g.stride *= mesh->axis_size[a];
    g.count = ap_mesh_ranks(mesh) / g.size;
    find_span(c, &g, mesh->first_rank, out);
}

void ap_cluster_span_of(const ap_cluster *c, int32_t first, const int32_t *rank, int32_t count, int32_t size,
                        ap_span *out)
{
    groups g = {.list = rank, .first = first, .count = count, .size = size};
    int32_t least = rank[0];
    for (int32_t i = 1; i < count * size; i++)
        least = rank[i] < least ? rank[i] : least;
    find_span(c, &g, first + least, out);
}
