/* Which boxes of the caller's outputs a local program writes: what has to be brought together where ranks do not share
 * memory. Read off its calls. */
#ifndef AP_IR_LOCAL_WRITTEN_H
#define AP_IR_LOCAL_WRITTEN_H

#include "ir/local.h"

/* In each microbatch, by ranks whose coordinates on the axes of when_mask are all 0. Elements of the whole output. */
typedef struct ap_written {
    uint32_t output; /* of the stage */
    uint8_t ndims;
    int64_t extent[AP_MAX_LOOPS], stride[AP_MAX_LOOPS];
    ap_affine offset;
    uint8_t when_mask;
    uint8_t ncounts;
    ap_count *count;
} ap_written;

typedef AP_VEC(ap_written) ap_written_list;

/* Every element that some call writes is in a box, and no box has others; equal boxes are listed once. Slots are left
 * out. In `arena`. AP_ERR_MODEL for what no box describes. */
ap_status ap_local_written(const ap_local *p, ap_arena *arena, ap_written_list *out);

#endif
