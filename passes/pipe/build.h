/* From a choice of stages to a planned pipeline (DESIGN §8: "each chosen stage is then re-solved exactly"). */
#ifndef AP_PASSES_PIPE_BUILD_H
#define AP_PASSES_PIPE_BUILD_H

#include "ir/pipeline.h"
#include "passes/plan.h"

/* A boundary value that is to be in this sharding, on the side of the stage that has the pin. */
typedef struct ap_pipe_pin {
    ap_name slot; /* ap_carver_slot_name */
    bool result;  /* where it is made; else where it arrives */
    uint8_t nfactors;
    ap_axes axes[AP_MAX_FACTORS]; /* of the stage's mesh without time */
} ap_pipe_pin;

typedef struct ap_pipe_stage {
    uint32_t first, last; /* positions of nodes in the function's block: [first, last), ret is none */
    ap_mesh_info mesh;    /* with its real first_rank; without time */
    uint32_t npins;
    const ap_pipe_pin *pin;
} ap_pipe_stage;

typedef struct ap_pipe_choice {
    uint32_t nstages; /* whose ranges follow each other and cover the block */
    const ap_pipe_stage *stage;
    int32_t microbatches; /* 1: meshes have no time */
} ap_pipe_choice;

/* Per microbatch. What is on its way to a stage is priced link by link, one after the other. */
typedef struct ap_stage_result {
    ap_plan_result plan;
    uint32_t first, last; /* positions of its nodes in the whole */
    uint32_t nodes;
    int64_t time_ps;                /* t: of the function */
    int64_t arrival_ps, sending_ps; /* c: of all that comes in; of all that goes out */
} ap_stage_result;

typedef struct ap_pipe_result {
    uint32_t nstages, solved; /* stages that were not like an earlier one */
    ap_stage_result *stage;
    /* Of the whole: cost_ps = sum (t + c) + (B - 1) * max max(t, c), or max (t + c) where transfers wait; compute_ps
     * and communication_ps of all stages and microbatches as if one after the other, peak_bytes and param_bytes of the
     * fullest device. Bound: as far below cost_ps as that of the stage whose plan is proven least well. */
    ap_plan_result total;
} ap_pipe_result;

/* Carves, plans stage after stage with the times of arrival that follow from what the stages before keep, and makes
 * links and lists. `m`: state normal, one function; it stays as it is. Of `opt` all but mesh, slots, stage and pins'
 * flags is used: the cluster is the whole, `batch` (with microbatches) that of m's function. Stages that are alike are
 * solved once. AP_ERR_NO_PLAN names the stage. Everything that is given back is in ctx's arena; its scratch stays. */
ap_status ap_pipe_build(ap_ctx *ctx, const ap_module *m, const ap_plan_options *opt, const ap_pipe_choice *choice,
                        ap_pipeline **out, ap_pipe_result *result);

/* Sums a pipeline up again: every stage by ap_plan_evaluate_slots and the times of its links from the types alone.
 * Fills what does not come from the solver. */
ap_status ap_pipe_evaluate(ap_ctx *ctx, ap_pipeline *p, const ap_cluster *c, ap_pipe_result *out);

#endif
