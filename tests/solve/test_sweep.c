/* The search along the rows alone against enumeration: graphs whole and in windows, with labels and without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/solve/sweep.h"
#include "tests/solve/random_problem.h"

#include <string.h>

static bool next_choice(const ap_problem *p, uint32_t *x)
{
    for (uint32_t v = 0; v < p->nnodes; v++) {
        if (++x[v] < p->nstrategies[v])
            return true;
        x[v] = 0;
    }
    return false;
}

static bool enumerate(ap_arena *a, const ap_kernel *k, int64_t *least)
{
    uint32_t *x = AP_NEW_ARRAY(a, uint32_t, k->p.nnodes + 1);
    int64_t *use = AP_NEW_ARRAY(a, int64_t, k->nrows + 1), cost;
    bool found = false;
    memset(x, 0, k->p.nnodes * sizeof *x);
    do {
        ap_kernel_usage(k, x, use);
        if (!ap_kernel_cost(k, x, &cost) || !ap_kernel_fits(k, use) || (found && cost >= *least))
            continue;
        found = true;
        *least = cost;
    } while (next_choice(&k->p, x));
    return found;
}

/* Most nodes hold something in all rows as well, as weights do. */
static void add_residents(rng *r, ap_arena *a, ap_problem *p)
{
    ap_demand *d = AP_NEW_ARRAY(a, ap_demand, p->ndemands + p->nnodes);
    if (p->ndemands > 0)
        memcpy(d, p->demand, p->ndemands * sizeof *d);
    for (uint32_t v = 0; v < p->nnodes; v++) {
        if (rng_below(r, 3) == 0)
            continue;
        int64_t *usage = AP_NEW_ARRAY(a, int64_t, p->nstrategies[v]);
        for (uint32_t i = 0; i < p->nstrategies[v]; i++)
            usage[i] = 2 * (int64_t)rng_below(r, 12);
        d[p->ndemands++] = (ap_demand){v, 0, 1000, usage};
    }
    p->demand = d;
    if (p->limit != INT64_MAX)
        p->limit += (int64_t)rng_below(r, 7 * p->nnodes);
}

typedef struct tally {
    uint32_t taken, complete, found, infeasible, improved;
} tally;

static void try_one(rng *r, ap_arena *a, const ap_problem *p, tally *t)
{
    ap_kernel k;
    ap_kernel_from_problem(a, p, &k);
    ap_elim *e = ap_elim_plan(a, &k, rng_below(r, 2) ? 1u << 20 : 8);
    if (k.nrows == 0 || !e)
        return;
    ap_effort effort = {.work = INT64_MAX};
    ap_local *l = ap_local_create(a, &k);
    ap_elim_allocate(e);
    ap_dual *d = ap_dual_create(a, &k, e, l, &effort);
    int64_t least = 0;
    bool found = enumerate(a, &k, &least);
    int64_t cutoff = rng_below(r, 3) || !found ? INT64_MAX : least + (int64_t)rng_below(r, 5) - 1;
    ap_dual_run(d, cutoff);
    if (d->infeasible)
        return;
    if (rng_below(r, 2)) /* without what the multipliers found */
        l->found = false;
    bool had = l->found && l->best_cost == least;
    ap_sweep_sizes sizes = {rng_below(r, 2) ? 1000000 : 4 + rng_below(r, 60), rng_below(r, 2) ? 400000 : 0};
    ap_sweep_result out;
    ap_sweep_run(a, &k, d, l, cutoff, &sizes, &effort, &out);
    assert_true(out.made);
    t->taken++;
    t->complete += out.complete;
    t->infeasible += !found;
    if (l->found) {
        int64_t cost, *use = AP_NEW_ARRAY(a, int64_t, k.nrows + 1);
        assert_true(found);
        assert_true(ap_kernel_cost(&k, l->best, &cost));
        assert_int_equal(cost, l->best_cost);
        ap_kernel_usage(&k, l->best, use);
        assert_true(ap_kernel_fits(&k, use));
        t->found += l->best_cost == least;
        t->improved += l->best_cost == least && !had;
    }
    if (found)
        assert_true(out.bound <= least || out.bound >= cutoff);
    if (out.complete && found && least < cutoff)
        assert_true(l->found && l->best_cost == least && out.bound == least);
    if (out.complete && !found)
        assert_false(l->found);
}

static void run(const shape *how, uint32_t times, uint64_t seed, tally *t)
{
    rng r = {seed};
    ap_ctx *ctx = ap_ctx_create();
    for (uint32_t i = 0; i < times; i++) {
        ap_problem p;
        random_problem(&r, &ctx->scratch, how, &p);
        add_residents(&r, &ctx->scratch, &p);
        try_one(&r, &ctx->scratch, &p, t);
        ap_arena_reset(&ctx->scratch);
    }
    ap_ctx_release(ctx);
}

static void test_enumeration(void **state)
{
    (void)state;
    static const shape shapes[] = {{7, 4, 2000, 1, false}, {8, 3, 2000, 500, true}, {6, 5, 1000, 500, false}};
    tally t = {0};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        run(&shapes[i], 3000, 11 + i, &t);
    print_message("%u taken, %u complete, %u with the optimum, %u of them new, %u infeasible\n", t.taken, t.complete,
                  t.found, t.improved, t.infeasible);
    assert_true(t.taken > 3000 && t.complete > t.taken / 2 && t.improved > 500 && t.infeasible > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_enumeration)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
