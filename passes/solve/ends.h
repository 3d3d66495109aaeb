/* A problem without demands as a function of (at most) two of its nodes: the least total for each pair of their
 * strategies, and a choice that costs it. All other nodes are presolved and eliminated once for all pairs. */
#ifndef AP_PASSES_SOLVE_ENDS_H
#define AP_PASSES_SOLVE_ENDS_H

#include "passes/solve/problem.h"

typedef struct ap_ends ap_ends;

/* Demands and limit of `p` do not count; costs of its edges are taken times `scale`. a < b, or AP_NONE: none. p is
 * borrowed. */
ap_ends *ap_ends_create(ap_arena *arena, const ap_problem *p, int64_t scale, uint32_t a, uint32_t b);
/* node_cost: per node and strategy, in place of the problem's own; AP_FORBIDDEN allowed. out: [of a][of b], or
 * AP_FORBIDDEN. False when that would take more than `most` additions,
 * or sums of costs of 2^59 and more. */
bool ap_ends_run(ap_ends *e, const int64_t *const *node_cost, uint64_t most, int64_t *out);
/* Behind a run: the choice of all nodes for strategies of a and b (0 where there is none) whose entry is not
 * forbidden. */
void ap_ends_decode(const ap_ends *e, uint32_t of_a, uint32_t of_b, uint32_t *choice);

#endif
