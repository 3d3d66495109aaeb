/* Offsets for buffers that live at known times: no two that live at the same time may overlap, and the largest
 * offset + size should be small. Numbers only; nothing here knows programs.
 *
 *     offset ^   +----+              each buffer is a rectangle whose left and right edges are given;
 *            |   | c  +-----+        packing says how high it lies
 *            | +-+----+  b  |
 *            | |   a  +-----+
 *            +-+------+-----+--> time
 *
 * No packing is lower than the largest sum of sizes alive at one time, the *bound*. First fit in several orders
 * (fit.c) meets it nearly always; where it does not, orders are improved and an exact search (search.c) decides
 * whether something lower fits. */
#ifndef AP_PASSES_PACK_PACK_H
#define AP_PASSES_PACK_PACK_H

#include "ir/base/ctx.h"

typedef struct ap_pack_problem {
    uint32_t n;
    const uint32_t *first, *last; /* alive from first to last, both included */
    const int64_t *size;          /* bytes, >= 0; one of size 0 is in nobody's way */
    int64_t align;                /* >= 1; of all offsets */
} ap_pack_problem;

typedef struct ap_pack_options {
    int64_t capacity; /* what fits here is good enough; 0: as low as can be */
    int64_t work;     /* budget for what comes after first fit, about nanoseconds; the result depends on nothing else */
} ap_pack_options;

typedef struct ap_packing {
    int64_t *offset; /* in the arena given */
    int64_t height;  /* largest offset + size, sizes rounded up to the alignment */
    int64_t bound;   /* no packing is lower; sizes rounded up as well */
    int64_t work;    /* spent */
} ap_packing;

/* False when sizes together are beyond 2^62 bytes. */
bool ap_pack(ap_arena *arena, const ap_pack_problem *p, const ap_pack_options *opt, ap_packing *out);

#endif
