"""The generators of the large models at a size that runs: ONNX Runtime's numbers in f32 on 1, 2 and 4 devices; and the
graphs of full size, without weights, on the command line."""

import re
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import make_large  # noqa: E402

SMALL = {
    "opt-175b": dict(layers=2, width=32, heads=4, vocabulary=50, longest=16),
    "bloom-176b": dict(layers=2, width=48, heads=6, vocabulary=40),
    "gpt-39b": dict(layers=2, width=32, heads=4, vocabulary=48, longest=12),
    "wrn-13b": dict(blocks=(1, 1, 2, 1), base=8, width=2, classes=12, pixels=32),
    "moe-70b": dict(layers=2, width=16, heads=2, vocabulary=40, experts=4, group=16, longest=8),
}
# Groups of 16 tokens need batch * sequence to be a multiple.
DIMS = {"wrn-13b": {"batch": 4}, "moe-70b": {"batch": 4, "sequence": 8}}


def inputs(model, dims, vocabulary):
    random = np.random.default_rng(1)
    given = {}
    for v in model.graph.input:
        t = v.type.tensor_type
        shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in t.shape.dim]
        given[v.name] = random.integers(0, vocabulary, shape) if t.elem_type == onnx.TensorProto.INT64 else \
            random.standard_normal(shape).astype(np.float32)
    return given


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_small(autopar, tmp_path, name, devices):
    model, _ = make_large.make(name, weights="random", dtype=np.float32, **SMALL[name])
    onnx.checker.check_model(model)
    path, dims = tmp_path / "m.onnx", DIMS.get(name, {"batch": 2, "sequence": 8})
    onnx.save(model, path)
    x = inputs(model, dims, SMALL[name].get("vocabulary", 0))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    want = session.run(None, x)[0]
    flags = [f for k, v in x.items() for f in ("--input", f"{k}={tmp_path / k}.npy")]
    for k, v in x.items():
        np.save(tmp_path / f"{k}.npy", v)
    force = ["--split", "force"] if devices > 1 else []
    sizes = [f for k, v in dims.items() for f in ("--dim", f"{k}={v}")]
    autopar("compile", path, "-o", tmp_path / "out", "--devices", devices, *sizes, *force, "-q")
    autopar("run", tmp_path / "out", *flags, "--output-dir", tmp_path / "r", "-q")
    got = np.load(tmp_path / "r" / f"{model.graph.output[0].name}.npy")
    assert got.shape == want.shape and np.allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("large")
    make_large.main("all", path)  # asserts the published numbers of parameters
    return path


@pytest.mark.parametrize("name", SMALL)
def test_full_size(autopar, folder, name):
    """Everything is supported and the parameters are counted without their bytes."""
    dims = ["--dim", "batch=8"] if name == "wrn-13b" else ["--dim", "batch=8", "--dim", "sequence=1024"]
    p = autopar("info", folder / f"{name}.onnx", *dims)
    counted = int(next(line for line in p.stdout.splitlines() if line.startswith("parameters")).split()[1])
    parameters = make_large.make(name)[1]
    assert 0 <= counted - parameters <= 200000  # constants of the graph count too


def test_fits_where_it_is_deployed(autopar, folder):
    """OPT-175B in 16 bits: 349 GB fit in 8 x 80 GB with activations, and cannot in 4 x 80 GB."""
    path = folder / "opt-175b.onnx"
    dims = ["--dim", "batch=1", "--dim", "sequence=1024", "--budget", 10000]
    plan = autopar.json("plan", path, *dims, "--cluster", "dgx-a100-80gb:1x8")
    assert 349.2e9 / 8 <= plan["peak_bytes"] <= 80e9 and plan["sharded_flops_fraction"] > 0.99
    p = autopar("plan", path, *dims, "--cluster", "dgx-a100-80gb:1x4", code=3)
    assert "no plan fits" in p.stderr and "in 80000000000 bytes per device" in p.stderr
    missing = int(re.search(r"(\d+) more", p.stderr).group(1))
    assert 349.2e9 / 4 - 80e9 <= missing <= 20e9
