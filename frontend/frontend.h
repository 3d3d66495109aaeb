/* ONNX file -> module in state imported (docs/frontend.md). */
#ifndef AP_FRONTEND_FRONTEND_H
#define AP_FRONTEND_FRONTEND_H

#include "ir/module.h"

typedef struct ap_dim_binding {
    const char *name; /* dim_param */
    int64_t size;     /* >= 0 */
} ap_dim_binding;

/* Shape of an input by name (from --shapes-from). */
typedef struct ap_input_shape {
    const char *name; /* NULL: the index-th input that is no initializer */
    uint32_t index;
    uint32_t rank;
    int64_t dim[AP_MAX_RANK];
} ap_input_shape;

typedef struct ap_import_options {
    uint32_t ndims;
    const ap_dim_binding *dim;
    uint32_t nshapes;
    const ap_input_shape *shape;
    int64_t batch;         /* size of the batch dimension, 0: not given */
    const char *batch_dim; /* NAME or INPUT:AXIS; NULL: the obvious one, or an error */
    bool weights_absent;   /* plan: external data files need not exist */
} ap_import_options;

/* Figures for `info`, as the file has them. */
typedef struct ap_import_info {
    int64_t ir_version, opset; /* of ai.onnx */
    const char *producer;
    uint32_t onnx_nodes;
    uint32_t nops; /* distinct operators, sorted by name */
    const char **op_name;
    uint32_t *op_count;
    /* Per argument of the function: which of its dimensions is the batch (docs/clusters.md), -1 for none. All -1 when
     * that cannot be told. */
    const int8_t *batch_dim;
    /* Results of the nodes that outputs need, in order: whatever later becomes of them, their names are known. */
    uint32_t norigins;
    const ap_origin *origin;
    int64_t parameters; /* elements of the floating-point params that are used */
    int64_t parameter_bytes;
} ap_import_info;

/* Everything unsupported is reported at once, one diagnostic per node. */
ap_status ap_onnx_import(ap_ctx *ctx, const char *path, const ap_import_options *opt, ap_module **out,
                         ap_import_info *out_info);

#endif
