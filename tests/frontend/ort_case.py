"""A model and inputs become a folder like an ONNX backend test, with the outputs of ONNX Runtime."""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

TYPES = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("float16"): TensorProto.FLOAT16,
         np.dtype("float64"): TensorProto.DOUBLE, np.dtype("int32"): TensorProto.INT32,
         np.dtype("int64"): TensorProto.INT64, np.dtype("bool"): TensorProto.BOOL,
         np.dtype("uint8"): TensorProto.UINT8, np.dtype("int8"): TensorProto.INT8,
         np.dtype("int16"): TensorProto.INT16, np.dtype("uint16"): TensorProto.UINT16,
         np.dtype("uint32"): TensorProto.UINT32, np.dtype("uint64"): TensorProto.UINT64}


def node_model(op, inputs, attrs, domain="com.microsoft", opset=17, outputs=1, constants=()):
    """One node; `inputs` in order, (name, array) or None for one left out; `outputs` a number or names, "" left out,
    int... of 32-bit integers."""
    names = ["" if x is None else x[0] for x in inputs]
    out = ["y%d" % i for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    node = helper.make_node(op, names, out, name="node", domain=domain, **attrs)
    fed = [x for x in inputs if x is not None and x[0] not in constants]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, TYPES[a.dtype], a.shape) for n, a in fed],
        [helper.make_tensor_value_info(n, TensorProto.INT32 if n.startswith("int") else TensorProto.FLOAT, None)
         for n in out if n],
        [numpy_helper.from_array(a, n) for n, a in (x for x in inputs if x is not None) if n in constants])
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), dict(fed)


def write(folder, model, feeds, reference=None):
    """model.onnx and test_data_set_0; outputs without a shape get those that ONNX Runtime gives. `reference`: another
    (model, feeds) with the same results."""
    os.makedirs(os.path.join(folder, "test_data_set_0"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession((reference or [model])[0].SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, reference[1] if reference else feeds)
    for value, array in zip(model.graph.output, results):
        if not value.type.tensor_type.HasField("shape"):
            value.CopyFrom(helper.make_tensor_value_info(value.name, TYPES[array.dtype], array.shape))
    onnx.save(model, os.path.join(folder, "model.onnx"))
    constant = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in constant]
    for kind, arrays in (("input", [feeds[n] for n in names]), ("output", results)):
        for i, array in enumerate(arrays):
            with open(os.path.join(folder, "test_data_set_0", "%s_%d.pb" % (kind, i)), "wb") as f:
                f.write(numpy_helper.from_array(np.asarray(array)).SerializeToString())
    return results
