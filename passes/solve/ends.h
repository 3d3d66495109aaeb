/* A problem without demands as a function of (at most) two of its nodes: the least total for each pair of their
 * strategies, and a choice that costs it. One elimination of all other nodes gives all pairs. */
#ifndef AP_PASSES_SOLVE_ENDS_H
#define AP_PASSES_SOLVE_ENDS_H

#include "passes/solve/problem.h"

typedef struct ap_ends ap_ends;

/* Demands and limit of `p` do not count; costs of its edges are taken times `scale`. a < b, or AP_NONE: none. Sums of
 * costs must stay below 2^59. NULL: no table of fewer than `most` entries would do. p is borrowed. */
ap_ends *ap_ends_create(ap_arena *arena, const ap_problem *p, int64_t scale, uint32_t a, uint32_t b, uint64_t most);
/* node_cost: per node and strategy, in place of the problem's own; AP_FORBIDDEN allowed. out: [of a][of b], or
 * AP_FORBIDDEN; node_cost must stay as it is while decoding. */
void ap_ends_run(ap_ends *e, int64_t *const *node_cost, int64_t *out);
/* The choice of all other nodes for the strategies of a and b that stand in `choice`: of an entry that is not
 * forbidden. */
void ap_ends_decode(const ap_ends *e, uint32_t *choice);

#endif
