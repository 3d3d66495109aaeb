/* Memory by multipliers: every byte held at row t costs lambda[t] >= 0, the limit pays lambda[t] * rhs[t] back, and
 * what is left has no memory rows, so elimination solves it. For any multipliers
 *
 *     L(lambda) = min over x of cost(x) + sum over t of lambda[t] * (use[t](x) - rhs[t])
 *
 * bounds the cost of every choice that fits. L is concave; it is maximised by cutting planes inside a box around the
 * best point so far (each choice x met is one cut). Choices met on the way are repaired and improved. */
#ifndef AP_PASSES_SOLVE_DUAL_H
#define AP_PASSES_SOLVE_DUAL_H

#include "passes/solve/eliminate.h"
#include "passes/solve/primal.h"

typedef struct ap_dual {
    int64_t bound;               /* of every choice that fits */
    bool infeasible;             /* proven: no choice fits */
    bool *active;                /* rows ever exceeded */
    bool *drop;                  /* with ap_dual_fix: per strategy, all nodes one after another */
    int64_t **edge;              /* with ap_dual_fix: costs with more entries forbidden */
    uint64_t dropped, forbidden; /* how many */
    /* Internal. */
    ap_arena *arena;
    const ap_kernel *k;
    ap_elim *e;
    ap_local *local;
    ap_effort *effort;
    int64_t scale; /* costs are multiplied by it */
    int shift;     /* multipliers are integers over 2^shift */
    int64_t most;  /* no choice costs more */
    double *lambda, *best_lambda;
    int64_t *fixed;      /* multipliers as integers */
    __int128 *prefix;    /* sums of them before a row */
    __int128 back;       /* what the limit pays back, scaled, rounded up */
    int64_t **node_cost; /* scaled, with the price of memory */
    int64_t *pair_cost;  /* scratch for an edge with demands */
    uint32_t *choice;    /* of the last run */
    int64_t *use;
} ap_dual;

/* l collects choices. */
ap_dual *ap_dual_create(ap_arena *arena, const ap_kernel *k, ap_elim *e, ap_local *l, ap_effort *effort);
/* Raises the bound until it meets min(cutoff, best cost), or nothing moves, or the effort is spent. */
void ap_dual_run(ap_dual *d, int64_t cutoff);
/* Costs with the price of memory at the best multipliers, times d->scale: node_cost of d, and edges as they are listed
 * (AP_ELIM_INF: forbidden). A choice that fits costs at least (their sum - d->back) / d->scale. */
void ap_dual_price(ap_dual *d, int64_t **out_edge);
/* At the best multipliers, with an exact plan: what no choice cheaper than the cutoff can take. */
void ap_dual_fix(ap_dual *d, int64_t cutoff);

#endif
