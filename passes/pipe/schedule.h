/* Schedules: the instruction lists of a pipeline (DESIGN §8, §10). */
#ifndef AP_PASSES_PIPE_SCHEDULE_H
#define AP_PASSES_PIPE_SCHEDULE_H

#include "ir/list.h"

/* Slots that let every stage work all the time while its transfers take no longer than it does, sets from_depth and
 * to_depth of all wires: one slot is filled or emptied while the other one is worked on; and a wire that goes past
 * other stages keeps at its end what is on the way through those. `wire` are those of `w`. AP_ERR_MODEL when stages
 * form a cycle. */
ap_status ap_schedule_depths(const ap_wiring *w, ap_wire *wire);

/* Forward only: each stage does `loop B { recv*; claim*; run; free*; send* }`. Receives stand right before the run and
 * frees right behind it, so slots are free as long as can be; sends go out in the order in which the stages that wait
 * for them come. `lists` has nstages elements; their acts go into `arena`. */
void ap_schedule_forward(const ap_wiring *w, ap_arena *arena, ap_list *lists);

#endif
