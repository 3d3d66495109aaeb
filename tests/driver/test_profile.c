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
    double launch, cached, capacity, memory, vector, peak, conv, latency, link; /* seconds, bytes, rates */
} truth;

static const truth machine = {250e-9, 60e9, 2097152, 9e9, 21e9, 80e9, 33e9, 2.5e-6, 4e9};

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

static double kernel(const truth *t, double bytes, double arithmetic)
{
    return t->launch + fmax(bytes / (bytes <= t->capacity ? t->cached : t->memory), arithmetic);
}

static void add(ap_arena *arena, ap_profile *p, uint32_t *cap, ap_profile_case k)
{
    if (p->ncases == *cap) {
        ap_profile_case *more = AP_NEW_ARRAY(arena, ap_profile_case, 2 * *cap + 16);
        if (p->ncases)
            memcpy(more, p->at, p->ncases * sizeof *more);
        p->at = more;
        *cap = 2 * *cap + 16;
    }
    p->at[p->ncases++] = k;
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
    for (int64_t f = 100000; f < 100000000; f = f * 3 / 2)
        add(arena, &p, &cap,
            (ap_profile_case){.kind = AP_PROFILE_ROWS,
                              .flops = f,
                              .bytes = f / 10,
                              .seconds = disturbed(&n, kernel(t, (double)f / 10, (double)f / t->vector))});
    for (int64_t f = 10000; f < 3000000000; f = f * 6 / 5)
        add(arena, &p, &cap,
            (ap_profile_case){.kind = AP_PROFILE_PRODUCT,
                              .each = f,
                              .flops = 2 * f,
                              .bytes = 2000,
                              .seconds =
                                  disturbed(&n, kernel(t, 2000, 2 * (double)f / (t->peak * reached((double)f))))});
    for (int64_t f = 1000000; f < 300000000; f *= 2)
        add(arena, &p, &cap,
            (ap_profile_case){.kind = AP_PROFILE_CONV,
                              .each = f,
                              .flops = f,
                              .bytes = 4000,
                              .seconds = disturbed(&n, kernel(t, 4000, (double)f / t->conv))});
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
    near((double)c.cache_bytes, machine.capacity, 0);
    near((double)c.cache_bytes_per_second, machine.cached, tolerance);
    near((double)c.memory_bytes_per_second, machine.memory, tolerance);
    near((double)c.vector_flops_per_second, machine.vector, tolerance);
    near((double)c.flops_per_second[AP_F32], machine.peak, tolerance);
    near(c.conv_efficiency, machine.conv / machine.peak, tolerance);
    near((double)c.inside.latency_ps, machine.latency * 1e12, tolerance);
    near((double)c.inside.bytes_per_second, machine.link, tolerance);
    for (int64_t f = 20000; f < 2000000000; f *= 7)
        near((double)ap_cluster_product_ps(&c, AP_F32, false, f, f),
             (double)f / (machine.peak * reached((double)f)) * 1e12, tolerance + 0.05);
    ap_ctx_release(ctx);
}

static void known_figures_are_recovered(void **unused)
{
    (void)unused;
    recovered(0, 0.02);
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
    if (c.cache_bytes)
        near((double)c.cache_bytes_per_second, flat.memory, 0.02);
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
    assert_true(r.contract_efficiency == c->contract_efficiency && r.conv_efficiency == c->conv_efficiency);
    assert_int_equal(r.vector_flops_per_second, c->vector_flops_per_second);
    assert_int_equal(r.memory_bytes_per_second, c->memory_bytes_per_second);
    assert_int_equal(r.cache_bytes, c->cache_bytes);
    assert_int_equal(r.cache_bytes_per_second, c->cache_bytes_per_second);
    assert_int_equal(r.memory_bytes, c->memory_bytes);
    assert_int_equal(r.launch_ps, c->launch_ps);
    assert_int_equal(r.transfers_wait, c->transfers_wait);
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
    c.cache_bytes = 1000000007;
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
        for (int k = 0; k < AP_PROFILE_COUNT; k++)
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
        cmocka_unit_test(cases_are_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
