/* Inside the building of pipelines: what concerns one stage of it. */
#ifndef AP_PASSES_PIPE_PARTS_H
#define AP_PASSES_PIPE_PARTS_H

#include "passes/pipe/build.h"

/* Picoseconds per microbatch to send a value from the stage `from`, which keeps it as `made`, to the stage `to`, which
 * wants it as `want`. AP_FORBIDDEN: it cannot be sent like that. */
int64_t ap_part_transfer(const ap_cluster *whole, const ap_module *from, ap_type made, const ap_module *to,
                         ap_type want);
/* The factor that time splits, AP_NO_BATCH for none. */
int8_t ap_part_batch(const ap_module *m, ap_type type);

/* The slots of a stage, arguments and then results, with the depths of its links; arguments cost what their transfer
 * takes. `choice` (its pins) may be NULL. */
ap_plan_slots ap_part_slots(ap_arena *arena, const ap_pipeline *p, const ap_cluster *whole, uint32_t stage,
                            const ap_pipe_stage *choice);
/* Fills the times of a planned stage, whose plan is there. */
void ap_part_times(const ap_cluster *whole, const ap_pipeline *p, uint32_t stage, ap_stage_result *out);
/* Totals from the stages. */
void ap_pipe_sum(ap_pipe_result *r, const ap_cluster *c, int32_t microbatches);

/* All that the plan of a stage depends on but the machine, as text: its module without names and contents, its mesh,
 * and how what it reads is kept by the stages before it, which are planned. */
const char *ap_part_key(ap_arena *arena, const ap_pipeline *p, uint32_t stage, const ap_pipe_stage *choice,
                        const ap_plan_options *o);
/* Is the machine the same around two stages of equal keys: where they run, and between them and those they read from?
 */
bool ap_part_same_place(const ap_cluster *whole, const ap_pipeline *p, uint32_t a, const ap_mesh_info *mesh_a,
                        uint32_t b, const ap_mesh_info *mesh_b);
/* The plan of `planned` for `normal`, a stage of equal key. */
ap_module *ap_part_copy_plan(const ap_module *planned, const ap_module *normal, const ap_plan_options *o);

#endif
