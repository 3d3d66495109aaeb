/* What the kernels of a local program touch, and how long ago it was touched before: how near it still is. */
#ifndef AP_PASSES_LOCAL_TOUCH_H
#define AP_PASSES_LOCAL_TOUCH_H

#include "ir/local.h"

/* One operand of a kernel. `bytes` counts what comes with its elements where these are not neighbours (lines of
 * LINE bytes); `alone`: elements that are not beside the one before, in an operand
 * too large for their lines to stay near. `span`: from the first byte to behind the last one. `distance`: bytes that
 * were touched since it was, its own included; of what this run does not touch before, as if the program ran again and
 * again. */
typedef struct ap_touch {
    int64_t bytes, span, alone, distance;
} ap_touch;
enum { AP_TOUCH_LINE = 64 };

/* Of one call, without distance. */
ap_touch ap_touch_of(const ap_kernel *k, uint32_t operand);

/* [instruction][ref]: as many as ap_instr has refs; NULL for instructions that are no calls. Distances of more than
 * `far` bytes are some number above it. */
ap_touch **ap_local_touches(const ap_local *p, ap_arena *arena, int64_t far);

#endif
