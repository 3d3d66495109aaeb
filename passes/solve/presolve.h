/* Exact reductions of a kernel to a fixpoint, with a log that turns a solution of what is left into a solution of
 * the kernel. Every rule keeps at least one optimum (and infeasibility).
 *
 * The state is a graph that shrinks in place: strategies, edges, demands and rows are removed; a node that leaves
 * writes one line into the log. Strategies are known by `id`, their index in the kernel, so that log lines stay
 * true whatever is removed later. */
#ifndef AP_PASSES_SOLVE_PRESOLVE_H
#define AP_PASSES_SOLVE_PRESOLVE_H

#include "passes/solve/kernel.h"

typedef struct ap_pre_demand {
    uint32_t lo, hi; /* rows; lo == hi: gone */
    int64_t *usage;  /* owned: changed in place */
} ap_pre_demand;
typedef AP_VEC(ap_pre_demand) ap_pre_demands;

typedef struct ap_pre_node {
    bool live, dirty;
    bool keep; /* set before the run: stays, with all strategies that are not forbidden */
    uint32_t n;
    int64_t *cost;
    uint32_t *id;           /* strategy -> strategy of the kernel, ascending */
    AP_VEC(uint32_t) edges; /* may hold dead and foreign ones until tidied */
    ap_pre_demands demands;
} ap_pre_node;

typedef struct ap_pre_edge {
    bool live, dirty;
    uint32_t u, v;
    int64_t *cost; /* [n of u][n of v] */
    ap_pre_demands demands;
} ap_pre_edge;

/* Node `node` takes map[strategy of a][strategy of b]; a and b are known first when the log is read backwards.
 * Without a and b (AP_NONE) it takes map[0]. */
typedef struct ap_pre_line {
    uint32_t node, a, b;
    uint32_t na, nb;
    uint32_t *id_a, *id_b; /* what a and b still could be at the time, ascending */
    uint32_t *map;
} ap_pre_line;

/* The rules, so that tests can try each alone. Forbidden strategies go and parallel edges are merged in any case. */
typedef enum ap_pre_rule {
    AP_PRE_SINGLE = 1,    /* a node of one strategy becomes costs of its neighbours */
    AP_PRE_DOMINATED = 2, /* a strategy that another replaces without loss goes */
    AP_PRE_ELIMINATE = 4, /* a node without demands and with at most two neighbours goes */
    AP_PRE_MINIMA = 8,    /* least entries of edges become costs of nodes; an edge of zeros goes */
    AP_PRE_FOLLOW = 16,   /* a node whose strategy its neighbour decides becomes part of it */
    AP_PRE_DEMANDS =
        32,            /* what is held in any case becomes part of the limit, of a pair because of one end its demand */
    AP_PRE_LARGE = 64, /* strategies and pairs that alone exceed a row go */
    AP_PRE_SLACK = 128,   /* rows that cannot be exceeded go */
    AP_PRE_COVERED = 256, /* rows that a neighbouring row covers go */
    AP_PRE_ALL = 511
} ap_pre_rule;

typedef struct ap_pre {
    ap_arena *arena, scratch; /* scratch: only inside ap_pre_run */
    uint32_t rules;           /* AP_PRE_ALL, unless changed before the run */
    ap_effort
        effort; /* set before the run: its clock ends it, the rules with arithmetic at half of the time; zero: none */
    bool late;  /* it did: what is left is as true, only larger */
    uint32_t visits;
    uint32_t nnodes, nedges, nrows;
    ap_pre_node *node;
    AP_VEC(ap_pre_edge) edge;
    int64_t *rhs;
    double *hint; /* per row, of the kernel; NULL */
    int64_t constant;
    bool infeasible, overflow;
    bool quick;    /* only what needs no arithmetic: strategies without partners, followers, single strategies */
    int64_t *line; /* scratch for the strategies of a node */
    AP_VEC(ap_pre_line) log;
    uint32_t *stamp; /* per node, scratch: index of the edge to it + 1 */
    uint32_t *place; /* after ap_pre_extract: node -> node of the extracted kernel, or AP_NONE */
    int64_t *work;   /* per row + 1, scratch */
    int64_t *work2;
    uint32_t *row_map;
} ap_pre;

ap_pre *ap_pre_create(ap_arena *arena, const ap_kernel *k);
/* Afterwards look at `infeasible` and `overflow` (sums beyond AP_COST_MAX) first. */
void ap_pre_run(ap_pre *s);
void ap_pre_extract(ap_pre *s, ap_kernel *out);
/* choice: of the extracted kernel; out: of the kernel given to ap_pre_create. */
void ap_pre_undo(const ap_pre *s, const uint32_t *choice, uint32_t *out);

/* ---- between the files of the presolver ---- */

int64_t ap_pre_add(ap_pre *s, int64_t a, int64_t b); /* AP_FORBIDDEN absorbs; sets overflow */
void ap_pre_hold(ap_pre *s, uint32_t lo, uint32_t hi, int64_t bytes);
void ap_pre_demand_add(ap_pre *s, ap_pre_demands *list, uint32_t lo, uint32_t hi, const int64_t *usage, uint32_t n);
void ap_pre_filter(ap_pre *s, uint32_t v, const bool *drop);
void ap_pre_tidy(ap_pre *s, uint32_t v);
bool ap_pre_has_demands(const ap_pre *s, uint32_t v); /* its own or of an edge */
void ap_pre_log(ap_pre *s, uint32_t v, uint32_t a, uint32_t b, uint32_t *map);

void ap_pre_node_reduce(ap_pre *s, uint32_t v); /* pre_node.c */
void ap_pre_edge_reduce(ap_pre *s, uint32_t e); /* pre_edge.c */
bool ap_pre_rows_reduce(ap_pre *s);             /* pre_rows.c; true when something changed */

/* Costs of edge e seen from its end v: entry (i, k) is cost[i * row + k * column]. */
typedef struct ap_pre_view {
    int64_t *cost;
    size_t row, column;
    uint32_t other, n_other;
} ap_pre_view;
static inline ap_pre_view ap_pre_look(const ap_pre *s, uint32_t e, uint32_t v)
{
    const ap_pre_edge *x = &s->edge.at[e];
    uint32_t nv = s->node[x->v].n;
    if (x->u == v)
        return (ap_pre_view){x->cost, nv, 1, x->v, nv};
    return (ap_pre_view){x->cost, 1, nv, x->u, s->node[x->u].n};
}

#endif
