"""Two hosts of A100 and two of V100: what knowing them apart is worth (issue of pipelines: 1.3 times in simulation).

    build/venv/bin/python bench/unlike.py [--model gpt-39b] [--file MODEL.onnx] [--batch 1024] [--dim NAME=SIZE]... [--devices 8]
                                          [--links own|equal] [--autopar PATH]

The model, of bench/make_large.py, is planned twice through the command line: for the four hosts as they are, and for a cluster that
takes all of them for V100. Both plans are then simulated on the hosts as they are; the second keeps its stages, meshes and shardings,
which is what somebody would run who does not tell the hosts apart. `--links equal`: all hosts have the A100 hosts' network cards, so that
the factor is that of the devices alone. Prints one line for each plan and the factor; exit code 1 if it is below 1.3."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import make_large
import onnx

ROOT = Path(__file__).resolve().parents[1]
# the figures of the presets (passes/cluster.c)
A100 = """    device:
      peak: {f32: 19.5 TFLOP/s, f16: 312 TFLOP/s, bf16: 312 TFLOP/s, f64: 19.5 TFLOP/s}
      vector: 9.7 TFLOP/s
      efficiency: 0.6
      launch: 4 us
      memory: [{name: HBM, capacity: 80 GB, bandwidth: 2039 GB/s}]
    links:
      devices: {latency: 5 us, bandwidth: 300 GB/s}
"""
V100 = """    device:
      peak: {f32: 15.7 TFLOP/s, f16: 125 TFLOP/s, f64: 7.8 TFLOP/s}
      vector: 7.8 TFLOP/s
      efficiency: 0.6
      launch: 5 us
      memory: [{name: HBM, capacity: 16 GB, bandwidth: 900 GB/s}]
    links:
      devices: {latency: 5 us, bandwidth: 130 GB/s}
"""
FAST = "      hosts: {latency: 10 us, bandwidth: 200 Gbit/s, shared: 1600 Gbit/s}\n"
SLOW = "      hosts: {latency: 15 us, bandwidth: 25 Gbit/s, shared: 25 Gbit/s}\n"


def cluster(name, devices, *groups):
    text = f"name: {name}\ngroups:\n"
    for hosts, device in groups:
        text += f"  - hosts: {hosts}\n    devices_per_host: {devices}\n{device}"
    return text + "links:\n  devices: {latency: 5 us, bandwidth: 130 GB/s}\n" + FAST[4:]


def run(*command):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{p.stderr}")
    return json.loads(p.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt-39b", choices=sorted(make_large.MODELS))
    parser.add_argument("--file", help="of the model, if it has been made already")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--devices", type=int, default=8, help="of a host")
    parser.add_argument("--links", choices=["own", "equal"], default="own")
    parser.add_argument("--autopar", default=ROOT / "build/release/bin/autopar")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        path = a.file or work / "model.onnx"
        if not a.file:
            onnx.save(make_large.make(a.model)[0], path)
        slow = V100 + (SLOW if a.links == "own" else FAST)
        (work / "mixed.yaml").write_text(cluster("mixed", a.devices, (2, A100 + FAST), (2, slow)))
        (work / "blind.yaml").write_text(cluster("blind", a.devices, (4, slow)))
        plans = {}
        for name in "mixed", "blind":
            options = ["--batch", a.batch, *(x for d in a.dim for x in ("--dim", d))]
            plan = run(a.autopar, "plan", path, "--cluster", work / f"{name}.yaml", *options, "-o", work / f"{name}.json", "--json")
            plans[name] = (plan, json.loads((work / f"{name}.json").read_text()))
        plans["blind"][1]["cluster"] = plans["mixed"][1]["cluster"]
        (work / "blind.json").write_text(json.dumps(plans["blind"][1]))
        seconds = {}
        for name, (plan, _) in plans.items():
            seconds[name] = run(a.autopar, "simulate", work / f"{name}.json", "--json")["seconds"]
            stages = ", ".join(f"{len(s['ranks'])}: {s['nodes']}" for s in plan["stages"])
            print(f"{name}: {seconds[name]:.3f} s in simulation, {plan['microbatches']} microbatches, stages (devices: nodes) {stages}")
        factor = seconds["blind"] / seconds["mixed"]
        print(f"factor {factor:.2f}")
        return factor < 1.3


if __name__ == "__main__":
    sys.exit(main())
