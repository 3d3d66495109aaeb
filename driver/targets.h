/* --target: what the devices of each stage are, and whether code for them can be built here. */
#ifndef AP_DRIVER_TARGETS_H
#define AP_DRIVER_TARGETS_H

#include "backend/backend.h"
#include "driver/job.h"

bool ap_target_is_cuda(const ap_options *opt);
/* AP_ERR_USAGE for a target that is none; AP_ERR_ENV when the toolkit or the library for GPUs is not there and the
 * program is to be built. */
ap_status ap_target_check(ap_ctx *ctx, const ap_options *opt);
/* The cluster of --target cuda without --cluster: GPUs of this machine, priced as those of a DGX H100. */
ap_status ap_target_cluster(ap_ctx *ctx, int64_t devices, ap_cluster *out);

/* Of each stage of a planned pipeline: GPUs for --target cuda, unless its devices are processors (ap_cluster.cpu).
 * NULL: processors everywhere. A stage with some of both is AP_ERR_USAGE. */
ap_status ap_targets_find(const ap_job *job, const ap_target **out);
/* How stages for these targets are lowered, one each. */
const ap_lower_options *ap_targets_lowering(ap_ctx *ctx, const ap_target *target, uint32_t nstages);
/* Kernels of stages on GPUs get names of their own where there are others: their functions take a device. */
void ap_targets_rename(ap_program *p, const ap_target *target);

#endif
