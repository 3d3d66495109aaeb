/* Every multiset of sub-meshes that fills N x M hosts is placed, in any order, without overlap or straddle; what can
 * lie in pipeline order does; neighbours share hosts. Shapes and views of sub-meshes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/stage/stages.h"
#include "tests/solve/random_problem.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

typedef struct tiling {
    ap_arena *a;
    ap_stages_problem p;
    ap_stages_group group;
    ap_stages_choice choice[MOST];
    uint32_t of_size[MOST], n; /* choices of the multiset */
    rng r;
    uint32_t multisets, packed;
} tiling;

static void check_placed(tiling *t, const ap_stages_pick *s, uint32_t n)
{
    bool busy[MOST] = {false};
    int32_t host = t->group.devices, all = host * t->group.hosts, taken = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ap_stages_choice *c = &t->choice[s[i].choice];
        int32_t size = c->hosts * c->devices;
        assert_true(s[i].device >= 0 && s[i].device + size <= all);
        assert_int_equal(s[i].rank, s[i].device);
        if (c->hosts > 1 || c->devices == host)
            assert_int_equal(s[i].device % host, 0);
        else
            assert_int_equal(s[i].device / host, (s[i].device + size - 1) / host);
        for (int32_t d = s[i].device; d < s[i].device + size; d++) {
            assert_false(busy[d]);
            busy[d] = true;
            taken++;
        }
    }
    assert_int_equal(taken, all);
}

/* One order of the multiset: 0 descending, 1 ascending, others random. */
static void check_order(tiling *t, uint32_t order)
{
    ap_stages_pick s[MOST] = {0};
    for (uint32_t i = 0; i < t->n; i++)
        s[i].choice = t->of_size[order == 1 ? t->n - 1 - i : i];
    for (uint32_t i = t->n; order > 1 && i > 1; i--) {
        uint32_t j = rng_below(&t->r, i);
        ap_stages_pick x = s[i - 1];
        s[i - 1] = s[j];
        s[j] = x;
    }
    bool packed;
    assert_true(ap_stages_place(t->a, &t->p, s, t->n, &packed));
    check_placed(t, s, t->n);
    t->packed += packed;
    if (order == 0 && (t->group.devices & (t->group.devices - 1)) == 0)
        assert_false(packed); /* Alpa: largest first */
    for (uint32_t i = 1; !packed && i < t->n; i++) {
        /* equal sizes are not scrambled: each begins where the one before it ends, or on a later host */
        const ap_stages_choice *c = &t->choice[s[i].choice];
        int32_t end = s[i - 1].device + c->hosts * c->devices;
        if (s[i].choice == s[i - 1].choice)
            assert_true(s[i].device == end || (s[i].device > end && end % t->group.devices == 0));
    }
}

/* Sub-meshes in descending order that fill what is left. */
static void all_multisets(tiling *t, uint32_t largest, int32_t left)
{
    if (left == 0) {
        t->multisets++;
        for (uint32_t order = 0; order < 6; order++)
            check_order(t, order);
        return;
    }
    for (uint32_t c = largest + 1; c-- > 0;) {
        int32_t size = t->choice[c].hosts * t->choice[c].devices;
        if (size > left)
            continue;
        t->of_size[t->n++] = c;
        all_multisets(t, c, left - size);
        t->n--;
    }
}

static void all_tilings(void **state)
{
    (void)state;
    static const int32_t devices[] = {2, 4, 6, 8};
    for (int32_t hosts = 1; hosts <= 4; hosts++) {
        for (uint32_t m = 0; m < 4; m++) {
            ap_ctx *ctx = ap_ctx_create();
            tiling t = {.a = &ctx->arena, .group = {hosts, devices[m], INT64_MAX}, .r = {m}};
            ap_stages_shape mesh[MOST];
            uint32_t n = ap_stages_shapes(hosts, devices[m], mesh, MOST);
            for (uint32_t c = 0; c < n; c++)
                t.choice[c] = (ap_stages_choice){0, mesh[c].hosts, mesh[c].devices, 0};
            t.p = (ap_stages_problem){.ngroups = 1, .group = &t.group, .nchoices = n, .choice = t.choice};
            all_multisets(&t, n - 1, hosts * devices[m]);
            printf("%d x %d: %u multisets, %u of %u orders packed\n", hosts, devices[m], t.multisets, t.packed,
                   6 * t.multisets);
            ap_ctx_release(ctx);
        }
    }
}

/* Groups are placed apart, ranks count through them; what does not tile is refused. */
static void groups_and_refusals(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    static const ap_stages_group group[] = {{2, 4, 0}, {1, 2, 0}};
    static const ap_stages_choice choice[] = {{0, 1, 2, 0}, {1, 1, 2, 0}, {0, 1, 4, 0}, {0, 1, 3, 0}};
    ap_stages_problem p = {.ngroups = 2, .group = group, .nchoices = 4, .choice = choice};
    ap_stages_pick s[] = {{.choice = 0}, {.choice = 1}, {.choice = 0}, {.choice = 2}};
    bool packed;
    assert_true(ap_stages_place(&ctx->arena, &p, s, 4, &packed));
    assert_false(packed);
    static const int32_t rank[] = {0, 8, 2, 4};
    for (int i = 0; i < 4; i++)
        assert_int_equal(s[i].rank, rank[i]);
    assert_int_equal(ap_stages_near(&p, &s[0], &s[1]), AP_NEAR_GROUPS);
    assert_int_equal(ap_stages_near(&p, &s[0], &s[2]), AP_NEAR_HOST);
    assert_int_equal(ap_stages_near(&p, &s[2], &s[3]), AP_NEAR_HOSTS);
    ap_stages_pick t[] = {{.choice = 3}, {.choice = 0}, {.choice = 3}}; /* 3 + 2 + 3 in two hosts of 4 */
    assert_false(ap_stages_place(&ctx->arena, &p, t, 3, &packed));
    ap_stages_pick u[] = {{.choice = 2}, {.choice = 2}, {.choice = 0}};
    assert_false(ap_stages_place(&ctx->arena, &p, u, 3, &packed));
    ap_ctx_release(ctx);
}

static void shapes_and_views(void **state)
{
    (void)state;
    ap_stages_shape mesh[16];
    assert_int_equal(ap_stages_shapes(3, 8, mesh, 16), 6); /* 1 2 4 8, two and three hosts */
    static const ap_stages_shape eight[] = {{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 8}, {3, 8}};
    assert_memory_equal(mesh, eight, sizeof eight);
    assert_int_equal(ap_stages_shapes(2, 6, mesh, 16), 5);
    static const ap_stages_shape six[] = {{1, 1}, {1, 2}, {1, 3}, {1, 6}, {2, 6}};
    assert_memory_equal(mesh, six, sizeof six);
    assert_int_equal(ap_stages_shapes(64, 8, mesh, 2), 67); /* counts beyond what it writes */
    ap_stages_view view[16];
    assert_int_equal(ap_stages_views((ap_stages_shape){2, 4}, false, view, 16), 4); /* 1x8 2x4 4x2 8x1 */
    static const ap_stages_view all[] = {{1, 8}, {2, 4}, {4, 2}, {8, 1}};
    assert_memory_equal(view, all, sizeof all);
    assert_int_equal(ap_stages_views((ap_stages_shape){2, 4}, true, view, 16), 3);
    assert_memory_equal(view, all + 1, 3 * sizeof *all);
    assert_int_equal(ap_stages_views((ap_stages_shape){1, 6}, true, view, 16), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_tilings),
        cmocka_unit_test(groups_and_refusals),
        cmocka_unit_test(shapes_and_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
