/* A kernel: a problem whose demands count memory rows instead of points of time, each row with its own limit.
 * Only points where something has started and something ends next can bind, so there are few rows, and the rows
 * that a demand covers are consecutive. All stages of the solver speak kernels. */
#ifndef AP_PASSES_SOLVE_KERNEL_H
#define AP_PASSES_SOLVE_KERNEL_H

#include "passes/solve/problem.h"

/* No finite sum inside the solver reaches this; larger problems are refused. */
#define AP_COST_MAX ((int64_t)1 << 59)

typedef struct ap_kernel {
    ap_problem p; /* lo, hi of demands count rows; p.limit is unused */
    uint32_t nrows;
    const int64_t *rhs; /* per row: what the demands may hold together; may be negative (infeasible) */
    const double *hint; /* per row: a guess what a byte is worth, or NULL */
} ap_kernel;

/* What the searches may still spend. */
typedef struct ap_effort {
    double deadline;        /* on ap_effort_now's clock; 0: none */
    int64_t work;           /* INT64_MAX: no limit */
    const atomic_int *stop; /* or NULL: not 0 is as if the deadline had passed */
} ap_effort;

double ap_effort_now(void); /* seconds, monotonic */
double ap_effort_left(const ap_effort *e);
bool ap_effort_late(const ap_effort *e); /* the clock, whatever the work */
bool ap_effort_spent(const ap_effort *e);
void ap_effort_charge(ap_effort *e, uint64_t work);

/* Cost matrices stay the caller's (borrowed). */
void ap_kernel_from_problem(ap_arena *arena, const ap_problem *p, ap_kernel *out);

/* False when the choice holds a forbidden entry. */
bool ap_kernel_cost(const ap_kernel *k, const uint32_t *choice, int64_t *out);
void ap_kernel_usage(const ap_kernel *k, const uint32_t *choice, int64_t *out_use);
bool ap_kernel_fits(const ap_kernel *k, const int64_t *use);

/* Sums over nodes and edges of the least finite, the largest finite and the largest absolute entry; false when some
 * node or edge has no finite entry. */
typedef struct ap_kernel_range {
    __int128 least, most, magnitude;
} ap_kernel_range;
bool ap_kernel_range_get(const ap_kernel *k, ap_kernel_range *out);

/* Nodes that no chain of edges and common rows connects are independent. Returns the number of blocks. */
uint32_t ap_kernel_blocks(ap_arena *arena, const ap_kernel *k, uint32_t *out_block);
/* The part of k in one block; out_node[i] is the node of k behind node i of the part. */
void ap_kernel_part(ap_arena *arena, const ap_kernel *k, const uint32_t *block, uint32_t which, ap_kernel *out,
                    uint32_t **out_node);

#endif
