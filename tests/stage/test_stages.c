/* The search over stages against all cuts, choices, labels and placements of thousands of small problems: memory,
 * pins, several groups, both objectives, idle devices, the next best plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/stage/dp.h"
#include "tests/stage/random_stages.h"

#include <inttypes.h>
#include <stdio.h>

typedef __int128 wide;
#define NEVER ((wide)1 << 100)

/* ---- all plans ------------------------------------------------------------------------------------------------- */

enum { MOST_STAGES = 6, MOST_LABELS = 3, MOST_HOSTS = 8 };

/* One row of stages by cuts and choices, and the best total it can have. */
typedef struct shape_total {
    uint32_t n, last[MOST_STAGES], choice[MOST_STAGES];
    wide in_order;
} shape_total;

typedef struct brute {
    ap_arena *a;
    const ap_stages_problem *p;
    bool idle;
    AP_VEC(shape_total) shapes;
    ap_stages_pick stage[MOST_STAGES];
    uint32_t n;
    int32_t free[2][MOST_HOSTS];                          /* per group and host: when all placements are tried */
    int32_t open[2], fill[2], next[2], host[MOST_STAGES]; /* in pipeline order */
    wide in_order, packed, any; /* best totals: in pipeline order; at packed prices; of all placements */
} brute;

/* The fastest way through a range, by all labels inside. */
static ap_stages_way all_ways(const ap_stages_problem *p, uint32_t c, uint32_t first, uint32_t last, uint32_t in,
                              uint32_t out)
{
    ap_stages_way best = {.key = AP_STAGES_NONE};
    const ap_stages_table *t = &p->table[(size_t)first * p->nchoices + c];
    uint32_t nout = p->nlabels[(size_t)(first + 1) * p->nchoices + c];
    for (uint32_t q = 0; q < nout; q++) {
        if (last == first + 1 && q != out)
            continue;
        size_t at = (size_t)in * nout + q;
        if (t->time[at] == AP_STAGES_NONE)
            continue;
        ap_stages_way rest = {0};
        if (last > first + 1)
            rest = all_ways(p, c, first + 1, last, q, out);
        if (rest.key == AP_STAGES_NONE)
            continue;
        int64_t resident = t->resident ? t->resident[at] : 0, peak = t->peak ? t->peak[at] : 0;
        ap_stages_way w = {rest.key + t->time[at] + (resident * p->choice[c].price >> 20), rest.time + t->time[at],
                           rest.resident + resident, peak > rest.peak ? peak : rest.peak};
        bool less = w.key != best.key             ? w.key < best.key
                    : w.time != best.time         ? w.time < best.time
                    : w.resident != best.resident ? w.resident < best.resident
                                                  : w.peak < best.peak;
        best = less ? w : best;
    }
    return best;
}

static wide stage_time(const brute *b, const ap_stages_pick *s)
{
    const ap_stages_problem *p = b->p;
    ap_stages_way w = all_ways(p, s->choice, s->first, s->last, s->in, s->out);
    if (w.key == AP_STAGES_NONE)
        return NEVER;
    int64_t bytes = w.resident + w.peak;
    if (p->slot && p->slot[(size_t)s->first * p->nchoices + s->choice])
        bytes += p->in_depth * p->slot[(size_t)s->first * p->nchoices + s->choice][s->in];
    if (p->slot && p->slot[(size_t)s->last * p->nchoices + s->choice])
        bytes += p->out_depth * p->slot[(size_t)s->last * p->nchoices + s->choice][s->out];
    return bytes <= p->group[p->choice[s->choice].group].capacity ? w.time : NEVER;
}

static bool is_part(const ap_stages_problem *p, uint32_t c)
{
    return p->choice[c].hosts == 1 && p->choice[c].devices < p->group[p->choice[c].group].devices;
}

/* A transfer between hosts never takes less than one on a host, where there could be one. */
static wide price(const ap_stages_problem *p, const ap_stages_pick *s, ap_near near)
{
    const ap_stages_choice *x = &p->choice[s->choice], *y = &p->choice[s[1].choice];
    int64_t far = p->transfer(p->user, s->last, s->choice, s->out, s[1].choice, s[1].in, near);
    if (far == AP_STAGES_NONE)
        return NEVER;
    if (near != AP_NEAR_HOSTS || !is_part(p, s->choice) || !is_part(p, s[1].choice) ||
        x->devices + y->devices > p->group[x->group].devices)
        return far;
    int64_t inside = p->transfer(p->user, s->last, s->choice, s->out, s[1].choice, s[1].in, AP_NEAR_HOST);
    return inside == AP_STAGES_NONE ? NEVER : inside < far ? far : inside;
}

/* The best total over all labels, each transfer as near as `near` says. */
static wide best_total(brute *b, const ap_near *near, uint32_t i, wide sum, wide most)
{
    const ap_stages_problem *p = b->p;
    if (i == b->n)
        return sum + most * (p->microbatches - 1);
    ap_stages_pick *s = &b->stage[i];
    wide best = NEVER;
    for (s->in = 0; s->in < p->nlabels[(size_t)s->first * p->nchoices + s->choice]; s->in++) {
        wide x = i > 0 ? price(p, s - 1, near[i - 1]) : 0;
        for (s->out = 0; x < NEVER && s->out < p->nlabels[(size_t)s->last * p->nchoices + s->choice]; s->out++) {
            wide t = stage_time(b, s), longer = x > t ? x : t;
            if (t >= NEVER)
                continue;
            wide total = best_total(b, near, i + 1, sum + x + t, longer > most ? longer : most);
            best = total < best ? total : best;
        }
    }
    return best;
}

static void nearness(const brute *b, bool packed, ap_near *near)
{
    const ap_stages_problem *p = b->p;
    for (uint32_t i = 0; i + 1 < b->n; i++) {
        uint32_t x = b->stage[i].choice, y = b->stage[i + 1].choice;
        near[i] = p->choice[x].group != p->choice[y].group ? AP_NEAR_GROUPS : AP_NEAR_HOSTS;
        if (!packed && p->choice[x].group == p->choice[y].group && is_part(p, x) && is_part(p, y) &&
            b->host[i] == b->host[i + 1])
            near[i] = AP_NEAR_HOST;
    }
}

/* All ways to put parts on hosts and whole hosts beside them; fills b->host. */
static void all_placements(brute *b, uint32_t i, bool *tiles)
{
    const ap_stages_problem *p = b->p;
    if (i == b->n) {
        ap_near near[MOST_STAGES];
        nearness(b, false, near);
        wide total = best_total(b, near, 0, 0, 0);
        b->any = total < b->any ? total : b->any;
        *tiles = true;
        return;
    }
    const ap_stages_choice *c = &p->choice[b->stage[i].choice];
    if (!is_part(p, b->stage[i].choice)) {
        b->host[i] = -1;
        all_placements(b, i + 1, tiles);
        return;
    }
    int32_t parts = p->group[c->group].hosts; /* hosts that are not taken whole */
    for (uint32_t k = 0; k < b->n; k++) {
        const ap_stages_choice *x = &p->choice[b->stage[k].choice];
        parts -= x->group == c->group && !is_part(p, b->stage[k].choice) ? x->hosts : 0;
    }
    for (int32_t h = 0; h < parts; h++) {
        if (b->free[c->group][h] < c->devices)
            continue;
        b->free[c->group][h] -= c->devices;
        b->host[i] = h;
        all_placements(b, i + 1, tiles);
        b->free[c->group][h] += c->devices;
    }
}

static void keep_shape(brute *b, wide total)
{
    if (total >= NEVER)
        return;
    shape_total t = {.n = b->n, .in_order = total};
    for (uint32_t i = 0; i < b->n; i++) {
        t.last[i] = b->stage[i].last;
        t.choice[i] = b->stage[i].choice;
    }
    for (uint32_t k = 0; k < b->shapes.len; k++) {
        shape_total *x = &b->shapes.at[k];
        if (x->n != t.n || memcmp(x->last, t.last, sizeof t.last) != 0 ||
            memcmp(x->choice, t.choice, sizeof t.choice) != 0)
            continue;
        x->in_order = total < x->in_order ? total : x->in_order;
        return;
    }
    ap_vec_push(b->a, &b->shapes, t);
}

/* In pipeline order, one host open at a time; with idle devices a host may be left at any time. */
static void all_in_order(brute *b, uint32_t i)
{
    const ap_stages_problem *p = b->p;
    if (i == b->n) {
        for (uint32_t g = 0; g < p->ngroups && !b->idle; g++)
            if (b->next[g] != p->group[g].hosts || b->fill[g] != 0)
                return;
        ap_near near[MOST_STAGES];
        nearness(b, false, near);
        wide total = best_total(b, near, 0, 0, 0);
        b->in_order = total < b->in_order ? total : b->in_order;
        keep_shape(b, total);
        return;
    }
    const ap_stages_choice *c = &p->choice[b->stage[i].choice];
    uint32_t g = c->group;
    int32_t host = p->group[g].devices, open = b->open[g], fill = b->fill[g], next = b->next[g];
    for (int leave = 0; leave <= (b->idle && fill > 0); leave++) {
        if (leave)
            b->fill[g] = 0;
        if (!is_part(p, b->stage[i].choice)) {
            b->host[i] = -1;
            b->next[g] += c->hosts;
        } else if (b->fill[g] == 0) {
            b->open[g] = b->host[i] = b->next[g]++;
            b->fill[g] = c->devices;
        } else if (b->fill[g] + c->devices <= host) {
            b->host[i] = b->open[g];
            b->fill[g] = (b->fill[g] + c->devices) % host;
        } else {
            continue;
        }
        if (b->next[g] <= p->group[g].hosts)
            all_in_order(b, i + 1);
        b->open[g] = open;
        b->fill[g] = fill;
        b->next[g] = next;
    }
}

static bool pinned_away(const brute *b)
{
    const ap_stages_problem *p = b->p;
    if (p->nstages > 0 && p->nstages != b->n)
        return true;
    for (uint32_t i = 0; i < b->n; i++)
        for (uint32_t l = b->stage[i].first; l < b->stage[i].last; l++)
            if ((p->stage_of && p->stage_of[l] != AP_NONE && p->stage_of[l] != i) ||
                (p->cut && l > b->stage[i].first && p->cut[l] > 0) ||
                (p->cut && l > 0 && l == b->stage[i].first && p->cut[l] < 0))
                return true;
    return false;
}

static void whole_plan(brute *b)
{
    const ap_stages_problem *p = b->p;
    int32_t used[2] = {0};
    for (uint32_t i = 0; i < b->n; i++)
        used[p->choice[b->stage[i].choice].group] +=
            p->choice[b->stage[i].choice].hosts * p->choice[b->stage[i].choice].devices;
    for (uint32_t g = 0; g < p->ngroups; g++) {
        int32_t all = p->group[g].hosts * p->group[g].devices;
        if (used[g] > all || (!b->idle && used[g] < all))
            return;
        for (uint32_t h = 0; h < MOST_HOSTS; h++)
            b->free[g][h] = p->group[g].devices;
        b->open[g] = b->fill[g] = b->next[g] = 0;
    }
    if (pinned_away(b))
        return;
    all_in_order(b, 0);
    bool tiles = false;
    all_placements(b, 0, &tiles);
    ap_near near[MOST_STAGES];
    nearness(b, true, near);
    wide total = tiles ? best_total(b, near, 0, 0, 0) : NEVER;
    b->packed = total < b->packed ? total : b->packed;
}

static void all_plans(brute *b, uint32_t first)
{
    const ap_stages_problem *p = b->p;
    if (first == p->nlayers) {
        whole_plan(b);
        return;
    }
    for (uint32_t last = first + 1; last <= p->nlayers; last++) {
        for (uint32_t c = 0; c < p->nchoices; c++) {
            b->stage[b->n++] = (ap_stages_pick){.first = first, .last = last, .choice = c};
            all_plans(b, last);
            b->n--;
        }
    }
}

static brute brute_force(ap_arena *a, const ap_stages_problem *p, bool idle)
{
    brute b = {.a = a, .p = p, .idle = idle, .in_order = NEVER, .packed = NEVER, .any = NEVER};
    all_plans(&b, 0);
    return b;
}

/* ---- comparison ------------------------------------------------------------------------------------------------ */

static void check_plan(ap_arena *a, const ap_stages_problem *p, const ap_stages_result *out, uint32_t i)
{
    ap_stages_plan copy = out->plan[i];
    copy.stage = ap_arena_memdup(a, copy.stage, copy.nstages * sizeof *copy.stage);
    const char *wrong = ap_stages_evaluate(a, p, &copy, out->idle);
    if (wrong)
        fail_msg("%s", wrong);
    assert_int_equal(copy.total, out->plan[i].total);
    assert_int_equal(copy.sum, out->plan[i].sum);
    assert_int_equal(copy.bottleneck, out->plan[i].bottleneck);
    assert_memory_equal(copy.stage, out->plan[i].stage, copy.nstages * sizeof *copy.stage);
    uint32_t *label = AP_NEW_ARRAY(a, uint32_t, p->nlayers + 1);
    for (uint32_t k = 0; k < copy.nstages; k++) {
        const ap_stages_pick *s = &copy.stage[k];
        assert_true(ap_stages_labels(a, p, s, label));
        int64_t time = 0;
        for (uint32_t l = s->first; l < s->last; l++) {
            uint32_t nout = p->nlabels[(size_t)(l + 1) * p->nchoices + s->choice];
            time += p->table[(size_t)l * p->nchoices + s->choice]
                        .time[(size_t)label[l - s->first] * nout + label[l - s->first + 1]];
        }
        assert_int_equal(label[0], s->in);
        assert_int_equal(label[s->last - s->first], s->out);
        assert_int_equal(time, s->time);
    }
}

static int compare_totals(const void *x, const void *y)
{
    wide a = ((const shape_total *)x)->in_order, b = ((const shape_total *)y)->in_order;
    return (a > b) - (a < b);
}

/* Plans in pipeline order are the best ones, in their order. */
static void check_ranking(brute *b, const ap_stages_result *out, uint32_t wanted)
{
    if (b->shapes.len > 0)
        qsort(b->shapes.at, b->shapes.len, sizeof *b->shapes.at, compare_totals);
    uint32_t n = 0, packed = 0;
    for (uint32_t i = 0; i < out->nplans; i++) {
        if (i > 0)
            assert_true(out->plan[i - 1].total <= out->plan[i].total);
        if (out->plan[i].packed) {
            packed++;
            continue;
        }
        assert_true(n < b->shapes.len);
        assert_true(b->shapes.at[n].in_order == out->plan[i].total);
        n++;
    }
    assert_true(out->ranked);
    assert_true(out->nplans == wanted || n + packed >= b->shapes.len);
}

static void check_best(const brute *b, const ap_stages_result *out)
{
    wide model = b->in_order < b->packed ? b->in_order : b->packed, total = out->plan[0].total;
    assert_true(total <= model && total >= b->any);
    if (!out->plan[0].packed)
        assert_true(total == model);
    assert_true(out->bound <= total && out->bound == out->plan[0].total);
}

typedef struct tally {
    uint32_t plans, none, packed, idle, short_of_memory;
} tally;

/* With the missing bytes added there is a plan; with one less there is none, up to how parts of hosts pack. */
static void check_missing(ap_ctx *ctx, ap_arena *a, const ap_stages_problem *p, int64_t missing, tally *t)
{
    ap_stages_options opt = {0};
    ap_stages_result out;
    ap_stages_problem q = *p;
    ap_stages_group *group = ap_arena_memdup(a, p->group, p->ngroups * sizeof *group);
    q.group = group;
    for (uint32_t g = 0; g < p->ngroups; g++)
        group[g].capacity = ap_sat_add(group[g].capacity, missing == AP_STAGES_NONE ? 1000000 : missing);
    assert_int_equal(ap_stages_solve(ctx, a, &q, &opt, &out), AP_OK);
    assert_int_equal(out.nplans, missing == AP_STAGES_NONE ? 0 : 1);
    if (missing == AP_STAGES_NONE)
        return;
    for (uint32_t g = 0; g < p->ngroups; g++)
        group[g].capacity -= group[g].capacity == INT64_MAX ? 0 : 1;
    assert_int_equal(ap_stages_solve(ctx, a, &q, &opt, &out), AP_OK);
    assert_int_equal(out.nplans, 0);
    t->short_of_memory++;
}

static void check_problem(ap_ctx *ctx, ap_arena *a, const ap_stages_problem *p, rng *r, tally *t)
{
    ap_stages_options opt = {.nplans = rng_below(r, 6), .idle = rng_below(r, 4) == 0};
    ap_stages_result out, again;
    assert_int_equal(ap_stages_solve(ctx, a, p, &opt, &out), AP_OK);
    brute b = brute_force(a, p, opt.idle);
    if (!opt.idle && b.in_order >= NEVER && b.packed >= NEVER)
        b = brute_force(a, p, true);
    if (b.in_order >= NEVER && b.packed >= NEVER) {
        assert_int_equal(out.nplans, 0);
        check_missing(ctx, a, p, out.missing, t);
        t->none++;
        return;
    }
    assert_true(out.nplans > 0);
    assert_int_equal(out.idle, b.idle);
    for (uint32_t i = 0; i < out.nplans; i++)
        check_plan(a, p, &out, i);
    check_best(&b, &out);
    if (opt.nplans > 1)
        check_ranking(&b, &out, opt.nplans);
    t->plans++;
    t->packed += out.plan[0].packed;
    t->idle += out.idle;
    assert_int_equal(ap_stages_solve(ctx, a, p, &opt, &again), AP_OK);
    assert_int_equal(again.nplans, out.nplans);
    for (uint32_t i = 0; i < out.nplans; i++)
        assert_memory_equal(again.plan[i].stage, out.plan[i].stage, out.plan[i].nstages * sizeof *out.plan[i].stage);
    opt.eps = rng_below(r, 50);
    assert_int_equal(ap_stages_solve(ctx, a, p, &opt, &again), AP_OK);
    assert_true(again.plan[0].total <= out.plan[0].total + opt.eps);
    assert_true(again.bound <= out.plan[0].total && again.plan[0].total - again.bound <= opt.eps);
}

static void run_random(const stages_shape *s, uint64_t seed, uint32_t rounds)
{
    rng r = {seed};
    tally t = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_stages_problem p;
        random_stages(&r, &ctx->arena, s, &p);
        check_problem(ctx, &ctx->arena, &p, &r, &t);
        ap_ctx_release(ctx);
    }
    printf("%" PRIu32 " with a plan (%" PRIu32 " packed, %" PRIu32 " with idle devices), %" PRIu32 " without (%" PRIu32
           " for lack of memory)\n",
           t.plans, t.packed, t.idle, t.none, t.short_of_memory);
}

static void one_group(void **state)
{
    (void)state;
    stages_shape s = {4, 4, 2, 1, 3, 4, 10, false};
    run_random(&s, 1, test_rounds(3000));
}

static void ties(void **state)
{
    (void)state;
    stages_shape s = {4, 3, 2, 1, 2, 4, 1, false};
    run_random(&s, 2, test_rounds(3000));
}

static void two_groups(void **state)
{
    (void)state;
    stages_shape s = {4, 4, 2, 2, 2, 4, 7, false};
    run_random(&s, 3, test_rounds(3000));
}

static void many_layers(void **state)
{
    (void)state;
    stages_shape s = {6, 2, 2, 1, 2, 4, 5, false};
    run_random(&s, 4, test_rounds(500));
}

static void hosts_of_six(void **state)
{
    (void)state;
    stages_shape s = {5, 3, 1, 1, 2, 6, 5, true};
    run_random(&s, 5, test_rounds(1000));
}

/* Every layer is a stage of its own and has one size of sub-mesh, all devices together, in an order that often leaves
 * two hosts open. */
static bool force_sizes(rng *r, ap_arena *a, ap_stages_problem *p, int32_t devices)
{
    int8_t *cut = AP_NEW_ARRAY(a, int8_t, p->nlayers + 1);
    memset(cut, 1, p->nlayers + 1);
    p->cut = cut;
    uint32_t keep[MOST_STAGES];
    int32_t sum = 0;
    for (uint32_t tries = 0; tries < 100 && sum != devices; tries++) {
        sum = 0;
        for (uint32_t l = 0; l < p->nlayers; l++) {
            keep[l] = rng_below(r, p->nchoices);
            sum += p->choice[keep[l]].devices;
        }
    }
    ap_stages_table *table = ap_arena_memdup(a, p->table, p->nlayers * p->nchoices * sizeof *table);
    for (uint32_t i = 0; i < p->nlayers * p->nchoices; i++) {
        size_t n = (size_t)p->nlabels[i] * p->nlabels[i + p->nchoices];
        int64_t *time = AP_NEW_ARRAY(a, int64_t, n);
        for (size_t k = 0; k < n; k++)
            time[k] = i % p->nchoices == keep[i / p->nchoices] ? table[i].time[k] : AP_STAGES_NONE;
        table[i].time = time;
    }
    p->table = table;
    return sum == devices;
}

static void two_open_hosts(void **state)
{
    (void)state;
    rng r = {6};
    tally t = {0};
    stages_shape s = {6, 4, 2, 1, 1, 1, 9, true};
    for (uint32_t i = 0; i < test_rounds(3000); i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_stages_problem p;
        random_stages(&r, &ctx->arena, &s, &p);
        if (p.nchoices < 4) {
            ap_ctx_release(ctx);
            continue;
        }
        static const ap_stages_group group = {2, 4, INT64_MAX};
        static const ap_stages_choice choice[4] = {{0, 1, 1, 0}, {0, 1, 2, 0}, {0, 1, 2, 0}, {0, 1, 4, 0}};
        p.group = &group;
        p.choice = choice;
        if (force_sizes(&r, &ctx->arena, &p, 8))
            check_problem(ctx, &ctx->arena, &p, &r, &t);
        ap_ctx_release(ctx);
    }
    printf("%" PRIu32 " with a plan (%" PRIu32 " packed, %" PRIu32 " with idle devices)\n", t.plans, t.packed, t.idle);
    assert_true(t.packed > 0 && t.idle < t.plans / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_group),   cmocka_unit_test(ties),         cmocka_unit_test(two_groups),
        cmocka_unit_test(many_layers), cmocka_unit_test(hosts_of_six), cmocka_unit_test(two_open_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
