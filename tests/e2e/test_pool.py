"""Pools of random shapes, compiled, against ONNX Runtime: rows first and channels first (behind a transposition, which is
a matter of strides), on one device and on several with every split forced."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from make_model import model, value

TYPES = {"f": (TensorProto.FLOAT, np.float32), "d": (TensorProto.DOUBLE, np.float64),
         "b": (TensorProto.INT8, np.int8), "u": (TensorProto.UINT8, np.uint8)}


def window(r, size):
    """Attributes of a window on planes of `size`, such as ONNX Runtime takes: no window wholly in padding."""
    n = len(size)
    kernel = [int(r.integers(1, min(5, s) + 1)) for s in size]
    dilation = [int(r.integers(1, 3)) if (k - 1) * 2 + 1 <= s else 1 for k, s in zip(kernel, size)]
    pads = [int(r.integers(0, min(k, 3))) for k in kernel * 2]
    attrs = {"kernel_shape": kernel, "strides": [int(r.integers(1, 4)) for _ in range(n)]}
    if r.integers(4):
        attrs["pads"] = pads
    if r.integers(2):
        attrs["dilations"] = dilation
    if r.integers(2):
        attrs["ceil_mode"] = 1
    if not r.integers(5):
        attrs = {"kernel_shape": attrs["kernel_shape"], "strides": attrs["strides"],
                 "auto_pad": ["SAME_UPPER", "SAME_LOWER", "VALID"][r.integers(3)]}
    return attrs


def pools(seed, count=8):
    """`count` pools of inputs x0, x1, ... with results y0, y1, ..."""
    r = np.random.default_rng(seed)
    nodes, inputs, outputs, feeds = [], [], [], {}
    for i in range(count):
        rank = int(r.integers(1, 4))
        size = [int(r.integers(1, 20 if rank < 3 else 9)) for _ in range(rank)]
        shape = [int(r.integers(1, 4)), int(r.integers(1, 24)), *size]
        kind = ["MaxPool", "MaxPool", "AveragePool", "LpPool", "LRN" if rank == 2 else "MaxPool"][r.integers(5)]
        elem, dtype = TYPES["fffdbu"[r.integers(6)] if kind == "MaxPool" else "f"]
        attrs = {"size": int(2 * r.integers(0, 3) + 1)} if kind == "LRN" else window(r, size)
        if kind == "AveragePool" and "auto_pad" not in attrs and r.integers(2):
            attrs["count_include_pad"] = 1  # ONNX Runtime takes the padding of one end for that of another
            attrs["pads"] = [min(attrs.get("pads", [0]))] * 2 * rank
            attrs["ceil_mode"] = 0
        if kind == "LpPool":
            attrs["p"] = int(r.integers(1, 4))
        last = bool(r.integers(2))
        given = [shape[0], *shape[2:], shape[1]] if last else shape
        x = r.integers(-9 if dtype != np.uint8 else 1, 9, given).astype(dtype) if elem in (3, 2) else r.standard_normal(given).astype(dtype)
        name = f"x{i}"
        inputs.append(value(name, given, elem))
        feeds[name] = x
        if last:
            nodes.append(helper.make_node("Transpose", [name], [f"t{i}"], f"t{i}", perm=[0, rank + 1, *range(1, rank + 1)]))
            name = f"t{i}"
        names = [f"y{i}"] + ([f"at{i}"] if kind == "MaxPool" and not r.integers(3) else [])
        if len(names) > 1 and not r.integers(3) and rank > 1:
            attrs["storage_order"] = 1
        nodes.append(helper.make_node(kind, [name], names, f"pool{i}", **attrs))
        outputs += [value(n, None, TensorProto.INT64 if n[0] == "a" else elem) for n in names]
    return model(nodes, inputs, outputs, opset=22, ir_version=10), feeds


def expected(m, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(m.SerializeToString(), options)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def compare(autopar, path, m, feeds, *options):
    want = expected(m, feeds)
    onnx.save(m, path / "m.onnx")
    autopar("compile", path / "m.onnx", "-o", path / "out", "--check-passes", *options)
    args = []
    for name, x in feeds.items():
        np.save(path / f"{name}.npy", x)
        args += ["--input", f"{name}={path}/{name}.npy"]
    autopar("run", path / "out", *args, "--output-dir", path / "r")
    for name, w in want.items():
        got = np.load(path / "r" / f"{name}.npy")
        node = next(n for n in m.graph.node if name in n.output)
        assert got.shape == w.shape and got.dtype == w.dtype, (name, got.shape, w.shape, node)
        np.testing.assert_allclose(got, w, rtol=2e-5, atol=1e-5, err_msg=f"{name} {node}")


MESHES = {"1": [], "2": ["--devices", 2, "--split", "force"], "2x2": ["--devices", 4, "--mesh", "2x2", "--split", "force"]}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("seed", range(6))
def test_equals_onnx_runtime(autopar, tmp_path, seed, mesh):
    m, feeds = pools(seed)
    compare(autopar, tmp_path, m, feeds, *MESHES[mesh])


def test_large_planes_and_windows(autopar, tmp_path):
    """Lanes longer than a block, windows of more places than are written out."""
    r = np.random.default_rng(1)
    x, t = r.standard_normal((2, 3, 40, 300)).astype(np.float32), r.standard_normal((1, 9, 30, 130)).astype(np.float32)
    nodes = [helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
             helper.make_node("MaxPool", ["x"], ["b"], kernel_shape=[7, 7], pads=[3, 3, 3, 3]),
             helper.make_node("AveragePool", ["x"], ["c"], kernel_shape=[5, 8], strides=[1, 3], pads=[2, 4, 2, 0]),
             helper.make_node("Transpose", ["t"], ["u"], perm=[0, 3, 1, 2]),
             helper.make_node("AveragePool", ["u"], ["d"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
             helper.make_node("MaxPool", ["u"], ["e"], kernel_shape=[9, 9], pads=[4, 4, 4, 4], strides=[2, 2])]
    m = model(nodes, [value("x", x.shape), value("t", t.shape)], [value(n, None) for n in "abcde"])
    compare(autopar, tmp_path, m, {"x": x, "t": t})


@pytest.mark.parametrize("elem", [TensorProto.FLOAT16, TensorProto.BFLOAT16], ids=["f16", "bf16"])
def test_half_precision(autopar, tmp_path, elem):
    """Sums of halves are made in f32: what ONNX Runtime makes of the same numbers in f32, rounded once."""
    r = np.random.default_rng(5)
    shape = [2, 5, 9, 40]
    pools = [helper.make_node("MaxPool", ["h"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
             helper.make_node("AveragePool", ["h"], ["b"], kernel_shape=[5, 5], strides=[2, 2], ceil_mode=1),
             helper.make_node("GlobalAveragePool", ["h"], ["c"]),
             helper.make_node("ReduceMax", ["h"], ["d"], axes=[1], keepdims=0)]
    outs = [helper.make_node("Cast", [n], [f"y{n}"], to=TensorProto.FLOAT) for n in "abcd"]
    made = []
    for inside in (elem, TensorProto.FLOAT):
        nodes = [helper.make_node("Cast", ["x"], ["h"], to=inside), *pools, *outs]
        made.append(model(nodes, [value("x", shape)], [value(f"y{n}", None) for n in "abcd"]))
    x = r.integers(-64, 64, shape).astype(np.float32) / 8  # exact in both
    want = expected(made[1], {"x": x})
    onnx.save(made[0], tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", x)
    autopar("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", "--check-passes")
    autopar("run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / "r")
    for name, w in want.items():
        np.testing.assert_allclose(np.load(tmp_path / "r" / f"{name}.npy"), w, rtol=1e-3 if elem == TensorProto.FLOAT16 else 8e-3,
                                   atol=1e-3 if elem == TensorProto.FLOAT16 else 8e-3)
