#!/usr/bin/env python3
"""Whole models, compiled by autopar, beside ONNX Runtime: time of one run, in one process, in turns.

    models.py [--autopar build/release/bin/autopar] [--models ../shared/models] [--only PATTERN] [--devices 1,2]
              [--rounds 15] [--clock wall|cpu] [--markdown FILE] [--json FILE] [--profile]

Each round runs ONNX Runtime for a while, then each of our programs; the table has medians over the rounds of times and of
ratios within a round, so that what disturbs the machine for long disturbs both sides. Devices are threads: N devices
stand beside ONNX Runtime with N threads (intra_op_num_threads; all its graph optimisations). Outputs are compared as
well. --clock cpu counts the processor time of the calling thread instead, for one device on a machine that others use.
--profile adds where our time goes: classes of kernels, from `model --profile`.

A model that cannot be compiled, or whose file is not there, is left out with the reason."""

import argparse
import ctypes
import fnmatch
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))
import make_bert  # noqa: E402

TOLERANCE = 1e-3  # of an output's scale
LEAST_SECONDS = 0.03  # of a side in a round
REST = 0.1  # after a run, threads of ONNX Runtime spin for a while and would keep ours from a processor


class Case:
    """A model with inputs; `binds` are options of compile that fix its shapes."""

    def __init__(self, name, model, feeds=None, binds=(), data=None):
        self.name, self.model, self.feeds, self.binds, self.data = name, Path(model), feeds, list(binds), data

    def inputs(self, session):
        if self.feeds is not None:
            return self.feeds
        feeds = {}
        for i, port in enumerate(session.get_inputs()):
            tensor = onnx.TensorProto()
            tensor.ParseFromString((self.data / f"input_{i}.pb").read_bytes())
            feeds[tensor.name or port.name] = numpy_helper.to_array(tensor)
        return feeds


def cases(models, work):
    """All of them, made where they are not files; lazily, since some are large."""

    def bert(batch, layers=12):
        path = work / f"bert{layers}.onnx"
        if not path.exists():
            onnx.save(make_bert.encoder(layers, 768, 12, 3072), path)
        x = np.random.default_rng(1).standard_normal((batch, 128, 768)).astype(np.float32)
        return Case("", path, {"x": x}, ["--dim", f"batch={batch}", "--dim", "tokens=128"])

    def shared(name, data="test_data_set_0"):
        folder = models / name / data
        return Case(name, models / name / "model.onnx", binds=["--shapes-from", folder], data=folder)

    def demo():
        """The trained sentence encoder of demo.sh, with sentences of 32 tokens."""
        found = sorted((ROOT / "build/demo/packages").glob("**/*.onnx"))
        path = found[0] if found else ROOT / "build/demo/packages (run demo.sh)"
        ids = np.random.default_rng(2).integers(1000, 20000, (8, 32))
        names = ("input_ids", "attention_mask", "token_type_ids")
        feeds = dict(zip(names, (ids, np.ones_like(ids), np.zeros_like(ids))))
        return Case("", path, feeds, ["--dim", "batch_size=8", "--dim", "sequence_length=32"])

    def resnet():
        """ResNet-50 of the onnx package's test data. Its weights are one number each; drawn ones stand for them here, small enough
        for the variances of the norms to hold the values together."""
        m = onnx.load(Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx")
        r = np.random.default_rng(3)
        shapes = {t.name: onnx.numpy_helper.to_array(t) for t in m.graph.initializer}
        for n in [n for n in m.graph.node if n.op_type == "ConstantOfShape"]:
            shape = shapes[n.input[0]]
            scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.02
            w = r.standard_normal(shape) * scale + (len(shape) == 1)
            m.graph.initializer.append(onnx.numpy_helper.from_array(w.astype(np.float32), n.output[0]))
            m.graph.node.remove(n)
        path = work / "resnet50.onnx"
        onnx.save(m, path)
        return Case("", path, {"gpu_0/data_0": r.random((1, 3, 224, 224), np.float32)})

    return {
        "demo-minilm-8x32": demo,
        "genai-tiny-gpt2-5l": lambda: shared("genai-tiny-gpt2-5l"),
        "ort-gpt2-12l-past": lambda: shared("ort-gpt2-12l-past"),
        "rxn-albert": lambda: shared("rxn-albert-mlm-op13"),
        "vespa-bert2l": lambda: shared("vespa-bert2l"),
        "bert-base-1x128": lambda: bert(1),
        "bert-base-8x128": lambda: bert(8),
        "resnet50": resnet,
        "ultraface-rfb320": lambda: shared("ultraface-rfb320"),
        "ortext-fastestdet": lambda: shared("ortext-fastestdet"),
    }


# ---- the two sides ----


class Ours:
    """A compiled program as a shared library in this process."""

    def __init__(self, autopar, case, devices, work):
        self.devices = devices
        self.folder = work / f"{case.name}-{devices}"
        command = [autopar, "compile", case.model, "-o", self.folder, "--name", "m", "--force", "-q"]
        subprocess.run([*command, "--devices", str(devices), *case.binds], check=True, capture_output=True, text=True)
        library = self.folder / "m.so"
        lib = autopar.parent.parent / "lib"
        link = ["cc", "-shared", "-o", library, "-Wl,--whole-archive", self.folder / "libm.a", "-Wl,--no-whole-archive"]
        if "autopar_rt_conv" in (self.folder / "m.pc").read_text():
            link += [lib / "libautopar_rt_conv.a", "-ldnnl", "-lgomp"]
        subprocess.run([*link, lib / "libautopar_rt.a", "-lcjson", "-lpthread", "-lm"], check=True)
        self.api = ctypes.CDLL(str(library))
        self.api.m_error.restype = ctypes.c_char_p
        weights = ctypes.c_char_p(str(self.folder / "weights.safetensors").encode())
        self.instance = ctypes.c_void_p()
        self.check(self.api.m_open(ctypes.byref(weights), ctypes.byref(self.instance)))

    def check(self, status):
        if status:
            raise RuntimeError(self.api.m_error(self.instance).decode())

    def bind(self, feeds, like):
        """`like`: arrays of the outputs' shapes and types."""
        self.inputs = [np.ascontiguousarray(a) for a in feeds.values()]
        self.outputs = [np.zeros_like(a) for a in like]
        pointers = lambda arrays: (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        self.arguments = self.instance, pointers(self.inputs), pointers(self.outputs)

    def run(self):
        self.check(self.api.m_run(*self.arguments))
        return self.outputs

    def close(self):
        self.api.m_close(self.instance)


class Peer:
    def __init__(self, case, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(case.model), options, providers=["CPUExecutionProvider"])

    def bind(self, feeds):
        self.feeds = feeds

    def run(self):
        return self.session.run(None, self.feeds)


# ---- measuring ----


def seconds_of(side, clock, runs):
    start = clock()
    for _ in range(runs):
        side.run()
    return (clock() - start) / runs


def runs_for(side):
    side.run()
    once = min(seconds_of(side, time.perf_counter, 1) for _ in range(3))
    return max(1, int(LEAST_SECONDS / once))


def difference(ours, theirs):
    """The largest over the outputs, relative to each one's scale."""
    worst = 0.0
    for a, b in zip(ours, theirs):
        scale = max(float(np.abs(b).max(initial=0)), 1e-30)
        worst = max(worst, float(np.abs(a.astype(np.float64) - b).max(initial=0)) / scale)
    return worst


def profile(program, feeds, work, repeat=10):
    """Milliseconds per kernel of device 0."""
    command = [program.folder / "model", "--profile", "--repeat", str(repeat), "--output-dir", work]
    for i, (name, array) in enumerate(feeds.items()):
        np.save(work / f"in{i}.npy", array)
        command += ["--input", f"{name}={work / f'in{i}.npy'}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"^(\S+) +(\d+) +([\d.]+) +[\d.]+ +[\d.]+$", text, re.M)
    kind = {m[2]: m[1] for m in re.finditer(r"^kernel (\w+) @(\w+)", local_text(program.folder), re.M)}
    return [{"kernel": w, "class": kind.get(w, "exchange"), "calls": int(n), "ms": float(ms)} for w, n, ms in rows]


def local_text(folder):
    dump = subprocess.run([AUTOPAR, "dump", folder, "--format", "ir", "--state", "local"], capture_output=True, text=True)
    return dump.stdout


def measure(case, o, work):
    clock = time.thread_time if o.clock == "cpu" else time.perf_counter
    feeds, result = None, {"model": case.name, "devices": {}}
    sides = []
    for n in o.devices:
        peer = Peer(case, n)
        feeds = feeds if feeds is not None else case.inputs(peer.session)
        peer.bind({p.name: feeds[p.name] for p in peer.session.get_inputs()})
        ours = Ours(o.autopar, case, n, work)
        want = peer.run()
        ours.bind(peer.feeds, want)
        got = difference(ours.run(), want)
        if not got <= TOLERANCE:
            raise RuntimeError(f"{n} devices: outputs differ by {got:.2g} of their scale")
        sides.append((n, ours, peer, runs_for(ours), runs_for(peer), got))
    times = {n: ([], []) for n in o.devices}
    for _ in range(o.rounds):
        for n, ours, peer, our_runs, peer_runs, _ in sides:
            # the first run wakes threads and fills caches
            peer.run()
            times[n][1].append(seconds_of(peer, clock, peer_runs))
            time.sleep(REST)
            ours.run()
            times[n][0].append(seconds_of(ours, clock, our_runs))
    first = times[o.devices[0]][0]
    for n, ours, peer, _, _, got in sides:
        a, b = times[n]
        entry = {"ours_ms": 1e3 * statistics.median(a), "onnxruntime_ms": 1e3 * statistics.median(b)}
        entry["ratio"] = statistics.median(x / y for x, y in zip(a, b))
        entry["speedup"] = statistics.median(x / y for x, y in zip(first, a))
        entry["difference"] = got
        ours.close()
        if o.profile:
            entry["profile"] = profile(ours, peer.feeds, work)
        result["devices"][n] = entry
    return result


# ---- tables ----


def table(results):
    lines = ["| model | devices | ours ms | ONNX Runtime ms | ratio | speed-up | difference |", "|---|---|---|---|---|---|---|"]
    for r in results:
        if "reason" in r:
            lines.append(f"| {r['model']} | | | | | | left out: {r['reason']} |")
        for n, e in r.get("devices", {}).items():
            times = f"{e['ours_ms']:.3f} | {e['onnxruntime_ms']:.3f} | {e['ratio']:.2f} | {e['speedup']:.2f}"
            lines.append(f"| {r['model']} | {n} | {times} | {e['difference']:.1e} |")
    return "\n".join(lines)


def breakdown(results):
    lines = ["| model | devices | class | calls | ms | % |", "|---|---|---|---|---|---|"]
    for r in results:
        for n, e in r.get("devices", {}).items():
            total = sum(k["ms"] for k in e["profile"]) or 1
            for kind in sorted({k["class"] for k in e["profile"]}):
                rows = [k for k in e["profile"] if k["class"] == kind]
                ms = sum(k["ms"] for k in rows)
                calls = sum(k["calls"] for k in rows)
                lines.append(f"| {r['model']} | {n} | {kind} | {calls} | {ms:.3f} | {100 * ms / total:.1f} |")
    return "\n".join(lines)


def reason_of(error):
    text = error.stderr if isinstance(error, subprocess.CalledProcessError) and error.stderr else str(error)
    return text.strip().splitlines()[0][:200] if text.strip() else type(error).__name__


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autopar", type=Path, default=ROOT / "build/release/bin/autopar")
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared/models")
    parser.add_argument("--only", default="*", help="shell pattern of names")
    parser.add_argument("--devices", default="1,2", type=lambda s: [int(n) for n in s.split(",")])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--work", type=Path, help="where models and programs are kept (default: a temporary folder)")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", action="store_true")
    o = parser.parse_args()
    o.autopar = o.autopar.resolve()
    return o


def main():
    global AUTOPAR
    o = options()
    AUTOPAR = o.autopar
    results = []
    with tempfile.TemporaryDirectory(prefix="autopar-bench-") as temporary:
        work = o.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for name, make in cases(o.models, work).items():
            if not fnmatch.fnmatch(name, o.only):
                continue
            print(name, file=sys.stderr, flush=True)
            try:
                case = make()
                case.name = name
                if not case.model.exists():
                    raise FileNotFoundError(f"no {case.model}")
                results.append(measure(case, o, work))
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                results.append({"model": name, "reason": reason_of(error)})
    text = table(results)
    if o.profile:
        text += "\n\n" + breakdown(results)
    print(text)
    if o.markdown:
        o.markdown.write_text(text + "\n")
    if o.json:
        o.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
