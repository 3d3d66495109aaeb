/* How fast a device is: products by a curve over their size, memory by whether a cache holds what is touched. Integers
 * and a logarithm of our own, so that two machines print the same plan. */
#include "passes/cluster.h"

#include <assert.h>
#include <math.h>

#define PS_PER_SECOND INT64_C(1000000000000)
#define PPM INT64_C(1000000)
#define COST_MAX (INT64_MAX / 1024) /* sums of many stay below AP_FORBIDDEN */

/* a * PS_PER_SECOND / rate, rounded up, saturating */
static int64_t per_second(int64_t a, int64_t rate)
{
    assert(a >= 0 && rate > 0);
    unsigned __int128 r =
        ((unsigned __int128)a * PS_PER_SECOND + (unsigned __int128)(rate - 1)) / (unsigned __int128)rate;
    return r > (unsigned __int128)COST_MAX ? COST_MAX : (int64_t)r;
}

/* Logarithm to base 2, straight between powers of two. */
static double lg(int64_t x)
{
    int e;
    double m = frexp((double)ap_max_i64(x, 1), &e);
    return (double)e + 2 * m - 2;
}

static double fraction_at(const ap_cluster *c, int64_t flops)
{
    if (c->nreached == 0)
        return c->contract_efficiency;
    const ap_reached *r = c->reached;
    int32_t i = 0;
    while (i < c->nreached && r[i].flops <= flops)
        i++;
    if (i == 0 || i == c->nreached)
        return r[i == 0 ? 0 : i - 1].fraction;
    double from = lg(r[i - 1].flops), at = (lg(flops) - from) / (lg(r[i].flops) - from);
    return r[i - 1].fraction + at * (r[i].fraction - r[i - 1].fraction);
}

int64_t ap_cluster_product_ps(const ap_cluster *c, ap_dtype dtype, bool conv, int64_t each, int64_t flops)
{
    double fraction = conv && c->conv_efficiency > 0 ? c->conv_efficiency : fraction_at(c, each);
    int64_t peak = c->flops_per_second[dtype] ? c->flops_per_second[dtype] : c->flops_per_second[AP_F32];
    int64_t ppm = (int64_t)(fraction * (double)PPM + 0.5);
    unsigned __int128 rate =
        ((unsigned __int128)peak * (unsigned __int128)ppm + (unsigned __int128)(PPM - 1)) / (unsigned __int128)PPM;
    return per_second(flops, ap_max_i64((int64_t)rate, 1));
}

int64_t ap_cluster_bytes_ps(const ap_cluster *c, int64_t bytes)
{
    bool cached = c->cache_bytes_per_second > 0 && bytes <= c->cache_bytes;
    return per_second(bytes, cached ? c->cache_bytes_per_second : c->memory_bytes_per_second);
}
