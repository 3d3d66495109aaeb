"""A model of several gigabytes with external data: time and peak memory of planning (the data absent), compiling and running.

    build/venv/bin/python bench/large.py [--layers 12] [--width 8192] [--devices 2] [--folder DIR] [--autopar PATH]

The model is a chain of products, WIDTH x WIDTH in f32 each (12 of 8192: 3.2 GB). Peak memory is the largest resident set of any
process, mapped files included; the result is compared with ONNX Runtime's."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[1]
BATCH = 4


def make(folder, layers, width):
    rng = np.random.default_rng(0)
    nodes, weights, size = [], [], width * width * 4
    with open(folder / "weights.bin", "wb") as f:
        for i in range(layers):
            t = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[width, width], data_location=TensorProto.EXTERNAL)
            for k, v in (("location", "weights.bin"), ("offset", i * size), ("length", size)):
                t.external_data.add(key=k, value=str(v))
            weights.append(t)
            for row in range(0, width, 256):
                rows = min(256, width - row)
                f.write((rng.standard_normal((rows, width), dtype=np.float32) * np.float32(width**-0.5)).tobytes())
            nodes += [helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"p{i}"], f"fc{i}"),
                      helper.make_node("Tanh", [f"p{i}"], [f"h{i + 1}"], f"act{i}")]
    info = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [BATCH, width])
    graph = helper.make_graph(nodes, "chain", [info("h0")], [info(f"h{layers}")], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
    np.save(folder / "x.npy", rng.standard_normal((BATCH, width), dtype=np.float32))


# A process counts what it was before it became another program: a small one starts what is measured.
METER = "import os,sys; p=os.posix_spawn(sys.argv[1],sys.argv[1:],os.environ); _,s,u=os.wait4(p,0); print(u.ru_maxrss,file=sys.stderr); sys.exit(s!=0)"


def measure(what, weights, *command):
    """Runs it; prints seconds and the peak as a multiple of the weights."""
    start = time.monotonic()
    p = subprocess.run([sys.executable, "-S", "-c", METER, *(str(c) for c in command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        sys.exit(f"{what}: failed\n{p.stderr}")
    peak = int(p.stderr.splitlines()[-1]) * 1024
    print(f"| {what} | {time.monotonic() - start:.1f} s | {peak / 1e6:.0f} MB | {peak / weights:.2f} |", flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--layers", type=int, default=12)
    a.add_argument("--width", type=int, default=8192)
    a.add_argument("--devices", type=int, default=2)
    a.add_argument("--folder", help="where the model and the programs go, and are removed from (default: a temporary folder)")
    a.add_argument("--autopar", default=ROOT / "build/release/bin/autopar")
    a = a.parse_args()
    work = Path(tempfile.mkdtemp(dir=a.folder))
    try:
        weights = a.layers * a.width * a.width * 4
        make(work, a.layers, a.width)
        x = np.load(work / "x.npy")
        want = onnxruntime.InferenceSession(str(work / "model.onnx")).run(None, {"h0": x})[0]
        os.mkdir(work / "bare")
        shutil.copy(work / "model.onnx", work / "bare")
        print(f"{weights / 1e9:.2f} GB of weights, {a.devices} device(s)\n\n| | time | peak | of the weights |\n| --- | --- | --- | --- |")
        measure("plan, no data", weights, a.autopar, "plan", work / "bare/model.onnx", "--devices", a.devices, "-q")
        for form in ("copy", "reference", "sliced"):
            out = work / form
            measure(f"compile, {form}", weights, a.autopar, "compile", work / "model.onnx", "-o", out, "--devices", a.devices, "--weights", form, "-q")
            measure(f"run, {form}", weights, a.autopar, "run", out, "--input", f"h0={work}/x.npy", "--output-dir", work / "r", "-q")
            got = np.load(work / "r" / f"h{a.layers}.npy")
            print(f"largest difference to ONNX Runtime {np.abs(got - want).max():.2g} of {np.abs(want).max():.2g}", file=sys.stderr)
            shutil.rmtree(out)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
