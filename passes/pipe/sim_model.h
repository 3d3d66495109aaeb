/* From a pipeline or program on a cluster to the numbers of the simulator. */
#ifndef AP_PASSES_PIPE_SIM_MODEL_H
#define AP_PASSES_PIPE_SIM_MODEL_H

#include "ir/program.h"
#include "passes/pipe/build.h"
#include "passes/pipe/simulate.h"

/* What a run consists of, one behind the other: kernels and exchanges of a program, nodes of a plan. */
typedef struct ap_sim_step {
    ap_name name;
    ap_loc loc;
    bool exchange;
    int64_t ps;
} ap_sim_step;
typedef struct ap_sim_steps {
    AP_VEC(ap_sim_step) steps;
} ap_sim_steps;

/* `in` points into the model. */
typedef struct ap_sim_model {
    ap_wiring w;
    ap_sim in;
    int32_t nranks;
    int32_t *first_rank;     /* of each stage */
    int64_t *reserved_bytes; /* on each rank of a stage: parameters, arena, all slots */
    int64_t *moved_bytes;    /* of each wire, per microbatch, between ranks */
    ap_sim_steps *run;       /* of each stage; NULL: not known */
} ap_sim_model;

/* What the program does: times of instructions as ap_program_price set them (a stage takes what its slowest rank
 * takes), memory as it is laid out, every piece of a channel by the ports that it goes through. */
ap_sim_model *ap_sim_of_program(const ap_program *p, const ap_cluster *c, ap_arena *arena);

/* Notes in the program when the simulation (which was recorded) says that stages run and channels move. Programs of one
 * stage, and of very many microbatches, are left alone. */
void ap_sim_note(ap_program *p, const ap_sim_result *r, ap_arena *arena);

/* What the planner thinks of a planned pipeline with lists. `result` is that of ap_pipe_build, for candidates (NULL:
 * each stage is evaluated anew, node by node); what is on its way is looked at piece by piece all the same. */
ap_status ap_sim_of_pipeline(const ap_pipeline *p, const ap_cluster *c, const ap_pipe_result *result, ap_arena *arena,
                             ap_sim_model **out);

#endif
