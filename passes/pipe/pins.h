/* Pins of nodes to stages: `node PATTERN stage=K`. */
#ifndef AP_PASSES_PIPE_PINS_H
#define AP_PASSES_PIPE_PINS_H

#include "passes/plan.h"

/* Per position of the function's block the stage that its node must be in, AP_NONE for any; NULL when no pin is of a
 * node. Patterns are matched against the names of nodes, those inside of composites included, and of what they make.
 * AP_ERR_USAGE when a pin matches nothing or a node has two stages; `file` is for messages. In `arena`. */
ap_status ap_pipe_pins_find(ap_arena *arena, const ap_module *m, const ap_pins *pins, const char *file,
                            const uint32_t **out);

#endif
