"""profile: a file with which plans are made and programs run; options; nothing stays behind."""

import os
import signal
import subprocess
import time

import numpy as np
import onnx
import pytest

from make_model import encoder_layer, random_inputs


@pytest.fixture(scope="module")
def measured(autopar, tmp_path_factory):
    """(file, JSON) of a quick profile of two devices."""
    path = tmp_path_factory.mktemp("profile") / "here.yaml"
    return path, autopar.json("profile", "--quick", "--devices", 2, "-o", path)


def test_cases(measured):
    path, said = measured
    assert path.read_text() == said["cluster"]
    kinds = {c["kind"] for c in said["cases"]}
    assert kinds == {"launch", "memory", "rows", "product", "convolution", "exchange"}
    for c in said["cases"]:
        assert c["measured_us"] > 0 and c["predicted_us"] > 0
        # both are printed with all their digits
        assert abs(c["predicted_us"] / c["measured_us"] - 1 - c["relative_error"]) < 1e-6
    flops = {c["name"]: c["flops"] for c in said["cases"]}
    assert flops["[128,64]x[64,64]"] == 2 * 128 * 64 * 64
    assert flops["12 x [128,64]x[64,128]"] == 12 * 2 * 128 * 64 * 128
    assert flops["3x3 on 1x16x32x32"] == 2 * 16 * 16 * 9 * 32 * 32


def test_plans_and_runs(autopar, measured, tmp_path):
    m = encoder_layer(batch=4)
    onnx.save(m, tmp_path / "m.onnx")
    plan = autopar.json("plan", tmp_path / "m.onnx", "--cluster", measured[0], "-o", tmp_path / "plan.json")
    assert plan["seconds"] > 0
    assert autopar.json("simulate", tmp_path / "plan.json")["seconds"] > 0
    autopar("compile", tmp_path / "m.onnx", "--cluster", measured[0], "--stages", 2, "--microbatches", 2, "-o", tmp_path / "out")
    inputs = []
    for name, array in random_inputs(m).items():
        np.save(tmp_path / f"{name}.npy", array)
        inputs += ["--input", f"{name}={tmp_path / name}.npy"]
    autopar("run", tmp_path / "out", *inputs, "--output-dir", tmp_path)


def test_options(autopar, tmp_path):
    for options, words in [
        (["--devices", "0"], "--devices"),
        (["--devices", "x"], "--devices"),
        (["--devices", "65"], "from 1 to 64"),
        (["-o", "here"], "here.yaml"),
        (["model.onnx"], "takes no"),
        (["--cluster", "local"], "does not belong"),
    ]:
        assert words in autopar("profile", *options, code=2).stderr
    missing = tmp_path / "no" / "here.yaml"
    said = autopar("profile", "--quick", "--devices", 1, "-o", missing, code=4, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert str(missing) in said.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("after", [0.3, 2.5])
def test_interrupt(autopar, tmp_path, after):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    p = subprocess.Popen([autopar.path, "profile", "--devices", "1"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for _ in range(600):
        if list(tmp_path.iterdir()):
            break
        time.sleep(0.02)
    time.sleep(after)
    p.send_signal(signal.SIGINT)
    assert p.wait(timeout=60) == -signal.SIGINT
    assert not list(tmp_path.iterdir())
