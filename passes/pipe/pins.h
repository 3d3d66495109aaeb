/* Pins of nodes to stages: `node PATTERN stage=K`. A pattern is matched against the names of nodes; of a node that no
 * pattern names, against those of what it makes. A composite is each of the nodes that became a part of it; constants
 * and what is made of them alone, which composites share with others, are parts of none. Nodes that are made again
 * where they are read (passes/pipe/carve.h) are in every stage: pins of them say nothing. */
#ifndef AP_PASSES_PIPE_PINS_H
#define AP_PASSES_PIPE_PINS_H

#include "passes/plan.h"

/* Per position of the function's block the stage that its node must be in, AP_NONE for any; NULL when no pin is of a
 * node. AP_ERR_USAGE when a pin matches nothing, a node has two stages, stages are not in the order of the model, or
 * pins leave no node to one of the `nstages` (0: of those up to the last one pinned); `file` is for messages. In
 * `arena`. */
ap_status ap_pipe_pins_find(ap_arena *arena, const ap_module *m, const ap_pins *pins, uint32_t nstages,
                            const char *file, const uint32_t **out);

/* Composites that keep nstages (0: any number) or pins from being kept: those with parts that are pinned apart; or, if
 * there are none and some stage would be without a node, all of several nodes of the model. out: per position of the
 * block; in `arena`. How many. */
uint32_t ap_pipe_pins_hindrances(ap_arena *arena, const ap_module *m, const ap_pins *pins, uint32_t nstages,
                                 bool **out);

#endif
