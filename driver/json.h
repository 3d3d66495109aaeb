/* cJSON with the context's memory. */
#ifndef AP_DRIVER_JSON_H
#define AP_DRIVER_JSON_H

#include "ir/base/ctx.h"

/* From here on, in this thread, what cJSON allocates lives in ctx->arena: a tree that cannot be completed is left by
 * the context's way out of memory instead of missing a field, and none is leaked. NULL: malloc again. */
void ap_json_use(ap_ctx *ctx);

#endif
