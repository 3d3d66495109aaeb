/* Bucket elimination: nodes go one by one, each leaving a table over its remaining neighbours: the least cost of
 * everything that is already gone. Exact while the tables stay small. Where a table would not, the node's tables are
 * split into groups that are minimised apart (mini-buckets): then the value is a lower bound and the choice a
 * heuristic.
 *
 *     bucket of v:  node costs + [a b v] + [b c v]   --min over v-->   [a b c]    or, split,   [a b], [b c]
 *
 * The order and the tables' shapes depend on the graph only; a plan is made once and run with many costs. */
#ifndef AP_PASSES_SOLVE_ELIMINATE_H
#define AP_PASSES_SOLVE_ELIMINATE_H

#include "passes/solve/kernel.h"

/* Forbidden inside tables; finite sums stay below half of it, and above minus that half. */
#define AP_ELIM_INF ((int64_t)1 << 61)
#define AP_ELIM_FORBIDDEN(c) ((c) >= AP_ELIM_INF / 2)

typedef struct ap_elim_table {
    uint32_t nscope;
    uint32_t *scope; /* the node eliminated first stands last, so its entries are contiguous */
    size_t size;
    int64_t *value;
    int64_t *margin; /* ap_elim_margins: least total cost over all choices with this entry */
} ap_elim_table;

typedef struct ap_elim_part {
    uint32_t ntables, *table; /* what is added */
    uint32_t out;             /* what is left */
} ap_elim_part;

typedef struct ap_elim_bucket {
    uint32_t node;
    uint32_t nparts;
    ap_elim_part *part; /* the node's own cost counts in the first */
} ap_elim_bucket;

typedef struct ap_elim {
    ap_arena *arena;
    const ap_kernel *k;
    uint32_t n;
    uint32_t *position; /* node -> place in the order */
    ap_elim_bucket *bucket;
    AP_VEC(ap_elim_table) table; /* first those of the edges, in their order */
    bool exact;
    uint64_t work;    /* additions of one run */
    uint64_t entries; /* of all tables */
} ap_elim;

/* No table larger than `cap` entries (an edge's own is allowed). Makes no tables yet. */
ap_elim *ap_elim_plan(ap_arena *arena, const ap_kernel *k, uint64_t cap);
/* With nodes that go after all others: `last` per node, or NULL. */
ap_elim *ap_elim_plan_keeping(ap_arena *arena, const ap_kernel *k, uint64_t cap, const bool *last);
/* The plan if it is exact and within limits on entries and work, else NULL, which is found early. */
ap_elim *ap_elim_plan_exact(ap_arena *arena, const ap_kernel *k, uint64_t cap, uint64_t entries, uint64_t work);
/* The first plan, from the largest cap down, within limits on entries and work. NULL: not even edges fit. */
ap_elim *ap_elim_plan_within(ap_arena *arena, const ap_kernel *k, uint64_t cap, uint64_t entries, uint64_t work);
void ap_elim_allocate(ap_elim *e);
/* Costs of an edge, times scale; AP_FORBIDDEN allowed. */
void ap_elim_set_edge(ap_elim *e, uint32_t edge, const int64_t *cost, int64_t scale);
/* node_cost: AP_ELIM_INF for forbidden. Returns the value (AP_ELIM_FORBIDDEN: no choice) and fills choice. */
int64_t ap_elim_run(ap_elim *e, int64_t *const *node_cost, uint32_t *choice);
/* Elimination up to the last `kept` nodes of an exact plan, of which there are at most two; the others' least total for
 * each of their strategies, [strategy of first][strategy of second] in the order of ids, goes to `out`: what
 * ap_elim_run would return with these two fixed. */
void ap_elim_run_ends(ap_elim *e, int64_t *const *node_cost, uint32_t kept, int64_t *out);
/* Behind it: the choice of all others; those of the kept nodes stand in `choice` already. */
void ap_elim_decode_ends(const ap_elim *e, int64_t *const *node_cost, uint32_t kept, uint32_t *choice);
/* After a run of an exact plan: for every strategy the least total over all choices that take it, and the same for
 * every entry of an edge (in `margin` of its table, in that table's layout). */
void ap_elim_margins(ap_elim *e, int64_t *const *node_cost, int64_t *const *out_margin);
/* Where the entry (i, j) of an edge lies in its table. */
size_t ap_elim_entry(const ap_elim *e, uint32_t edge, uint32_t i, uint32_t j);

#endif
