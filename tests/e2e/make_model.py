"""Small ONNX models for tests, made with the onnx package. Run as a program: make_model.py NAME FILE.onnx
writes the model and, beside it, one .npy for every input."""

import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def tensor(name, array):
    return numpy_helper.from_array(array, name)


def value(name, shape, elem=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, elem, shape)


def model(nodes, inputs, outputs, initializers=(), opset=17, ir_version=8, name="test"):
    graph = helper.make_graph(nodes, name, inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def mlp(batch="batch", hidden=64, seed=0):
    """x [batch,16] -> relu(x W1 + b1) W2 + b2 -> y [batch,8]"""
    r = np.random.default_rng(seed)
    f = lambda *s: (r.standard_normal(s) / 4).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h0"], "fc1"),
        helper.make_node("Add", ["h0", "b1"], ["h1"], "bias1"),
        helper.make_node("Relu", ["h1"], ["h2"], "act1"),
        helper.make_node("MatMul", ["h2", "w2"], ["h3"], "fc2"),
        helper.make_node("Add", ["h3", "b2"], ["y"], "bias2"),
    ]
    weights = [tensor("w1", f(16, hidden)), tensor("b1", f(hidden)), tensor("w2", f(hidden, 8)), tensor("b2", f(8))]
    return model(nodes, [value("x", [batch, 16])], [value("y", [batch, 8])], weights)


def encoder_layer(seq=32, hidden=64, heads=4, batch=2, layers=1, seed=0, vocabulary=0, fused=False):
    """A pre-norm transformer encoder, decomposed as exporters did before opset 17. With a vocabulary: token ids in,
    learned positions, tied head without bias (GPT's shape, no mask). `fused`: one projection for q, k and v."""
    r = np.random.default_rng(seed)
    f = lambda *s: (r.standard_normal(s) / np.sqrt(s[0])).astype(np.float32)
    nodes, weights, names = [], [], iter(range(1 << 20))

    def op(kind, *inputs, **attributes):
        out = f"v{next(names)}"
        nodes.append(helper.make_node(kind, list(inputs), [out], f"{kind}_{out}", **attributes))
        return out

    def weight(array, name=None):
        name = name or f"w{next(names)}"
        weights.append(tensor(name, array))
        return name

    def constant(x, dtype=np.float32):
        return weight(np.array(x, dtype))

    def norm(x):
        mean = op("ReduceMean", x, axes=[-1])
        d = op("Sub", x, mean)
        var = op("ReduceMean", op("Pow", d, constant(2.0)), axes=[-1])
        y = op("Div", d, op("Sqrt", op("Add", var, constant(1e-5))))
        return op("Add", op("Mul", y, weight(np.ones(hidden, np.float32))), weight(np.zeros(hidden, np.float32)))

    def linear(x, k, n):
        return op("Add", op("MatMul", x, weight(f(k, n))), weight(f(n)))

    def split_heads(x, order):
        shape = constant([batch, seq, heads, hidden // heads], np.int64)
        return op("Transpose", op("Reshape", x, shape), perm=order)

    def block(x):
        n = norm(x)
        if fused:
            parts = [f"qkv{next(names)}" for _ in range(3)]
            sizes = constant([hidden] * 3, np.int64)
            nodes.append(helper.make_node("Split", [linear(n, hidden, 3 * hidden), sizes], parts, parts[0], axis=2))
        else:
            parts = [linear(n, hidden, hidden) for _ in range(3)]
        q, k, v = (split_heads(x, p) for x, p in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])))
        s = op("Div", op("MatMul", q, k), constant(np.sqrt(hidden / heads)))
        a = op("Transpose", op("MatMul", op("Softmax", s, axis=-1), v), perm=[0, 2, 1, 3])
        x = op("Add", x, linear(op("Reshape", a, constant([batch, seq, hidden], np.int64)), hidden, hidden))
        h = linear(norm(x), hidden, 4 * hidden)
        g = op("Mul", op("Mul", h, op("Add", op("Erf", op("Div", h, constant(np.sqrt(2.0)))), constant(1.0))), constant(0.5))
        return op("Add", x, linear(g, 4 * hidden, hidden))

    if vocabulary:
        table = weight(f(vocabulary, hidden), "wte")
        x = op("Add", op("Gather", table, "x"), weight(f(seq, hidden), "wpe"))
    else:
        x = "x"
    for _ in range(layers):
        x = block(x)
    if vocabulary:
        x = norm(x)
        nodes.append(helper.make_node("MatMul", [x, op("Transpose", "wte", perm=[1, 0])], ["y"], "head"))
        return model(nodes, [value("x", [batch, seq], TensorProto.INT64)], [value("y", [batch, seq, vocabulary])], weights, 13)
    nodes.append(helper.make_node("Identity", [x], ["y"], "out"))
    return model(nodes, [value("x", [batch, seq, hidden])], [value("y", [batch, seq, hidden])], weights, 13)


MODELS = {"mlp": mlp, "encoder": encoder_layer}


def random_inputs(m, dims=None, seed=1):
    r = np.random.default_rng(seed)
    feeds = {}
    initializers = {t.name for t in m.graph.initializer}
    for i in m.graph.input:
        if i.name in initializers:
            continue
        shape = [d.dim_value if d.HasField("dim_value") else (dims or {}).get(d.dim_param, 4) for d in i.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        feeds[i.name] = (r.standard_normal(shape) if dtype.kind == "f" else r.integers(0, 2, shape)).astype(dtype)
    return feeds


def main(name, path):
    m = MODELS[name]()
    onnx.save(m, path)
    for key, array in random_inputs(m).items():
        np.save(os.path.join(os.path.dirname(path) or ".", key + ".npy"), array)


if __name__ == "__main__":
    main(*sys.argv[1:])
