#!/usr/bin/env python3
"""Graphs of ten thousand small nodes: how long importing, planning and compiling take.

    graphs.py [--autopar build/release/bin/autopar] [--times 1,4] [--devices 1,2]

Three shapes: a deep perceptron, a transformer of 270 layers, and 2,500 branches that are added up in pairs. --times
multiplies the number of nodes. Seconds are processor time of `plan`, and of `compile --emit-only`, which leaves
out the C compiler."""

import argparse
import resource
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    def __init__(self, seed=0):
        self.nodes, self.weights, self.rng, self.n = [], [], np.random.default_rng(seed), 0

    def op(self, kind, *inputs, **attributes):
        self.n += 1
        out = f"v{self.n}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"{kind}_{self.n}", **attributes))
        return out

    def weight(self, *shape, scale=0.1):
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, values):
        return self.constant(np.array(values, np.int64))

    def number(self, value):
        return self.constant(np.array(value, np.float32))

    def save(self, path, shape, out, out_shape):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info(out, TensorProto.FLOAT, out_shape)
        g = helper.make_graph(self.nodes, "g", [x], [y], self.weights)
        onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
        return len(self.nodes)


def deep(path, n=3333, h=32):
    g, x = Graph(), "x"
    for _ in range(n):
        x = g.op("Relu", g.op("Add", g.op("MatMul", x, g.weight(h, h)), g.weight(h)))
    return g.save(path, [8, h], x, [8, h])


def transformer(path, layers=270, h=32, heads=4, b=2, s=8):
    g, x = Graph(), "x"

    def norm(x):
        mean = g.op("ReduceMean", x, axes=[-1])
        d = g.op("Sub", x, mean)
        var = g.op("ReduceMean", g.op("Mul", d, d), axes=[-1])
        n = g.op("Div", d, g.op("Sqrt", g.op("Add", var, eps)))
        return g.op("Add", g.op("Mul", n, g.weight(h)), g.weight(h))
    eps = g.number(1e-5)
    split, join, root = g.ints([b, s, heads, h // heads]), g.ints([b, s, h]), g.number((h // heads) ** 0.5)
    for _ in range(layers):
        n = norm(x)
        q, k, v = (g.op("Transpose", g.op("Reshape", g.op("Add", g.op("MatMul", n, g.weight(h, h)), g.weight(h)), split),
                        perm=p) for p in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        a = g.op("MatMul", g.op("Softmax", g.op("Div", g.op("MatMul", q, k), root)), v)
        a = g.op("Reshape", g.op("Transpose", a, perm=[0, 2, 1, 3]), join)
        x = g.op("Add", x, g.op("MatMul", a, g.weight(h, h)))
        n = norm(x)
        f = g.op("Relu", g.op("Add", g.op("MatMul", n, g.weight(h, 2 * h)), g.weight(2 * h)))
        x = g.op("Add", x, g.op("MatMul", f, g.weight(2 * h, h)))
    return g.save(path, [b, s, h], x, [b, s, h])


def wide(path, n=2500, h=16):
    g = Graph()
    parts = [g.op("Tanh", g.op("Add", g.op("MatMul", "x", g.weight(h, h)), g.weight(h))) for _ in range(n)]
    while len(parts) > 1:
        parts = [g.op("Add", *parts[i:i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return g.save(path, [4, h], parts[0], [4, h])


MODELS = {"deep": lambda path, k: deep(path, 3333 * k), "transformer": lambda path, k: transformer(path, 270 * k),
          "wide": lambda path, k: wide(path, 2500 * k)}


def seconds(*command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autopar", default=Path(__file__).resolve().parents[1] / "build/release/bin/autopar")
    parser.add_argument("--times", default="1")
    parser.add_argument("--devices", default="1,2")
    args = parser.parse_args()
    print("| model | nodes | devices | plan s | compile --emit-only s |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MODELS.items():
            for times in map(int, args.times.split(",")):
                path = Path(folder) / f"{name}{times}.onnx"
                nodes = make(path, times)
                for devices in args.devices.split(","):
                    plan = seconds(args.autopar, "plan", path, "--devices", devices, "-q")
                    out = Path(folder) / "out"
                    compiled = seconds(args.autopar, "compile", path, "--devices", devices, "-q", "--emit-only", "--force", "-o", out)
                    print(f"| {name} | {nodes} | {devices} | {plan:.2f} | {compiled:.2f} |", flush=True)


if __name__ == "__main__":
    main()
