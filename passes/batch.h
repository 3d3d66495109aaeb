/* Microbatches: which factor of every value is the batch, so that a mesh with time can cut it (DESIGN §5 "Time", §7
 * "Microbatching is legal iff the batch factor is parallel everywhere").
 *
 *     %x: f32[8,128]  %y = contract %x, @w {bk,kn->bn}  %m = reduce sum %y {bn->1n}
 *         ^ given          ^ letter b, so its factor 0       refused: adds over the batch
 *
 * Found by letters of rules alone, from the arguments forward. */
#ifndef AP_PASSES_BATCH_H
#define AP_PASSES_BATCH_H

#include "ir/rule.h"

#define AP_NO_BATCH (-1)

typedef struct ap_batch {
    /* Per value of the function's block: its factor that is the batch; AP_NO_BATCH: it does not depend on the batch.
     * What does not depend on it, but is only read one microbatch at a time (a mask made of a splat), has one too. */
    int8_t *factor;
    /* Per value, those of bodies included: bit f says that factor f shares a letter with a batch, if in steps. Such
     * factors have the batch's extent, and are padded like it (ir/physical.h). */
    uint16_t *alike;
    int64_t extent; /* of the batch; 0: no argument has one */
} ap_batch;

/* Of a module in state normal. argument[i]: factor of argument i of function 0 that is the batch, or AP_NO_BATCH.
 * Arrays in `arena`. AP_ERR_MODEL, with a message for each node, when something mixes the batch. */
ap_status ap_batch_find(ap_ctx *ctx, const ap_module *m, const int8_t *argument, ap_arena *arena, ap_batch *out);

/* The factors to give to ap_batch_find, in ctx->arena, from dimensions: dim[i] of argument i, or AP_NO_BATCH. The batch
 * is the first factor of its dimension. AP_ERR_USAGE: no argument has a batch of that many microbatches with none
 * empty, or they have batches of different extents. */
ap_status ap_batch_arguments(ap_ctx *ctx, const ap_module *m, const int8_t *dim, int32_t microbatches,
                             const int8_t **out);

/* AP_ERR_USAGE, with a message that names the inputs, none of which has a batch. */
ap_status ap_batch_missing(ap_ctx *ctx, const ap_module *m, int32_t microbatches);

/* The letter of node n's rule that is the batch; AP_RULE_NONE: the node does not depend on it. */
int8_t ap_batch_letter(const ap_batch *b, const ap_module *m, ap_node n, const ap_rule *rule);

#endif
