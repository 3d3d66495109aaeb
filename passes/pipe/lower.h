/* explicit -> local for pipelines (docs/local.md). */
#ifndef AP_PASSES_PIPE_LOWER_H
#define AP_PASSES_PIPE_LOWER_H

#include "ir/pipeline.h"
#include "ir/program.h"
#include "passes/cluster.h"
#include "passes/pass.h"

/* planned -> explicit: every stage, priced by its part of the cluster. */
ap_status ap_pipe_explicit(ap_ctx *ctx, ap_pipeline *p, const ap_cluster *cluster);

/* explicit -> local. Lowers every stage by itself, lays its slots behind its values, and makes the channels: equal
 * kernels have one name in all stages, pieces are sent by the nearest holders. `cluster` says which ranks share a host
 * (NULL: all do). A pipeline of one stage becomes a program of that one, called `name`. */
ap_status ap_lower_program(ap_ctx *ctx, const ap_pipeline *p, const ap_cluster *cluster, const char *name,
                           ap_program **out);
/* The same for other targets: options by stage (NULL: the CPU everywhere). */
ap_status ap_lower_program_for(ap_ctx *ctx, const ap_pipeline *p, const ap_cluster *cluster, const char *name,
                               const ap_lower_options *options, ap_program **out);

/* Sets the predicted time of every instruction, by the part of the cluster that its stage is on. */
void ap_program_price(ap_program *p, const ap_cluster *cluster);

#endif
