/* Opening composites: the nodes of a body take the composite's place in the block. Stages are cut between nodes of the
 * block, so a composite is opened when stages or pins ask for a cut inside of it; the rest stays as it was planned to
 * be, one kernel each. */
#ifndef AP_PASSES_PIPE_OPEN_H
#define AP_PASSES_PIPE_OPEN_H

#include "passes/plan.h"

/* Positions in the function's block, each as it was when the composite there was opened, one after the other. */
typedef AP_VEC(uint32_t) ap_opened;

/* Opens the composite at a position of m's one function (state normal). False: there is none, or it returns what is not
 * made in it. */
bool ap_open_composite(ap_module *m, uint32_t position);
/* Opens what keeps nstages (0: any number) or pins from being kept (passes/pipe/pins.h). `out` in the context's arena.
 */
void ap_open_hindrances(ap_ctx *ctx, ap_module *m, const ap_pins *pins, uint32_t nstages, ap_opened *out);

#endif
