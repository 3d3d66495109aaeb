#!/usr/bin/env python3
"""One machine with a GPU: the demo's encoder, GPT blocks in bf16 and ResNet-50, each checked, timed, and timed in PyTorch.

    bench/gpu.py prepare OUT [--only NAME,...] [--march sm_90] [--autopar PATH]     anywhere: models, programs, expected outputs
    bench/gpu.py prepare OUT --shim BUILD                                           small ones, for the test shim of that build
    OUT/gpu.py run OUT [--only NAME,...] [--json FILE]                              on the machine with the GPU; about 3 minutes

`prepare` needs the onnx and onnxruntime packages, and nvcc (not for the shim). Afterwards OUT may be packed and moved: it has all that
`run` needs but CUDA's libraries and numpy, and onnx and torch for the comparison with PyTorch. Weights are a few thousand random numbers
repeated, so that OUT packs well; those of the demo's encoder are its own (demo.sh fetches it; otherwise it is left out).

What is compared: all outputs with ONNX Runtime in f32 on a processor (bf16: as a vector, within 2 %). What is timed: `wall`, a run from
inputs to outputs in the host's memory, graphs replayed; `device`, the sum of the times of kernels and library calls. In PyTorch,
`wall` copies from and to pinned memory; `device` is between two events around the model alone, by torch.compile (--torch-mode;
reduce-overhead replays graphs as well), with f32 products exact, or in TF32 where AUTOPAR_TF32=1 says so for ours as well. The share of
the peak is that of matrix products over `device`."""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# dense, of the data sheets of H100 SXM5 and H200
PEAK = {"f32": 67e12, "tf32": 494e12, "bf16": 989e12}
REPEAT = 50

# ---- the models: prepare ----


class Repeated:
    """Stands for numpy's generator: a prime number of draws, over and over, turned a little each time."""

    def __init__(self, seed=0):
        self.random_numbers = np.random.default_rng(seed)
        self.normal, self.uniform, self.calls = self.random_numbers.standard_normal(4093), self.random_numbers.random(4093), 0

    def take(self, numbers, shape):
        self.calls += 1
        return np.resize(np.roll(numbers, 97 * self.calls), shape)

    def standard_normal(self, shape):
        return self.take(self.normal, shape)

    def random(self, shape):
        return self.take(self.uniform, shape)


def gpt(small):
    import make_large

    sizes = dict(layers=1, width=32, heads=2, vocabulary=64, longest=16) if small else \
        dict(layers=2, width=2048, heads=16, vocabulary=1024, longest=1024)
    batch, tokens = (2, 16) if small else (8, 1024)
    g = make_large.Graph("random", np.float32)
    g.random = Repeated()
    ids = np.random.default_rng(1).integers(0, sizes["vocabulary"], (batch, tokens))
    model = make_large.gpt(g, **sizes)
    return model, {"ids": ids}, {"batch": batch, "sequence": tokens}, {"dtype": "bf16", "gpt": sizes}


def resnet(small):
    import make_large

    batch, pixels = (1, 32) if small else (32, 224)
    g = make_large.Graph("random", np.float32)
    g.random = Repeated()
    blocks, base, classes = ((1, 1), 8, 16) if small else ((3, 4, 6, 3), 64, 1000)
    model = make_large.wide_resnet(g, blocks=blocks, base=base, width=1, classes=classes, pixels=pixels)
    image = np.random.default_rng(2).random((batch, 3, pixels, pixels), np.float32)
    return model, {"image": image}, {"batch": batch}, {"dtype": "f32"}


def demo(small):
    import onnx

    found = sorted((ROOT / "build/demo/packages").glob("**/*.onnx"))
    if not found:
        return None
    batch, tokens = (1, 8) if small else (8, 32)
    ids = np.random.default_rng(3).integers(1000, 20000, (batch, tokens))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return onnx.load(found[0]), feeds, {"batch_size": batch, "sequence_length": tokens}, {"dtype": "f32"}


MODELS = {"demo": demo, "gpt-bf16": gpt, "resnet50": resnet}


def folded(model, binds, work):
    """The graph with its sizes bound and shapes computed, as ONNX Runtime's basic optimisations leave it."""
    import onnx
    import onnxruntime

    onnx.save(model, work / "whole.onnx")
    options = onnxruntime.SessionOptions()
    for name, size in binds.items():
        options.add_free_dimension_override_by_name(name, size)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(work / "folded.onnx")
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(work / "whole.onnx"), options, providers=["CPUExecutionProvider"])
    return onnx.load(work / "folded.onnx"), session


def rounded_bf16(a):
    bits = np.ascontiguousarray(a, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def floats(graph):
    from onnx import TensorProto

    return [t for t in graph.initializer if t.data_type == TensorProto.FLOAT]


def round_weights(model):
    """Weights become numbers that bf16 has; what is beyond its range stays inside."""
    from onnx import numpy_helper

    for t in floats(model.graph):
        a = np.clip(numpy_helper.to_array(t), -1e30, 1e30)
        t.CopyFrom(numpy_helper.from_array(widened(rounded_bf16(a)).reshape(a.shape), t.name))


def to_bf16(model):
    """The same graph computed in bf16."""
    from onnx import TensorProto, helper, numpy_helper

    for t in floats(model.graph):
        a = numpy_helper.to_array(t)
        t.CopyFrom(helper.make_tensor(t.name, TensorProto.BFLOAT16, a.shape, rounded_bf16(a).tobytes(), raw=True))
    for v in [*model.graph.input, *model.graph.output]:
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            v.type.tensor_type.elem_type = TensorProto.BFLOAT16
    del model.graph.value_info[:]


def compile_model(o, folder, name):
    out = folder / "program"
    command = [o.autopar, "compile", folder / "model.onnx", "-o", out, "--target", "cuda", "--devices", "1", "--weights", "reference",
               "--name", "program", "-q", "--force", *(["--emit-only"] if o.shim else ["--march", o.march])]
    subprocess.run([str(c) for c in command], check=True)
    if o.shim:
        sys.path.insert(0, str(ROOT / "tests/cudashim"))
        import build

        build.build(out, o.shim)


def prepare_one(o, name):
    import onnx

    folder = o.out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = MODELS[name](bool(o.shim))
    if made is None:
        print(f"{name}: left out, run demo.sh first")
        return folder.rmdir()
    model, feeds, binds, case = made
    if case["dtype"] == "bf16":
        round_weights(model)
    model, session = folded(model, binds, folder)
    names = [i.name for i in session.get_inputs()]
    expected = session.run(None, {n: feeds[n] for n in names})
    if case["dtype"] == "bf16":
        to_bf16(model)
    onnx.save(model, folder / "model.onnx")
    for temporary in ("whole.onnx", "folded.onnx"):
        (folder / temporary).unlink()
    for i, n in enumerate(names):
        np.save(folder / f"input_{i}.npy", feeds[n])
    for i, a in enumerate(expected):
        np.save(folder / f"expected_{i}.npy", a)
    said = subprocess.run([str(o.autopar), "info", str(folder / "model.onnx"), "--json"], check=True, capture_output=True, text=True)
    case.update(inputs=names, outputs=[x.name for x in session.get_outputs()], products=products(json.loads(said.stdout)))
    (folder / "case.json").write_text(json.dumps(case, indent=1))
    compile_model(o, folder, name)
    print(f"{name}: {case['products'] / 1e9:.3g} GFLOP of products, {sum(f.stat().st_size for f in folder.rglob('*') if f.is_file()) / 1e6:.0f} MB")


def products(info):
    """FLOPs of products and convolutions."""
    return info["contraction_flops"]


def prepare(o):
    sys.path.insert(0, str(ROOT / "bench"))
    o.out.mkdir(parents=True, exist_ok=True)
    for name in o.only:
        prepare_one(o, name)
    shutil.copy(HERE / "gpu.py", o.out / "gpu.py")
    (o.out / "lib").mkdir(exist_ok=True)
    models = [o.out / name / "program/model" for name in o.only if (o.out / name / "program/model").exists()]
    for line in subprocess.run(["ldd", *map(str, models)], capture_output=True, text=True).stdout.splitlines():
        if match := re.search(r"libcjson\S* => (\S+)", line):
            shutil.copy(match[1], o.out / "lib")
    measuring = o.autopar.parent / ("autopar_profile_cuda_shim" if o.shim else "autopar_profile_cuda")
    if measuring.exists():
        shutil.copy(measuring, o.out / "autopar_profile_cuda")


# ---- ours: run ----


def environment(out):
    """Libraries of CUDA where Python packages have brought them, behind those that the loader finds."""
    folders = [str(out / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    for site in map(Path, sys.path):
        folders += map(str, sorted(site.glob("nvidia/*/lib")))
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}


def point_weights(folder):
    """The weights are in the model beside the program, wherever that is now."""
    path = folder / "program/weights.json"
    text = path.read_text()
    path.write_text(re.sub(r'"[^"]*/model\.onnx"', json.dumps(str(folder.resolve() / "model.onnx")), text))


def run_model(folder, env, *options):
    case = json.loads((folder / "case.json").read_text())
    inputs = [x for i, n in enumerate(case["inputs"]) for x in ("--input", f"{n}={folder}/input_{i}.npy")]
    p = subprocess.run([folder / "program/model", *inputs, "--output-dir", folder / "results", *options], env=env, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{folder.name}: exit code {p.returncode}: {p.stderr.strip() or p.stdout.strip()}")
    return p.stdout


def output_file(folder, name):
    return folder / "results" / (re.sub(r"[^A-Za-z0-9._-]", "_", name) + ".npy")


def error(folder, case, results):
    """The largest over the outputs of |difference| / |expected|, as vectors."""
    worst = 0.0
    for i, got in enumerate(results):
        want = np.load(folder / f"expected_{i}.npy").astype(np.float64)
        worst = max(worst, float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)))
    return worst


def ours(folder, case, env):
    run_model(folder, env)
    results = [np.load(output_file(folder, n)) for n in case["outputs"]]
    results = [widened(a.view(np.uint16)) if a.dtype.kind == "V" else a for a in results]
    row = {"error": error(folder, case, results)}
    timed = run_model(folder, env, "--repeat", str(REPEAT))
    row["wall_ms"] = float(re.search(r"time: median ([0-9.]+) ms", timed)[1])
    profiled = run_model(folder, env, "--repeat", "5", "--profile")
    lines = re.findall(r"^(.{40}) +(\d+) +([0-9.]+) +[0-9.]+ +[0-9.]+$", profiled, re.M)
    row["device_ms"] = sum(float(ms) for _, _, ms in lines)
    row["kernels"] = {what.strip(): float(ms) for what, _, ms in lines[:8]}
    return row


# ---- PyTorch: run ----


def torch_gpt(torch, weights, sizes):
    """make_large.gpt as one writes it in PyTorch."""
    f, width, heads = torch.nn.functional, sizes["width"], sizes["heads"]
    w = weights

    def norm(x, at):
        return f.layer_norm(x, (width,), w[at + ".scale"], w[at + ".bias"], 1e-5)

    def linear(x, at):
        return x @ w[at + ".weight"] + w[at + ".bias"]

    def model(ids):
        b, s = ids.shape
        x = w["tokens"][ids] + w["position"]  # of these positions: the graph is folded
        for i in range(sizes["layers"]):
            at = f"layer{i}"
            q, k, v = linear(norm(x, at + ".norm1"), at + ".attention.qkv").view(b, s, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            a = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, width)
            x = x + linear(a, at + ".attention.out")
            x = x + linear(f.gelu(linear(norm(x, at + ".norm2"), at + ".fc1"), approximate="tanh"), at + ".fc2")
        return (norm(x, "norm") @ w["head.weight"] + w["head.bias"],)

    return model


def torch_ops(torch):
    """What the folded graphs of the demo and of ResNet have, node by node. a: attributes."""
    f = torch.nn.functional

    def pads(a, n=2):
        p = a.get("pads", [0] * 2 * n)
        assert p[:n] == p[n:]
        return p[:n]

    def reduced(a, x, axes, by):
        axes = a.get("axes", axes.tolist() if axes is not None else list(range(x.dim())))
        return by(x, axes, keepdim=bool(a.get("keepdims", 1)))

    def slice_of(a, x, begins, ends, axes=None, steps=None):
        axes = axes.tolist() if axes is not None else range(len(begins))
        for axis, begin, end, step in zip(axes, begins.tolist(), ends.tolist(), steps.tolist() if steps is not None else [1] * len(begins)):
            x = x[(slice(None),) * (axis % x.dim()) + (slice(begin, min(end, x.shape[axis]), step),)]
        return x

    def reshape(a, x, shape):
        return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape.tolist())])

    def unsqueeze(a, x, axes=None):
        for axis in sorted(a.get("axes") or axes.tolist()):
            x = x.unsqueeze(axis)
        return x

    types = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 16: torch.bfloat16}
    return {
        "Add": lambda a, x, y: x + y, "Sub": lambda a, x, y: x - y, "Mul": lambda a, x, y: x * y, "Div": lambda a, x, y: x / y,
        "Pow": lambda a, x, y: x**y, "Sqrt": lambda a, x: x.sqrt(), "Erf": lambda a, x: x.erf(), "Tanh": lambda a, x: x.tanh(),
        "Relu": lambda a, x: x.relu(), "Identity": lambda a, x: x, "MatMul": lambda a, x, y: x @ y,
        "Softmax": lambda a, x: x.softmax(a.get("axis", -1)), "Cast": lambda a, x: x.to(types[a["to"]]),
        "Transpose": lambda a, x: x.permute(a["perm"]), "Reshape": reshape, "Slice": slice_of,
        "ReduceMean": lambda a, x, axes=None: reduced(a, x, axes, torch.mean), "ReduceSum": lambda a, x, axes=None: reduced(a, x, axes, torch.sum),
        "Clip": lambda a, x, low=None, high=None: torch.clamp(x, low, high),
        "Unsqueeze": unsqueeze,
        "Gather": lambda a, x, i: torch.index_select(x, a.get("axis", 0), i.reshape(-1)).reshape(
            [*x.shape[:a.get("axis", 0)], *i.shape, *x.shape[a.get("axis", 0) + 1:]]),
        "Where": lambda a, c, x, y: torch.where(c, x, y), "Expand": lambda a, x, s: x.expand(torch.broadcast_shapes(x.shape, s.tolist())),
        "Concat": lambda a, *x: torch.cat(x, a["axis"]), "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
        "LayerNormalization": lambda a, x, s, b: f.layer_norm(x, s.shape, s, b, a.get("epsilon", 1e-5)),
        "Gemm": lambda a, x, y, b=0: (x.T if a.get("transA") else x) @ (y.T if a.get("transB") else y) + b,
        "Conv": lambda a, x, w, b=None: f.conv2d(x, w, b, a.get("strides", 1), pads(a), a.get("dilations", 1), a.get("group", 1)),
        "BatchNormalization": lambda a, x, s, b, m, v: f.batch_norm(x, m, v, s, b, eps=a.get("epsilon", 1e-5)),
        "MaxPool": lambda a, x: f.max_pool2d(x, a["kernel_shape"], a.get("strides", 1), pads(a)),
        "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True),
    }


def torch_graph(torch, model, weights, constants):
    """The graph node by node; torch.compile sees plain operations. constants: weights that say shapes, on the host."""
    from onnx import helper

    ops = torch_ops(torch)
    missing = {n.op_type for n in model.graph.node} - ops.keys()
    if missing:
        raise RuntimeError(f"no PyTorch for {', '.join(sorted(missing))}")
    shaping = {"Reshape": 1, "Slice": 1, "Unsqueeze": 1, "ReduceMean": 1, "ReduceSum": 1, "Expand": 1}
    nodes = [(ops[n.op_type], {a.name: helper.get_attribute_value(a) for a in n.attribute}, list(n.input), list(n.output), shaping.get(n.op_type, 99))
             for n in model.graph.node]
    outputs = [v.name for v in model.graph.output]

    def run(**inputs):
        values = {**weights, **inputs}
        for op, attributes, ins, outs, shapes_from in nodes:
            values[outs[0]] = op(attributes, *(None if not n else constants[n] if i >= shapes_from else values[n] for i, n in enumerate(ins)))
        return tuple(values[n] for n in outputs)

    return run


def torch_weights(torch, model, device):
    from onnx import TensorProto, numpy_helper

    weights, constants = {}, {}
    for t in model.graph.initializer:
        if t.data_type == TensorProto.BFLOAT16:
            a = torch.from_numpy(np.frombuffer(t.raw_data, np.int16).copy()).view(torch.bfloat16).reshape(tuple(t.dims))
        else:
            a = torch.from_numpy(np.array(numpy_helper.to_array(t)))
        weights[t.name], constants[t.name] = a.to(device), a
    return weights, constants


def torch_seconds(torch, model, feeds, device, mode):
    """(wall, device) milliseconds: medians. And the results, in the host's memory."""
    fast = torch.compile(model, mode=mode)
    there = {n: a.to(device) for n, a in feeds.items()}
    for _ in range(5):
        result = fast(**there)
    torch.cuda.synchronize()
    back = [torch.empty(r.shape, dtype=r.dtype, pin_memory=True) for r in result]
    alone, walls = [], []
    for _ in range(REPEAT):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        fast(**there)
        end.record()
        torch.cuda.synchronize()
        alone.append(begin.elapsed_time(end))
    for _ in range(REPEAT):
        start = time.perf_counter()
        for host, r in zip(back, fast(**{n: a.to(device, non_blocking=True) for n, a in feeds.items()})):
            host.copy_(r, non_blocking=True)
        torch.cuda.synchronize()
        walls.append(1e3 * (time.perf_counter() - start))
    return statistics.median(walls), statistics.median(alone), back


def theirs(folder, case, mode):
    import onnx
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch sees no GPU")
    tf32 = os.environ.get("AUTOPAR_TF32", "0") not in ("", "0")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    model = onnx.load(folder / "model.onnx")
    with torch.inference_mode():
        weights, constants = torch_weights(torch, model, "cuda")
        run = torch_gpt(torch, weights, case["gpt"]) if "gpt" in case else torch_graph(torch, model, weights, constants)
        feeds = {n: torch.from_numpy(np.load(folder / f"input_{i}.npy")).pin_memory() for i, n in enumerate(case["inputs"])}
        wall, alone, results = torch_seconds(torch, run, feeds, "cuda", mode)
    return {"wall_ms": wall, "device_ms": alone, "error": error(folder, case, [r.float().numpy() for r in results])}


# ---- both ----


def attempt(what, function, *arguments):
    try:
        return function(*arguments)
    except Exception as e:  # one side or model that fails leaves the others
        print(f"{what}: {type(e).__name__}: {str(e)[:2000]}", file=sys.stderr, flush=True)
        return None


def run(o):
    env, results, bad = environment(o.out), {}, False
    print("| model | side | error | wall ms | device ms | TFLOP/s | of the peak |\n| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name in o.only:
        folder = o.out / name
        if not (folder / "case.json").exists():
            continue
        case = json.loads((folder / "case.json").read_text())
        point_weights(folder)
        kind = "tf32" if case["dtype"] == "f32" and env.get("AUTOPAR_TF32", "0") not in ("", "0") else case["dtype"]
        limit = 0.02 if kind == "bf16" else 0.01 if kind == "tf32" else 1e-4
        sides = {"autopar": attempt(f"{name}, autopar", ours, folder, case, env)}
        if not o.no_torch:
            sides["torch.compile"] = attempt(f"{name}, PyTorch", theirs, folder, case, o.torch_mode)
        for side, row in sides.items():
            if row:
                rate = case["products"] / (1e-3 * row["device_ms"]) if row["device_ms"] > 0 else 0
                row["share"] = rate / PEAK[kind]
                print(f"| {name} | {side} | {row['error']:.1e} | {row['wall_ms']:.3f} | {row['device_ms']:.3f} | {rate / 1e12:.3g} | "
                      f"{100 * row['share']:.1f} % |", flush=True)
        bad |= sides["autopar"] is None or not sides["autopar"]["error"] <= limit
        results[name] = sides
    if o.profile:
        p = subprocess.run([o.out / "autopar_profile_cuda", *o.profile.split()], env=env, capture_output=True, text=True)
        bad |= p.returncode != 0
        print(p.stderr, end="", file=sys.stderr)
        (o.out / "measured.json").write_text(p.stdout)
    if o.json:
        Path(o.json).write_text(json.dumps(results, indent=1))
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", type=lambda s: s.split(","), default=list(MODELS))
    parser.add_argument("--march", default="sm_90")
    parser.add_argument("--autopar", type=Path, default=ROOT / "build/release/bin/autopar")
    parser.add_argument("--shim", type=Path, help="a build of autopar with tests: programs for its shim, of small models")
    parser.add_argument("--json", help="run: results as JSON")
    parser.add_argument("--torch-mode", default="reduce-overhead", help="run: mode of torch.compile")
    parser.add_argument("--no-torch", action="store_true", help="run: ours alone")
    parser.add_argument("--profile", metavar="OPTIONS", nargs="?", const="--devices 1",
                        help="run: autopar_profile_cuda as well, with these options; what it prints is OUT/measured.json")
    o = parser.parse_args()
    o.out = o.out.resolve()
    if o.shim and o.what == "prepare":
        o.autopar = o.shim / "bin/autopar"
    unknown = set(o.only) - MODELS.keys()
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    return prepare(o) if o.what == "prepare" else run(o)


if __name__ == "__main__":
    sys.exit(main())
