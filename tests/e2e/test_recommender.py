"""Recommender models: tables of embeddings with pooling, bottom and top layers, pairwise products, on one, two and four
devices against ONNX Runtime; tables that no device holds; what crosses between devices."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh


class Builder:
    def __init__(self, seed=3):
        self.rng, self.nodes, self.init, self.inputs, self.feeds = np.random.default_rng(seed), [], [], [], {}

    def input(self, name, array):
        self.inputs.append(h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(array.dtype), array.shape))
        self.feeds[name] = array
        return name

    def constant(self, array, name=None):
        name = name or f"c{len(self.init)}"
        self.init.append(nh.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape, name=None):
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)

    def add(self, op, *inputs, name=None, **attrs):
        out = name or f"v{len(self.nodes)}"
        self.nodes.append(h.make_node(op, list(inputs), [out], name=name or "", **attrs))
        return out

    def linear(self, x, k, n, relu=True):
        x = self.add("Gemm", x, self.weight(k, n), self.weight(n))
        return self.add("Relu", x) if relu else x

    def model(self, result, shape):
        graph = h.make_graph(self.nodes, "recommender", self.inputs, [h.make_tensor_value_info(result, T.FLOAT, shape)], self.init)
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)


def bag(b, t, batch, length, rows, width, weighted=False, padded=False, mean=False):
    """One table's pooled vectors. Padding is id 0, whose rows count as zero."""
    ids = b.rng.integers(0 if padded else -rows, rows, (batch, length)).astype(np.int64)
    if padded:
        ids[:, length // 2:] *= b.rng.integers(0, 2, (batch, length - length // 2))
    i = b.input(f"ids{t}", ids)
    x = b.add("Gather", b.weight(rows, width, name=f"table{t}"), i, name=f"emb{t}")
    if weighted:
        w = b.input(f"w{t}", b.rng.random((batch, length)).astype(np.float32))
        x = b.add("Mul", x, b.add("Unsqueeze", w, b.constant([2])))
    if padded:
        mask = b.add("Unsqueeze", b.add("Equal", i, b.constant(np.int64(0))), b.constant([2]))
        x = b.add("Where", mask, b.constant(np.float32(0)), x)
    return b.add("ReduceMean" if mean else "ReduceSum", x, b.constant([1]), name=f"pool{t}", keepdims=0)


def dlrm(batch=10, width=12, rows=(101, 57, 1003, 40), length=6):
    """Dense features and one bag per table; the pairwise products of all vectors, lower triangle, go on."""
    b = Builder()
    dense = b.input("dense", b.rng.standard_normal((batch, 13)).astype(np.float32))
    vectors = [b.linear(b.linear(dense, 13, 24), 24, width)]
    for t, n in enumerate(rows):
        vectors.append(bag(b, t, batch, length, n, width, weighted=t == 1, padded=t == 2, mean=t == 3))
    f = len(vectors)
    stacked = b.add("Concat", *[b.add("Unsqueeze", v, b.constant([1])) for v in vectors], axis=1)
    dots = b.add("MatMul", stacked, b.add("Transpose", stacked, perm=[0, 2, 1]))
    lower = [r * f + c for r in range(f) for c in range(r)]
    pairs = b.add("Gather", b.add("Reshape", dots, b.constant([batch, f * f])), b.constant(lower), axis=1)
    x = b.add("Concat", vectors[0], pairs, axis=1)
    x = b.linear(b.linear(x, width + len(lower), 20), 20, 1, relu=False)
    return b, b.model(b.add("Sigmoid", x, name="click"), [batch, 1])


def save(path, b, m):
    onnx.save(m, path / "m.onnx")
    want = onnxruntime.InferenceSession(str(path / "m.onnx")).run(None, b.feeds)[0]
    args = []
    for name, array in b.feeds.items():
        np.save(path / f"{name}.npy", array)
        args += ["--input", f"{name}={path}/{name}.npy"]
    return want, args


def run(autopar, path, args, name, *options):
    autopar("compile", path / "m.onnx", "-o", path / "out", "--check-passes", *options)
    autopar("run", path / "out", *args, "--output-dir", path / "r")
    return np.load(path / "r" / f"{name}.npy")


@pytest.mark.parametrize("options", [[], ["--devices", 2], ["--devices", 4], ["--devices", 2, "--split", "force"],
                                     ["--devices", 4, "--split", "force"], ["--devices", 4, "--mesh", "2x2", "--split", "force"]],
                         ids=["1", "2", "4", "2forced", "4forced", "2x2forced"])
def test_equals_onnx_runtime(autopar, tmp_path, options):
    b, m = dlrm()
    want, args = save(tmp_path, b, m)
    got = run(autopar, tmp_path, args, "click", *options)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


FORMS = {"plain": {}, "weighted": dict(weighted=True), "padded": dict(padded=True), "all": dict(weighted=True, padded=True, mean=True)}


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("form", FORMS)
def test_table_split_by_rows(autopar, tmp_path, form, devices):
    """A table that no device holds, its rows on all of them, 20,003 not dividing: every device pools what it has, and
    nothing but sums of pooled vectors is exchanged."""
    batch, length, rows, width = 64, 20, 20003, 32
    b = Builder()
    m = b.model(bag(b, 0, batch, length, rows, width, **FORMS[form]), [batch, width])
    want, args = save(tmp_path, b, m)
    (tmp_path / "pins").write_text("value table0 @[x,-]\n")
    options = ["--devices", devices, "--memory", rows * width * 4 // devices + 400_000, "--pin", tmp_path / "pins"]
    np.testing.assert_allclose(run(autopar, tmp_path, args, "pool0", *options), want, rtol=1e-4, atol=1e-5)
    text = autopar("dump", tmp_path / "m.onnx", "--format", "ir", "--state", "local", *options).stdout
    exchanges = re.findall(r"^(?:all_reduce|reduce_scatter|all_gather|all_to_all).*? box \[([\d,]*)\]", text, re.M)
    assert exchanges
    for box in exchanges:
        assert np.prod([int(x) for x in box.split(",")]) <= batch * width
    arena = int(re.search(r"^local .* arena (\d+)", text, re.M).group(1))
    assert arena < batch * length * width * 4 / 2  # the vectors before pooling are nowhere
