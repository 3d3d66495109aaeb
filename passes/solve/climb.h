/* Prices of memory for an ascent: steps along a running average of what the choices met exceed, as long as the
 * distance to a target promises (Polyak), back to the best prices with a shorter step when nothing improves. */
#ifndef AP_PASSES_SOLVE_CLIMB_H
#define AP_PASSES_SOLVE_CLIMB_H

#include "passes/solve/ascent.h"

typedef struct ap_climb {
    ap_ascent *a;
    int64_t bound; /* the best so far */
    double *best;  /* its multipliers */
    double *slope; /* running average */
    double theta;  /* share of the Polyak step */
    uint32_t idle, stalls;
    uint32_t *x; /* choice of the pass with the best bound */
    uint64_t work;
    bool done;       /* steps have become too short to matter */
    int64_t mark;    /* bound at the last look */
    double constant; /* what costs outside the kernel: relative measures are of the whole */
    uint32_t steps;
} ap_climb;

ap_climb *ap_climb_create(ap_arena *arena, const ap_net *net);
/* Two passes and a step. cutoff: the best cost known, INT64_MAX for none. */
void ap_climb_step(ap_climb *c, int64_t cutoff);
/* From the prices and messages in hand, for other node costs; theta: the first steps. */
void ap_climb_restart(ap_climb *c, double theta);
/* Puts the best prices back and settles the messages there. */
void ap_climb_settle(ap_climb *c);
/* After ap_ascent_fix there: the kernel without the strategies of `drop` (laid out like net->cost) and without pairs
 * that no choice cheaper than `below` takes; the best prices become its hint. scratch: like net->cost. */
void ap_climb_fixed(ap_arena *arena, ap_climb *c, const bool *drop, int64_t below, int64_t *scratch, ap_kernel *out);

#endif
