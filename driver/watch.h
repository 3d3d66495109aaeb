/* Somebody who looks at the clock and takes the signals while long work is done, so that the work only has to look at
 * a flag. A thread, because signals are then received in ordinary code and no handler needs a global. */
#ifndef AP_DRIVER_WATCH_H
#define AP_DRIVER_WATCH_H

#include "ir/base/ctx.h"

#include <stdatomic.h>

typedef struct ap_watch ap_watch;

/* From now on SIGINT and SIGTERM set the flag instead of ending the process, and so do `seconds` from the start (0:
 * never); a second signal ends it. The watch ends with the context. */
ap_status ap_watch_start(ap_ctx *ctx, double seconds, ap_watch **out);
const atomic_int *ap_watch_flag(const ap_watch *w);
double ap_watch_seconds(const ap_watch *w); /* since the process began its work */

#endif
