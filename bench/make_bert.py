"""An encoder of BERT's shape with random weights, as exporters write it: MatMul and Add apart, attention by transposes, GELU
by Erf, LayerNormalization as one node. The tokens are embedded already: input x [batch, tokens, width].

    make_bert.py FILE.onnx [--layers 12] [--width 768] [--heads 12] [--inner 3072]"""

import argparse

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def encoder(layers, width, heads, inner, seed=0):
    random = np.random.default_rng(seed)
    nodes, weights = [], []

    def weight(name, array):
        weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(kind, inputs, name, **attributes):
        nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def linear(x, k, n, name):
        w = weight(name + ".weight", (random.standard_normal((k, n)) * k**-0.5).astype(np.float32))
        b = weight(name + ".bias", (random.standard_normal(n) / 10).astype(np.float32))
        return op("Add", [op("MatMul", [x, w], name + ".product"), b], name)

    def norm(x, name):
        scale = weight(name + ".scale", (1 + random.standard_normal(width) / 10).astype(np.float32))
        bias = weight(name + ".bias", (random.standard_normal(width) / 10).astype(np.float32))
        return op("LayerNormalization", [x, scale, bias], name, axis=-1, epsilon=1e-12)

    split = weight("split", np.array([0, 0, heads, width // heads], np.int64))
    join = weight("join", np.array([0, 0, width], np.int64))
    root = weight("root", np.float32((width // heads) ** 0.5))
    two, one, half = weight("root2", np.float32(2**0.5)), weight("one", np.float32(1)), weight("half", np.float32(0.5))

    def split_heads(x, name, perm):
        return op("Transpose", [op("Reshape", [x, split], name + ".split")], name + ".heads", perm=perm)

    def attention(x, name):
        q = split_heads(linear(x, width, width, name + ".q"), name + ".q", [0, 2, 1, 3])
        k = split_heads(linear(x, width, width, name + ".k"), name + ".k", [0, 2, 3, 1])
        v = split_heads(linear(x, width, width, name + ".v"), name + ".v", [0, 2, 1, 3])
        scores = op("Div", [op("MatMul", [q, k], name + ".products"), root], name + ".scores")
        p = op("Softmax", [scores], name + ".weights", axis=-1)
        c = op("Transpose", [op("MatMul", [p, v], name + ".context")], name + ".tokens", perm=[0, 2, 1, 3])
        return linear(op("Reshape", [c, join], name + ".joined"), width, width, name + ".out")

    def gelu(x, name):
        e = op("Erf", [op("Div", [x, two], name + ".scaled")], name + ".erf")
        return op("Mul", [op("Mul", [x, op("Add", [e, one], name + ".shifted")], name + ".doubled"), half], name)

    x = "x"
    for i in range(layers):
        at = f"layer{i}"
        x = norm(op("Add", [x, attention(x, at + ".attention")], at + ".sum1"), at + ".norm1")
        h = gelu(linear(x, width, inner, at + ".inner"), at + ".gelu")
        x = norm(op("Add", [x, linear(h, inner, width, at + ".outer")], at + ".sum2"), at + ".norm2")
    op("Identity", [x], "y")
    shape = ["batch", "tokens", width]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "bert", [value("x")], [value("y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--inner", type=int, default=3072)
    o = parser.parse_args()
    onnx.save(encoder(o.layers, o.width, o.heads, o.inner), o.file)


if __name__ == "__main__":
    main()
