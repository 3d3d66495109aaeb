/* The fit on measurements that are made from known figures, by the formulas written anew here; and the file: written
 * and read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "driver/profile.h"

#include "ir/text_form.h"

#include <math.h>
#include <string.h>

typedef struct truth {
    double launch, cached, capacity, memory, vector, peak, conv[3], latency, link; /* seconds, bytes, rates */
    double functions, call, conv_call, steps;
    int lanes, columns, depth;
} truth;

static const truth machine = {250e-9, 60e9, 2097152, 9e9, 21e9, 80e9, {33e9, 61e9, 17e9}, 2.5e-6, 4e9, 2.5e9,
                              400e-9, 3e-6, 4e9,     8,   16,   8};
/* One figure of each, as GPUs are measured. */
static const truth plain = {250e-9, 60e9, 2097152, 9e9, 21e9, 80e9, {33e9, 33e9, 33e9}, 2.5e-6, 4e9, 0,
                            0,      0,    0,       0,   0,    0};

typedef struct noise {
    uint64_t state;
    double most; /* relative */
} noise;

/* Seldom far off, mostly a little. */
static double disturbed(noise *n, double seconds)
{
    n->state = n->state * 6364136223846793005u + 1442695040888963407u;
    double u = (double)(n->state >> 40) / (double)(1 << 24);
    return seconds * (1 + n->most * (u - 0.5)) * (n->most > 0 && u > 0.93 ? 3 : 1);
}

/* 0.3 at 1e4 FLOPs up to 1 at 1e8 and more, straight over the logarithm */
static double reached(double flops)
{
    return fmin(fmax(0.3 + 0.7 * (log10(flops) - 4) / 4, 0.3), 1);
}

/* A processor, of which functions are known by themselves, does one after the other. */
static double kernel(const truth *t, double bytes, double arithmetic)
{
    double moving = bytes / (bytes <= t->capacity ? t->cached : t->memory);
    return t->launch + (t->functions > 0 ? moving + arithmetic : fmax(moving, arithmetic));
}

static double functions_of(const truth *t, double flops, int row)
{
    double left = row % t->lanes;
    return flops / row * (row - left + left * t->lanes / 2) / t->functions;
}

static double product_of(const truth *t, int64_t m, int64_t n, int64_t k)
{
    double columns = t->columns ? (double)((n + t->columns - 1) / t->columns * t->columns) : (double)n;
    double flops = 2 * (double)m * columns * (double)(k + t->depth);
    return t->call + flops / (t->peak * reached(flops));
}

static void add(ap_arena *arena, ap_profile *p, uint32_t *cap, ap_profile_case k)
{
    k.work.dtype = k.work.dtype == AP_DTYPE_NONE ? AP_F32 : k.work.dtype;
    if (p->ncases == *cap) {
        ap_profile_case *more = AP_NEW_ARRAY(arena, ap_profile_case, 2 * *cap + 16);
        if (p->ncases)
            memcpy(more, p->at, p->ncases * sizeof *more);
        p->at = more;
        *cap = 2 * *cap + 16;
    }
    p->at[p->ncases++] = k;
}

static void add_rows(ap_arena *arena, const truth *t, ap_profile *p, uint32_t *cap, noise *n)
{
    for (int64_t f = 100000; f < 100000000; f = f * 3 / 2)
        add(arena, p, cap,
            (ap_profile_case){.kind = AP_PROFILE_ROWS,
                              .work.simple = f,
                              .bytes = f / 100,
                              .seconds = disturbed(n, kernel(t, (double)f / 100, (double)f / t->vector))});
    for (int row = 3; row < 2000 && t->functions > 0; row = row * 4 / 3)
        add(arena, p, cap,
            (ap_profile_case){
                .kind = AP_PROFILE_ROWS,
                .work = {.simple = 1000 * row, .functions = 8000 * row, .row = row},
                .bytes = 2000,
                .seconds = disturbed(n, kernel(t, 2000, 1000 * row / t->vector + functions_of(t, 8000 * row, row)))});
}

static ap_profile_case product_case(const truth *t, int64_t m, int64_t n, int64_t k, double seconds)
{
    int64_t flops = 2 * m * n * k;
    return (ap_profile_case){.kind = AP_PROFILE_PRODUCT,
                             .work = {.kind = AP_PRODUCT_MATRIX,
                                      .flops = flops,
                                      .each = flops,
                                      .columns = t->columns ? n : 0,
                                      .depth = t->columns ? k : 0,
                                      .calls = t->columns ? 1 : 0},
                             .bytes = 2000,
                             .seconds = seconds};
}

static void add_products(ap_arena *arena, const truth *t, ap_profile *p, uint32_t *cap, noise *n)
{
    for (int64_t m = 4; m < 600; m = m * 5 / 3)
        for (int64_t k = 8; k < 2000; k *= 2)
            for (int64_t w = 4; w < 2000; w = w * 2 + 12)
                add(arena, p, cap, product_case(t, m, w, k, disturbed(n, kernel(t, 2000, product_of(t, m, w, k)))));
}

static void add_convs(ap_arena *arena, const truth *t, ap_profile *p, uint32_t *cap, noise *n)
{
    for (int kind = 0; kind < 3; kind++)
        for (int64_t f = t->conv_call > 0 ? 10 : 1000000; f < 300000000; f = f < 1000      ? f * 3
                                                                             : f < 1000000 ? 1000000
                                                                                           : f * 2)
            for (int steps = 0; steps < (t->steps > 0 && f >= 1000000 ? 2 : 1); steps++) {
                double arithmetic = t->conv_call + (double)f / t->conv[kind] + (steps ? (double)f / 10 / t->steps : 0);
                add(arena, p, cap,
                    (ap_profile_case){.kind = AP_PROFILE_CONV,
                                      .work = {.kind = (ap_product_kind)(AP_PRODUCT_SPATIAL + kind),
                                               .flops = f,
                                               .each = f,
                                               .calls = t->conv_call > 0,
                                               .stepped = steps ? f / 10 : 0},
                                      .bytes = 4000,
                                      .seconds = disturbed(n, kernel(t, 4000, arithmetic))});
            }
}

static void add_arithmetic(ap_arena *arena, const truth *t, ap_profile *p, uint32_t *cap, noise *n)
{
    add_rows(arena, t, p, cap, n);
    add_products(arena, t, p, cap, n);
    add_convs(arena, t, p, cap, n);
}

static ap_profile measure(ap_arena *arena, const truth *t, double most)
{
    ap_profile p = {0};
    uint32_t cap = 0;
    noise n = {7, most};
    for (int i = 0; i < 16; i++)
        add(arena, &p, &cap, (ap_profile_case){.kind = AP_PROFILE_LAUNCH, .seconds = disturbed(&n, t->launch)});
    for (int64_t b = 4096; b <= 64 << 20; b *= 2)
        for (int i = 0; i < 3; i++)
            add(arena, &p, &cap,
                (ap_profile_case){
                    .kind = AP_PROFILE_MEMORY, .bytes = b, .seconds = disturbed(&n, kernel(t, (double)b, 0))});
    add_arithmetic(arena, t, &p, &cap, &n);
    for (int64_t b = 256; b <= 16 << 20; b *= 4)
        for (int steps = 1; steps <= 2; steps++)
            add(arena, &p, &cap,
                (ap_profile_case){.kind = AP_PROFILE_EXCHANGE,
                                  .steps = steps,
                                  .bytes = b * steps / 2,
                                  .seconds = disturbed(&n, steps * t->latency + (double)b * steps / 2 / t->link)});
    return p;
}

static void near(double got, double want, double tolerance)
{
    if (fabs(got / want - 1) > tolerance)
        fail_msg("got %g, expected %g", got, want);
}

static void recovered(double most, double tolerance)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_profile p = measure(&ctx->arena, &machine, most);
    ap_cluster c;
    ap_cluster_local(2, &c);
    ap_profile_fit(&ctx->scratch, &p, &c);
    near((double)c.launch_ps, machine.launch * 1e12, tolerance);
    assert_int_equal(c.ncaches, 1);
    near((double)c.cache[0].bytes, machine.capacity, 0);
    near((double)c.cache[0].bytes_per_second, machine.cached, tolerance);
    near((double)c.memory_bytes_per_second, machine.memory, tolerance);
    near((double)c.vector_flops_per_second, machine.vector, tolerance);
    near((double)c.function_flops_per_second, machine.functions, tolerance);
    assert_int_equal(c.lanes, machine.lanes);
    assert_int_equal(c.tile_columns, machine.columns);
    near((double)c.conv_call_ps, machine.conv_call * 1e12, tolerance + 0.05);
    near((double)c.conv_step_elements_per_second, machine.steps, tolerance + 0.05);
    for (int k = 0; k < 3; k++)
        near(c.conv_efficiency[AP_PRODUCT_SPATIAL + k] * (double)c.flops_per_second[AP_F32], machine.conv[k],
             tolerance + 0.03);
    near((double)c.inside.latency_ps, machine.latency * 1e12, tolerance);
    near((double)c.inside.bytes_per_second, machine.link, tolerance);
    for (int64_t n = 32; n < 2000; n *= 3) {
        ap_profile_case k = product_case(&machine, 40, n, 300, 0);
        k.work.dtype = AP_F32;
        near((double)ap_cluster_work_ps(&c, &k.work) * 1e-12, product_of(&machine, 40, n, 300), tolerance + 0.1);
    }
    ap_ctx_release(ctx);
}

static void known_figures_are_recovered(void **unused)
{
    (void)unused;
    recovered(0, 0.02);
}

/* GPUs: bf16 reaches six times as much as f32, at the same sizes the same part of it; copies with the host. */
static void types_have_their_own_peaks(void **unused)
{
    (void)unused;
    const double copy_latency = 7e-6, copy_rate = 21e9;
    ap_ctx *ctx = ap_ctx_create();
    ap_profile p = measure(&ctx->arena, &plain, 0);
    uint32_t cap = p.ncases;
    ap_cluster c, before;
    for (uint32_t i = 0, n = p.ncases; i < n; i++) {
        ap_profile_case k = p.at[i];
        if (k.kind != AP_PROFILE_PRODUCT && k.kind != AP_PROFILE_CONV)
            continue;
        k.work.dtype = AP_BF16;
        k.seconds = machine.launch + (k.seconds - machine.launch) / 6;
        add(&ctx->arena, &p, &cap, k);
    }
    for (int64_t b = 4096; b <= 64 << 20; b *= 4)
        add(&ctx->arena, &p, &cap,
            (ap_profile_case){
                .kind = AP_PROFILE_COPY, .bytes = b, .steps = 1, .seconds = copy_latency + (double)b / copy_rate});
    assert_int_equal(ap_cluster_from_preset(ctx, "dgx-h100:1x2", &c), AP_OK);
    c.ntiers = 2;
    c.tier[0] = (ap_memory_tier){"HBM", c.memory_bytes, c.memory_bytes_per_second, 0, 1};
    c.tier[1] = (ap_memory_tier){"DRAM", 1000, 1, 1000, 2};
    before = c;
    ap_profile_fit(&ctx->scratch, &p, &c);
    near((double)c.flops_per_second[AP_F32], machine.peak, 0.02);
    near((double)c.flops_per_second[AP_BF16], 6 * machine.peak, 0.02);
    near((double)c.flops_per_second[AP_F64] / machine.peak,
         (double)before.flops_per_second[AP_F64] / (double)before.flops_per_second[AP_F32], 0.02);
    for (int k = AP_PRODUCT_SPATIAL; k < AP_PRODUCT_KINDS; k++)
        near(c.conv_efficiency[k], plain.conv[0] / plain.peak, 0.02);
    for (int64_t f = 20000; f < 2000000000; f *= 7)
        near((double)ap_cluster_product_ps(&c, AP_BF16, AP_PRODUCT_MATRIX, f, f),
             (double)f / (6 * machine.peak * reached((double)f)) * 1e12, 0.07);
    near((double)c.tier[1].latency_ps, copy_latency * 1e12, 0.02);
    near((double)c.tier[1].bytes_per_second, copy_rate, 0.02);
    near((double)c.tier[0].bytes_per_second, machine.memory, 0.02);
    ap_ctx_release(ctx);
}

static void disturbed_ones_as_well(void **unused)
{
    (void)unused;
    recovered(0.1, 0.1);
}

/* Without a cache that is faster there is none; what has no case stays. */
static void nothing_is_made_up(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    truth flat = machine;
    flat.cached = flat.memory;
    ap_profile p = measure(&ctx->arena, &flat, 0), none = {0};
    ap_cluster c, before;
    ap_cluster_local(2, &c);
    before = c;
    ap_profile_fit(&ctx->scratch, &none, &c);
    assert_memory_equal(&c, &before, sizeof c);
    ap_profile_fit(&ctx->scratch, &p, &c);
    near((double)c.memory_bytes_per_second, flat.memory, 0.02);
    assert_int_equal(c.ncaches, 0);
    ap_ctx_release(ctx);
}

static void same_again(ap_ctx *ctx, const ap_cluster *c)
{
    ap_text t;
    ap_cluster r;
    ap_text_init(&t, &ctx->arena);
    ap_profile_file(c, "measured\non some day: # {", &t);
    ap_status s = ap_cluster_from_text(ctx, "t.yaml", ap_text_str(&t), t.len, &r);
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        fprintf(stderr, "%s\n%s", ap_diag_str(ctx, &ctx->diags.at[i]), ap_text_str(&t));
    assert_int_equal(s, AP_OK);
    assert_string_equal(r.name, c->name);
    assert_int_equal(r.hosts, 1);
    assert_int_equal(r.devices_per_host, c->devices_per_host);
    assert_memory_equal(r.flops_per_second, c->flops_per_second, sizeof r.flops_per_second);
    assert_int_equal(r.nreached, c->nreached);
    for (int32_t i = 0; i < r.nreached; i++) {
        assert_int_equal(r.reached[i].flops, c->reached[i].flops);
        assert_true(r.reached[i].fraction == c->reached[i].fraction);
    }
    assert_true(r.contract_efficiency == c->contract_efficiency);
    for (int k = 0; k < AP_PRODUCT_KINDS; k++)
        assert_true(r.conv_efficiency[k] == c->conv_efficiency[k]);
    assert_int_equal(r.function_flops_per_second, c->function_flops_per_second);
    assert_int_equal(r.lanes, c->lanes);
    assert_int_equal(r.tile_columns, c->tile_columns);
    assert_int_equal(r.tile_depth, c->tile_depth);
    assert_int_equal(r.product_call_ps, c->product_call_ps);
    assert_int_equal(r.fold_ps, c->fold_ps);
    assert_int_equal(r.conv_call_ps, c->conv_call_ps);
    assert_int_equal(r.conv_step_elements_per_second, c->conv_step_elements_per_second);
    assert_int_equal(r.vector_flops_per_second, c->vector_flops_per_second);
    assert_int_equal(r.memory_bytes_per_second, c->memory_bytes_per_second);
    assert_int_equal(r.ncaches, c->ncaches);
    for (int32_t i = 0; i < r.ncaches; i++) {
        assert_int_equal(r.cache[i].bytes, c->cache[i].bytes);
        assert_int_equal(r.cache[i].bytes_per_second, c->cache[i].bytes_per_second);
    }
    assert_int_equal(r.memory_bytes, c->memory_bytes);
    assert_int_equal(r.launch_ps, c->launch_ps);
    assert_int_equal(r.transfers_wait, c->transfers_wait);
    assert_int_equal(r.cpu, c->cpu);
    for (int32_t i = 0; i < c->ntiers; i++) {
        assert_string_equal(r.tier[i].name, c->tier[i].name);
        assert_int_equal(r.tier[i].bytes, c->tier[i].bytes);
        assert_int_equal(r.tier[i].bytes_per_second, c->tier[i].bytes_per_second);
        assert_int_equal(r.tier[i].latency_ps, c->tier[i].latency_ps);
        assert_int_equal(r.tier[i].shared_by, c->tier[i].shared_by);
    }
    assert_int_equal(r.inside.latency_ps, c->inside.latency_ps);
    assert_int_equal(r.inside.bytes_per_second, c->inside.bytes_per_second);
}

static void files_say_what_they_were_made_of(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c;
    ap_cluster_local(3, &c);
    same_again(ctx, &c);
    ap_profile p = measure(&ctx->arena, &machine, 0.1);
    ap_profile_fit(&ctx->scratch, &p, &c);
    same_again(ctx, &c);
    c.launch_ps = 1;
    c.memory_bytes = INT64_C(1) << 52;
    c.inside.latency_ps = INT64_C(1000000000001);
    c.ncaches = 4;
    for (int i = 0; i < 4; i++)
        c.cache[i] = (ap_cache){1000000007 + i, 1000000009 - i};
    same_again(ctx, &c);
    c.cpu = c.transfers_wait = false;
    c.ntiers = 3;
    c.tier[0] = (ap_memory_tier){"HBM", c.memory_bytes, c.memory_bytes_per_second, 0, 1};
    c.tier[1] = (ap_memory_tier){"DRAM", INT64_C(2000000000000), 25000000001, 1500000, 4};
    c.tier[2] = (ap_memory_tier){"SSD", INT64_C(8000000000000), 3000000000, 0, 8};
    same_again(ctx, &c);
    ap_ctx_release(ctx);
}

/* The cases are a program for any number of devices, with every kind among them. */
static void cases_are_programs(void **unused)
{
    (void)unused;
    static const int32_t devices[] = {1, 2, 3, 8};
    for (int i = 0; i < 8; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_text t;
        ap_module *m;
        ap_text_init(&t, &ctx->arena);
        ap_profile_cases(&t, devices[i / 2], i % 2);
        ap_status s = ap_module_parse(ctx, "cases", ap_text_str(&t), t.len, &m);
        if (s == AP_OK)
            s = ap_module_verify(m);
        for (uint32_t d = 0; d < ctx->diags.len; d++)
            fprintf(stderr, "%s\n", ap_diag_str(ctx, &ctx->diags.at[d]));
        assert_int_equal(s, AP_OK);
        for (int k = 0; k < AP_PROFILE_COPY; k++) /* which is of GPUs */
            assert_int_equal(strstr(ap_text_str(&t), ap_profile_kind_str((ap_profile_kind)k)) != NULL,
                             k != AP_PROFILE_EXCHANGE || devices[i / 2] > 1);
        ap_ctx_release(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_figures_are_recovered), cmocka_unit_test(disturbed_ones_as_well),
        cmocka_unit_test(nothing_is_made_up),          cmocka_unit_test(files_say_what_they_were_made_of),
        cmocka_unit_test(cases_are_programs),          cmocka_unit_test(types_have_their_own_peaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
