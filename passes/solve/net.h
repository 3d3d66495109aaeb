/* A kernel laid out for loops over vectors: costs times a power of two, every strategy list padded to whole vectors,
 * every edge's matrix once for each direction, so that a message along it reads whole rows.
 *
 * Costs that alone would make a choice dearer than `room` above the least are cut down to that: nothing below the
 * cutoff takes them, and bounds below it stay true. Forbidden entries are among them. */
#ifndef AP_PASSES_SOLVE_NET_H
#define AP_PASSES_SOLVE_NET_H

#include "passes/solve/kernel.h"
#include "passes/solve/minplus.h"

/* An edge seen from one end. */
typedef struct ap_arc {
    uint32_t edge, other;
    const int64_t *to;   /* [own strategies][padded other]: what the other end sees for each of ours */
    const int64_t *from; /* [other strategies][padded own] */
    size_t in, out;      /* messages to this end, to the other: offsets into arrays of net->messages entries */
} ap_arc;

typedef struct ap_net {
    const ap_kernel *k;
    ap_minplus_fn *minplus;
    uint32_t n;
    int shift;        /* costs are multiplied by 2^shift */
    int64_t span;     /* no cost is more above the least of its list than this, unscaled */
    uint32_t *size;   /* strategies */
    uint32_t *padded; /* the same in whole vectors */
    size_t *at;       /* node -> its first entry in arrays over all padded strategies; at[n] of them */
    uint32_t *arc_at; /* arcs of v: arc_at[v] .. arc_at[v + 1], ascending by the other node */
    ap_arc *arc;
    uint32_t *earlier; /* how many of v's arcs lead to nodes before v */
    size_t messages;
    size_t entries;    /* of all edges, padded, one direction */
    int64_t *cost;     /* [at] scaled; AP_PAD in the padding */
    uint32_t *span_at; /* what v holds, as disjoint intervals: held[span_at[v]] .. held[span_at[v + 1]] */
    ap_demand *held;
    int64_t *room;   /* per row: what is left for them; what all strategies of a node hold alike is off */
    uint32_t widest; /* padded */
    uint32_t *all;   /* 0, 1, ... widest - 1 */
} ap_net;

/* room: see above, unscaled; INT64_MAX when no cutoff is known. Kernels with pair demands are not taken. */
ap_net *ap_net_create(ap_arena *arena, const ap_kernel *k, int64_t room);
uint64_t ap_net_bytes(const ap_kernel *k);

#endif
