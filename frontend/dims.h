/* Shapes of the graph's inputs: fixed in the file, or bound by the user. */
#ifndef AP_FRONTEND_DIMS_H
#define AP_FRONTEND_DIMS_H

#include "frontend/frontend.h"
#include "frontend/graph.h"

typedef struct ap_onnx_input {
    ap_dtype dtype;
    uint8_t rank;
    int64_t dim[AP_MAX_RANK];
} ap_onnx_input;

/* Types of graph->input, in ctx->scratch. All that is unbound is reported in one message. */
ap_status ap_onnx_bind_dims(const ap_onnx_graph *g, const ap_import_options *opt, ap_onnx_input **out);

/* Per input which of its dimensions is the batch, -1 for none: those of the name that --batch-dim says or that is
 * obvious; where dimensions have no names, the same axis of all inputs that have the same extent there. In ctx->arena.
 */
const int8_t *ap_onnx_batch_dims(const ap_onnx_graph *g, const ap_import_options *opt, const ap_onnx_input *inputs);

/* True when the file gives every dimension of every input. */
bool ap_onnx_is_static(const ap_onnx_graph *g);

#endif
