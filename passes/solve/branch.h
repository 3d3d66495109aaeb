/* Branch and bound with the ascent's bounds, depth first. A branching splits the strategies of one node into those
 * that hold less of the priced memory and those that hold more (or, where memory does not matter, into the best and
 * the rest). Going down, messages and prices go on from the parent's; strategies that cannot lead below the cutoff or
 * into the memory that the others leave are banned.
 *
 *          o bound 10, cutoff 20
 *     light/ \heavy
 *         o   . waits with bound 10, messages and prices of its parent */
#ifndef AP_PASSES_SOLVE_BRANCH_H
#define AP_PASSES_SOLVE_BRANCH_H

#include "passes/solve/climb.h"
#include "passes/solve/primal.h"
#include "passes/solve/search.h"

#define AP_BRANCH_DEPTH 96

typedef struct ap_branch_level {
    int64_t *message, *offset, *edge_offset;
    __int128 total;
    double *lambda;
    bool *ban;
    bool *second; /* per strategy of `node`: banned in the other branch */
    uint32_t node;
    int64_t bound;
} ap_branch_level;

typedef struct ap_branch {
    const ap_net *net;
    const ap_effort *effort; /* or NULL: set after creation; its clock ends the ascent at a node */
    ap_climb *climb;
    ap_search *search; /* one of the two takes what the relaxation chooses */
    ap_local *local;
    int64_t bound; /* of the whole tree */
    bool done;     /* nothing is left: no choice costs less than the cutoff */
    uint64_t work, nodes;
    /* Internal. */
    uint32_t depth;
    ap_branch_level level[AP_BRANCH_DEPTH], root, spare;
    int64_t lost;   /* bound of what lies too deep */
    int64_t parent; /* bound of the node in hand before its own */
    bool *ban;
    int64_t *gap; /* per strategy: what it adds to the bound */
    ap_ledger ledger;
    int64_t *least; /* per row */
    int64_t *line;  /* scratch, per strategy of two nodes */
} ap_branch;

bool ap_branch_takes(const ap_net *net);
/* Takes the climb over; its bound is the root's. Either search or local is NULL; where pairs have demands, search. */
ap_branch *ap_branch_create(ap_arena *arena, ap_climb *climb, ap_search *search, ap_local *local);
/* Puts the climb where it was before branching, and back into the tree: for fixing with a better choice. */
void ap_branch_to_root(ap_branch *b);
void ap_branch_back(ap_branch *b);
/* One node of the tree. */
void ap_branch_step(ap_branch *b, int64_t cutoff);

#endif
