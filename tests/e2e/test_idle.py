"""Devices that a plan leaves without work are told, wherever a plan is shown."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from make_model import encoder_layer


@pytest.mark.parametrize("stages, devices", [(2, 5), (2, 4), (1, 3)])
def test_idle_devices_are_told(autopar, tmp_path, stages, devices):
    onnx.save(encoder_layer(), tmp_path / "m.onnx")
    options = [tmp_path / "m.onnx", "--devices", devices, "--stages", stages, "--microbatches", 2]
    plan = autopar.json("plan", *options)
    used = sum(len(s["ranks"]) for s in plan["stages"])
    assert plan["idle_devices"] == devices - used and (used < devices) == (devices == 5)
    idle = f"idle: {devices - used} of {devices} devices have no work\n"
    assert (idle in autopar("plan", *options).stdout) == (used < devices)
    line = autopar("compile", *options, "--emit-only", "-o", tmp_path / "out").stdout
    assert (f"{used} of {devices} devices ({devices - used} idle), " if used < devices else f": {devices} device(s), ") in line
    assert (idle in (tmp_path / "out" / "plan.txt").read_text()) == (used < devices)


def test_idle_device_between_others(autopar, tmp_path):
    """Of two hosts of three, the first may have two stages and the second three: the program has no rank for what is idle between."""
    node = lambda op, ins, out, **k: helper.make_node(op, ins, [out], out, **k)
    nodes = [node("Softmax", ["x"], "s"), node("GlobalAveragePool", ["x"], "g"), node("Abs", ["g"], "a"), node("Abs", ["a"], "b"),
             node("Neg", ["a"], "c"), node("Max", ["c", "a"], "m"), node("Concat", ["b", "g"], "k", axis=-1), node("Sub", ["c", "b"], "d"),
             node("Softmax", ["m"], "e")]
    f = lambda name, shape=None: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "idle", [f("x", [1, 3, 8, 8])], [f(o) for o in "skde"])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32))
    plan = autopar.json("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", "--cluster", "summit:2x3", "--stages", 5)
    assert [s["ranks"] for s in plan["stages"]] == [[0], [1], [3], [4], [5]] and plan["idle_devices"] == 1
    autopar("compile", tmp_path / "m.onnx", "-o", tmp_path / "one")
    for out in "out", "one":
        autopar("run", tmp_path / out, "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / (out + "-r"))
    for o in "skde":
        np.testing.assert_allclose(np.load(tmp_path / "out-r" / f"{o}.npy"), np.load(tmp_path / "one-r" / f"{o}.npy"), rtol=1e-6)
    assert "ranks 6" not in autopar("dump", tmp_path / "out", "--format", "ir", "--state", "local").stdout.splitlines()[0]
