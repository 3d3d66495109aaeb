/* Exact search along the rows, for problems like a chain. Nodes join one by one, in the order of the rows in which they
 * hold memory. What the past means to the future is a *state*: the strategies of nodes that still have edges ahead, and
 * what is held from here to each row where something ends. States and the strategies that lead from one to the next are
 * a graph without cycles, and a choice is a path through it:
 *
 *     state --strategy of node v: cost, resident, room--> state
 *
 * resident: what is held in all rows (weights); room: the least that the rows which are complete now leave for it. A
 * path fits if its resident sum is at most the least room on it. All other memory is exact, because where a row is
 * exceeded there is no arc. So one sum couples the whole, and that is searched in windows: resident in [lo, hi] needs
 * arcs with room >= lo and paths with resident <= hi. A price on resident bounds a window (Handler and Zang 1980), arcs
 * that cannot lead below the best choice known go, and small graphs are finished by labels (cost, resident, room).
 *
 * Works where few strategies fit beside each other, which is when memory is tight; otherwise the graph would be too
 * large and is not made. */
#ifndef AP_PASSES_SOLVE_SWEEP_H
#define AP_PASSES_SOLVE_SWEEP_H

#include "passes/solve/dual.h"

/* The order in which nodes join: by first rows, those without one where few nodes stay pending. */
typedef struct ap_sweep_order {
    uint32_t n, *node, *step;    /* node[step[v]] == v */
    uint32_t *edge_at, *edge_of; /* edges of a node */
} ap_sweep_order;
void ap_sweep_order_make(ap_arena *arena, const ap_kernel *k, ap_sweep_order *out);
uint32_t ap_sweep_other(const ap_kernel *k, uint32_t edge, uint32_t v);
/* In all rows? */
bool ap_sweep_is_resident(const ap_kernel *k, const ap_demand *d);

/* Costs with the price of memory, scaled, so that sums are bounds (ap_dual_price), and from them the least that is to
 * come: dynamic programming over the same order without rows. A table per step over the strategies of the nodes that
 * are pending before it; a node that would make it too large is left out, each edge to it then counts with its least.
 */
typedef struct ap_sweep_bound {
    int64_t scale;
    __int128 back;
    int64_t *const *node, *const *edge;
    uint32_t *nscope, **scope; /* per step, 0 ... n */
    int64_t **value;
} ap_sweep_bound;
void ap_sweep_bound_make(ap_arena *arena, const ap_kernel *k, const ap_sweep_order *o, ap_dual *d, ap_effort *effort,
                         ap_sweep_bound *out);

typedef struct ap_sweep_arc {
    uint32_t from, to; /* states, in topological order */
    int64_t cost;
    int32_t resident, room; /* units */
    uint32_t strategy;
} ap_sweep_arc;

/* What the graph may leave out: all but paths in this window of the resident sum that cost less than `best`. */
typedef struct ap_sweep_limits {
    int64_t lo, hi; /* units */
    int64_t best;
    uint32_t most; /* arcs */
} ap_sweep_limits;

typedef struct ap_sweep_graph {
    int64_t most_resident; /* units, of all nodes */
    bool empty;            /* no path */
    uint32_t nstates, nsteps;
    uint32_t nsteps_made;      /* before it became too large */
    uint32_t *first;           /* per step: its first state; the last state of all is the end */
    AP_VEC(ap_sweep_arc) arcs; /* by step, then by `from` */
} ap_sweep_graph;

/* Bytes in which all usages are whole; 0: their sums do not fit. */
int64_t ap_sweep_unit(const ap_kernel *k);
/* False when it would be too large, or the effort is spent. */
bool ap_sweep_graph_make(ap_arena *arena, const ap_kernel *k, const ap_sweep_order *o, const ap_sweep_bound *bound,
                         int64_t unit, const ap_sweep_limits *limits, ap_effort *effort, ap_sweep_graph *out);

typedef struct ap_sweep_result {
    bool made;     /* the question was taken up */
    bool complete; /* all of it was searched: no choice costs less than min(cutoff, l->best_cost) */
    int64_t bound; /* of every choice that fits and costs less than the cutoff */
} ap_sweep_result;

/* A window whose graph has more than `arcs` is halved, unless the graph did not even come past the middle; the smallest
 * windows may have twice as many. Up to `label_arcs` labels are tried. */
typedef struct ap_sweep_sizes {
    uint32_t arcs, label_arcs;
} ap_sweep_sizes;

/* d: after ap_dual_run. Better choices go into l; `arena` is scratch. */
void ap_sweep_run(ap_arena *arena, const ap_kernel *k, ap_dual *d, ap_local *l, int64_t cutoff,
                  const ap_sweep_sizes *sizes, ap_effort *effort, ap_sweep_result *out);

#endif
