/* The only door to GLPK. A call never brings the process down: errors inside GLPK end the call. */
#ifndef AP_PASSES_SOLVE_MIP_H
#define AP_PASSES_SOLVE_MIP_H

#include "passes/solve/kernel.h"

typedef enum ap_mip_state {
    AP_MIP_OPTIMAL,    /* bound is within the stated tolerance of the choice's cost, or equal */
    AP_MIP_INFEASIBLE, /* no choice costs less than the cutoff (none at all without one) */
    AP_MIP_STOPPED,    /* limit reached; bound is valid, choice may exist */
    AP_MIP_FAILED,     /* GLPK gave up; nothing is known */
} ap_mip_state;

typedef struct ap_mip_result {
    ap_mip_state state;
    bool found;
    uint32_t *choice; /* fits, checked in integers */
    int64_t cost;
    int64_t bound; /* of any choice; INT64_MIN: none */
} ap_mip_result;

/* start: a choice that fits, or NULL. cutoff: choices that cost as much or more are of no interest (INT64_MAX: all
 * are). early: rows to state from the beginning (others when they are violated), or NULL for all. */
void ap_mip_solve(ap_arena *arena, const ap_kernel *k, ap_effort *effort, const uint32_t *start, int64_t cutoff,
                  const bool *early, ap_mip_result *out);
/* Variables that ap_mip_solve would make; counted no further once there are more than `most`. */
uint64_t ap_mip_size(ap_arena *scratch, const ap_kernel *k, uint64_t most);

/* Maximise min over cuts of (value + sum slope * x) for lo <= x <= hi. False when GLPK fails. */
typedef struct ap_mip_cut {
    double value;
    const double *slope;
} ap_mip_cut;
bool ap_mip_master(ap_arena *scratch, uint32_t ncuts, const ap_mip_cut *cut, uint32_t n, const double *lo,
                   const double *hi, double *out_x, double *out_value);

#endif
