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

int64_t ap_cluster_product_ps(const ap_cluster *c, ap_dtype dtype, ap_product_kind kind, int64_t each, int64_t flops)
{
    bool own = kind > AP_PRODUCT_MATRIX && c->conv_efficiency[kind] > 0;
    double fraction = own ? c->conv_efficiency[kind] : fraction_at(c, each);
    int64_t peak = c->flops_per_second[dtype] ? c->flops_per_second[dtype] : c->flops_per_second[AP_F32];
    int64_t ppm = (int64_t)(fraction * (double)PPM + 0.5);
    unsigned __int128 rate =
        ((unsigned __int128)peak * (unsigned __int128)ppm + (unsigned __int128)(PPM - 1)) / (unsigned __int128)PPM;
    return per_second(flops, ap_max_i64((int64_t)rate, 1));
}

int64_t ap_cluster_touch_ps(const ap_cluster *c, int64_t bytes, int64_t distance)
{
    for (int32_t i = 0; i < c->ncaches; i++)
        if (distance <= c->cache[i].bytes)
            return per_second(bytes, c->cache[i].bytes_per_second);
    return per_second(bytes, c->memory_bytes_per_second);
}

int64_t ap_cluster_bytes_ps(const ap_cluster *c, int64_t bytes)
{
    return ap_cluster_touch_ps(c, bytes, bytes);
}

/* ---- arithmetic of a kernel ---- */

/* flops of one application of each pointwise operator */
static const uint8_t flops_of[AP_PW_COUNT] = {
#define POINTWISE(E, text, NIN, RESULT, DOMAIN_, LINEAR_A, LINEAR_B, FLOPS, formula) [AP_PW_##E] = (FLOPS),
#include "ir/op/pointwise.def"
#undef POINTWISE
};

void ap_cluster_count_flops(ap_pointwise pw, int64_t *simple, int64_t *functions)
{
    int64_t n = flops_of[pw];
    *simple += n < 4 ? n : 0;
    *functions += n < 4 ? 0 : n < 8 ? n / 2 : n;
}

ap_product_kind ap_cluster_conv_kind(int64_t g, int64_t m, int64_t c, int nspatial, const int64_t *kernel)
{
    if (g > 1 && m == 1 && c == 1)
        return AP_PRODUCT_DEPTHWISE;
    for (int d = 0; d < nspatial; d++)
        if (kernel[d] > 1)
            return AP_PRODUCT_SPATIAL;
    return AP_PRODUCT_POINTWISE;
}

static double whole_tiles(int64_t n, int32_t tile)
{
    if (n < 1 || tile < 2)
        return 1;
    const int64_t tiles = (n - 1) / tile + 1;
    return (double)tiles * tile / (double)n;
}

double ap_cluster_tiled_flops(const ap_cluster *c, const ap_work *w)
{
    double deeper = w->kind == AP_PRODUCT_MATRIX && w->depth > 0 ? 1 + (double)c->tile_depth / (double)w->depth : 1;
    return (double)w->flops * whole_tiles(w->columns, c->tile_columns) * deeper;
}

/* What is left of a row is done one by one, but compilers use half of a vector where that is enough. */
double ap_cluster_function_flops(const ap_cluster *c, const ap_work *w)
{
    double left = w->row > 0 && c->lanes > 1 ? (double)(w->row % c->lanes) / (double)w->row : 0;
    return (double)w->functions * (1 - left + left * ap_max_i64(c->lanes, 2) / 2);
}

static int64_t whole_of(double x)
{
    return x < (double)COST_MAX ? (int64_t)x : COST_MAX;
}

int64_t ap_cluster_work_ps(const ap_cluster *c, const ap_work *w)
{
    int64_t ps = 0, functions = c->function_flops_per_second;
    if (w->kind != AP_PRODUCT_NONE) {
        double flops = ap_cluster_tiled_flops(c, w);
        double more = w->flops > 0 ? flops / (double)w->flops : 1;
        ps = ap_cluster_product_ps(c, w->dtype, w->kind, whole_of((double)w->each * more), whole_of(flops));
        ps = ap_sat_add(ps, ap_sat_mul(w->calls, w->kind == AP_PRODUCT_MATRIX ? c->product_call_ps : c->conv_call_ps));
    }
    if (c->conv_step_elements_per_second > 0)
        ps = ap_sat_add(ps, per_second(w->stepped, c->conv_step_elements_per_second));
    if (functions > 0) /* as long as a few of their FLOPs */
        ps = ap_sat_add(ps, per_second(ap_sat_mul(w->alone, 4), functions));
    ps = ap_sat_add(ps, per_second(w->simple, c->vector_flops_per_second));
    ps = ap_sat_add(ps, ap_sat_mul(w->folds, c->fold_ps));
    functions = functions > 0 ? functions : c->vector_flops_per_second;
    ps = ap_sat_add(ps, per_second(whole_of(ap_cluster_function_flops(c, w)), functions));
    return ap_min_i64(ps, COST_MAX);
}

int64_t ap_cluster_kernel_ps(const ap_cluster *c, int64_t arithmetic_ps, int64_t memory_ps)
{
    int64_t both = c->cpu ? ap_sat_add(arithmetic_ps, memory_ps) : ap_max_i64(arithmetic_ps, memory_ps);
    return ap_min_i64(ap_sat_add(both, c->launch_ps), COST_MAX);
}
