/* Tensor contents in a file beside the model: where they are, after everything that the model says about them
 * has been checked. */
#ifndef AP_FRONTEND_EXTERNAL_H
#define AP_FRONTEND_EXTERNAL_H

#include "frontend/tensor.h"

/* `want`: bytes that dims and element type ask for. Fills kind, file, offset, size. */
ap_status ap_onnx_external_find(const ap_onnx_source *src, const Onnx__TensorProto *proto, const char *what, ap_loc loc,
                                uint64_t want, ap_data *out);

#endif
