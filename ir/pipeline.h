/* A pipeline: one module per stage, each on its own ranks, and how values cross between them (DESIGN §8). States
 * planned and explicit; the local form is ir/program.h.
 *
 *     pipeline @bert ranks 4 microbatches 2
 *     input "x" f32[8,32]
 *     output "y" f32[8,32]
 *     stage @stage0 {
 *     time mb=2
 *     mesh @m = [x=2] ranks 0..1
 *     func @stage0.fwd(%x: f32[8,32] @m[mb*x,-]) -> slot "h" f32[8,32] @m[mb*x,-] { ... }
 *     }
 *     stage @stage1 { ... func @stage1.fwd(slot %h: f32[8,32] @m[mb*x,-]) -> "y" f32[8,32] @m[mb,x] { ... } }
 *     link %h @stage0 -> @stage1 depth 2,2
 *     list @stage0 { loop 2 { claim %h k -> @stage1 run k send %h k -> @stage1 } }
 *     list @stage1 { ... }
 *
 * Stages stand in an order in which values go forward only; a value is sent straight to every stage that reads it. A
 * model on one mesh is a pipeline of one stage without links, and its text is that of the module alone. A symbol that
 * several stages read stands in each of them; it is owned by the first: who writes weights or checkpoints takes it
 * there. */
#ifndef AP_IR_PIPELINE_H
#define AP_IR_PIPELINE_H

#include "ir/list.h"
#include "ir/local.h"
#include "ir/module.h"

typedef struct ap_stage {
    ap_name name;
    ap_module *m;          /* one function, one mesh with its ranks in the pipeline */
    bool priced;           /* explicit only: */
    int64_t planned_bytes; /* what its values take at most, by the plan: parameters and slots excepted */
} ap_stage;

typedef struct ap_pipeline {
    ap_ctx *ctx; /* borrowed */
    ap_name name;
    int32_t nranks, microbatches;
    AP_VEC(ap_port) inputs; /* of the model, in its order; a stage has those that it reads */
    AP_VEC(ap_port) outputs;
    AP_VEC(ap_stage) stages;
    AP_VEC(ap_wire) links;
    AP_VEC(ap_list) lists; /* one per stage, or none yet */
} ap_pipeline;

ap_pipeline *ap_pipeline_create(ap_ctx *ctx, ap_name name); /* in the context's arena */
/* One stage; ports from the signature, ranks and microbatches from the mesh, the list. `m` is borrowed. */
ap_pipeline *ap_pipeline_of_module(ap_module *m, ap_name name);
ap_pipeline *ap_pipeline_clone(const ap_pipeline *p);

/* What is printed as a module alone. */
bool ap_pipeline_is_plain(const ap_pipeline *p);
ap_state ap_pipeline_state(const ap_pipeline *p);
static inline const ap_mesh_info *ap_stage_mesh(const ap_stage *s)
{
    return &s->m->meshes.at[0];
}
/* For lists and schedules; arrays in `arena`, links borrowed. */
ap_wiring ap_pipeline_wiring(const ap_pipeline *p, ap_arena *arena);
/* The port of a value of the model: its logical dimensions. */
ap_port ap_port_of(const ap_module *m, ap_name name, ap_type type);

/* What the argument or result of a stage is: the number of the input or output of the model, AP_NONE for a slot; the
 * number of the link that fills a slot argument, AP_NONE for an input. */
uint32_t ap_pipeline_input(const ap_pipeline *p, uint32_t stage, uint32_t argument);
uint32_t ap_pipeline_output(const ap_pipeline *p, uint32_t stage, uint32_t result);
uint32_t ap_pipeline_link(const ap_pipeline *p, uint32_t stage, uint32_t argument);

void ap_pipeline_print(const ap_pipeline *p, ap_text *out);
/* Reads a pipeline, or a module in state planned or explicit as one of a single stage, named after its function. */
ap_status ap_pipeline_parse(ap_ctx *ctx, const char *name, const char *text, size_t size, ap_pipeline **out);

/* Stages verify, are in one state, and no two have a rank in common; inputs are read as they are declared, each output
 * is written by one stage; links join slots of one value whose microbatches are the same on both sides, every slot
 * argument has its link and every slot result one at least; symbols of several stages are the same; lists do what they
 * should (ap_lists_check). All violations are reported. */
ap_status ap_pipeline_verify(ap_pipeline *p);

/* Evaluates the stages one after the other, each at all its points; inputs and outputs as ap_eval_func. The lists are
 * not obeyed (ap_lists_check says that they need not be). */
ap_status ap_pipeline_eval(ap_pipeline *p, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs);

#endif
