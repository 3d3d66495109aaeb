/* The DP by itself: its least sum never grows with the bound on the bottleneck; Alpa's self-test (8 layers, 1 x 8,
 * 16 microbatches, 5 views, random times) against its recurrence written down plainly; problems of the size of a GPT
 * on 64 devices, whose times are printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/stage/dp.h"
#include "tests/stage/random_stages.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static void falls_with_the_bound(void **state)
{
    (void)state;
    rng r = {11};
    stages_shape s = {6, 4, 2, 2, 3, 4, 7, false};
    for (uint32_t i = 0; i < test_rounds(1000); i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_arena *a = &ctx->arena;
        ap_stages_problem p;
        random_stages(&r, a, &s, &p);
        ap_stages_ranges ranges;
        assert_int_equal(ap_stages_ranges_make(ctx, a, &p, &ranges), AP_OK);
        ap_stages_ranges_fit(&p, &ranges);
        ap_stages_dp d;
        ap_stages_family family = rng_below(&r, 2) ? AP_STAGES_PACKED : AP_STAGES_IN_ORDER;
        assert_int_equal(ap_stages_dp_make(ctx, a, &p, &ranges, family, rng_below(&r, 2), &d), AP_OK);
        ap_stages_pick path[8];
        ap_stages_host host[2];
        int64_t last = INT64_MAX;
        for (int64_t most = 0; most < 300; most += 1 + (int64_t)rng_below(&r, 20)) {
            int64_t sum = ap_stages_dp_run(&d, most);
            assert_true(sum <= last);
            last = sum;
            if (sum >= AP_STAGES_INF)
                continue;
            uint32_t n = ap_stages_dp_path(&d, most, host, path);
            int64_t again = 0;
            for (uint32_t k = 0; k < n; k++) {
                assert_true(path[k].time <= most && path[k].transfer <= most);
                again += path[k].time + path[k].transfer;
            }
            assert_int_equal(sum, again);
        }
        assert_true(ap_stages_dp_run(&d, AP_STAGES_LONGEST) <= last);
        ap_ctx_release(ctx);
    }
}

/* ---- Alpa ------------------------------------------------------------------------------------------------------ */

enum { LAYERS = 8, DEVICES = 8, SIZES = 4, VIEWS = 5 };

static int64_t no_time(void *user, uint32_t boundary, uint32_t from, uint32_t out, uint32_t to, uint32_t in,
                       ap_near near)
{
    (void)user;
    (void)boundary;
    (void)from;
    (void)out;
    (void)to;
    (void)in;
    (void)near;
    return 0;
}

/* Equation 3 of the paper: s stages are left, which have layers i.. and d devices. Stages hold s microbatches there;
 * here all hold one. */
static int64_t recurrence(const int64_t time[LAYERS][LAYERS + 1][SIZES], int s, int i, int d, int64_t most)
{
    if (s == 0)
        return i == LAYERS && d == 0 ? 0 : INT64_MAX;
    int64_t best = INT64_MAX;
    for (int k = i + 1; k <= LAYERS; k++) {
        for (int m = 0; m < SIZES && 1 << m <= d; m++) {
            if (time[i][k][m] > most)
                continue;
            int64_t rest = recurrence(time, s - 1, k, d - (1 << m), most);
            if (rest < INT64_MAX && rest + time[i][k][m] < best)
                best = rest + time[i][k][m];
        }
    }
    return best;
}

/* Equations 2 and 4: all bottlenecks. */
static int64_t alpa_total(const int64_t time[LAYERS][LAYERS + 1][SIZES], int64_t microbatches)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < LAYERS; i++) {
        for (int k = i + 1; k <= LAYERS; k++) {
            for (int m = 0; m < SIZES; m++) {
                int64_t most = time[i][k][m];
                if (most * microbatches >= best)
                    continue;
                for (int s = 1; s <= LAYERS; s++) {
                    int64_t sum = recurrence(time, s, 0, DEVICES, most);
                    if (sum < INT64_MAX && sum + (microbatches - 1) * most < best)
                        best = sum + (microbatches - 1) * most;
                }
            }
        }
    }
    return best;
}

static void alpa_self_test(void **state)
{
    (void)state;
    rng r = {42};
    for (uint32_t round = 0; round < 5; round++) {
        ap_ctx *ctx = ap_ctx_create();
        static const ap_stages_group group = {1, DEVICES, INT64_MAX};
        ap_stages_choice choice[SIZES * VIEWS];
        uint32_t nlabels[(LAYERS + 1) * SIZES * VIEWS];
        ap_stages_table table[LAYERS * SIZES * VIEWS];
        int64_t one[LAYERS][SIZES * VIEWS], time[LAYERS][LAYERS + 1][SIZES];
        for (uint32_t c = 0; c < SIZES * VIEWS; c++) {
            choice[c] = (ap_stages_choice){0, 1, 1 << c / VIEWS, 0};
            for (uint32_t l = 0; l <= LAYERS; l++)
                nlabels[l * SIZES * VIEWS + c] = 1;
            for (uint32_t l = 0; l < LAYERS; l++) {
                one[l][c] = (int64_t)rng_below(&r, 1000000) + (round > 2 ? 2000000 / choice[c].devices : 0);
                table[l * SIZES * VIEWS + c] = (ap_stages_table){.time = &one[l][c]};
            }
        }
        for (uint32_t i = 0; i < LAYERS; i++) {
            for (uint32_t m = 0; m < SIZES; m++) {
                int64_t sum[VIEWS] = {0};
                for (uint32_t k = i; k < LAYERS; k++) {
                    time[i][k + 1][m] = INT64_MAX;
                    for (uint32_t v = 0; v < VIEWS; v++) {
                        sum[v] += one[k][m * VIEWS + v];
                        time[i][k + 1][m] = ap_min_i64(time[i][k + 1][m], sum[v]);
                    }
                }
            }
        }
        ap_stages_problem p = {.nlayers = LAYERS,
                               .nchoices = SIZES * VIEWS,
                               .ngroups = 1,
                               .group = &group,
                               .choice = choice,
                               .nlabels = nlabels,
                               .table = table,
                               .transfer = no_time,
                               .microbatches = 16};
        ap_stages_options opt = {0};
        ap_stages_result out;
        assert_int_equal(ap_stages_solve(ctx, &ctx->arena, &p, &opt, &out), AP_OK);
        assert_int_equal(out.nplans, 1);
        assert_int_equal(out.plan[0].total, alpa_total(time, 16));
        printf("total %" PRId64 ", %" PRIu32 " stages, %" PRIu32 " bottlenecks tried\n", out.plan[0].total,
               out.plan[0].nstages, out.trials);
        ap_ctx_release(ctx);
    }
}

/* ---- large ----------------------------------------------------------------------------------------------------- */

typedef struct large {
    ap_stages_problem p;
    ap_stages_group group[2];
    int32_t view[64]; /* per choice: columns */
} large;

enum { LABELS = 4 };

/* 32 MB at 300 GB/s inside a host, 3 GB/s between hosts, 1 GB/s between groups; labels that differ cost twice. */
static int64_t large_transfer(void *user, uint32_t boundary, uint32_t from, uint32_t out, uint32_t to, uint32_t in,
                              ap_near near)
{
    const large *g = user;
    (void)boundary;
    static const int64_t ps[] = {107000000, 10700000000, 32000000000};
    return ps[near] / g->p.choice[from].devices * (out == in ? 1 : 2) + (g->view[from] != g->view[to]) * 1000000;
}

static void make_large(rng *r, ap_arena *a, uint32_t layers, int32_t hosts, int32_t devices, uint32_t groups,
                       bool equal, large *g)
{
    ap_stages_choice *choice = AP_NEW_ARRAY(a, ap_stages_choice, 64);
    uint32_t n = 0;
    for (uint32_t k = 0; k < groups; k++) {
        g->group[k] = (ap_stages_group){hosts, devices, k == 0 ? 16000 : 12000};
        ap_stages_shape mesh[64];
        uint32_t shapes = ap_stages_shapes(hosts, devices, mesh, 64);
        for (uint32_t s = 0; s < shapes; s++) {
            ap_stages_view view[64];
            uint32_t views = ap_stages_views(mesh[s], true, view, 64);
            if (mesh[s].hosts & (mesh[s].hosts - 1)) /* Alpa: small_power_of_two */
                continue;
            for (uint32_t v = 0; v < views && v < (groups == 1 ? 3 : 2); v++) {
                g->view[n] = view[v].columns;
                choice[n++] = (ap_stages_choice){k, mesh[s].hosts, mesh[s].devices, 0};
            }
        }
    }
    g->p = (ap_stages_problem){.nlayers = layers,
                               .nchoices = n,
                               .ngroups = groups,
                               .group = g->group,
                               .choice = choice,
                               .in_depth = 2,
                               .out_depth = 2,
                               .transfer = large_transfer,
                               .user = g};
    uint32_t *nlabels = AP_NEW_ARRAY(a, uint32_t, (layers + 1) * n), *class = AP_NEW_ARRAY(a, uint32_t, layers + 1);
    for (uint32_t i = 0; i < (layers + 1) * n; i++)
        nlabels[i] = LABELS;
    g->p.nlabels = nlabels;
    g->p.boundary_class = class;
    ap_stages_table *table = AP_NEW_ARRAY(a, ap_stages_table, layers * n);
    for (uint32_t l = 0; l < layers; l++) {
        int64_t work = 40000000000 + (equal ? 0 : (int64_t)rng_below(r, 40000) * 1000000);
        for (uint32_t c = 0; c < n; c++) {
            int64_t *time = AP_NEW_ARRAY(a, int64_t, LABELS * LABELS),
                    *held = AP_NEW_ARRAY(a, int64_t, LABELS * LABELS);
            int32_t all = choice[c].hosts * choice[c].devices;
            for (uint32_t i = 0; i < LABELS * LABELS; i++) {
                /* columns are tensor parallel: they cost an all-reduce, rows keep the weights whole */
                time[i] = work / all * (choice[c].group + 1) +
                          900000000LL * (g->view[c] > 1) * (choice[c].hosts > 1 ? 9 : 1) +
                          (i / LABELS != i % LABELS) * 700000000 + (i % LABELS) * 50000000;
                held[i] = 1600 / g->view[c];
            }
            table[(size_t)l * n + c] = (ap_stages_table){time, held, NULL};
        }
    }
    g->p.table = table;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run_large(uint32_t layers, int32_t hosts, int32_t devices, uint32_t groups, bool equal, uint32_t nstages,
                      uint32_t nplans)
{
    rng r = {7};
    for (int32_t b = 1; b <= 1024; b = b == 1 ? 8 : b * 8) {
        ap_ctx *ctx = ap_ctx_create();
        large g;
        make_large(&r, &ctx->arena, layers, hosts, devices, groups, equal, &g);
        g.p.microbatches = b;
        g.p.nstages = nstages;
        ap_stages_options opt = {.nplans = nplans};
        ap_stages_result out;
        double start = now();
        assert_int_equal(ap_stages_solve(ctx, &ctx->arena, &g.p, &opt, &out), AP_OK);
        double cpu = now() - start;
        assert_true(out.nplans >= 1);
        for (uint32_t i = 0; i < out.nplans; i++) {
            const char *wrong = ap_stages_evaluate(&ctx->arena, &g.p, &out.plan[i], out.idle);
            if (wrong)
                fail_msg("%s", wrong);
        }
        printf("%2" PRIu32 " layers, %" PRIu32 " x %" PRId32 " x %" PRId32 ", %2" PRIu32 " choices, B %4" PRId32
               ": %.3f s, %3" PRIu32 " tries, T %.4f s, %2" PRIu32 " stages%s; %" PRIu32
               " plans to %.4f s%s, %.1f MB\n",
               layers, groups, hosts, devices, g.p.nchoices, b, cpu, out.trials, (double)out.plan[0].total * 1e-12,
               out.plan[0].nstages, out.plan[0].packed ? " packed" : "", out.nplans,
               (double)out.plan[out.nplans - 1].total * 1e-12, out.ranked ? "" : " (not all seen)",
               (double)ctx->root.bytes / 1e6);
        ap_ctx_release(ctx);
    }
}

static void large_ones(void **state)
{
    (void)state;
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
    bool quick = getenv("AP_TESTS_QUICK") != NULL;
#else
    bool quick = true; /* minutes */
#endif
    run_large(24, 2, 8, 1, false, 0, 1);
    run_large(24, 2, 8, 1, true, 4, 8);
    if (quick)
        return;
    run_large(48, 8, 8, 1, false, 0, 1);
    run_large(48, 8, 8, 1, true, 0, 8);
    run_large(48, 8, 8, 1, false, 16, 8);
    run_large(32, 2, 8, 2, false, 0, 8);
    run_large(48, 4, 8, 2, false, 0, 4);
}

/* What contradicts itself is refused, and says what. */
static void refused(void **state)
{
    (void)state;
    static const uint32_t nlabels[] = {1, 1, 1, 1, 1, 1}, other[] = {1, 1, 1, 1, 2, 1};
    static const int64_t second[] = {1000000000000, 1000000000000}, age = 1000000 * 1000000000000, negative = -1;
    static const uint32_t class[] = {0, 1, 1, 0, 0, 0};
    for (int i = 0; i < 7; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_stages_group group[] = {{2, 4, INT64_MAX}, {300, 8, INT64_MAX}, {300, 8, INT64_MAX}};
        ap_stages_choice choice = {0, 1, 2, 0};
        ap_stages_table table[5];
        for (int l = 0; l < 5; l++)
            table[l] = (ap_stages_table){.time = i == 0 && l == 1 ? &negative : i == 1 ? &age : second};
        ap_stages_problem p = {.nlayers = 5,
                               .nchoices = 1,
                               .ngroups = i == 2 ? 3 : 1,
                               .group = group,
                               .choice = &choice,
                               .nlabels = i == 3 ? other : nlabels,
                               .table = table,
                               .transfer = no_time,
                               .microbatches = i == 4 ? 0 : 4};
        if (i == 3) {
            static const uint32_t one[] = {0, 0, 0, 0, 0, 0};
            p.boundary_class = one;
        }
        if (i == 5)
            choice = (ap_stages_choice){0, 2, 2, 0}; /* two halves of hosts */
        if (i == 6)
            p.boundary_class = class; /* a good one */
        ap_stages_options opt = {0};
        ap_stages_result out;
        ap_status want = i == 6 ? AP_OK : AP_ERR_USAGE;
        assert_int_equal(ap_stages_solve(ctx, &ctx->arena, &p, &opt, &out), want);
        assert_int_equal(ctx->diags.len, i == 6 ? 0 : 1);
        if (i < 6)
            printf("%s\n", ctx->diags.at[0].text);
        ap_ctx_release(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(falls_with_the_bound),
        cmocka_unit_test(alpa_self_test),
        cmocka_unit_test(refused),
        cmocka_unit_test(large_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
