/* The forward-only schedule and its depths: on chains, skips, values for several stages, stages without inputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/pipe/schedule.h"

#include <stdio.h>
#include <string.h>

typedef struct scene {
    ap_ctx *ctx;
    ap_wiring w;
    ap_name stage[8];
    ap_wire wire[16];
    ap_list list[8];
} scene;

static void scene_begin(scene *s, uint32_t nstages, int32_t microbatches)
{
    memset(s, 0, sizeof *s);
    s->ctx = ap_ctx_create();
    s->w = (ap_wiring){
        .ctx = s->ctx, .microbatches = microbatches, .nstages = nstages, .stage = s->stage, .wire = s->wire};
    for (uint32_t i = 0; i < nstages; i++)
        s->stage[i] = ap_name_format(s->ctx, "stage%u", i);
}

static void add_wire(scene *s, const char *slot, uint32_t from, uint32_t to)
{
    ap_name name = ap_name_make(s->ctx, slot);
    uint32_t result = s->w.nwires;
    for (uint32_t i = 0; i < s->w.nwires; i++)
        if (s->wire[i].slot == name)
            result = s->wire[i].result;
    s->wire[s->w.nwires++] = (ap_wire){.slot = name, .from = from, .to = to, .result = result};
}

static void expect_good(scene *s)
{
    ap_schedule_forward(&s->w, &s->ctx->arena, s->list);
    if (ap_lists_check(&s->w, s->list) != AP_OK)
        fail_msg("%s", ap_diag_str(s->ctx, &s->ctx->diags.at[0]));
}

static const char *print_lists(const scene *s)
{
    ap_text t;
    ap_text_init(&t, &s->ctx->arena);
    ap_lists_print(&s->w, s->list, &t);
    return ap_text_str(&t);
}

/* stage0 makes %a for all others; stage2 has no other input. */
static void test_text(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 3, 4);
    add_wire(&s, "a", 0, 2);
    add_wire(&s, "a", 0, 1);
    add_wire(&s, "b", 1, 2);
    assert_int_equal(ap_schedule_depths(&s.w, s.wire), AP_OK);
    expect_good(&s);
    assert_string_equal(print_lists(&s), "list @stage0 {\n"
                                         "  loop 4 {\n"
                                         "    claim %a k -> @stage1\n"
                                         "    claim %a k -> @stage2\n"
                                         "    run k\n"
                                         "    send %a k -> @stage1\n"
                                         "    send %a k -> @stage2\n"
                                         "  }\n"
                                         "}\n"
                                         "list @stage1 {\n"
                                         "  loop 4 {\n"
                                         "    recv %a k\n"
                                         "    claim %b k -> @stage2\n"
                                         "    run k\n"
                                         "    free %a k\n"
                                         "    send %b k -> @stage2\n"
                                         "  }\n"
                                         "}\n"
                                         "list @stage2 {\n"
                                         "  loop 4 {\n"
                                         "    recv %a k\n"
                                         "    recv %b k\n"
                                         "    run k\n"
                                         "    free %a k\n"
                                         "    free %b k\n"
                                         "  }\n"
                                         "}\n");
    assert_int_equal(s.wire[0].from_depth, 2);
    assert_int_equal(s.wire[0].to_depth, 3); /* past stage1 */
    assert_int_equal(s.wire[1].to_depth, 2);
    ap_ctx_release(s.ctx);
}

static void test_depths(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 4, 2);
    add_wire(&s, "a", 0, 1);
    add_wire(&s, "b", 1, 2);
    add_wire(&s, "c", 2, 3);
    add_wire(&s, "a", 0, 3);
    assert_int_equal(ap_schedule_depths(&s.w, s.wire), AP_OK);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(s.wire[i].from_depth == 2 && s.wire[i].to_depth == 2); /* never more than microbatches */
    s.w.microbatches = 9;
    assert_int_equal(ap_schedule_depths(&s.w, s.wire), AP_OK);
    assert_int_equal(s.wire[3].to_depth, 4);
    assert_int_equal(s.wire[2].to_depth, 2);
    add_wire(&s, "d", 3, 1);
    assert_int_equal(ap_schedule_depths(&s.w, s.wire), AP_ERR_MODEL);
    ap_ctx_release(s.ctx);
}

/* Whatever the depths, the forward schedule is right; wires that share a result share its depth. */
static void test_any_depth(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int round = 0; round < 500; round++) {
        scene s;
        scene_begin(&s, 2 + (unsigned)round % 7, 1 + round % 5);
        for (uint32_t from = 0; from + 1 < s.w.nstages; from++)
            for (uint32_t to = from + 1; to < s.w.nstages && s.w.nwires < 16; to++) {
                seed = seed * 1103515245u + 12345u;
                if (to > from + 1 && seed >> 16 & 1)
                    continue;
                char name[16];
                snprintf(name, sizeof name, "v%u", from);
                add_wire(&s, name, from, to);
                s.wire[s.w.nwires - 1].from_depth = 1 + (int32_t)(from + (unsigned)round) % 3;
                s.wire[s.w.nwires - 1].to_depth = 1 + (int32_t)(seed >> 20) % 3;
            }
        expect_good(&s);
        ap_ctx_release(s.ctx);
    }
}

static void test_one_stage(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 1, 3);
    assert_int_equal(ap_schedule_depths(&s.w, s.wire), AP_OK);
    expect_good(&s);
    assert_string_equal(print_lists(&s), "list @stage0 {\n  loop 3 {\n    run k\n  }\n}\n");
    ap_ctx_release(s.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_depths),
        cmocka_unit_test(test_any_depth),
        cmocka_unit_test(test_one_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
