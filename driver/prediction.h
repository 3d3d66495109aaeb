/* What the simulator says of a plan, and how it is shown: text and JSON (simulate), a trace (dump --format trace). */
#ifndef AP_DRIVER_PREDICTION_H
#define AP_DRIVER_PREDICTION_H

#include "passes/pipe/sim_model.h"

#include <cjson/cJSON.h>

typedef struct ap_prediction {
    ap_ctx *ctx;
    bool lowered; /* times and memory of the lowered program; else of the planned nodes */
    const ap_sim_model *model;
    ap_sim_result result; /* with events and memory */
} ap_prediction;

/* Simulates a planned pipeline on a cluster. `state`: planned, local, or NULL for what is nearer to the truth: the
 * program as it is lowered (kernels are fused then, and the pipeline becomes explicit) where the devices are CPUs, for
 * which it is; the planned nodes elsewhere. */
ap_status ap_prediction_make(ap_ctx *ctx, ap_pipeline *p, const ap_cluster *c, const char *state, ap_prediction *out);

/* `planned_ps`: what the plan says. */
void ap_prediction_report(const ap_prediction *p, int64_t planned_ps, ap_text *out);
cJSON *ap_prediction_json(const ap_prediction *p, int64_t planned_ps);
/* JSON for Perfetto (ui.perfetto.dev): a track for each rank and each wire, arrows along the wires, memory as counters.
 * Up to MAX_TRACED slices kernels and exchanges stand inside the runs. */
void ap_prediction_trace(const ap_prediction *p, ap_text *out);

#endif
