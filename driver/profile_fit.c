/* From seconds of kernels to the figures that price them (passes/cluster_rates.c, passes/local_price.c):
 *
 *     processor  launch + bytes / bandwidths + calls + FLOPs / rates, the bandwidth that of the cache they are still in
 *     GPU        launch + max(bytes / bandwidth, FLOPs / rate)
 *     exchange   steps * latency + bytes / bandwidth
 *
 * Each figure is a median of what single cases say, of those that it decides; so one case that was disturbed moves
 * nothing. They are found one after the other, and what is known is taken off what follows. Where a place has to be
 * chosen (sizes of caches, tiles, vectors), every place is tried and that of the least sum of |log(predicted /
 * measured)| taken. */
#include "driver/profile.h"

#include <math.h>
#include <stdlib.h>

#define PS 1e12
#define MANY_BYTES (1 << 18)
#define FEW_FLOPS 40000 /* of a convolution: calling it is what takes time */
#define SHORT_ROW 32
#define MANY_FLOPS 200000 /* the other way round */
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

static double memory_seconds(const fitter *f, const ap_profile_case *k)
{
    int64_t ps = k->ntouches ? 0 : ap_cluster_bytes_ps(f->c, k->bytes);
    for (int i = 0; i < k->ntouches; i++)
        ps += ap_cluster_touch_ps(f->c, k->touch[i].bytes, k->touch[i].distance);
    return (double)ps / PS;
}

/* Seconds of a case without the launch; at least a twentieth, so that noise never makes a rate endless. */
static double beyond_launch(const fitter *f, const ap_profile_case *k)
{
    return fmax(k->seconds - f->launch, k->seconds / 20);
}

/* What is left of it for arithmetic, of which `known` is priced already (NULL: nothing). */
static double beyond(const fitter *f, const ap_profile_case *k, const ap_work *known)
{
    double rest = k->seconds - f->launch - (f->c->cpu ? memory_seconds(f, k) : 0);
    if (known)
        rest -= (double)ap_cluster_work_ps(f->c, known) / PS;
    return fmax(rest, k->seconds / 20);
}

static double off(double predicted, double measured)
{
    return fabs(log(predicted / measured));
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
           (k->kind == AP_PROFILE_PRODUCT && k->work.flops > 0 && k->work.flops < k->bytes && k->bytes >= MANY_BYTES);
}

/* How far back most of its bytes were touched. */
static int64_t distance_of(const ap_profile_case *k)
{
    int64_t most = 0, distance = 0;
    for (int i = 0; i < k->ntouches; i++)
        most = ap_max_i64(most, k->touch[i].bytes);
    for (int i = 0; i < k->ntouches; i++)
        if (k->touch[i].bytes >= most / 2)
            distance = ap_max_i64(distance, k->touch[i].distance);
    return k->ntouches ? distance : k->bytes;
}

/* Median rate of the memory cases of more than `above` and at most `most` bytes of distance; 0 when there is none. */
static double memory_rate(fitter *f, int64_t above, int64_t most)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (is_memory(k) && distance_of(k) > above && distance_of(k) <= most)
            push(f, (double)k->bytes / beyond_launch(f, k));
    }
    return median(&f->some);
}

/* Of those cases, at this rate. */
static double memory_error(const fitter *f, int64_t above, int64_t most, double rate)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (is_memory(k) && distance_of(k) > above && distance_of(k) <= most)
            sum += off(f->launch + (double)k->bytes / rate, k->seconds);
    }
    return sum;
}

/* The best place to cut what lies above `above` and up to `most` in two: how much error that saves. */
static double best_cut(fitter *f, int64_t above, int64_t most, int64_t *out)
{
    double all = memory_rate(f, above, most), before, best = 0;
    if (all <= 0)
        return 0;
    before = memory_error(f, above, most, all);
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        int64_t at = distance_of(&f->p->at[i]);
        if (!is_memory(&f->p->at[i]) || at <= above || at >= most)
            continue;
        double near = memory_rate(f, above, at), far = memory_rate(f, at, most);
        if (far <= 0 || near < 1.15 * far)
            continue;
        double saved = before - memory_error(f, above, at, near) - memory_error(f, at, most, far);
        if (saved > best) {
            best = saved;
            *out = at;
        }
    }
    return best;
}

enum { MAX_LEVELS = AP_MAX_CACHES };

/* The range of distances is cut where that saves most, again and again, while it saves a twentieth of all error. */
static int cut_memory(fitter *f, int64_t *end)
{
    int n = 0;
    double all = memory_error(f, 0, INT64_MAX, memory_rate(f, 0, INT64_MAX));
    while (n < MAX_LEVELS) {
        double best = 0;
        int64_t at = 0, where = 0;
        int level = 0;
        for (int i = 0; i <= n; i++) {
            double saved = best_cut(f, i ? end[i - 1] : 0, i < n ? end[i] : INT64_MAX, &at);
            if (saved > best) {
                best = saved;
                where = at;
                level = i;
            }
        }
        if (best <= 0.05 * all)
            return n;
        for (int i = n++; i > level; i--)
            end[i] = end[i - 1];
        end[level] = where;
    }
    return n;
}

static void fit_memory(fitter *f)
{
    int64_t end[MAX_LEVELS];
    if (memory_rate(f, 0, INT64_MAX) <= 0)
        return;
    int n = cut_memory(f, end);
    f->c->ncaches = 0;
    for (int i = 0; i < n; i++) {
        int64_t rate = rounded(memory_rate(f, i ? end[i - 1] : 0, end[i]));
        ap_cache *last = f->c->ncaches ? &f->c->cache[f->c->ncaches - 1] : NULL;
        if (last && rate >= last->bytes_per_second)
            last->bytes = end[i]; /* further away is not faster */
        else
            f->c->cache[f->c->ncaches++] = (ap_cache){end[i], rate};
    }
    f->c->memory_bytes_per_second = rounded(memory_rate(f, n ? end[n - 1] : 0, INT64_MAX));
}

/* Does moving its bytes say less than 8/10 of what a case takes? Then its arithmetic says the rest. */
static bool computes(const fitter *f, const ap_profile_case *k)
{
    return memory_seconds(f, k) < 0.8 * beyond_launch(f, k);
}

/* ---- rows ---- */

static void fit_vector(fitter *f)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (k->kind == AP_PROFILE_ROWS && k->work.functions == 0 && k->work.simple > 0 && computes(f, k))
            push(f, (double)k->work.simple / beyond(f, k, NULL));
    }
    if (f->some.n)
        f->c->vector_flops_per_second = rounded(median(&f->some));
}

/* Folding a row: of short rows of little else. */
static void fit_fold(fitter *f)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        ap_work other = k->work;
        other.folds = 0;
        if (k->kind == AP_PROFILE_ROWS && k->work.folds > 0 && k->work.row <= SHORT_ROW &&
            k->work.functions < k->work.simple)
            push(f, beyond(f, k, &other) / (double)k->work.folds);
    }
    if (f->some.n)
        f->c->fold_ps = rounded(median(&f->some) * PS);
}

static bool has_functions(const ap_profile_case *k)
{
    return k->kind == AP_PROFILE_ROWS && k->work.functions > k->work.simple;
}

/* By the lanes that are set. */
static double function_rate(fitter *f)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (has_functions(k) && computes(f, k))
            push(f, ap_cluster_function_flops(f->c, &k->work) /
                        beyond(f, k, &(ap_work){.simple = k->work.simple, .folds = k->work.folds}));
    }
    return median(&f->some);
}

static double functions_error(const fitter *f, double rate)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (has_functions(k))
            sum += off(ap_cluster_function_flops(f->c, &k->work) / rate,
                       beyond(f, k, &(ap_work){.simple = k->work.simple, .folds = k->work.folds}));
    }
    return sum;
}

static void fit_functions(fitter *f)
{
    static const int32_t offered[] = {1, 4, 8, 16};
    double least = INFINITY, rate = 0;
    int32_t lanes = f->c->lanes;
    for (int i = 0; i < 4; i++) {
        f->c->lanes = offered[i];
        double at = function_rate(f), error = at > 0 ? functions_error(f, at) : INFINITY;
        if (error < least) {
            least = error;
            rate = at;
            lanes = offered[i];
        }
    }
    f->c->lanes = lanes;
    if (rate > 0)
        f->c->function_flops_per_second = rounded(rate);
}

/* ---- sums of two ---- */

/* seconds = x a + z b, a and b not below 0: least squares of relative errors, weights 1 / seconds. Cases with out[i]
 * have none. */
typedef struct sums {
    uint32_t n;
    double *x, *z, *y;
    bool *out;
} sums;

static sums sums_make(ap_arena *arena, uint32_t most)
{
    return (sums){0, AP_NEW_ARRAY(arena, double, most), AP_NEW_ARRAY(arena, double, most),
                  AP_NEW_ARRAY(arena, double, most), AP_NEW_ARRAY(arena, bool, most)};
}

static void sums_push(sums *s, double x, double z, double y)
{
    s->x[s->n] = x;
    s->z[s->n] = z;
    s->out[s->n] = false;
    s->y[s->n++] = y;
}

static void solve_sums(const sums *s, double *a, double *b)
{
    double xx = 0, xz = 0, zz = 0, x1 = 0, z1 = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->out[i])
            continue;
        double x = s->x[i] / s->y[i], z = s->z[i] / s->y[i];
        xx += x * x;
        xz += x * z;
        zz += z * z;
        x1 += x;
        z1 += z;
    }
    double det = xx * zz - xz * xz;
    *a = det > 1e-9 * xx * zz ? (x1 * zz - z1 * xz) / det : 0;
    *b = det > 1e-9 * xx * zz ? (z1 * xx - x1 * xz) / det : 0;
    if (*a < 0 || det <= 1e-9 * xx * zz) {
        *a = 0;
        *b = zz > 0 ? z1 / zz : 0;
    } else if (*b < 0) {
        *a = xx > 0 ? x1 / xx : 0;
        *b = 0;
    }
}

/* The same without cases whose error is more than three times the median one; false: too few. */
static bool fit_sums(fitter *f, sums *s, double *a, double *b)
{
    if (s->n < 3)
        return false;
    for (int round = 0; round < 4; round++) {
        solve_sums(s, a, b);
        f->some.n = 0;
        for (uint32_t i = 0; i < s->n; i++)
            push(f, fabs((s->x[i] * *a + s->z[i] * *b) / s->y[i] - 1));
        double limit = fmax(3 * median(&f->some), 0.05);
        for (uint32_t i = 0; i < s->n; i++)
            s->out[i] = fabs((s->x[i] * *a + s->z[i] * *b) / s->y[i] - 1) > limit;
    }
    return true;
}

/* ---- products ---- */

/* Of one type, or of any (NONE). */
static bool is_product(const fitter *f, const ap_profile_case *k, ap_dtype only)
{
    return k->kind == AP_PROFILE_PRODUCT && (only == AP_DTYPE_NONE || k->work.dtype == only) && !is_memory(k) &&
           k->work.flops > 0 && computes(f, k); /* the smallest products are loop nests */
}

/* By the tiles that are set: calls and rate, and what they leave unexplained. */
static double tile_error(fitter *f, sums *s, double *call)
{
    double rate = 0, error = 0;
    s->n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (is_product(f, k, AP_F32))
            sums_push(s, (double)k->work.calls, ap_cluster_tiled_flops(f->c, &k->work), beyond(f, k, NULL));
    }
    if (!fit_sums(f, s, call, &rate) || rate <= 0)
        return INFINITY;
    for (uint32_t i = 0; i < s->n; i++)
        error += off(s->x[i] * *call + s->z[i] * rate, s->y[i]);
    return error;
}

/* Of processors, whose products are known by their columns. */
static void fit_tiles(ap_arena *arena, fitter *f)
{
    static const int32_t columns[] = {1, 4, 8, 16, 32}, depth[] = {0, 4, 8, 16};
    int32_t best_columns = f->c->tile_columns, best_depth = f->c->tile_depth;
    double least = INFINITY, call = 0, at = 0;
    sums s = sums_make(arena, f->p->ncases);
    for (int i = 0; i < 20 && f->c->cpu; i++) {
        f->c->tile_columns = columns[i / 4];
        f->c->tile_depth = depth[i % 4];
        double error = tile_error(f, &s, &at);
        if (error < 0.99 * least) {
            least = error;
            call = at;
            best_columns = columns[i / 4];
            best_depth = depth[i % 4];
        }
    }
    f->c->tile_columns = best_columns;
    f->c->tile_depth = best_depth;
    if (least < INFINITY)
        f->c->product_call_ps = rounded(call * PS / 1000) * 1000;
}

static double lg(double x)
{
    return log2(fmax(x, 1));
}

/* FLOPs of one product, with its tiles. */
static double one_of(const fitter *f, const ap_profile_case *k)
{
    double all = (double)ap_max_i64(k->work.flops, 1);
    return (double)k->work.each * ap_cluster_tiled_flops(f->c, &k->work) / all;
}

/* FLOP/s of a case as parts of `peak` of its type. */
static double part_of(const fitter *f, const ap_profile_case *k, const double *peak)
{
    bool conv = k->kind == AP_PROFILE_CONV;
    double calls = (double)k->work.calls * (double)(conv ? f->c->conv_call_ps : f->c->product_call_ps) / PS;
    double rest = fmax(beyond(f, k, NULL) - calls, k->seconds / 20);
    return ap_cluster_tiled_flops(f->c, &k->work) / rest / peak[k->work.dtype];
}

typedef struct points {
    int n;
    double work[AP_MAX_REACHED], part[AP_MAX_REACHED];
} points;

/* The range of sizes in equal steps of the logarithm: a point for each that has cases, at the middle of theirs. Of one
 * type, or of all (NONE). Where calls take most of the time nothing is seen of the rate. */
static bool is_point(const fitter *f, const ap_profile_case *k, ap_dtype only)
{
    double calls = (double)k->work.calls * (double)f->c->product_call_ps / PS;
    return is_product(f, k, only) && calls < 0.5 * beyond_launch(f, k);
}

static void fit_points(fitter *f, ap_dtype only, const double *peak, points *out)
{
    double least = INFINITY, most = -INFINITY;
    out->n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (is_point(f, k, only)) {
            least = fmin(least, lg(one_of(f, k)));
            most = fmax(most, lg(one_of(f, k)));
        }
    }
    double step = fmax((most - least) / AP_MAX_REACHED, 0.5);
    for (int b = 0; b < AP_MAX_REACHED && least <= most; b++) {
        double sum = 0, from = least + b * step, to = b + 1 < AP_MAX_REACHED ? from + step : INFINITY;
        f->some.n = 0;
        for (uint32_t i = 0; i < f->p->ncases; i++) {
            const ap_profile_case *k = &f->p->at[i];
            double at = lg(one_of(f, k));
            if (!is_point(f, k, only) || at < from || at >= to)
                continue;
            push(f, part_of(f, k, peak));
            sum += at;
        }
        if (f->some.n == 0)
            continue;
        out->work[out->n] = exp2(sum / f->some.n);
        out->part[out->n++] = median(&f->some);
    }
}

/* ---- convolutions ---- */

/* What a call takes: of convolutions that do next to nothing. */
static void fit_conv_call(fitter *f)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases && f->c->cpu; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (k->kind == AP_PROFILE_CONV && k->work.stepped == 0 && k->work.flops <= FEW_FLOPS)
            push(f, beyond(f, k, NULL));
    }
    if (f->some.n)
        f->c->conv_call_ps = rounded(median(&f->some) * PS / 1000) * 1000;
}

/* Of one type, or any (NONE); of one kind, or any (NONE). 0: there are none. */
static double conv_part(fitter *f, ap_dtype only, ap_product_kind kind, const double *peak)
{
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        if (k->kind == AP_PROFILE_CONV && (only == AP_DTYPE_NONE || k->work.dtype == only) && k->work.stepped == 0 &&
            (kind == AP_PRODUCT_NONE || k->work.kind == kind) && k->work.flops > MANY_FLOPS && computes(f, k))
            push(f, part_of(f, k, peak));
    }
    return median(&f->some);
}

static double thousandths(double x)
{
    return fmin(fmax(floor(x * 1000 + 0.5), 1), 1000) / 1000;
}

/* Each kind by itself; one without cases is as all of them. */
static void fit_convs(fitter *f, const double *peak)
{
    double all = conv_part(f, AP_DTYPE_NONE, AP_PRODUCT_NONE, peak);
    for (int k = AP_PRODUCT_SPATIAL; k < AP_PRODUCT_KINDS && all > 0; k++) {
        double own = conv_part(f, AP_DTYPE_NONE, (ap_product_kind)k, peak);
        f->c->conv_efficiency[k] = thousandths(own > 0 ? own : all);
    }
    f->some.n = 0;
    for (uint32_t i = 0; i < f->p->ncases; i++) {
        const ap_profile_case *k = &f->p->at[i];
        ap_work plain = k->work;
        plain.stepped = 0;
        if (k->kind == AP_PROFILE_CONV && k->work.stepped > 0)
            push(f, (double)k->work.stepped / beyond(f, k, &plain));
    }
    if (f->some.n)
        f->c->conv_step_elements_per_second = rounded(median(&f->some));
}

/* ---- peaks ---- */

static double most_reached(fitter *f, ap_dtype t, const double *peak)
{
    points one;
    fit_points(f, t, peak, &one);
    double most = 0;
    for (int k = AP_PRODUCT_SPATIAL; k < AP_PRODUCT_KINDS && one.n; k++)
        most = fmax(most, conv_part(f, t, (ap_product_kind)k, peak));
    for (int i = 0; i < one.n; i++)
        most = fmax(most, one.part[i]);
    return most;
}

/* The most that a type reaches: at some size of products, or in convolutions of a kind. Types that were not measured
 * keep their share of f32. Sets `peak` of all types, and the cluster's; false: nothing was measured. */
static bool fit_peaks(fitter *f, double *peak)
{
    double reached[AP_DTYPE_COUNT] = {0};
    ap_cluster *c = f->c;
    for (int t = 0; t < AP_DTYPE_COUNT; t++)
        peak[t] = 1;
    for (int t = 1; t < AP_DTYPE_COUNT; t++)
        reached[t] = most_reached(f, (ap_dtype)t, peak);
    if (reached[AP_F32] <= 0)
        return false;
    const int64_t before = c->flops_per_second[AP_F32];
    for (int t = 1; t < AP_DTYPE_COUNT; t++) {
        if (reached[t] <= 0 && c->flops_per_second[t] && before > 0)
            reached[t] = reached[AP_F32] * (double)c->flops_per_second[t] / (double)before;
        if (reached[t] > 0)
            c->flops_per_second[t] = rounded(reached[t]);
        peak[t] = (double)ap_max_i64(c->flops_per_second[t] ? c->flops_per_second[t] : c->flops_per_second[AP_F32], 1);
    }
    return true;
}

static void fit_products(ap_arena *arena, fitter *f)
{
    double peak[AP_DTYPE_COUNT];
    points all;
    fit_tiles(arena, f);
    fit_conv_call(f);
    if (!fit_peaks(f, peak))
        return;
    ap_cluster *c = f->c;
    fit_points(f, AP_DTYPE_NONE, peak, &all);
    c->nreached = 0;
    c->contract_efficiency = 0;
    for (int i = 0; i < all.n; i++) {
        int64_t flops = rounded(all.work[i]);
        if (c->nreached && flops <= c->reached[c->nreached - 1].flops)
            continue;
        double fraction = thousandths(all.part[i]);
        c->reached[c->nreached++] = (ap_reached){flops, fraction};
        c->contract_efficiency = fmax(c->contract_efficiency, fraction);
    }
    fit_convs(f, peak);
}

/* ---- links ---- */

/* Latency and bytes per second of what exchanges, or copies, go through; false: too few cases. */
static bool fit_link(ap_arena *arena, fitter *f, ap_profile_kind kind, int64_t *latency_ps, int64_t *bytes_per_second)
{
    double a = 0, b = 0;
    sums s = sums_make(arena, f->p->ncases);
    for (uint32_t i = 0; i < f->p->ncases; i++)
        if (f->p->at[i].kind == kind)
            sums_push(&s, (double)f->p->at[i].steps, (double)f->p->at[i].bytes, f->p->at[i].seconds);
    if (!fit_sums(f, &s, &a, &b))
        return false;
    *latency_ps = rounded(a * PS / 1000) * 1000;
    *bytes_per_second = b > 0 ? rounded(1 / b) : f->c->memory_bytes_per_second;
    return true;
}

static void fit_links(ap_arena *arena, fitter *f)
{
    ap_level l = f->c->inside;
    if (fit_link(arena, f, AP_PROFILE_EXCHANGE, &l.latency_ps, &l.bytes_per_second))
        f->c->inside = f->c->across = f->c->between = (ap_level){l.latency_ps, l.bytes_per_second, 0};
    if (f->c->ntiers > 1)
        fit_link(arena, f, AP_PROFILE_COPY, &f->c->tier[1].latency_ps, &f->c->tier[1].bytes_per_second);
    if (f->c->ntiers > 0)
        f->c->tier[0].bytes_per_second = f->c->memory_bytes_per_second;
}

void ap_profile_fit(ap_arena *arena, const ap_profile *p, ap_cluster *io)
{
    fitter f = {.p = p, .c = io, .some = {.at = AP_NEW_ARRAY(arena, double, p->ncases + 1)}};
    fit_launch(&f);
    fit_memory(&f);
    fit_vector(&f);
    fit_fold(&f);
    fit_functions(&f);
    fit_products(arena, &f);
    fit_links(arena, &f);
}
