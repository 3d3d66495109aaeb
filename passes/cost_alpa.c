/* Costs as Alpa's planner counts them (Zheng et al., OSDI 2022), so that plans can be compared with published ones:
 * only what crosses links, in units of its own. n devices on a mesh axis, B bytes, latency and bytes per second of the
 * axis's link are Alpa's alpha and 1/beta; the small constants make it prefer reduce-scatter to all-reduce to gather.
 *
 *     all_gather      alpha + (n-1)/n   B beta           + 0.1      B: gathered
 *     all_reduce      alpha + 2(n-1)/n  B beta           + 0.01     B: on each device
 *     reduce_scatter  alpha + (n-1)/n   B beta           + 0.001    B: before
 *     all_to_all      alpha + (n-1)/n^2 B beta (n/2)     + 0.001    B: of all devices of the group together
 *
 * One unit is a microsecond here: alpha = 1, beta = 1 is a link of 1 us and 1 MB/s. Computing is free, but no product
 * is computed twice: a strategy that does not divide one by all devices is no choice. A parameter that is replicated
 * over the whole mesh costs a little, so that it is not for nothing. */
#include "ir/op.h"
#include "passes/cluster.h"

#define UNIT INT64_C(1000000) /* picoseconds */
#define PS_PER_SECOND INT64_C(1000000000000)

static const int64_t constant[AP_COLLECTIVE_COUNT] = {
    [AP_COLLECTIVE_ALL_GATHER] = UNIT / 10,
    [AP_COLLECTIVE_ALL_REDUCE] = UNIT / 100,
    [AP_COLLECTIVE_REDUCE_SCATTER] = UNIT / 1000,
    [AP_COLLECTIVE_ALL_TO_ALL] = UNIT / 1000,
};

int64_t ap_alpa_collective(const ap_level *l, ap_collective kind, int32_t n, int64_t bytes)
{
    unsigned __int128 up = (unsigned __int128)bytes * (unsigned)(n - 1), down = (unsigned)n;
    if (kind == AP_COLLECTIVE_ALL_REDUCE)
        up *= 2;
    if (kind == AP_COLLECTIVE_ALL_TO_ALL)
        down *= 2; /* n^2 / (n/2) */
    if (up >> 80)
        return INT64_MAX / 1024;
    down *= (uint64_t)l->bytes_per_second;
    unsigned __int128 ps = (up * (uint64_t)PS_PER_SECOND + down - 1) / down;
    int64_t move = ps > INT64_MAX / 2048 ? INT64_MAX / 2048 : (int64_t)ps;
    return ap_min_i64(ap_sat_add(ap_sat_add(move, l->latency_ps), constant[kind]), INT64_MAX / 1024);
}

/* The whole part of an all-reduce of one byte over every axis; a mesh of one axis is one of n x 1. */
int64_t ap_alpa_replicated(const ap_cluster *c, const ap_mesh_info *mesh)
{
    int64_t sum = 0;
    for (int a = mesh->ntime; a < mesh->naxes; a++) {
        ap_span span;
        ap_cluster_span(c, mesh, a, &span);
        sum = ap_sat_add(sum, ap_cost_span(c, &span, AP_COLLECTIVE_ALL_REDUCE, 1));
    }
    if (mesh->naxes - mesh->ntime == 1)
        sum = ap_sat_add(sum, ap_alpa_collective(&c->inside, AP_COLLECTIVE_ALL_REDUCE, 1, 1));
    return sum / UNIT * UNIT;
}

int64_t ap_alpa_node(const ap_module *m, ap_node n, const ap_strategy *s)
{
    if (!ap_node_is_product(m, n) || ap_strategy_splits_all(m, n, s))
        return 0;
    return INT64_MAX; /* AP_FORBIDDEN of the solver */
}
