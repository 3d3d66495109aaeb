/* Conformance of the communicator: every exchange on 1 to 5 ranks against plain loops, many rounds in a row so that a
 * missing barrier shows (also built with -fsanitize=thread: target tsan_exchange); failing ranks; several callers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "autopar_rt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 5, COUNT = 2000, ROUNDS = 40, HALF = 16384 };

static const int32_t everyone[MAX_RANKS] = {0, 1, 2, 3, 4}, reversed[MAX_RANKS] = {4, 3, 2, 1, 0},
                     pairs[4] = {0, 2, 1, 3};
static const aprt_port ports[2] = {{"x", APRT_F32, 1, {COUNT}}, {"y", APRT_F32, 1, {COUNT}}};
static const aprt_instr instrs[8] = {
    {"fill", "node", "Op", 0}, {"exchange", "", "", 0}, {"gather", "emb", "Gather", 0}};

/* What the device functions below are told. */
typedef struct order {
    aprt_exchange exchange;
    int64_t src_elements;
    int32_t fails; /* rank that fails, or -1 */
    int32_t at;    /* round in which it does */
    bool in_place; /* source and destination are one */
} order;

static float element(int32_t rank, int64_t round, int64_t i)
{
    return (float)((rank * 37 + round * 11 + i * 7) % 101) - 50;
}

static int exchange_device(aprt_device *d)
{
    const order *o = d->input[0];
    float *src = (float *)d->arena, *dst = o->in_place ? src : (float *)(d->arena + 4 * HALF);
    float *out = (float *)d->output[0] + (int64_t)d->rank * ROUNDS * COUNT;
    for (int64_t round = 0; round < ROUNDS; round++) {
        aprt_at(d, 0);
        for (int64_t i = 0; i < o->src_elements; i++)
            src[i] = element(d->rank, round, i);
        for (int64_t i = 0; i < COUNT && !o->in_place; i++)
            dst[i] = -1;
        aprt_at(d, 1);
        int status = aprt_exchange_run(d, &o->exchange, src, dst);
        if (status != APRT_OK)
            return status;
        memcpy(out + round * COUNT, dst, COUNT * sizeof *dst);
        aprt_at(d, 2);
        if (d->rank == o->fails && round == o->at) {
            d->bad = (aprt_bad){.index = round, .limit = 7};
            return aprt_fail_index(d);
        }
    }
    return APRT_OK;
}

static int exchange_list(aprt_device *d)
{
    return aprt_stage_run(d, 0);
}

/* A program of one stage; the tables that it points to are in it. */
typedef struct test_program {
    aprt_program program;
    aprt_stage stage;
    int32_t zero;
} test_program;

static void make_program(test_program *t, int32_t ranks, const aprt_group *group)
{
    t->zero = 0;
    t->stage = (aprt_stage){.name = "test",
                            .nranks = ranks,
                            .naxes = 1,
                            .axis_size = {ranks},
                            .axis_stride = {1},
                            .arena_bytes = 8 * HALF,
                            .ninputs = 1,
                            .noutputs = 1,
                            .input = &t->zero,
                            .output = &t->zero,
                            .ngroups = 1,
                            .ninstrs = 3,
                            .group = group,
                            .instr = instrs,
                            .run = exchange_device,
                            .list = exchange_list};
    t->program = (aprt_program){.abi = APRT_ABI,
                                .name = "test",
                                .nranks = ranks,
                                .microbatches = 1,
                                .ninputs = 1,
                                .noutputs = 1,
                                .input = &ports[0],
                                .output = &ports[1],
                                .nstages = 1,
                                .stage = &t->stage};
}

static float fold(aprt_fold f, float a, float b)
{
    return f == APRT_FOLD_SUM ? a + b : f == APRT_FOLD_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

/* Elements of dimension d that the rank has of the box of the peer at position p. */
static int64_t there(const aprt_exchange *x, int32_t rank, int32_t p, int32_t d)
{
    int64_t extent = d < x->ndims ? x->extent[d] : 1;
    for (int32_t i = 0; i < x->ncounts; i++) {
        int64_t left = x->count[i].value.base + x->count[i].value.step[0] * rank - x->count[i].per_peer * p;
        if (x->count[i].dim == d)
            extent = left < 0 ? 0 : left < extent ? left : extent;
    }
    return extent;
}

/* dst of one rank in one round, by the formulas of autopar_rt.h */
static void expect(const aprt_exchange *x, bool in_place, const int32_t *list, int32_t size, int32_t me, int64_t round,
                   float *dst)
{
    for (int64_t i = 0; i < COUNT; i++)
        dst[i] = in_place ? element(list[me], round, i) : -1;
    for (int32_t p = 0; p < size; p++)
        for (int64_t i = 0; i < there(x, list[me], p, 0); i++)
            for (int64_t j = 0; j < there(x, list[me], p, 1); j++) {
                int64_t s = i * x->src_stride[0] + (x->ndims > 1 ? j * x->src_stride[1] : 0);
                int64_t d = i * x->dst_stride[0] + (x->ndims > 1 ? j * x->dst_stride[1] : 0);
                switch (x->kind) {
                case APRT_ALL_GATHER:
                    dst[x->dst_peer * p + d] = element(list[p], round, s);
                    break;
                case APRT_ALL_TO_ALL:
                    dst[x->dst_peer * p + d] = element(list[p], round, x->src_me * me + s);
                    break;
                case APRT_REDUCE_SCATTER:
                    s += x->src_me * me;
                    /* fall through */
                case APRT_ALL_REDUCE:
                    dst[d] = p ? fold(x->fold, dst[d], element(list[p], round, s)) : element(list[p], round, s);
                    break;
                }
            }
}

static void check_exchange(int32_t ranks, const aprt_group *group, const aprt_exchange *x, bool in_place)
{
    test_program t;
    make_program(&t, ranks, group);
    aprt_instance *instance;
    order o = {*x, HALF, -1, 0, in_place};
    float *got = malloc((size_t)ranks * ROUNDS * COUNT * sizeof *got), want[COUNT];
    const void *in[] = {&o};
    void *out[] = {got};
    assert_int_equal(aprt_open(&t.program, NULL, &instance), APRT_OK);
    assert_int_equal(aprt_run(instance, in, out), APRT_OK);
    for (int32_t i = 0; i < ranks; i++)
        for (int64_t round = 0; round < ROUNDS; round++) {
            const int32_t *list = group->rank + i / group->size * group->size;
            expect(x, in_place, list, group->size, i % group->size, round, want);
            assert_memory_equal(got + ((int64_t)group->rank[i] * ROUNDS + round) * COUNT, want, sizeof want);
        }
    aprt_close(instance);
    free(got);
}

static void all_exchanges(void **state)
{
    (void)state;
    const aprt_group groups[] = {{1, 1, everyone}, {1, 2, everyone}, {2, 2, pairs},    {4, 1, everyone},
                                 {1, 3, everyone}, {1, 4, everyone}, {1, 5, everyone}, {1, 5, reversed}};
    const aprt_count by_peer = {0, {17, {0}}, 10}, by_peer_inside = {1, {17, {0}}, 10}, by_rank = {0, {17, {-10}}, 0};
    const aprt_count seven = {0, {7, {0}}, 0}, nothing = {0, {-3, {0}}, 0};
    const aprt_count both[] = {{0, {17, {0}}, 10}, {1, {7, {-4}}, 0}};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        int64_t size = groups[g].size;
        const aprt_exchange list[] = {
            {APRT_ALL_GATHER, 0, APRT_F32, 0, 2, {10, 20}, {40, 1}, {size * 20, 1}, 0, 20, 0, NULL},
            {APRT_ALL_GATHER, 0, APRT_F32, 0, 1, {333}, {1}, {1}, 0, 333, 0, NULL},
            {APRT_REDUCE_SCATTER, APRT_FOLD_SUM, APRT_F32, 0, 2, {30, 11}, {11 * size, 1}, {11, 1}, 11, 0, 0, NULL},
            {APRT_REDUCE_SCATTER, APRT_FOLD_MIN, APRT_F32, 0, 1, {1000}, {1}, {2}, 1000, 0, 0, NULL},
            {APRT_ALL_REDUCE, APRT_FOLD_SUM, APRT_F32, 0, 1, {1999}, {1}, {1}, 0, 0, 0, NULL},
            {APRT_ALL_REDUCE, APRT_FOLD_MAX, APRT_F32, 0, 2, {43, 45}, {1, 43}, {46, 1}, 0, 0, 0, NULL},
            {APRT_ALL_REDUCE, APRT_FOLD_SUM, APRT_F32, 0, 1, {5}, {3}, {1}, 0, 0, 0, NULL},
            {APRT_ALL_TO_ALL, 0, APRT_F32, 0, 2, {16, 8}, {8 * size, 1}, {8, 1}, 8, 128, 0, NULL},
            {APRT_ALL_TO_ALL, 0, APRT_F32, 0, 1, {0}, {1}, {1}, 0, 0, 0, NULL},
            /* boxes cut off: what is there depends on the peer, on the rank that asks, on neither */
            {APRT_ALL_GATHER, 0, APRT_F32, 0, 2, {10, 20}, {20, 1}, {20, 1}, 0, 200, 1, &by_peer},
            {APRT_ALL_GATHER, 0, APRT_F32, 0, 2, {20, 10}, {10, 1}, {10 * size, 1}, 0, 10, 1, &by_peer_inside},
            {APRT_REDUCE_SCATTER, APRT_FOLD_SUM, APRT_F32, 0, 2, {10, 20}, {20, 1}, {20, 1}, 200, 0, 1, &by_rank},
            {APRT_ALL_REDUCE, APRT_FOLD_SUM, APRT_F32, 0, 2, {10, 199}, {199, 1}, {199, 1}, 0, 0, 1, &seven},
            {APRT_ALL_REDUCE, APRT_FOLD_SUM, APRT_F32, 0, 2, {10, 20}, {20, 1}, {20, 1}, 0, 0, 1, &nothing},
            {APRT_ALL_TO_ALL, 0, APRT_F32, 0, 2, {10, 4}, {4 * size, 1}, {4, 1}, 4, 40, 2, both},
        };
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
            check_exchange(groups[g].count * groups[g].size, &groups[g], &list[i], false);
        const aprt_exchange in_place[] = {
            {APRT_ALL_REDUCE, APRT_FOLD_SUM, APRT_F32, 0, 1, {1999}, {1}, {1}, 0, 0, 0, NULL},
            {APRT_ALL_REDUCE, APRT_FOLD_MAX, APRT_F32, 0, 2, {43, 45}, {46, 1}, {46, 1}, 0, 0, 0, NULL},
            {APRT_ALL_REDUCE, APRT_FOLD_SUM, APRT_F32, 0, 1, {5}, {3}, {3}, 0, 0, 0, NULL},
        };
        for (size_t i = 0; i < sizeof in_place / sizeof *in_place; i++)
            check_exchange(groups[g].count * groups[g].size, &groups[g], &in_place[i], true);
    }
}

/* Whoever fails and whenever: everybody comes home, the text is right, the instance goes on. */
static void failing_rank(void **state)
{
    (void)state;
    const aprt_group group = {1, 4, everyone};
    test_program t;
    make_program(&t, 4, &group);
    aprt_instance *instance;
    order o = {{APRT_ALL_REDUCE, APRT_FOLD_SUM, APRT_F32, 0, 1, {1999}, {1}, {1}, 0, 0, 0, NULL}, HALF, -1, 0, false};
    float *got = malloc(4 * ROUNDS * COUNT * sizeof *got);
    const void *in[] = {&o};
    void *out[] = {got};
    assert_int_equal(aprt_open(&t.program, NULL, &instance), APRT_OK);
    for (int turn = 0; turn < 60; turn++) {
        char text[128];
        o.fails = turn % 4;
        o.at = turn % ROUNDS;
        assert_int_equal(aprt_run(instance, in, out), APRT_ERR_DATA);
        snprintf(text, sizeof text,
                 "rank %d, instruction 2 (gather), node \"emb\" (Gather): index %d is outside [0, 7)", o.fails, o.at);
        assert_string_equal(aprt_error(instance), text);
        o.fails = -1;
        assert_int_equal(aprt_run(instance, in, out), APRT_OK);
        assert_string_equal(aprt_error(instance), "");
    }
    aprt_close(instance);
    free(got);
}

typedef struct caller {
    aprt_instance *instance;
    const void *in[1];
    void *out[1];
    int status;
} caller;

static void *call(void *user)
{
    caller *c = user;
    for (int i = 0; i < 5 && c->status == APRT_OK; i++)
        c->status = aprt_run(c->instance, c->in, c->out);
    return NULL;
}

static void several_callers(void **state)
{
    (void)state;
    const aprt_group group = {1, 3, everyone};
    test_program t;
    make_program(&t, 3, &group);
    aprt_instance *instance[2];
    order o = {{APRT_ALL_GATHER, 0, APRT_F32, 0, 1, {333}, {1}, {1}, 0, 333, 0, NULL}, HALF, -1, 0, false};
    caller c[4];
    pthread_t thread[4];
    for (int i = 0; i < 2; i++)
        assert_int_equal(aprt_open(&t.program, NULL, &instance[i]), APRT_OK);
    for (int i = 0; i < 4; i++) {
        c[i] = (caller){instance[i % 2], {&o}, {malloc(3 * ROUNDS * COUNT * sizeof(float))}, APRT_OK};
        assert_int_equal(pthread_create(&thread[i], NULL, call, &c[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(c[i].status, APRT_OK);
        assert_memory_equal(c[i].out[0], c[0].out[0], 3 * ROUNDS * COUNT * sizeof(float));
    }
    for (int i = 0; i < 4; i++)
        free(c[i].out[0]);
    for (int i = 0; i < 2; i++)
        aprt_close(instance[i]);
}

static void wrong_programs(void **state)
{
    (void)state;
    const int32_t twice[2] = {1, 1};
    const aprt_group good = {1, 2, everyone}, small = {1, 1, everyone}, repeated = {1, 2, twice};
    test_program p[7];
    const char *text[7] = {"ABI",        "devices",     "every rank once", "every rank once",
                           "impossible", "an arena of", "axis 0"};
    for (int i = 0; i < 7; i++)
        make_program(&p[i], 2, &good);
    p[0].program.abi = 99;
    p[1].program.nranks = 100000;
    p[2].stage.group = &small;
    p[3].stage.group = &repeated;
    p[4].stage.arena_bytes = INT64_MAX;
    p[5].stage.arena_bytes = INT64_C(1) << 60;
    p[6].stage.axis_size[0] = 0;
    for (int i = 0; i < 7; i++) {
        aprt_instance *instance;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        if (i == 5) /* their allocators end the program instead of returning NULL */
            continue;
#endif
        assert_int_not_equal(aprt_open(&p[i].program, NULL, &instance), APRT_OK);
        assert_non_null(strstr(aprt_error(instance), text[i]));
        assert_int_equal(aprt_run(instance, NULL, NULL), APRT_ERR_USAGE);
        assert_non_null(strstr(aprt_error(instance), text[i]));
        aprt_close(instance);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_exchanges),
        cmocka_unit_test(failing_rank),
        cmocka_unit_test(several_callers),
        cmocka_unit_test(wrong_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
