"""run --trace: what every device did and when, as JSON for Perfetto, beside what was predicted."""

import json
import os
import stat
import subprocess

import numpy as np
import onnx
import pytest

from make_model import encoder_layer, random_inputs


@pytest.fixture
def model(tmp_path):
    m = encoder_layer()
    onnx.save(m, tmp_path / "encoder.onnx")
    np.save(tmp_path / "x.npy", random_inputs(m)["x"])
    return tmp_path / "encoder.onnx"


def tracks(path):
    """Events by track; the names of processes."""
    events = json.loads(path.read_text())["traceEvents"]
    assert all("ph" in e for e in events)
    name = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    out = {}
    for e in events:
        if e.get("ph") == "X":
            out.setdefault((name[e["pid"]], e["tid"]), []).append(e)
    return out


def check(path, devices):
    found = tracks(path)
    assert set(found) == {("measured", d) for d in range(devices)} | {("predicted", 0)}
    names = [e["name"] for e in found["predicted", 0]]
    assert any(e["args"]["operator"] == "MatMul" for e in found["predicted", 0])
    for track, events in found.items():
        assert [e["name"] for e in events] == names
        for a, b in zip(events, events[1:]):
            assert a["ts"] >= 0 and a["dur"] >= 0 and abs(a["ts"] + a["dur"] - b["ts"]) < 0.01, track
    for e in found["predicted", 0]:
        assert abs(e["dur"] - e["args"]["predicted_us"]) < 0.01


@pytest.mark.parametrize("devices", [1, 2])
def test_trace(autopar, model, tmp_path, devices):
    split = ["--split", "force"] if devices > 1 else []
    autopar("compile", model, "-o", tmp_path / "out", "--devices", devices, *split)
    run = "run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path
    autopar(*run, "--trace", tmp_path / "trace.json", "--repeat", 3, "--profile")
    check(tmp_path / "trace.json", devices)
    autopar(*run, env={**os.environ, "AUTOPAR_TRACE": str(tmp_path / "other.json")})
    check(tmp_path / "other.json", devices)


def test_trace_cannot_be_written(autopar, model, tmp_path):
    autopar("compile", model, "-o", tmp_path / "out")
    run = "run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path
    p = autopar(*run, "--trace", tmp_path / "no" / "trace.json", code=4)
    assert "trace.json" in p.stderr


@pytest.mark.parametrize("how", ["--trace", "AUTOPAR_TRACE"])
def test_full_disk(autopar, model, tmp_path, how):
    """What cannot be written to its end is told, whoever asked for it; devices stay what they are."""
    autopar("compile", model, "-o", tmp_path / "out")
    run = [autopar.path, "run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy"]
    for file, limit, why in ("/dev/full", "unlimited", "No space left on device"), (tmp_path / "trace.json", "2", "File too large"):
        args, env = (["--trace", file], {}) if how == "--trace" else ([], {"AUTOPAR_TRACE": str(file)})
        p = subprocess.run(["bash", "-c", f'ulimit -f {limit}; exec "$@"', "sh", *map(str, run + args)], capture_output=True, text=True,
                           env={**os.environ, **env}, cwd=tmp_path)
        assert p.returncode == 4 and f"{file}: cannot be written: {why}" in p.stderr, p.stderr
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    assert not list(tmp_path.glob("*.tmp"))
