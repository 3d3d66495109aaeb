/* How a model is to be planned, as the options say it. */
#ifndef AP_DRIVER_PLANNING_H
#define AP_DRIVER_PLANNING_H

#include "driver/options.h"
#include "ir/pipeline.h"
#include "passes/plan.h"

typedef struct ap_plan_request {
    ap_plan_options plan; /* cluster (the whole), limits, pins of values; the mesh: of each stage */
    ap_pins pins;
    uint32_t nstages;     /* 0: as many as are best */
    int32_t microbatches; /* 0: as many as are best */
    bool latency;         /* else throughput */
    bool mesh_given;
} ap_plan_request;

ap_status ap_plan_request_read(ap_ctx *ctx, const ap_options *opt, ap_plan_request *out);

/* AP_ERR_USAGE when a program cannot have so many devices. */
ap_status ap_plan_request_check(ap_ctx *ctx, const ap_options *opt, const ap_cluster *c);

/* Does any option say how to plan? */
bool ap_plan_is_asked(const ap_options *opt);
/* AP_ERR_USAGE when an option asks for what a given plan has decided. */
ap_status ap_plan_is_given(ap_ctx *ctx, const ap_options *opt);

#endif
