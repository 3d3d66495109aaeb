"""Graphs of ten thousand nodes plan and compile, and what comes out computes what ONNX Runtime does."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import graphs  # noqa: E402


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("name", sorted(graphs.MODELS))
def test_ten_thousand_nodes_plan(autopar, tmp_path, name, devices):
    path = tmp_path / "model.onnx"
    assert graphs.MODELS[name](path, 1) >= 9999
    plan = autopar.json("plan", path, "--devices", devices)
    assert plan["seconds"] > 0 and plan["gap"] == 0
    autopar("compile", path, "--devices", devices, "--emit-only", "-o", tmp_path / "out")
    assert (tmp_path / "out" / "program.c").stat().st_size > 100000


@pytest.mark.parametrize("devices", [1, 2])
def test_a_thousand_nodes_run(autopar, tmp_path, devices):
    path, x = tmp_path / "model.onnx", np.random.default_rng(1).standard_normal((2, 8, 32)).astype(np.float32)
    assert graphs.transformer(path, layers=24) >= 1000
    np.save(tmp_path / "x.npy", x)
    autopar("compile", path, "--devices", devices, "--split", "force", "-o", tmp_path / "out")
    autopar("run", tmp_path / "out", "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "y")
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    (got,) = (tmp_path / "y").glob("*.npy")
    np.testing.assert_allclose(np.load(got), want, rtol=1e-3, atol=1e-4)
