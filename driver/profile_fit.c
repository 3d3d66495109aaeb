/* From seconds of kernels to the figures that price them (passes/cluster_rates.c, passes/local_price.c):
 *
 *     kernel     launch + max(bytes / bandwidth, FLOPs / rate), bandwidth that of the cache where all fits into it
 *     exchange   steps * latency + bytes / bandwidth
 *
 * Each figure is a median of what single cases say, of those that it decides; so one case that was disturbed moves
 * nothing. Where a place has to be chosen (the size of the cache), every place is tried and that of the least sum of
 * |log(predicted / measured)| taken. */
#include "driver/profile.h"

#include <math.h>
#include <stdlib.h>

#define PS 1e12
#define MANY_BYTES (1 << 18)

typedef struct numbers {
    uint32_t n;
    double *at;
} numbers;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const numbers *v)
{
    qsort(v->at, v->n, sizeof *v->at, compare);
    return v->n ? (v->at[(v->n - 1) / 2] + v->at[v->n / 2]) / 2 : 0;
}

typedef struct fitter {
    const ap_profile *p;
    ap_cluster *c;
    numbers some; /* room for a number per case */
    double launch;
} fitter;

static void push(fitter *f, double x)
{
    f->some.at[f->some.n++] = x;
}

/* Seconds of a case without the launch; at least a twentieth, so that noise never makes a rate endless. */
static double beyond_launch(const fitter *f, const ap_profile_case *k)
{
    return fmax(k->seconds - f->launch, k->seconds / 20);
}

static int64_t whole(double x)
{
    return x < 1 ? 1 : x > 0x1p52 ? INT64_C(1) << 52 : (int64_t)(x + 0.5);
}

/* Three digits are what a measurement is worth, and read well. */
static int64_t rounded(double x)
{
    double unit = pow(10, floor(log10(fmax(x, 1))) - 2);
    return whole(unit > 1 ? floor(x / unit + 0.5) * unit : x);
}

static void fit_launch(fitter *f)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++)
        if (f->p->at[i].kind == AP_PROFILE_LAUNCH)
            push(f, f->p->at[i].seconds);
    if (f->some.n)
        f->c->launch_ps = ap_max_i64(1000, rounded(median(&f->some) * PS / 1000) * 1000);
    f->launch = (double)f->c->launch_ps / PS;
}

/* ---- memory ---- */

/* Passes over memory; and products of one row, which read each weight once and do next to nothing with it. */
static bool is_memory(const ap_profile_case *k)
{
    return k->kind == AP_PROFILE_MEMORY ||
           (k->kind == AP_PROFILE_PRODUCT && k->flops < k->bytes && k->bytes >= MANY_BYTES);
}

/* Median rate of the memory cases that touch more than `above` and at most `most` bytes; 0 when there is none. */
static double memory_rate(fitter *f, int64_t above, int64_t most)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (is_memory(k) && k->bytes > above && k->bytes <= most)
            push(f, (double)k->bytes / beyond_launch(f, k));
    }
    return median(&f->some);
}

static double memory_error(const fitter *f, int64_t capacity, double cached, double rate)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (is_memory(k))
            sum += fabs(log((f->launch + (double)k->bytes / (k->bytes <= capacity ? cached : rate)) / k->seconds));
    }
    return sum;
}

static void fit_memory(fitter *f)
{
    double all = memory_rate(f, 0, INT64_MAX), least = all > 0 ? memory_error(f, 0, all, all) : 0;
    if (all <= 0)
        return;
    f->c->cache_bytes = f->c->cache_bytes_per_second = 0;
    f->c->memory_bytes_per_second = rounded(all);
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (!is_memory(k))
            continue;
        double near = memory_rate(f, 0, k->bytes), far = memory_rate(f, k->bytes, INT64_MAX);
        if (far <= 0 || near <= far)
            continue;
        double error = memory_error(f, k->bytes, near, far);
        if (error < least) {
            least = error;
            f->c->cache_bytes = k->bytes;
            f->c->cache_bytes_per_second = rounded(near);
            f->c->memory_bytes_per_second = rounded(far);
        }
    }
}

/* Does moving its bytes say less than 8/10 of what a case takes? Then its arithmetic says the rest. */
static bool computes(const fitter *f, const ap_profile_case *k)
{
    return k->flops > 0 && (double)ap_cluster_bytes_ps(f->c, k->bytes) / PS < 0.8 * beyond_launch(f, k);
}

static void fit_vector(fitter *f)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (k->kind == AP_PROFILE_ROWS && computes(f, k))
            push(f, (double)k->flops / beyond_launch(f, k));
    }
    if (f->some.n)
        f->c->vector_flops_per_second = rounded(median(&f->some));
}

/* ---- products ---- */

static bool is_product(const fitter *f, const ap_profile_case *k)
{
    return k->kind == AP_PROFILE_PRODUCT && !is_memory(k) && computes(f, k);
}

static double lg(int64_t x)
{
    return log2((double)ap_max_i64(x, 1));
}

/* The range of sizes in equal steps of the logarithm: a point for each that has cases, at the middle of theirs. */
static int fit_points(fitter *f, double *work, double *rate)
{
    double least = INFINITY, most = -INFINITY;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (is_product(f, k)) {
            least = fmin(least, lg(k->each));
            most = fmax(most, lg(k->each));
        }
    }
    int npoints = 0;
    double step = fmax((most - least) / AP_MAX_REACHED, 0.5);
    for (int b = 0; b < AP_MAX_REACHED && least <= most; b++) {
        double sum = 0, from = least + b * step, to = b + 1 < AP_MAX_REACHED ? from + step : INFINITY;
        f->some.n = 0;
        for (uint32_t i = 0; i < f->p->ncases; i++) {
            const ap_profile_case *k = &f->p->at[i];
            if (!is_product(f, k) || lg(k->each) < from || lg(k->each) >= to)
                continue;
            push(f, (double)k->flops / beyond_launch(f, k));
            sum += lg(k->each);
        }
        if (f->some.n == 0)
            continue;
        work[npoints] = exp2(sum / f->some.n);
        rate[npoints++] = median(&f->some);
    }
    return npoints;
}

static double conv_rate(fitter *f)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (k->kind == AP_PROFILE_CONV && computes(f, k))
            push(f, (double)k->flops / beyond_launch(f, k));
    }
    return median(&f->some);
}

static double thousandths(double x)
{
    return fmin(fmax(floor(x * 1000 + 0.5), 1), 1000) / 1000;
}

static void fit_products(fitter *f)
{
    double work[AP_MAX_REACHED], rate[AP_MAX_REACHED], conv = conv_rate(f);
    int n = fit_points(f, work, rate);
    if (n == 0)
        return;
    double best = conv;
    for (int i = 0; i < n; i++)
        best = fmax(best, rate[i]);
    ap_cluster *c = f->c;
    int64_t before = c->flops_per_second[AP_F32], peak = rounded(best);
    for (int t = 0; t < AP_DTYPE_COUNT; t++) /* other types keep their share of it */
        if (c->flops_per_second[t] && before > 0)
            c->flops_per_second[t] = rounded(best * (double)c->flops_per_second[t] / (double)before);
    c->flops_per_second[AP_F32] = peak;
    c->nreached = 0;
    c->contract_efficiency = 0;
    for (int i = 0; i < n; i++) {
        int64_t flops = rounded(work[i]);
        if (c->nreached && flops <= c->reached[c->nreached - 1].flops)
            continue;
        double fraction = thousandths(rate[i] / (double)peak);
        c->reached[c->nreached++] = (ap_reached){flops, fraction};
        c->contract_efficiency = fmax(c->contract_efficiency, fraction);
    }
    if (conv > 0)
        c->conv_efficiency = thousandths(conv / (double)peak);
}

/* ---- links ---- */

/* Least squares of relative errors: seconds = steps a + bytes b, a and b not below 0. Weights 1 / seconds; cases whose
 * error is more than three times the median one have none. */
static void solve_link(const fitter *f, const bool *out, double *a, double *b)
{
    double ss = 0, sb = 0, bb = 0, s1 = 0, b1 = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (k->kind != AP_PROFILE_EXCHANGE || out[i])
            continue;
        double s = (double)k->steps / k->seconds, y = (double)k->bytes / k->seconds;
        ss += s * s;
        sb += s * y;
        bb += y * y;
        s1 += s;
        b1 += y;
    }
    double det = ss * bb - sb * sb;
    *a = det > 1e-9 * ss * bb ? (s1 * bb - b1 * sb) / det : 0;
    *b = det > 1e-9 * ss * bb ? (b1 * ss - s1 * sb) / det : 0;
    if (*a < 0 || det <= 1e-9 * ss * bb) {
        *a = 0;
        *b = bb > 0 ? b1 / bb : 0;
    } else if (*b < 0) {
        *a = ss > 0 ? s1 / ss : 0;
        *b = 0;
    }
}

static double link_error(const ap_profile_case *k, double a, double b)
{
    return fabs(((double)k->steps * a + (double)k->bytes * b) / k->seconds - 1);
}

static void fit_link(fitter *f, bool *out)
{
    double a = 0, b = 0;
    for (int round = 0; round < 4; round++) {
        solve_link(f, out, &a, &b);
        f->some.n = 0;
        for (uint32_t i = 0; i < f->p->ncases; i++)
            if (f->p->at[i].kind == AP_PROFILE_EXCHANGE)
                push(f, link_error(&f->p->at[i], a, b));
        if (f->some.n < 3)
            return;
        double limit = fmax(3 * median(&f->some), 0.05);
        for (uint32_t i = 0; i < f->p->ncases; i++)
            out[i] = f->p->at[i].kind == AP_PROFILE_EXCHANGE && link_error(&f->p->at[i], a, b) > limit;
    }
    f->c->inside.latency_ps = rounded(a * PS / 1000) * 1000;
    f->c->inside.bytes_per_second = b > 0 ? rounded(1 / b) : f->c->memory_bytes_per_second;
    f->c->across = f->c->between = f->c->inside;
}

void ap_profile_fit(ap_arena *arena, const ap_profile *p, ap_cluster *io)
{
    fitter f = {.p = p, .c = io, .some = {.at = AP_NEW_ARRAY(arena, double, p->ncases)}};
    fit_launch(&f);
    fit_memory(&f);
    fit_vector(&f);
    fit_products(&f);
    fit_link(&f, AP_NEW_ARRAY(arena, bool, p->ncases));
}
