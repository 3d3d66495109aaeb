/* What the instructions of a local program take: their arithmetic by itself, for those who measure it. */
#ifndef AP_PASSES_LOCAL_PRICE_H
#define AP_PASSES_LOCAL_PRICE_H

#include "passes/cluster.h"
#include "passes/local_touch.h"

/* `alone` is 0: it belongs to places. */
void ap_local_work(const ap_kernel *k, ap_work *out);

#endif
