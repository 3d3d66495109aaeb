/* The graph of a model as arrays: values with one definition each, nodes in an order in which every node
 * follows what it uses, calls of the model's own functions replaced by their bodies. Nothing is known yet of
 * shapes or of what an operator means. Everything is in ctx->scratch. */
#ifndef AP_FRONTEND_GRAPH_H
#define AP_FRONTEND_GRAPH_H

#include "frontend/tensor.h"

struct ap_onnx_op; /* frontend/legalise.h */

/* A call that is being expanded: where `ref_attr_name` looks. */
typedef struct ap_onnx_frame {
    const struct ap_onnx_frame *parent; /* NULL: called from the main graph */
    const Onnx__NodeProto *call;
    const Onnx__FunctionProto *function;
    int depth;
} ap_onnx_frame;

typedef enum ap_onnx_origin {
    AP_ONNX_UNDEFINED, /* named, but nothing defines it */
    AP_ONNX_INPUT,
    AP_ONNX_INITIALIZER,
    AP_ONNX_NODE,
} ap_onnx_origin;

typedef struct ap_onnx_value {
    ap_name name; /* inside a function: CALL/NAME */
    ap_onnx_origin origin;
    uint32_t index; /* of the input, initializer or node */
} ap_onnx_value;

typedef struct ap_onnx_node {
    const Onnx__NodeProto *proto;
    const ap_onnx_frame *frame; /* NULL: in the main graph */
    const struct ap_onnx_op *op;
    const char *domain; /* "" for ai.onnx */
    int64_t opset;      /* of its domain */
    ap_loc loc;
    uint32_t nin, nout;
    uint32_t *in, *out; /* values; AP_NONE: left out */
} ap_onnx_node;

typedef struct ap_onnx_graph {
    const ap_onnx_source *src;
    const Onnx__ModelProto *model;
    const Onnx__GraphProto *proto;
    AP_VEC(ap_onnx_value) values;
    AP_VEC(ap_onnx_node) nodes;
    uint32_t ninputs; /* those that are no initializers */
    const Onnx__ValueInfoProto **input;
    uint32_t *input_value;
    uint32_t *output_value; /* proto->n_output of them */
    uint32_t norder;        /* nodes that outputs need, each after what it uses */
    uint32_t *order;
} ap_onnx_graph;

/* Reports what is wrong with the graph as such: undefined and doubly defined values, cycles, recursion. */
ap_status ap_onnx_graph_build(const ap_onnx_source *src, const Onnx__ModelProto *model, ap_onnx_graph *out);

/* The attribute by name, references to attributes of the enclosing call followed; NULL if absent. */
const Onnx__AttributeProto *ap_onnx_node_attribute(const ap_onnx_node *n, const char *name);

/* Version of the domain for nodes of `frame`; 0 when it is not imported. */
int64_t ap_onnx_opset(const Onnx__ModelProto *model, const ap_onnx_frame *frame, const char *domain);

#endif
