/* From a module and a cluster to a pipeline (DESIGN §8; docs/pipelines.md): layers, their tables, the DP over stages on
 * these, exact plans of the best few, and a simulation of each, whose winner is the plan.
 *
 *     layers.h ── tables.h ── passes/stage/stages.h ── build.h ── sim_model.h
 *     cut         price       choose                   plan       judge */
#ifndef AP_PASSES_PIPE_SEARCH_H
#define AP_PASSES_PIPE_SEARCH_H

#include "passes/pipe/build.h"

typedef struct ap_pipe_search_options {
    uint32_t nstages;         /* 0: as many as are best */
    int32_t microbatches;     /* 0: as many as are best */
    bool latency;             /* the time of one batch that goes through as a whole, unless microbatches are given */
    const ap_mesh_info *mesh; /* or NULL: each stage has such a mesh (one or two axes), wherever it lies */
    const uint32_t *stage;    /* per position of the block: the stage that its node must be in, or AP_NONE; or NULL */
    const int8_t *batch_dim;  /* per argument of the function: its dimension that is the batch, -1: none; or NULL */
    uint32_t ncandidates;     /* plans that are solved exactly and simulated; 0: the usual */
} ap_pipe_search_options;

/* What the search saw. */
typedef struct ap_pipe_search_report {
    uint32_t layers, forms, tables; /* distinct layers; tables filled */
    uint32_t trials;                /* numbers of microbatches that were tried */
    int64_t predicted_ps;           /* by the tables, of the plan chosen */
    int64_t bound_ps;               /* no plan of these layers, views and microbatches is predicted to be shorter; 0:
                                     * not known */
    int64_t simulated_ps;           /* of the plan chosen */
    double table_seconds, stage_seconds, build_seconds;
} ap_pipe_search_report;

/* `m`: state normal, one function; call ap_layers_order first. Of `opt` cluster, memory, pins, budget, threads and the
 * like are used as in ap_pipe_build; `mesh`, `batch`, `slots` are not. AP_ERR_NO_PLAN says how many bytes are missing.
 * The answer does not depend on the number of threads. `report` may be NULL. */
ap_status ap_pipe_search(ap_ctx *ctx, const ap_module *m, const ap_plan_options *opt,
                         const ap_pipe_search_options *search, ap_pipeline **out, ap_pipe_result *result,
                         ap_pipe_search_report *report);

#endif
