"""Cluster files and presets on the command line, and that a plan remembers its machine to the last number."""

import json
from pathlib import Path

import onnx
import pytest

from make_model import encoder_layer

LAB = """
name: lab
groups:
  - hosts: 2
    devices_per_host: 4
    device:
      peak: {f32: 19.5 TFLOP/s, bf16: 312 TFLOP/s}
      vector: 9.7 TFLOP/s
      efficiency: 0.6
      launch: 4 us
      memory:
        - {name: HBM, capacity: 80 GB, bandwidth: 2039 GB/s}
        - {name: DRAM, capacity: 2 TB, bandwidth: 25 GB/s, latency: 1 us, shared_by: 4}
links:
  devices: {latency: 5 us, bandwidth: 300 GB/s}
  hosts: {latency: 10 us, bandwidth: 25 GB/s}
"""


@pytest.fixture
def path(tmp_path):
    onnx.save(encoder_layer(), tmp_path / "m.onnx")
    (tmp_path / "lab.yaml").write_text(LAB)
    return tmp_path / "m.onnx"


def figures(plan):
    return {k: v for k, v in plan.items() if k not in ("planning_seconds", "solver_seconds", "cluster")}


def test_file_equals_preset(autopar, path, tmp_path):
    """The file has the numbers of dgx-a100-80gb:2x4 in this element type, so the plans are the same."""
    a = autopar.json("plan", path, "--cluster", tmp_path / "lab.yaml")
    b = autopar.json("plan", path, "--cluster", "dgx-a100-80gb:2x4")
    assert figures(a) == figures(b) and (a["cluster"], b["cluster"]) == ("lab", "dgx-a100-80gb")


def test_part_of_a_file(autopar, path, tmp_path):
    plan = autopar.json("plan", path, "--cluster", f"{tmp_path}/lab.yaml:1x2")
    assert plan["stages"][0]["ranks"] == [0, 1] and plan["hosts"] == 1
    assert autopar.json("plan", path, "--cluster", f"{tmp_path}/lab.yaml:4")["hosts"] == 4
    autopar("plan", path, "--cluster", f"{tmp_path}/lab.yaml:1x5", code=2)
    autopar("plan", path, "--cluster", tmp_path / "none.yaml", code=4)


def test_wrong_file(autopar, path, tmp_path):
    (tmp_path / "lab.yaml").write_text(LAB.replace("300 GB/s", "300 GB"))
    p = autopar("plan", path, "--cluster", tmp_path / "lab.yaml", code=2)
    assert "lab.yaml:15" in p.stderr and '"links.devices.bandwidth"' in p.stderr and len(p.stderr.splitlines()) == 1


def test_plan_remembers_the_machine(autopar, path, tmp_path):
    plan = tmp_path / "plan.json"
    autopar("plan", path, "--cluster", tmp_path / "lab.yaml", "-o", plan, "-q")
    cluster = json.loads(plan.read_text())["cluster"]
    assert cluster["memory"][1] == {"name": "DRAM", "shared_by": "4", "bytes": "2000000000000",
                                    "bytes_per_second": "25000000000", "latency_ps": "1000000"}
    again = tmp_path / "again"
    autopar("compile", path, "-o", again, "--plan", plan, "--emit-only", "-q")
    assert json.loads((again / "plan.json").read_text()) == json.loads(plan.read_text())


@pytest.mark.parametrize("damage", [{"hosts": "0"}, {"memory_bytes": "-5"}, {"memory": [{}]}, {"inside.bytes_per_second": "x"},
                                    {"contract_efficiency": "nan"}, {"hosts": "65536"}])
def test_damaged_plan(autopar, path, tmp_path, damage):
    plan = tmp_path / "plan.json"
    autopar("plan", path, "--cluster", tmp_path / "lab.yaml", "-o", plan, "-q")
    content = json.loads(plan.read_text())
    content["cluster"].update(damage)
    plan.write_text(json.dumps(content))
    p = autopar("compile", path, "-o", tmp_path / "out", "--plan", plan, code=1)
    assert "plan.json" in p.stderr and len(p.stderr.splitlines()) == 1


MIXED = Path(__file__).parents[1] / "fuzz" / "corpus" / "cluster" / "mixed.yaml"


def test_unlike_hosts(autopar, path, tmp_path):
    """A plan over all of them is that of the slowest device of each, says so, and is remembered with the groups."""
    plan = tmp_path / "plan.json"
    p = autopar("plan", path, "--cluster", MIXED, "-o", plan)
    assert "1 host(s) of 4 device(s), 2 host(s) of 2 device(s)" in p.stdout and "slowest" in p.stdout
    cluster = json.loads(plan.read_text())["cluster"]
    assert [g["devices_per_host"] for g in cluster["groups"]] == ["4", "2"] and cluster["groups"][0]["island"] == "2"
    assert cluster["memory_bytes"] == "16000000000" and cluster["groups"][0]["memory_bytes"] == "80000000000"
    again = tmp_path / "again"
    autopar("compile", path, "-o", again, "--plan", plan, "--emit-only", "-q")
    assert json.loads((again / "plan.json").read_text()) == json.loads(plan.read_text())
    cluster["groups"].pop()
    content = json.loads(plan.read_text())
    content["cluster"] = cluster
    plan.write_text(json.dumps(content))
    autopar("compile", path, "-o", tmp_path / "out", "--plan", plan, code=1)
    fast = autopar.json("plan", path, "--cluster", f"{MIXED}:1")
    slow = autopar.json("plan", path, "--cluster", f"{MIXED}:1x1")
    assert fast["hosts"] == 1 and len(fast["stages"][0]["ranks"]) == 4 and fast["seconds"] <= slow["seconds"]


@pytest.mark.parametrize("preset", ["p3.16xlarge", "dgx-a100-80gb", "selene", "dgx-h100", "dgx-h200", "dgx-2", "summit"])
def test_presets(autopar, path, preset):
    plan = autopar.json("plan", path, "--cluster", f"{preset}:2x4")
    assert plan["cluster"] == preset and plan["stages"][0]["mesh"] == {"x": 2, "y": 4}
    one = autopar.json("plan", path, "--cluster", f"{preset}:1x1")
    assert plan["seconds"] <= one["seconds"]
