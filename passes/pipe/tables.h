/* Tables of layers: what a layer costs on a sub-mesh seen in one way, for each pair of shardings of what enters and
 * leaves it (DESIGN §8).
 *
 *     table [in label][out label] -> time of one microbatch, bytes of parameters, bytes of the rest at its highest
 *
 * One planning problem (passes/plan_problem.h) is built per layer and view. Elimination up to the two boundary
 * variables then yields the whole table for one price of memory, and the choice behind each entry what it holds. The
 * time of a range of layers is the min-plus product of their tables: with one value at each boundary, any label
 * allowed and no limit of memory it is the optimum of the range's own problem.
 *
 * A boundary's labels are shardings of the largest value that crosses it; other values that cross are sharded as it
 * suits each side, their change is not counted. Layers are told apart by their text without names, so that equal ones
 * are solved once; the text is also what a thread gets, which parses it in a context of its own: nothing is shared, and
 * numbers do not depend on how many threads there are. */
#ifndef AP_PASSES_PIPE_TABLES_H
#define AP_PASSES_PIPE_TABLES_H

#include "passes/pipe/layers.h"

enum {
    AP_VIEW_AXES = 2,
    AP_LABELS_MAX = 8, /* per boundary */
    AP_PRICES_MAX = 4,
};

/* A sub-mesh, and how it is seen: ranks in row-major order over axes x, y (none of size 1; no axis: one device). */
typedef struct ap_pipe_view {
    int32_t first_rank;
    uint8_t naxes;
    int32_t size[AP_VIEW_AXES];
    int32_t microbatches; /* more than 1: the mesh has time */
} ap_pipe_view;
/* The mesh itself; one device has one axis of size 1. */
ap_mesh_info ap_pipe_view_mesh(ap_ctx *ctx, const ap_pipe_view *v);
int32_t ap_pipe_view_ranks(const ap_pipe_view *v);

/* A complete sharding of a boundary's value over the axes of a view: 0 is x, 1 is y; time does not count. */
typedef struct ap_label {
    uint8_t nfactors;
    ap_axes axes[AP_MAX_FACTORS];
} ap_label;
/* The labels of a value of this shape that are worth a look, at most AP_LABELS_MAX, whole first. `batch`: its batch
 * factor or AP_NONE. Without a value (NULL): one label. */
uint32_t ap_labels_list(const ap_pipe_view *v, const ap_shape_info *shape, uint32_t batch, ap_label *out);
/* How many parts a value is in under a label. */
int64_t ap_label_parts(const ap_pipe_view *v, const ap_label *l);

/* A layer without its names. */
typedef struct ap_layer_form {
    const char *text;
    size_t size;
    uint32_t in, out;    /* argument and result with the boundary's label; AP_NONE: none has */
    uint32_t narguments; /* of its function */
    int8_t *batch;       /* per argument: the factor that is the batch, or AP_NO_BATCH */
    uint32_t layer;      /* the first that looks so */
    ap_loc loc;          /* of its first node that has one */
} ap_layer_form;

typedef struct ap_layer_forms {
    uint32_t n;
    ap_layer_form *at;
    uint32_t *of; /* per layer */
} ap_layer_forms;
/* `batch`: per value of m, its batch factor or AP_NO_BATCH; NULL: there are no microbatches. In `arena`. */
ap_status ap_layer_forms_list(ap_ctx *ctx, ap_arena *arena, const ap_module *m, const ap_layers *l, const int8_t *batch,
                              ap_layer_forms *out);

typedef struct ap_layer_task {
    const ap_layer_form *form;
    const ap_cluster *cluster; /* the whole; the view's part of it prices the table */
    ap_pipe_view view;
    uint32_t nin, nout; /* at least 1 */
    const ap_label *in, *out;
    uint32_t nprices;
    const int64_t *price; /* ps per MiB of parameters: what is least is time + price * MiB, then bytes */
    /* Filled by the run: [price][in][out]; time AP_FORBIDDEN: not possible. */
    int64_t *time, *resident, *peak;
    bool wide; /* too many strategies depend on each other: no times (only of views of two axes) */
    ap_status status;
    char message[512]; /* when the status is not AP_OK */
} ap_layer_task;

/* The result arrays, in `arena`. */
void ap_layer_task_make(ap_arena *arena, ap_layer_task *t);
/* All of them on `threads` threads (0: one). The first error, in their order, is told in ctx. */
ap_status ap_layer_tasks_run(ap_ctx *ctx, ap_layer_task *task, uint32_t n, uint32_t threads);
/* One, on this thread; table_solve.c. */
void ap_layer_task_run(ap_layer_task *t);

#endif
