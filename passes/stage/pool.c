/* The best plans so far. */
#include "passes/stage/dp.h"

#include <string.h>

void ap_stages_pool_init(ap_stages_pool *pool, ap_arena *arena, const ap_stages_problem *p, const ap_stages_ranges *r,
                         uint32_t wanted)
{
    *pool = (ap_stages_pool){.arena = arena, .p = p, .ranges = r, .wanted = wanted};
    pool->plan = AP_NEW_ARRAY(arena, ap_stages_plan, wanted + 1);
    for (uint32_t i = 0; i <= wanted; i++)
        pool->plan[i].stage = AP_NEW_ARRAY(arena, ap_stages_pick, p->nlayers);
}

/* By cuts and choices, which tell plans apart. */
static int compare_shapes(const ap_stages_plan *a, const ap_stages_plan *b)
{
    if (a->nstages != b->nstages)
        return a->nstages < b->nstages ? -1 : 1;
    for (uint32_t i = 0; i < a->nstages; i++) {
        const ap_stages_pick *x = &a->stage[i], *y = &b->stage[i];
        if (x->last != y->last)
            return x->last > y->last ? -1 : 1;
        if (x->choice != y->choice)
            return x->choice < y->choice ? -1 : 1;
    }
    return 0;
}

int64_t ap_stages_pool_cutoff(const ap_stages_pool *pool)
{
    return pool->n < pool->wanted ? INT64_MAX : pool->plan[pool->n - 1].total;
}

static void swap_plans(ap_stages_plan *a, ap_stages_plan *b)
{
    ap_stages_plan t = *a;
    *a = *b;
    *b = t;
}

void ap_stages_pool_add(ap_stages_pool *pool, ap_arena *scratch, const ap_stages_pick *stage, uint32_t n, bool packed)
{
    ap_stages_plan *last = &pool->plan[pool->n];
    last->nstages = n;
    last->packed = packed;
    memcpy(last->stage, stage, n * sizeof *stage);
    if (!ap_stages_best_labels(scratch, pool->p, pool->ranges, last))
        return;
    for (uint32_t i = 0; i < pool->n; i++) {
        if (compare_shapes(&pool->plan[i], last) != 0)
            continue;
        if (pool->plan[i].total <= last->total)
            return;
        swap_plans(&pool->plan[i], last); /* lies better than when it was found first */
        for (; i > 0 && pool->plan[i].total < pool->plan[i - 1].total; i--)
            swap_plans(&pool->plan[i], &pool->plan[i - 1]);
        return;
    }
    uint32_t i = pool->n;
    for (; i > 0; i--) {
        const ap_stages_plan *a = &pool->plan[i], *b = &pool->plan[i - 1];
        if (a->total > b->total || (a->total == b->total && compare_shapes(a, b) >= 0))
            break;
        swap_plans(&pool->plan[i], &pool->plan[i - 1]);
    }
    pool->n += pool->n < pool->wanted;
}
