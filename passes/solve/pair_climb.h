/* The ascent where pairs have demands: their prices stand on the edges, so a pass costs no more than without them. The
 * choices that it meets are repaired and improved; afterwards it branches. */
#ifndef AP_PASSES_SOLVE_PAIR_CLIMB_H
#define AP_PASSES_SOLVE_PAIR_CLIMB_H

#include "passes/solve/climb.h"
#include "passes/solve/large.h"

typedef struct ap_pair_climb {
    ap_solver *s;
    const ap_kernel *k;
    ap_local *l;
    int64_t cutoff;
    ap_net *net;
    ap_climb *climb; /* with the best prices */
    /* Internal. */
    bool *drop;
    int64_t *scratch;
    ap_large *out;
    int64_t tried;    /* goal - bound at the last attempt to fix */
    uint64_t offered; /* work of offers */
} ap_pair_climb;

ap_pair_climb *ap_pair_climb_create(ap_solver *s, const ap_kernel *k, ap_local *l, int64_t cutoff);
/* Until the bound meets min(cutoff, best cost), enough can be fixed, nothing moves, or the effort is spent. */
void ap_pair_climb_run(ap_pair_climb *g, ap_large *out);
/* Branch and bound from there, at most so much work; once. */
void ap_pair_climb_branch(ap_pair_climb *g, int64_t work, ap_large *out);

#endif
