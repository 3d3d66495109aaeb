/* TensorProto -> element type, shape and the place of its bytes. Nothing is copied when the contents are raw
 * (in the model file or beside it): the result says where they are. Typed fields become inline bytes. */
#ifndef AP_FRONTEND_TENSOR_H
#define AP_FRONTEND_TENSOR_H

#include "ir/module.h"
#include "ir/tensor.h"
#include "onnx.pb-c.h"

/* The file that a message came from, and where its external data is looked up. */
typedef struct ap_onnx_source {
    ap_ctx *ctx;
    ap_loc loc;          /* the file alone */
    ap_name base;        /* name of the file in its folder */
    ap_name folder;      /* as given; "." for none */
    bool weights_absent; /* external files need not exist */
} ap_onnx_source;

typedef struct ap_onnx_tensor {
    ap_dtype dtype;
    uint8_t rank;
    int64_t dim[AP_MAX_RANK];
    int64_t count; /* elements */
    ap_data data;
} ap_onnx_tensor;

ap_onnx_source ap_onnx_source_make(ap_ctx *ctx, const char *path, bool weights_absent);

/* `what` says whose tensor it is, for messages: "initializer", "attribute value of". */
ap_status ap_onnx_tensor_read(const ap_onnx_source *src, const Onnx__TensorProto *proto, const char *what, ap_loc loc,
                              ap_onnx_tensor *out);

/* Reads the one TensorProto of a file (test data, inputs), contents included; made in `arena`. */
ap_status ap_onnx_tensor_load(ap_ctx *ctx, const char *path, ap_arena *arena, ap_tensor *out);

/* "FLOAT8E4M3FN" and the like, for messages. */
const char *ap_onnx_dtype_str(int onnx);

#endif
