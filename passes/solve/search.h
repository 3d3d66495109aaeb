/* Primal search on large kernels. A move frees a forest of nodes, all others keep their strategies, and finds the best
 * strategies for the whole forest at once:
 *
 *     o---o---x---o       o: in the forest: solved exactly, from the leaves to the roots and back
 *     |   x   |   |       x: keeps its strategy; its edges are costs of the nodes around it
 *     o---o   x---o
 *
 * Memory is priced: rows that are exceeded become dearer, rows with room cheaper, so that the search walks along the
 * border of what fits. Choices that fit are polished under the rows themselves. */
#ifndef AP_PASSES_SOLVE_SEARCH_H
#define AP_PASSES_SOLVE_SEARCH_H

#include "passes/solve/ledger.h"
#include "passes/solve/prices.h"

typedef struct ap_search {
    const ap_net *net;
    const ap_effort *effort; /* or NULL: set after creation; its clock cuts what is going on short */
    ap_prices *prices;
    ap_ledger ledger; /* of the choice in hand, while polishing */
    uint32_t *x;      /* the choice in hand */
    int64_t *use;
    bool found;
    uint32_t *best;
    int64_t best_cost;
    uint64_t random;
    uint64_t work; /* done, about nanoseconds */
    /* Scratch, all of it made once. */
    uint32_t *order, *up, *next, *part, *queue, *parent, *proposal, *base, *kept;
    uint32_t *origin; /* what the relaxation chose */
    bool *in;
    int64_t *node_sum;          /* per padded strategy */
    int64_t *sum;               /* one node */
    const struct ap_arc **link; /* to the parent in the forest */
    double step;
    double *first; /* multipliers at the start */
    int64_t bound;
    double heat, top, unit; /* temperature: now, at the start of this cycle; cost per node */
    uint32_t rounds;
    int64_t *noisy;
    double *surcharge;
} ap_search;

ap_search *ap_search_create(ap_arena *arena, const ap_net *net, uint64_t seed);
/* Starts from the choice and multipliers given. */
void ap_search_start(ap_search *s, const uint32_t *x, const double *lambda, double constant);
/* Better multipliers and a better choice, from elsewhere. */
void ap_search_prices(ap_search *s, const uint32_t *x, const double *lambda);
void ap_search_tell(ap_search *s, const uint32_t *x, int64_t cost);
/* Repairs and polishes a choice. */
void ap_search_try(ap_search *s, const uint32_t *x);
/* One round of moves at the prices, a correction of the prices, and polish when the choice fits. */
void ap_search_round(ap_search *s);

#endif
