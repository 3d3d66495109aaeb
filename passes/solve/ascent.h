/* A lower bound by moving costs between nodes and edges (sequential tree-reweighted message passing, Kolmogorov 2006)
 * and memory priced by multipliers (a deflected subgradient method). For any messages m,
 *
 *     cost(x) = sum over v of (c_v + sum over its edges of m)(x_v) + sum over e of (c_e - m - m')(x_u, x_v)
 *
 * so the sum of the least entries is a bound. A pass visits the nodes in order; a node takes what its edges can give,
 * and hands equal shares to the edges that lead on. All numbers are integers, so every bound is exact. */
#ifndef AP_PASSES_SOLVE_ASCENT_H
#define AP_PASSES_SOLVE_ASCENT_H

#include "passes/solve/prices.h"

typedef struct ap_ascent {
    const ap_net *net;
    ap_prices *prices;
    int64_t *message; /* per arc end, net->messages */
    int64_t *offset;  /* per node: taken off its entries, and part of `total` */
    int64_t *edge_offset;
    bool keep;       /* messages are not brought to a least entry of zero */
    __int128 total;  /* what has been taken off: the bound, scaled, before `back` */
    uint32_t *alive; /* per node: its strategies that are not banned, ascending; laid out like net->cost */
    uint32_t *nalive;
    uint32_t *x;            /* choice of the last pass */
    int64_t *sum, *rounded; /* scratch for one node */
    int64_t *use;           /* of x */
} ap_ascent;

ap_ascent *ap_ascent_create(ap_arena *arena, const ap_net *net);
/* Strategies that are out of the question from now on, laid out like net->cost; NULL: none. */
void ap_ascent_ban(ap_ascent *a, const bool *ban);
/* One pass; returns the bound. Fills x when asked to. Prices may change between passes. */
int64_t ap_ascent_pass(ap_ascent *a, bool forward, bool round);
uint64_t ap_ascent_work(const ap_net *net); /* of two passes and the prices, about nanoseconds */
/* After a forward and a backward pass at the same prices: marks in drop (laid out like net->cost) the strategies that
 * no choice cheaper than the cutoff takes. Returns how many are marked. It is a forward pass of its own. node (laid
 * out like net->cost, or NULL) gets what each strategy adds to the bound at least. */
uint64_t ap_ascent_fix(ap_ascent *a, int64_t cutoff, bool *drop, int64_t *node);
/* Right after ap_ascent_fix, the same for entries of edges: forbids them in out (per edge, like the kernel's costs;
 * NULL: only counts). node: scratch, laid out like net->cost. */
uint64_t ap_ascent_fix_edges(ap_ascent *a, int64_t cutoff, int64_t *node, int64_t *const *out);

#endif
