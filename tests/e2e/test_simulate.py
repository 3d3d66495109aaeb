"""simulate, and dump --format trace: parts of the time add up, memory stays below what is reserved, traces are sound."""

import json
import os

import numpy as np
import onnx
import pytest

from make_model import encoder_layer, random_inputs

PLANS = [
    ["--devices", 1],
    ["--devices", 2, "--split", "force"],
    ["--devices", 2, "--stages", 2, "--microbatches", 4],
    ["--devices", 4, "--stages", 2, "--microbatches", 2],
    ["--cluster", "dgx-a100-80gb:2x2", "--stages", 4, "--microbatches", 4],
]


@pytest.fixture
def model(tmp_path):
    onnx.save(encoder_layer(batch=4), tmp_path / "encoder.onnx")
    return tmp_path / "encoder.onnx"


def close(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b)) + 2e-12


@pytest.mark.parametrize("options", PLANS, ids=lambda o: "-".join(map(str, o[1::2])))
def test_figures(autopar, model, tmp_path, options):
    autopar("plan", model, "-o", tmp_path / "plan.json", *options)
    s = autopar.json("simulate", tmp_path / "plan.json")
    assert s["seconds"] > 0 and s["planned_seconds"] > 0 and 0 <= s["bubble"] < 1
    ranks = []
    exposed = bubble = 0
    for stage in s["stages"]:
        parts = [stage[k + "_seconds"] for k in ("compute", "exchange", "transfer", "bubble")]
        assert all(p >= 0 for p in parts) and close(sum(parts), s["seconds"])
        assert close(stage["run_seconds"] * s["microbatches"], parts[0] + parts[1])
        assert stage["resident_bytes"] < stage["peak_bytes"] <= stage["reserved_bytes"]
        times, held = zip(*stage["memory"])
        assert list(times) == sorted(times) and max(held) <= stage["peak_bytes"] and held[-1] == stage["resident_bytes"]
        ranks += stage["ranks"]
        exposed += (parts[1] + parts[2]) * len(stage["ranks"])
        bubble += parts[3] * len(stage["ranks"])
    assert [d["rank"] for d in s["devices"]] == ranks == list(range(len(ranks)))
    assert abs(s["exposed_communication_seconds"] - exposed / len(ranks)) < 1e-11
    assert abs(s["bubble"] - bubble / len(ranks) / s["seconds"]) < 1e-6
    if len(s["stages"]) > 1:
        assert s["transfers"] and s["bubble"] > 0
    for t in s["transfers"]:
        assert t["bytes"] > 0 and t["mean_seconds"] >= t["alone_seconds"] * (1 - 1e-9) > 0
    text = autopar("simulate", tmp_path / "plan.json").stdout
    assert text.startswith("simulated ") and all(t["slot"] in text for t in s["transfers"])


@pytest.mark.parametrize("options", PLANS, ids=lambda o: "-".join(map(str, o[1::2])))
def test_trace(autopar, model, tmp_path, options):
    autopar("plan", model, "-o", tmp_path / "plan.json", *options)
    s = autopar.json("simulate", tmp_path / "plan.json")
    events = json.loads(autopar("dump", tmp_path / "plan.json", "--format", "trace").stdout)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    runs = [e for e in slices if e["name"] == "run"]
    assert len(runs) == len(s["devices"]) * s["microbatches"]
    assert close(max(e["ts"] + e["dur"] for e in slices) * 1e-6, s["seconds"])
    for d in s["devices"]:
        # what stands on a track lies behind each other, but for kernels inside runs, which fill them
        track = sorted((e for e in slices if e["pid"] == 1 and e["tid"] == d["rank"]), key=lambda e: (e["ts"], -e["dur"]))
        outer = [e for e in track if e.get("cat") not in ("kernel", "exchange")]
        for a, b in zip(outer, outer[1:]):
            assert a["ts"] + a["dur"] <= b["ts"] + 2e-6
        inner = [e for e in track if e.get("cat") in ("kernel", "exchange")]
        run = [e for e in outer if e["name"] == "run"]
        assert abs(sum(e["dur"] for e in inner) - sum(e["dur"] for e in run)) < 1e-3
    arrows = {p: [e for e in events if e["ph"] == p] for p in "stf"}
    assert len(arrows["s"]) == len(arrows["t"]) == len(arrows["f"]) == len(s["transfers"]) * s["microbatches"]
    for p in "sf":
        for e in arrows[p]:  # bound to a run
            assert any(r["tid"] == e["tid"] and r["ts"] - 2e-6 <= e["ts"] <= r["ts"] + r["dur"] + 2e-6 for r in runs)
    at = {e["id"]: e["ts"] for e in arrows["s"]}
    assert all(at[e["id"]] <= e["ts"] for e in arrows["f"])
    for d in s["devices"]:
        counted = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == f"memory of device {d['rank']}"]
        assert max(counted) == d["peak_bytes"]


def test_predicted_tracks(autopar, model, tmp_path):
    """A measured trace shows beside it what the simulator says."""
    autopar("compile", model, "-o", tmp_path / "out", "--devices", 2, "--stages", 2, "--microbatches", 4)
    s = autopar.json("simulate", tmp_path / "out")
    np.save(tmp_path / "x.npy", random_inputs(onnx.load(model))["x"])
    autopar("run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path, "--trace",
            tmp_path / "t.json")
    events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e.get("ph") == "X"]
    predicted = [e for e in events if e["pid"] == 2]
    assert abs(max(e["ts"] + e["dur"] for e in predicted) - 1e6 * s["seconds"]) < 0.1
    moves = [e for e in events if e["pid"] == 3]
    assert len(moves) == 4 * len(s["transfers"])


def test_states(autopar, model, tmp_path):
    """Of planned nodes the simulator's time is the planner's; that of lowered kernels, which are fused but count calls and
    tiles of products, is another, but not by much."""
    autopar("plan", model, "-o", tmp_path / "cpu.json", "--devices", 2, "--stages", 2, "--microbatches", 1)
    planned = autopar.json("simulate", tmp_path / "cpu.json", "--state", "planned")
    assert planned["times_of"] == "planned" and close(planned["seconds"], planned["planned_seconds"])
    local = autopar.json("simulate", tmp_path / "cpu.json")
    assert local["times_of"] == "local" and 0.5 < local["seconds"] / planned["seconds"] < 2
    assert not close(local["seconds"], planned["seconds"])
    autopar("plan", model, "-o", tmp_path / "gpu.json", "--cluster", "dgx-a100-80gb:1x2", "--stages", 2)
    assert autopar.json("simulate", tmp_path / "gpu.json")["times_of"] == "planned"
    assert "planned or local" in autopar("simulate", tmp_path / "gpu.json", "--state", "explicit", code=2).stderr


def test_same_bytes(autopar, model, tmp_path):
    autopar("compile", model, "-o", tmp_path / "out", "--devices", 2, "--stages", 2, "--microbatches", 2, "--emit-only")
    first = autopar("simulate", tmp_path / "out", "--json").stdout
    assert first == autopar("simulate", tmp_path / "out" / "plan.json", "--json").stdout
    trace = autopar("dump", tmp_path / "out", "--format", "trace").stdout
    assert trace == autopar("dump", tmp_path / "out", "--format", "trace").stdout


def test_misuse(autopar, model, tmp_path):
    assert "usage" in autopar("simulate", code=2).stderr
    assert "trace" in autopar("dump", model, "--format", "tracks", code=2).stderr
    p = autopar("simulate", tmp_path / "none.json", code=4)
    assert "none.json" in p.stderr
    (tmp_path / "bad.json").write_text("{}")
    assert "bad.json" in autopar("simulate", tmp_path / "bad.json", code=1).stderr
