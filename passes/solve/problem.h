/* The problem that the solver knows: choose one strategy per node; minimise node costs plus edge costs
 * under a memory limit at every point of time. It is IOPDDL's problem with two additions: a node may have
 * several demands (each with its own interval), and a pair of strategies may demand memory as well.
 * Nothing here knows graphs, operators or shardings. */
#ifndef AP_PASSES_SOLVE_PROBLEM_H
#define AP_PASSES_SOLVE_PROBLEM_H

#include "ir/base/ctx.h"

#include <stdatomic.h>

#define AP_FORBIDDEN INT64_MAX /* a cost: this choice (or pair) must not be taken */

typedef struct ap_problem_edge {
    uint32_t u, v;       /* u != v; parallel edges are allowed */
    const int64_t *cost; /* [strategies of u][strategies of v], row-major; AP_FORBIDDEN possible */
} ap_problem_edge;

/* During [lo, hi) the choice of `node` holds usage[strategy] bytes (>= 0). */
typedef struct ap_demand {
    uint32_t node;
    uint32_t lo, hi;
    const int64_t *usage;
} ap_demand;

typedef struct ap_pair_demand {
    uint32_t edge;
    uint32_t lo, hi;
    const int64_t *usage; /* like the edge's cost */
} ap_pair_demand;

typedef struct ap_problem {
    uint32_t nnodes;
    const uint32_t *nstrategies; /* per node, >= 1 */
    const int64_t *const *cost;  /* per node, per strategy; may be negative or AP_FORBIDDEN */
    uint32_t nedges;
    const ap_problem_edge *edge;
    uint32_t ndemands;
    const ap_demand *demand;
    uint32_t npair_demands;
    const ap_pair_demand *pair_demand;
    int64_t limit; /* bytes at every point; INT64_MAX: none */
} ap_problem;

typedef enum ap_solve_result { AP_SOLVED, AP_SOLVE_INFEASIBLE, AP_SOLVE_NOT_FOUND } ap_solve_result;

typedef struct ap_solution {
    ap_solve_result result;          /* INFEASIBLE is proven */
    uint32_t *choice;                /* per node, in the arena given */
    int64_t cost, bound;             /* bound <= optimum <= cost; equal when proven */
    int64_t peak;                    /* largest total demand over time */
    int64_t least_peak;              /* INFEASIBLE, NOT_FOUND: a lower bound of the peak of what obeys the forbidden
                                        entries (0: unknown or not asked for, or nothing obeys them) */
    const char *proof;               /* who proved it; "none" while a gap is left */
    uint32_t left_nodes, left_edges; /* after presolve */
} ap_solution;

typedef struct ap_solve_options {
    double time_limit;             /* seconds; 0: none */
    int64_t work;                  /* deterministic budget of the searches, about microseconds; 0: none */
    const atomic_int *stop;        /* or NULL: becomes nonzero when the best known is wanted now */
    bool presolve, eliminate, mip; /* all on by default (ap_solve_defaults); off in tests */
    bool least_peak;               /* on by default: when nothing is found, say what is needed at least */
    uint32_t threads;              /* 0 and 1: this one only. The answer under `work` does not depend on it */
    /* Told, from the calling thread, whenever the search enters a phase or knows more; or NULL. cost: INT64_MAX while
     * nothing is known that fits; bound: INT64_MIN while unknown. */
    void (*progress)(void *user, const char *phase, int64_t cost, int64_t bound);
    void *user;
} ap_solve_options;
void ap_solve_defaults(ap_solve_options *out);

ap_status ap_solve(ap_ctx *ctx, ap_arena *arena, const ap_problem *p, const ap_solve_options *opt, ap_solution *out);

/* Independent of the solver, in 128-bit integers: false when a choice is out of range or forbidden, or the limit is
 * exceeded; cost and peak otherwise. */
bool ap_problem_evaluate(const ap_problem *p, const uint32_t *choice, int64_t *out_cost, int64_t *out_peak);
/* All combinations; only for tests (product of strategies <= 2^24). */
bool ap_problem_brute_force(ap_arena *arena, const ap_problem *p, uint32_t *out_choice, int64_t *out_cost);

#endif
