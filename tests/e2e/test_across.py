"""Reductions and normalisations whose rows lie across memory (leading axes, channels-last values), of random shapes,
compiled, against ONNX Runtime on one device and several with every split forced. A norm is one kernel."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from make_model import model, tensor, value
from test_pool import MESHES, compare


def graph(seed, count=7):
    r = np.random.default_rng(seed)
    nodes, inputs, outputs, weights, feeds = [], [], [], [], {}
    for i in range(count):
        n, c, h, w = int(r.integers(1, 5)), 2 * int(r.integers(1, 40)), int(r.integers(1, 12)), int(r.integers(1, 12))
        last = bool(r.integers(3))
        given = [n, h, w, c] if last else [n, c, h, w]
        x = f"x{i}"
        inputs.append(value(x, given))
        feeds[x] = (r.standard_normal(given) + r.standard_normal()).astype(np.float32)
        if last:
            nodes.append(helper.make_node("Transpose", [x], [f"t{i}"], f"t{i}", perm=[0, 3, 1, 2]))
            x = f"t{i}"
        kind = ["ReduceMean", "ReduceMax", "ArgMax", "ArgMin", "Softmax", "InstanceNormalization", "GroupNormalization",
                "BatchNormalization", "MeanVarianceNormalization", "LogSoftmax", "ReduceProd", "LpNormalization"][r.integers(12)]
        axis, attrs, ins, elem = int(r.integers(4)), {}, [x], TensorProto.FLOAT

        def weight(size, positive=False):
            name = f"w{len(weights)}"
            array = r.standard_normal(size).astype(np.float32)
            weights.append(tensor(name, np.abs(array) + np.float32(0.1) if positive else array))
            return name

        if kind in ("ReduceMean", "ReduceMax", "ReduceProd"):
            some = sorted(r.choice(4, size=int(r.integers(1, 4)), replace=False).tolist())
            attrs = {"keepdims": int(r.integers(2))}
            weights.append(tensor(f"w{len(weights)}", np.array(some, np.int64)))
            ins.append(f"w{len(weights) - 1}")
        elif kind in ("ArgMax", "ArgMin"):
            attrs, elem = {"axis": axis, "select_last_index": int(r.integers(2))}, TensorProto.INT64
        elif kind in ("Softmax", "LogSoftmax", "LpNormalization"):
            attrs = {"axis": axis}
        elif kind == "InstanceNormalization":
            ins += [weight(c), weight(c)]
        elif kind == "GroupNormalization":
            attrs = {"num_groups": 2}
            ins += [weight(c), weight(c)]
        elif kind == "BatchNormalization":
            ins += [weight(c), weight(c), weight(c), weight(c, True)]
        elif r.integers(2):
            attrs = {"axes": [0, 2, 3] if r.integers(2) else [1]}
        nodes.append(helper.make_node(kind, ins, [f"y{i}"], f"node{i}", **attrs))
        outputs.append(value(f"y{i}", None, elem))
    return model(nodes, inputs, outputs, weights, opset=21, ir_version=10), feeds


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("seed", range(8))
def test_equals_onnx_runtime(autopar, tmp_path, seed, mesh):
    m, feeds = graph(seed)
    compare(autopar, tmp_path, m, feeds, *MESHES[mesh])


NORMS = {"instance": ("InstanceNormalization", 2, {}), "group": ("GroupNormalization", 2, {"num_groups": 4}),
         "batch": ("BatchNormalization", 4, {"training_mode": 1})}


@pytest.mark.parametrize("last", [False, True], ids=["channels-first", "channels-last"])
@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_is_one_kernel(autopar, tmp_path, norm, last):
    kind, factors, attrs = NORMS[norm]
    r = np.random.default_rng(3)
    shape = [2, 10, 12, 16] if last else [2, 16, 10, 12]
    names = [f"w{k}" for k in range(factors)]
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])] if last else []
    nodes.append(helper.make_node(kind, ["t" if last else "x", *names], ["y"], "norm", **attrs))
    if last:
        nodes.append(helper.make_node("Transpose", ["y"], ["z"], perm=[0, 2, 3, 1]))
    weights = [tensor(n, np.abs(r.standard_normal(16)).astype(np.float32)) for n in names]
    m = model(nodes, [value("x", shape)], [value("z" if last else "y", None)], weights, opset=21, ir_version=10)
    feeds = {"x": r.standard_normal(shape).astype(np.float32)}
    if norm == "batch":  # only ONNX Runtime's training package takes training mode without further outputs
        onnx.save(m, tmp_path / "m.onnx")
        autopar("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", "--check-passes")
    else:
        compare(autopar, tmp_path, m, feeds)
    source = (tmp_path / "out" / "program.c").read_text()
    assert len(re.findall(r"^\s+\w+_k_\w+\(", source, re.M)) == 1, source


@pytest.mark.parametrize("norm", ["instance", "group"])
def test_planes_may_be_split(autopar, tmp_path, norm):
    """Statistics over a plane whose rows lie on several devices are completed inside the norm."""
    kind, factors, _ = NORMS[norm]
    r = np.random.default_rng(4)
    weights = [tensor(f"w{k}", r.standard_normal(1).astype(np.float32)) for k in range(factors)]
    nodes = [helper.make_node(kind, ["x", "w0", "w1"], ["y"], "norm", **({"num_groups": 1} if norm == "group" else {}))]
    m = model(nodes, [value("x", [1, 1, 10, 12])], [value("y", None)], weights, opset=21, ir_version=10)
    (tmp_path / "pins").write_text("value x [-,-,x,-]\nvalue y [-,-,x,-]\n")
    compare(autopar, tmp_path, m, {"x": r.standard_normal([1, 1, 10, 12]).astype(np.float32)}, "--devices", 2, "--pin",
            tmp_path / "pins", "--split", "force")
    explicit = autopar("dump", tmp_path / "out", "--format", "ir", "--state", "explicit").stdout
    assert len(re.findall(r"= all_reduce ", explicit)) == 2, explicit  # mean, variance


@pytest.mark.parametrize("split", ["[x,-,-,-]", "[-,x,-,-]"])
@pytest.mark.parametrize("norm", ["instance", "group"])
def test_batch_and_channels_are_split_for_nothing(autopar, tmp_path, norm, split):
    kind, factors, attrs = NORMS[norm]
    weights = [tensor(f"w{k}", np.ones(16, np.float32)) for k in range(factors)]
    nodes = [helper.make_node(kind, ["x", "w0", "w1"], ["y"], "norm", **attrs)]
    onnx.save(model(nodes, [value("x", [2, 16, 10, 12])], [value("y", None)], weights, opset=21, ir_version=10),
              tmp_path / "m.onnx")
    if "group" == norm:
        split = split.replace("[-,x,", "[-,x.-,")  # whole groups
    (tmp_path / "pins").write_text(f"value x {split}\nvalue y {split}\n")
    options = ["--devices", 2, "--pin", tmp_path / "pins"]
    explicit = autopar("dump", tmp_path / "m.onnx", "--format", "ir", "--state", "explicit", *options).stdout
    assert "composite" in explicit and not re.findall(r"= (all_reduce|all_gather|all_to_all|reduce_scatter) ", explicit), explicit
