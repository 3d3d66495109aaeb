/* Blocks on which elimination would not be exact: an ascent for the bound and forest moves for the choices, side by
 * side. Work goes in rounds. In a round two tasks run, each on its own data and for a fixed amount of work, on one
 * thread or on two; then they tell each other what they have found. So the number of threads does not matter for
 * what comes out. */
#ifndef AP_PASSES_SOLVE_LARGE_H
#define AP_PASSES_SOLVE_LARGE_H

#include "passes/solve/level.h"

typedef struct ap_large {
    int64_t bound;
    bool infeasible; /* nothing costs less than the cutoff */
    bool reduced;    /* enough can be fixed: `fixed` is the kernel without what no choice below the goal takes */
    ap_kernel fixed;
} ap_large;

bool ap_large_takes(const ap_kernel *k);
/* l collects choices. Returns when the bound meets min(cutoff, best cost), enough can be fixed, the work is done, or
 * the effort is spent; unless `on`, also when nothing has become better for a while. */
void ap_large_run(ap_solver *s, const ap_kernel *k, ap_local *l, int64_t cutoff, int64_t work, bool on, ap_large *out);
#endif
