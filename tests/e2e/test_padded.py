"""Sizes that the devices do not divide: every split is forced, and the numbers are those of ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest

from make_model import encoder_layer, mlp, random_inputs

CASES = {
    "batch3": lambda: encoder_layer(seq=8, batch=3),
    "heads12": lambda: encoder_layer(seq=6, hidden=48, heads=12, batch=2),
    "heads3": lambda: encoder_layer(seq=5, hidden=21, heads=3, batch=3, fused=True),
    "vocabulary57": lambda: encoder_layer(seq=7, hidden=24, heads=3, batch=3, vocabulary=57),
    "mlp": lambda: mlp(batch=3, hidden=37),
}
MESHES = [["--devices", 2], ["--devices", 4], ["--devices", 8], ["--devices", 4, "--mesh", "2x2"]]


@pytest.mark.parametrize("force", [[], ["--split", "force"]], ids=["free", "forced"])
@pytest.mark.parametrize("mesh", MESHES, ids=["2", "4", "8", "2x2"])
@pytest.mark.parametrize("case", CASES)
def test_equals_onnx_runtime(autopar, tmp_path, case, mesh, force):
    m = CASES[case]()
    onnx.save(m, tmp_path / "m.onnx")
    feeds = random_inputs(m)
    want = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, feeds)[0]
    np.save(tmp_path / "x.npy", feeds["x"])
    autopar("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", *mesh, *force, "--check-passes")
    autopar("run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / "r")
    got = np.load(tmp_path / "r" / "y.npy")
    assert got.shape == want.shape and np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


# A reshard may go by a sharding that splits what no value of the plan does, so trimmed extents may make a plan cheaper than
# the solver says.
def test_reshard_by_padding(autopar, tmp_path):
    onnx.save(onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[5,16,5,8] x) => (float[5,16,5,2] y)
        <int64[5] five = {4,4,1,2,3}, int64[2] shape = {5,2}, int64[2] axes = {0,1}, float[5,2] scale = {1,2,3,4,5,6,7,8,9,10}>
        {
            a = Gather<axis: int = 3>(x, five)
            w = ConstantOfShape<value: tensor = float[1] {0.5}>(shape)
            b = MatMul(a, w)
            c = LayerNormalization<axis: int = 2>(b, scale)
            d = ReduceSum<keepdims: int = 1>(c, axes)
            y = Mul(c, d)
        }"""), tmp_path / "m.onnx")
    x = np.random.default_rng(1).standard_normal((5, 16, 5, 8)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})[0]
    np.save(tmp_path / "x.npy", x)
    options = ["--devices", 4, "--mesh", "2x2", "--stages", 1, "--split", "force"]
    autopar("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", *options, "--check-passes")
    autopar("run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / "r")
    got = np.load(tmp_path / "r" / "y.npy")
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


@pytest.mark.parametrize("case", CASES)
def test_forced_products_are_split(autopar, tmp_path, case):
    onnx.save(CASES[case](), tmp_path / "m.onnx")
    plan = autopar.json("plan", tmp_path / "m.onnx", "--devices", 8, "--split", "force")
    assert plan["sharded_flops_fraction"] >= 0.8
