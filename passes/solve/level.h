/* One level of the solver. It presolves a kernel, takes what is left apart into independent blocks and solves each:
 *
 *     presolve -> blocks -> multipliers + elimination (bound, choices) -> neighbourhoods (better choices)
 *                        -> fixing -> one level deeper, or branch and cut on the rest
 *
 * Without memory rows the multipliers have nothing to do and elimination alone is exact; the path is the same. A
 * level may be given a cutoff: choices that cost as much or more are of no interest, so "infeasible" then says that
 * nothing cheaper exists, and bounds hold for the lesser of optimum and cutoff. */
#ifndef AP_PASSES_SOLVE_LEVEL_H
#define AP_PASSES_SOLVE_LEVEL_H

#include "passes/solve/kernel.h"
#include "passes/solve/primal.h"

typedef enum ap_proof {
    AP_PROOF_PRESOLVE,
    AP_PROOF_ELIMINATION,
    AP_PROOF_MULTIPLIERS,
    AP_PROOF_SWEEP,
    AP_PROOF_BRANCHING
} ap_proof;

typedef struct ap_outcome {
    bool found, infeasible;
    uint32_t *choice; /* when found; in the solver's arena */
    int64_t cost, bound;
    ap_proof proof; /* of the bound, or of infeasibility */
    uint32_t left_nodes, left_edges;
} ap_outcome;

typedef struct ap_solver {
    ap_ctx *ctx;
    ap_arena *arena; /* scratch of this call */
    const ap_solve_options *opt;
    ap_effort effort;
    bool small; /* inside a neighbourhood: no neighbourhoods of its own */
    /* What the kernel in hand leaves out of the problem's costs; `apart`: other blocks are not known yet. */
    double base;
    bool apart;
    int64_t told_cost, told_bound;
    double grace; /* when what still runs after the deadline has to end; 0: nothing does */
} ap_solver;

/* Tells the caller what is known. */
void ap_solver_tell(ap_solver *s, const char *phase, const ap_local *l, int64_t bound);

/* Fails only when costs leave the range (AP_ERR_MODEL). */
ap_status ap_level_solve(ap_solver *s, const ap_kernel *k, int64_t cutoff, int depth, ap_outcome *out);
ap_status ap_level_too_large(ap_solver *s);

/* lns.c: frees a part of the nodes at a time, the others keep the best choice, and solves that part anew; l->best
 * becomes better or stays. Stops when rounds bring nothing, l->best_cost <= enough, or half the effort is spent. */
ap_status ap_lns_run(ap_solver *s, const ap_kernel *k, ap_local *l, int64_t enough);

/* pairs.c: the kernel with a node in place of every edge that has demands; the others keep their numbers. */
typedef struct ap_pairs {
    ap_kernel k;
    uint32_t *node_of; /* per edge: AP_NONE: still an edge */
    uint32_t **pair;   /* per edge, per strategy of that node */
} ap_pairs;
/* False when no edge has demands, one of those allows no pair, or tables would have more entries. */
bool ap_pairs_split(ap_arena *a, const ap_kernel *k, uint64_t most_entries, ap_pairs *out);
void ap_pairs_choice(const ap_pairs *s, const ap_kernel *k, const uint32_t *choice, uint32_t *out);
/* k without what `fixed`, made from s->k, forbids. */
void ap_pairs_fixed(ap_arena *a, const ap_pairs *s, const ap_kernel *k, const ap_kernel *fixed, ap_kernel *out);

/* peak.c: a lower bound on the peak of whatever obeys the forbidden entries; out_forbidden: nothing does. */
ap_status ap_peak_bound(ap_solver *s, const ap_problem *p, int64_t *out, bool *out_forbidden);

#endif
