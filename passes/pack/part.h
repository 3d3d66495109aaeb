/* Inside the packer: a part is a set of buffers between two times that no buffer crosses, with times and sizes in the
 * smallest numbers that say the same. */
#ifndef AP_PASSES_PACK_PART_H
#define AP_PASSES_PACK_PART_H

#include "passes/pack/pack.h"

/* Times are *sections*: sets of buffers alive together of which none is contained in another; a buffer lives in
 * sections lo ... hi. */
typedef struct ap_pack_item {
    uint32_t lo, hi;
    int64_t size;
} ap_pack_item;

typedef struct ap_pack_part {
    uint32_t n, nsections;
    const ap_pack_item *item;
    int64_t *live; /* sum of sizes per section */
} ap_pack_part;

/* ---- fit.c ---- */
/* First fit in several orders, then in orders where what lies at the top comes earlier, until the height is at most
 * `target` or the work is spent. Offsets and height of the best. */
int64_t ap_pack_fit(ap_arena *arena, const ap_pack_part *p, int64_t target, int64_t *work, int64_t *offset);

/* ---- search.c ---- */
typedef enum ap_pack_answer { AP_PACK_FITS, AP_PACK_NEVER, AP_PACK_UNKNOWN } ap_pack_answer;
/* Is there a packing of this height? Writes offsets if so. UNKNOWN when the work is spent, or at once when the
 * part is too large for a search. */
ap_pack_answer ap_pack_search(ap_arena *arena, const ap_pack_part *p, int64_t height, int64_t *work, int64_t *offset);

#endif
