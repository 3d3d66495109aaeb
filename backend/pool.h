/* What printers for processors must know of a pool. One loop or one windowed dimension, that along which memory is
 * walked by ones, is the *lane*: the innermost loop, which becomes vector code.
 *
 *     for loops, for windows of the other dimensions {
 *         whole windows      for lane { y = op(op(x[a], x[b]), x[c]) ... }       all places of the window written out
 *         cut windows        for lane blocks { acc[] = start; for places { for lane { acc[] = op(acc[], x[]) } } }
 *     }
 *
 * A windowed lane has windows that are cut at its ends; these are folded one by one. */
#ifndef AP_BACKEND_POOL_H
#define AP_BACKEND_POOL_H

#include "backend/nest.h"

enum {
    AP_POOL_BLOCK = 64,       /* results that are folded in memory at a time */
    AP_POOL_MOST_PLACES = 32, /* of a window that is written out */
    AP_POOL_NO_LANE = -1
};

bool ap_pool_is_max(const ap_pooling *p);
int64_t ap_pool_places(const ap_pooling *p); /* of a window; saturates */
/* What windows of elements of type t are folded into. */
ap_fold_type ap_pool_fold_type(const ap_pooling *p, ap_dtype t);

/* The loop or the dimension that is the lane, the other one AP_POOL_NO_LANE; neither, if there is none that is long
 * enough. */
typedef struct ap_pool_lane {
    int loop, dim;
} ap_pool_lane;
ap_pool_lane ap_pool_find_lane(const ap_pooling *p);

/* Windows [*out_first, *out_end) of a dimension are whole. */
void ap_pool_whole_windows(const ap_pool_dim *m, int64_t *out_first, int64_t *out_end);
bool ap_pool_is_never_cut(const ap_pool_dim *m);

#endif
