/* The packer against the definition: no two buffers alive together overlap, heights are least where brute force can
 * say, packings cut from a full rectangle are found again, the same answer twice. With the shared data (AUTOPAR_DATA)
 * the hard instances of MiniMalloc fit in their capacity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/pack/pack.h"
#include "passes/pack/part.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX = 40000 };

typedef struct instance {
    uint32_t n, first[MAX], last[MAX];
    int64_t size[MAX];
    uint64_t random;
} instance;

static uint32_t draw(instance *x, uint32_t below)
{
    x->random = x->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((x->random >> 33) % below);
}

static void add(instance *x, uint32_t first, uint32_t last, int64_t size)
{
    assert_true(x->n < MAX);
    x->first[x->n] = first;
    x->last[x->n] = last;
    x->size[x->n++] = size;
}

static int64_t rounded(int64_t size, int64_t align)
{
    return (size + align - 1) / align * align;
}

/* By definition, pair by pair. */
static void check(const instance *x, int64_t align, const ap_packing *p)
{
    int64_t height = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        assert_true(p->offset[i] >= 0 && p->offset[i] % align == 0);
        if (x->size[i] && p->offset[i] + rounded(x->size[i], align) > height)
            height = p->offset[i] + rounded(x->size[i], align);
        for (uint32_t j = 0; j < i; j++)
            if (x->size[i] && x->size[j] && x->first[i] <= x->last[j] && x->first[j] <= x->last[i])
                assert_true(p->offset[i] + x->size[i] <= p->offset[j] || p->offset[j] + x->size[j] <= p->offset[i]);
    }
    assert_int_equal(height, p->height);
}

/* Largest sum of sizes alive at the begin of some buffer. */
static int64_t live_bound(const instance *x, int64_t align)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        int64_t sum = 0;
        for (uint32_t j = 0; j < x->n; j++)
            if (x->first[j] <= x->first[i] && x->first[i] <= x->last[j])
                sum += rounded(x->size[j], align);
        most = sum > most ? sum : most;
    }
    return most;
}

static ap_packing pack(ap_ctx *ctx, const instance *x, int64_t align, int64_t capacity, int64_t work)
{
    ap_pack_problem p = {.n = x->n, .first = x->first, .last = x->last, .size = x->size, .align = align};
    ap_pack_options opt = {.capacity = capacity, .work = work};
    ap_packing out;
    assert_true(ap_pack(&ctx->scratch, &p, &opt, &out));
    return out;
}

static instance *setup(ap_ctx **out_ctx, uint64_t seed)
{
    instance *x = calloc(1, sizeof *x);
    *out_ctx = ap_ctx_create();
    assert_non_null(x);
    assert_non_null(*out_ctx);
    x->random = seed;
    return x;
}

static void tear_down(ap_ctx *ctx, instance *x)
{
    ap_ctx_release(ctx);
    free(x);
}

/* ---- brute force ---- */

/* Every packing in which nothing can be moved down is met when buffers are stacked by rising offset. */
static void stack_all(const instance *x, uint32_t used, int64_t *sky, int64_t floor, int64_t height, int64_t *best)
{
    if (height >= *best)
        return;
    for (uint32_t t = 0; t < 32; t++) { /* what is left must go on top */
        int64_t top = sky[t];
        for (uint32_t i = 0; i < x->n; i++)
            top += !(used >> i & 1) && x->first[i] <= t && t <= x->last[i] ? x->size[i] : 0;
        if (top >= *best)
            return;
    }
    if (used + 1 == 1u << x->n) {
        *best = height;
        return;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        int64_t saved[32], at = 0;
        if (used >> i & 1)
            continue;
        memcpy(saved, sky, sizeof saved);
        for (uint32_t t = x->first[i]; t <= x->last[i]; t++)
            at = sky[t] > at ? sky[t] : at;
        if (at < floor)
            continue;
        for (uint32_t t = x->first[i]; t <= x->last[i]; t++)
            sky[t] = at + x->size[i];
        stack_all(x, used | 1u << i, sky, at, at + x->size[i] > height ? at + x->size[i] : height, best);
        memcpy(sky, saved, sizeof saved);
    }
}

static void small_ones_are_least(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        ap_ctx *ctx;
        instance *x = setup(&ctx, seed);
        uint32_t n = 3 + draw(x, 6), times = 2 + draw(x, 8);
        int64_t sky[32] = {0}, best = INT64_MAX;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t a = draw(x, times), b = draw(x, times);
            add(x, a < b ? a : b, a < b ? b : a, 1 + draw(x, 7));
        }
        ap_packing p = pack(ctx, x, 1, 0, 50000000);
        stack_all(x, 0, sky, 0, 0, &best);
        check(x, 1, &p);
        assert_int_equal(p.height, best);
        assert_int_equal(p.bound, live_bound(x, 1));
        tear_down(ctx, x);
    }
}

/* ---- the search by itself ---- */

/* A rectangle cut into pieces: they fill it without a gap. */
static void cut(instance *x, uint32_t first, uint32_t last, int64_t height, uint32_t pieces)
{
    bool across = last > first && (height == 1 || draw(x, 2));
    if (pieces <= 1 || (first == last && height == 1)) {
        add(x, first, last, height);
        return;
    }
    uint32_t part = 1 + draw(x, pieces - 1);
    if (across) {
        uint32_t middle = first + draw(x, last - first);
        cut(x, first, middle, height, part);
        cut(x, middle + 1, last, height, pieces - part);
    } else {
        int64_t below = 1 + draw(x, (uint32_t)height - 1);
        cut(x, first, last, below, part);
        cut(x, first, last, height - below, pieces - part);
    }
}

/* Two buffers of one size that overlap or meet exchange their ends: all live sums stay, a packing may not. */
static void exchange_ends(instance *x)
{
    for (int k = 0; k < 200; k++) {
        uint32_t i = draw(x, x->n), j = draw(x, x->n), end = x->last[i];
        if (x->size[i] != x->size[j] || x->first[i] > x->last[j] || x->first[j] > x->last[i])
            continue;
        x->last[i] = x->last[j];
        x->last[j] = end;
    }
}

/* What the exact search says of a height, and the offsets if it fits. The times are the sections. */
static ap_pack_answer ask(ap_ctx *ctx, const instance *x, uint32_t times, int64_t height, int64_t work, ap_packing *out)
{
    ap_pack_item *item = AP_NEW_ARRAY(&ctx->scratch, ap_pack_item, x->n);
    ap_pack_part p = {.n = x->n, .nsections = times, .item = item};
    p.live = AP_NEW_ARRAY(&ctx->scratch, int64_t, times);
    for (uint32_t i = 0; i < x->n; i++) {
        item[i] = (ap_pack_item){x->first[i], x->last[i], x->size[i]};
        for (uint32_t t = x->first[i]; t <= x->last[i]; t++)
            p.live[t] += x->size[i];
    }
    out->offset = AP_NEW_ARRAY(&ctx->scratch, int64_t, x->n);
    out->height = 0;
    ap_pack_answer answer = ap_pack_search(&ctx->scratch, &p, height, &work, out->offset);
    for (uint32_t i = 0; answer == AP_PACK_FITS && i < x->n; i++)
        out->height = ap_max_i64(out->height, out->offset[i] + x->size[i]);
    return answer;
}

static void cut_rectangles_are_found(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        ap_ctx *ctx;
        instance *x = setup(&ctx, seed);
        ap_packing p;
        uint32_t times = 6 + draw(x, 40);
        int64_t height = 10 + draw(x, 100);
        cut(x, 0, times - 1, height, 10 + draw(x, 60));
        assert_int_equal(ask(ctx, x, times, height, 1000000000, &p), AP_PACK_FITS);
        check(x, 1, &p);
        assert_int_equal(p.height, height);
        assert_int_equal(ask(ctx, x, times, height - 1, 1000, &p), AP_PACK_NEVER);
        tear_down(ctx, x);
    }
}

/* NEVER is proven: brute force, on instances without any slack, agrees. */
static void refusals_are_true(void **state)
{
    uint32_t fits = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        ap_ctx *ctx;
        instance *x = setup(&ctx, seed);
        ap_packing p;
        int64_t height = 3 + draw(x, 3), sky[32] = {0}, best = height + 1;
        cut(x, 0, 9, height, 9);
        exchange_ends(x);
        stack_all(x, 0, sky, 0, 0, &best);
        ap_pack_answer answer = ask(ctx, x, 10, height, 1000000000, &p);
        assert_int_equal(answer, best <= height ? AP_PACK_FITS : AP_PACK_NEVER);
        if (answer == AP_PACK_FITS)
            check(x, 1, &p);
        fits += answer == AP_PACK_FITS;
        tear_down(ctx, x);
    }
    assert_true(fits > 0);
}

/* The same where nothing fits at the bound, which takes some size; then the packing as a whole is above it. */
static void gaps_are_proven(void **state)
{
    (void)state;
    uint32_t refused = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        ap_ctx *ctx;
        instance *x = setup(&ctx, seed);
        ap_packing p;
        uint32_t times = 10 + draw(x, 10);
        int64_t height = 6 + draw(x, 6), sky[32] = {0}, best = height + 1;
        cut(x, 0, times - 1, height, 12 + draw(x, 12));
        exchange_ends(x);
        ap_pack_answer answer = ask(ctx, x, times, height, 200000000, &p);
        ap_packing whole = pack(ctx, x, 1, 0, 200000000);
        check(x, 1, &whole);
        assert_int_equal(whole.bound, height);
        assert_int_equal(whole.height == height, answer == AP_PACK_FITS);
        if (answer == AP_PACK_NEVER) {
            stack_all(x, 0, sky, 0, 0, &best);
            assert_int_equal(best, height + 1);
            refused++;
        }
        tear_down(ctx, x);
    }
    assert_true(refused > 0);
}

/* ---- the rest ---- */

static void sizes_are_aligned(void **state)
{
    ap_ctx *ctx;
    instance *x = setup(&ctx, 7);
    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t first = draw(x, 200);
        add(x, first, first + draw(x, 12), draw(x, 5) ? 1 + draw(x, 100000) : 0);
    }
    ap_packing p = pack(ctx, x, 64, 0, 10000000), again = pack(ctx, x, 64, 0, 10000000);
    check(x, 64, &p);
    assert_int_equal(p.bound, live_bound(x, 64));
    assert_true(p.height <= p.bound + p.bound / 100);
    assert_memory_equal(p.offset, again.offset, x->n * sizeof *p.offset);
    assert_int_equal(p.work, again.work);
    tear_down(ctx, x);
}

static void nothing_and_too_much(void **state)
{
    ap_ctx *ctx;
    instance *x = setup(&ctx, 7);
    (void)state;
    ap_packing p = pack(ctx, x, 64, 0, 0);
    assert_int_equal(p.height, 0);
    add(x, 0, 5, 0);
    p = pack(ctx, x, 64, 0, 0);
    assert_int_equal(p.height, 0);
    assert_int_equal(p.offset[0], 0);
    add(x, 0, 5, INT64_MAX / 2);
    add(x, 7, 8, INT64_MAX / 2);
    ap_pack_problem q = {.n = x->n, .first = x->first, .last = x->last, .size = x->size, .align = 64};
    assert_false(ap_pack(&ctx->scratch, &q, &(ap_pack_options){0}, &p));
    tear_down(ctx, x);
}

/* Tens of thousands of buffers: of a deep network, and of a wide one whose branches all wait for the end. */
static void many_buffers(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        ap_ctx *ctx;
        instance *x = setup(&ctx, 3);
        const uint32_t n = wide ? 10000 : 20000;
        for (uint32_t i = 0; i < n; i++)
            add(x, i, wide ? n : i + 1 + (draw(x, 10) ? 0 : draw(x, 40)), 64 * (1 + draw(x, 1000)));
        clock_t start = clock();
        ap_packing p = pack(ctx, x, 64, 0, 100000000);
        print_message("%u buffers, %s: height / bound %.4f in %.2f s\n", n, wide ? "wide" : "deep",
                      (double)p.height / (double)p.bound, (double)(clock() - start) / CLOCKS_PER_SEC);
        assert_int_equal(p.bound, wide ? p.height : p.bound);
        assert_true(p.height <= p.bound + p.bound / 20);
        tear_down(ctx, x);
    }
}

/* ---- MiniMalloc's instances ---- */

static bool read_file(instance *x, const char *path)
{
    char line[256];
    FILE *f = fopen(path, "r");
    x->n = 0;
    if (!f)
        return false;
    assert_non_null(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f)) {
        char *at = strchr(line, ',');
        assert_non_null(at);
        unsigned long first = strtoul(at + 1, &at, 10), end = strtoul(at + 1, &at, 10);
        add(x, (uint32_t)first, (uint32_t)end - 1, strtoll(at + 1, &at, 10));
    }
    fclose(f);
    return true;
}

/* All files that are there; the name of each ends in its capacity. */
static void hard_instances_fit(void **state)
{
    static const char *const name[] = {"A.1048576", "B.1048576", "C.1048576", "D.1048576", "E.1048576", "F.1048576",
                                       "G.1048576", "H.1048576", "I.1048576", "J.1048576", "K.1048576", "example.12"};
    const char *data = getenv("AUTOPAR_DATA");
    uint32_t found = 0;
    clock_t all = clock();
    (void)state;
    for (size_t i = 0; data && i < sizeof name / sizeof name[0]; i++) {
        ap_ctx *ctx;
        instance *x = setup(&ctx, 1);
        char path[4096];
        snprintf(path, sizeof path, "%s/minimalloc/%s.csv", data, name[i]);
        int64_t capacity = strtoll(strchr(name[i], '.') + 1, NULL, 10);
        if (read_file(x, path)) {
            clock_t start = clock();
            ap_packing p = pack(ctx, x, 1, capacity, 8000000000);
            double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
            check(x, 1, &p);
            print_message("%-10s %4u buffers, height %" PRId64 ", bound %" PRId64 ", %.4f, %.3f s\n", name[i], x->n,
                          p.height, p.bound, (double)p.height / (double)p.bound, seconds);
            assert_true(p.height <= capacity);
            found++;
        }
        tear_down(ctx, x);
    }
    if (!found) {
        print_message("no instances: set AUTOPAR_DATA to the folder with the shared data\n");
        skip();
    }
    print_message("%u instances, %.3f s\n", found, (double)(clock() - all) / CLOCKS_PER_SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ones_are_least), cmocka_unit_test(cut_rectangles_are_found),
        cmocka_unit_test(refusals_are_true),    cmocka_unit_test(gaps_are_proven),
        cmocka_unit_test(sizes_are_aligned),    cmocka_unit_test(nothing_and_too_much),
        cmocka_unit_test(many_buffers),         cmocka_unit_test(hard_instances_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
