"""Programs for GPUs, run by the test shim on the CPU: what ONNX Runtime gives, on several devices and in stages, in whatever
order the shim runs what streams and events do not order, with every access of every kernel checked.

All shared models: scripts/cuda_models.sh. Here a few that take seconds; AUTOPAR_CUDA_MODELS=all takes those of
test_models.py."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT
from test_models import MODELS

sys.path.insert(0, str(ROOT / "tests" / "cudashim"))
import build as shim

ALL = os.environ.get("AUTOPAR_CUDA_MODELS") == "all"


@pytest.fixture(scope="module")
def program(autopar, tree):
    """make(model, out, options...): an emitted program, built with the shim."""
    def make(model, out, *options):
        autopar("compile", model, "-o", out, "--target", "cuda", "--emit-only", "-q", *options)
        shim.build(out, tree)
        return out

    return make


def checked(autopar, out, data, seed, *options):
    env = {**os.environ, "CUDASHIM_SEED": str(seed), "CUDASHIM_QUIET": "1"}
    p = autopar("check", out, "--data", data, *options, env=env)
    assert "cudashim" not in p.stderr, p.stderr
    assert ": ok" in p.stdout, p.stdout


@pytest.mark.parametrize("devices", [1, 2, 4] if ALL else [1])
@pytest.mark.parametrize("name", MODELS if ALL else ["ort-mnist-cntk"])
def test_model(autopar, program, models, tmp_path, name, devices):
    data = models / name / "test_data_set_0"
    out = program(models / name / "model.onnx", tmp_path / "out", "--shapes-from", data, "--devices", devices)
    for seed in range(2):
        checked(autopar, out, data, seed)


def test_stages(autopar, program, models, tmp_path):
    """Two stages of two devices: collectives inside, channels between."""
    data = models / "vespa-bert2l" / "test_data_set_0"
    out = program(models / "vespa-bert2l" / "model.onnx", tmp_path / "out", "--shapes-from", data, "--devices", 4,
                  "--stages", 2, "--split", "force")
    for seed in range(3):
        checked(autopar, out, data, seed)


def test_same_bits(autopar, program, models, tmp_path):
    """Right on two devices with all split, and no result depends on the order in which blocks, threads and streams take
    turns; the third microbatch on is a graph that is launched again."""
    data = models / "vespa-bert2l" / "test_data_set_0"
    out = program(models / "vespa-bert2l" / "model.onnx", tmp_path / "out", "--shapes-from", data, "--devices", 2,
                  "--split", "force")
    checked(autopar, out, data, 0)
    results = set()
    for seed in range(3):
        run = tmp_path / str(seed)
        env = {**os.environ, "CUDASHIM_SEED": str(seed), "CUDASHIM_QUIET": "1"}
        autopar("run", out, "--output-dir", run, "--repeat", 3, *arguments(models, data), env=env)
        results.add(tuple(f.read_bytes() for f in sorted(run.iterdir())))
    assert len(results) == 1


def arguments(models, data):
    """--input NAME=FILE of a data set, the names in the order of the model's inputs."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(models / "vespa-bert2l" / "model.onnx", load_external_data=False).graph
    constants = {t.name for t in graph.initializer}
    names = [i.name for i in graph.input if i.name not in constants]
    return [a for i, name in enumerate(names) for a in ("--input", f"{name}={data}/input_{i}.pb")]


@pytest.mark.skipif(not shutil.which("nvcc") and not os.path.exists("/usr/local/cuda/bin/nvcc"), reason="no nvcc")
def test_nvcc(autopar, models, tmp_path):
    """The real compiler takes it without a warning, no kernel spills."""
    data = models / "vespa-bert2l" / "test_data_set_0"
    autopar("compile", models / "vespa-bert2l" / "model.onnx", "-o", tmp_path / "out", "--target", "cuda",
            "--emit-only", "-q", "--shapes-from", data)
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    p = subprocess.run([nvcc, "-std=c++17", "-O3", "-arch=sm_90", "-Werror", "all-warnings", "-Xptxas", "-v",
                        "-Xcompiler", "-Wall,-Werror,-Wno-unknown-pragmas", "-I", ROOT / "runtime",
                        "-I", ROOT / "runtime" / "cuda", "-c", "kernels.cu", "-o", "kernels.o"],
                       capture_output=True, text=True, cwd=tmp_path / "out")
    assert p.returncode == 0, p.stderr
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", p.stderr)
    assert spills and all(s == ("0", "0") for s in spills), p.stderr
