/* The memory that convolutions may need while they run, beyond their operands and results: the copies that
 * local_conv.c makes of what does not lie channels-last. Planner and evaluation ask here; a function of the module as
 * it was before planning, of the node and of its shardings, so that both say the same. */
#ifndef AP_PASSES_ROOM_H
#define AP_PASSES_ROOM_H

#include "ir/op.h"
#include "passes/pass.h"

typedef struct ap_room {
    bool operand, result, weights; /* is copied, whatever the shardings */
    uint8_t others, untidy_others; /* whole operands of the steps behind it, and how many of these are copied */
    uint8_t vectors;               /* of channels, which the steps read and a node computes: there before it runs */
} ap_room;

typedef struct ap_rooms {
    const ap_room **room; /* per node; NULL: none needed */
    uint32_t *slots;      /* per node: operands that need no copy if they are read where and as they lie */
    bool *tidy;           /* per value: read so, by a convolution or through views by one */
} ap_rooms;

/* Of a module in state normal or planned; arrays are NULL when there is no convolution. In `ctx->scratch`. */
ap_status ap_rooms_find(ap_ctx *ctx, ap_module *m, ap_rooms *out);
/* While the node runs under this strategy, operands read where they lie. */
int64_t ap_room_bytes(const ap_rooms *r, const ap_module *m, ap_node n, const ap_strategy *s);
/* What is added when operand `slot`, read under `to`, is a slice of a buffer under `from`. */
int64_t ap_room_slice_bytes(const ap_rooms *r, const ap_module *m, ap_node n, uint32_t slot, ap_sharding from,
                            ap_sharding to);

/* ---- filled.c: numbers that are the same everywhere ---- */
/* [value] in `arena`: is it read where it lies, as a whole or in parts? Then one number everywhere is in a buffer too.
 */
bool *ap_filled_find(const ap_module *m, ap_arena *arena);

#endif
