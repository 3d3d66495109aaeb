/* Local search on a complete choice: repair of memory and forbidden pairs, single changes, and mixing two choices.
 * A choice is measured by (forbidden entries, memory excess, cost), in this order. */
#ifndef AP_PASSES_SOLVE_PRIMAL_H
#define AP_PASSES_SOLVE_PRIMAL_H

#include "passes/solve/kernel.h"

typedef struct ap_local {
    const ap_kernel *k;
    uint32_t *edge_at, *edge_of;     /* edges of node v: edge_of[edge_at[v] .. edge_at[v + 1]) */
    uint32_t *demand_at, *demand_of; /* its demands */
    uint32_t *pair_at, *pair_of;     /* pair demands of an edge */
    uint32_t *x;                     /* the choice in hand */
    /* What is used beyond the right side, per row, in blocks of rows: row r has over[r] + shift[block]. Much is held
     * over many rows, and a block that is within the limit, or beyond it, everywhere before and after is not walked. */
    int64_t *over;
    int64_t *shift, *most, *least; /* per block; most and least of its rows, shift included */
    int64_t cost;                  /* of the allowed entries */
    uint32_t forbidden;
    __int128 excess;     /* sum over rows of what exceeds the right side */
    __int128 *excess_to; /* scratch of repair, per row + 1 */
    uint32_t *rows_to;
    uint64_t work;           /* of moves, about nanoseconds */
    const ap_effort *effort; /* or NULL: set after creation; its clock ends repair, improvement and mixing */
    /* The best choice that fits, over all that were offered. */
    bool found;
    uint32_t *best;
    int64_t best_cost;
} ap_local;

ap_local *ap_local_create(ap_arena *arena, const ap_kernel *k);
void ap_local_set(ap_local *l, const uint32_t *choice);
void ap_local_move(ap_local *l, uint32_t v, uint32_t to);
static inline bool ap_local_fits(const ap_local *l)
{
    return l->forbidden == 0 && l->excess == 0;
}
/* Remembers the choice in hand if it fits and is the cheapest so far. */
bool ap_local_keep(ap_local *l);
/* Best change per byte of excess until the choice fits; false when no single change helps. */
bool ap_local_repair(ap_local *l, uint32_t max_moves);
/* Single changes that lower the cost and still fit, until there are none. */
void ap_local_improve(ap_local *l, uint32_t max_sweeps);
/* Tries choices that are `a` except for a connected part where a and b differ, or a window of node ids, where they
 * are b. Keeps what is better than the best. At most about `work` single moves. */
void ap_local_mix(ap_local *l, ap_arena *scratch, const uint32_t *a, const uint32_t *b, uint64_t work);
/* Set, repair, improve, keep. */
void ap_local_offer(ap_local *l, const uint32_t *choice, uint32_t max_repairs);

#endif
