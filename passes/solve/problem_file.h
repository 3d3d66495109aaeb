/* Problems as files: the format of IOPDDL, plain or compressed by gzip, with two optional fields of our own
 * (docs/solver.md). Numbers are whole and of 64 bits; what is wrong is told once, with line and column. */
#ifndef AP_PASSES_SOLVE_PROBLEM_FILE_H
#define AP_PASSES_SOLVE_PROBLEM_FILE_H

#include "ir/base/text.h"
#include "passes/solve/problem.h"

#define AP_FILE_FORBIDDEN INT64_C(1000000000000000000) /* in files: such a cost, or more, is AP_FORBIDDEN */

typedef struct ap_place {
    uint32_t line, column;
} ap_place;

/* [[1, 2], [3]] as it stands in the file. */
typedef struct ap_rows {
    uint32_t n;
    uint32_t *len;
    int64_t **at;
    ap_place *place;
} ap_rows;

typedef struct ap_problem_file {
    const char *path, *name; /* name: "" when it has none */
    ap_rows intervals, costs, usages;
    ap_rows edges, edge_costs;
    ap_rows more_nodes, more_intervals, more_usages; /* further demands of nodes; more_nodes is one row */
    ap_rows pair_edges, pair_intervals, pair_usages; /* demands of edges; pair_edges is one row */
    int64_t limit;                                   /* INT64_MAX: none */
    ap_problem problem;                              /* the same for the solver */
} ap_problem_file;

/* AP_ERR_MODEL for what the file says wrong, AP_ERR_ENV when it cannot be read. */
ap_status ap_problem_read(ap_ctx *ctx, ap_arena *arena, const char *path, ap_problem_file *out);
/* The same from memory; `path` only names it. */
ap_status ap_problem_parse(ap_ctx *ctx, ap_arena *arena, const char *path, const uint8_t *data, uint64_t size,
                           ap_problem_file *out);

/* Any problem whose costs stay below AP_FILE_FORBIDDEN, as text that ap_problem_parse reads back. */
void ap_problem_print(const ap_problem *p, const char *name, ap_text *out);

/* Cost and peak of a choice by the numbers of the file, apart from `problem` and from the solver, forbidden entries
 * as the large numbers that they are. False: the choice is out of range or the peak exceeds the limit. */
bool ap_problem_file_check(ap_arena *arena, const ap_problem_file *f, const uint32_t *choice, __int128 *out_cost,
                           __int128 *out_peak);

#endif
