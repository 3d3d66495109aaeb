/* The plain way to a pipeline: so many stages, equal parts of the devices, the model cut where its time on one device
 * is split most evenly. No search over sub-meshes, no look at what crosses: for `--stages N` with a mesh that is given,
 * and what searched plans are compared with. */
#ifndef AP_PASSES_PIPE_EVEN_H
#define AP_PASSES_PIPE_EVEN_H

#include "passes/pipe/build.h"

/* Cuts m (state normal, one function) into nstages ranges. `mesh` is that of the first stage: the others have the ranks
 * behind it, in order. pinned: per position of the block the stage that its node must be in, or AP_NONE; NULL: none is.
 * The slowest stage is as fast as can be; among equal cuts the earliest. Everything in `arena`. AP_ERR_USAGE when there
 * are fewer nodes than stages, or pins contradict the order of nodes. */
ap_status ap_pipe_even(ap_ctx *ctx, ap_arena *arena, const ap_module *m, const ap_cluster *c, uint32_t nstages,
                       const ap_mesh_info *mesh, int32_t microbatches, const uint32_t *pinned, ap_pipe_choice *out);

#endif
