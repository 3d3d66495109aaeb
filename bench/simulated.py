#!/usr/bin/env python3
"""Simulated against measured: pairs of a model and a plan, compiled for this machine as `autopar profile` describes it.

    simulated.py [--autopar build/release/bin/autopar] [--models ../shared/models] [--profiles DIR] [--only PATTERN]
                 [--rounds 7] [--repeat N] [--markdown FILE] [--json FILE]

Plans: one device; two devices with everything split; two stages with 1, 2 and 4 microbatches. Plans of one device are
priced by a profile of one device, the others by one of two (DIR/one.yaml and two.yaml, which are measured when they are
not there). Programs run in turns, round by round; a time is the median over the rounds of a round's median of
--repeat runs. The table has the time that `simulate` says, the planner's own, what was measured, and the error of the
first; below it how many pairs are within 25 %, and of all two plans of one model that are predicted more than 10 % apart,
how many are in the right order.

Measure on an idle machine. A pair that cannot be compiled is left out with the reason."""

import argparse
import fnmatch
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))
import make_bert  # noqa: E402

WITHIN = 0.25  # of the measured time: what is wanted
APART = 0.10  # predictions that differ by less are not ordered
ROUND_SECONDS = 1.0

PLANS = {
    "1 device": (1, []),
    "2 devices": (2, ["--stages", "1", "--split", "force"]),
    "2 stages, 1 microbatch": (2, ["--stages", "2", "--microbatches", "1"]),
    "2 stages, 2 microbatches": (2, ["--stages", "2", "--microbatches", "2"]),
    "2 stages, 4 microbatches": (2, ["--stages", "2", "--microbatches", "4"]),
}


def cases(models, work):
    """name: (file, options that fix the shapes, inputs)"""

    def encoder(layers, width, heads, inner, batch, tokens):
        path = work / f"encoder{layers}x{width}.onnx"
        if not path.exists():
            onnx.save(make_bert.encoder(layers, width, heads, inner), path)
        x = np.random.default_rng(1).standard_normal((batch, tokens, width)).astype(np.float32)
        return path, ["--dim", f"batch={batch}", "--dim", f"tokens={tokens}"], {"x": x}

    def convolutions(batch=8, size=56):
        """Three stages of residual blocks, as in ResNets, without norms: 64 to 256 channels."""
        random, nodes, weights, planes = np.random.default_rng(3), [], [], 64

        def conv(x, m, c, kernel, stride, name):
            scale = (2 / (c * kernel * kernel)) ** 0.5
            w = (random.standard_normal((m, c, kernel, kernel)) * scale).astype(np.float32)
            weights.append(numpy_helper.from_array(w, name + ".w"))
            pads = [kernel // 2] * 4
            nodes.append(onnx.helper.make_node("Conv", [x, name + ".w"], [name], name, strides=[stride] * 2, pads=pads))
            return name

        def op(kind, inputs, name):
            nodes.append(onnx.helper.make_node(kind, inputs, [name], name))
            return name

        x = "x"
        for block in range(6):
            m, stride = 64 << block // 2, 2 if block in (2, 4) else 1
            y = op("Relu", [conv(x, m, planes, 3, stride, f"b{block}.first")], f"b{block}.relu")
            y = conv(y, m, m, 3, 1, f"b{block}.second")
            x = x if m == planes else conv(x, m, planes, 1, stride, f"b{block}.skip")
            x, planes = op("Relu", [op("Add", [x, y], f"b{block}.sum")], f"b{block}.out"), m
        side = size // 4
        ports = [
            onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
            for n, s in (("x", ["batch", 64, size, size]), (x, ["batch", planes, side, side]))
        ]
        graph = onnx.helper.make_graph(nodes, "convolutions", ports[:1], ports[1:], weights)
        m = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        path = work / "convolutions.onnx"
        onnx.save(m, path)
        x = random.standard_normal((batch, 64, size, size)).astype(np.float32)
        return path, ["--dim", f"batch={batch}"], {"x": x}

    def shared(name):
        data = models / name / "test_data_set_0"
        m = onnx.load(models / name / "model.onnx", load_external_data=False)
        held = {t.name for t in m.graph.initializer}
        feeds = {}
        for i, port in enumerate(p for p in m.graph.input if p.name not in held):
            tensor = onnx.TensorProto()
            tensor.ParseFromString((data / f"input_{i}.pb").read_bytes())
            feeds[port.name] = numpy_helper.to_array(tensor)
        return models / name / "model.onnx", ["--shapes-from", data], feeds

    return {
        "bert-base 1x128": lambda: encoder(12, 768, 12, 3072, 1, 128),
        "bert-base 8x32": lambda: encoder(12, 768, 12, 3072, 8, 32),
        "minilm 8x64": lambda: encoder(6, 384, 12, 1536, 8, 64),
        "convolutions 8": convolutions,
        "ultraface-rfb320": lambda: shared("ultraface-rfb320"),
    }


class Pair:
    """A model compiled with a plan."""

    def __init__(self, o, model, plan, case, work, number):
        path, binds, feeds = case
        devices, options = PLANS[plan]
        self.model, self.plan, self.folder = model, plan, work / f"pair{number}"
        cluster = o.profiles / ("one.yaml" if devices == 1 else "two.yaml")
        o.call("compile", path, "-o", self.folder, "--name", "m", "--weights", "reference", "-q", "--cluster", cluster, *binds, *options)
        said = json.loads(o.call("simulate", self.folder, "--json"))
        self.simulated, self.planned = said["seconds"], said["planned_seconds"]
        self.command, self.times = [self.folder / "model", "--output-dir", work], []
        for i, (name, array) in enumerate(feeds.items()):
            file = self.folder / f"in{i}.npy"
            np.save(file, array)
            self.command += ["--input", f"{name}={file}"]
        once = self.run(3)
        self.repeat = o.repeat or max(3, min(200, int(ROUND_SECONDS / once)))

    def run(self, repeat):
        """Seconds: the median of so many runs of one process."""
        command = [str(c) for c in [*self.command, "--repeat", repeat]]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return float(re.search(r"^time: median ([\d.]+) ms", said, re.M)[1]) * 1e-3

    @property
    def measured(self):
        return statistics.median(self.times)

    @property
    def error(self):
        return self.simulated / self.measured - 1


def ordered(pairs):
    """(right, all) of two plans of one model that are predicted apart."""
    right = total = 0
    for a, b in itertools.combinations(pairs, 2):
        if a.model != b.model or max(a.simulated, b.simulated) <= (1 + APART) * min(a.simulated, b.simulated):
            continue
        total += 1
        right += (a.simulated < b.simulated) == (a.measured < b.measured)
    return right, total


def table(pairs, left_out):
    lines = ["| model | plan | simulated ms | planned ms | measured ms | error % |", "|---|---|---|---|---|---|"]
    for p in pairs:
        times = " | ".join(f"{1e3 * t:.2f}" for t in (p.simulated, p.planned, p.measured))
        lines.append(f"| {p.model} | {p.plan} | {times} | {100 * p.error:+.0f} |")
    lines += [f"| {model} | {plan} | | | | left out: {reason} |" for model, plan, reason in left_out]
    if pairs:
        right, total = ordered(pairs)
        within = sum(abs(p.error) <= WITHIN for p in pairs)
        middle = statistics.median(abs(p.error) for p in pairs)
        lines += ["", f"Within {100 * WITHIN:.0f} %: {within} of {len(pairs)} pairs; the median error is {100 * middle:.0f} %. "]
        lines[-1] += f"Predicted more than {100 * APART:.0f} % apart: {total} twos of plans, {right} of them in the right order."
    return "\n".join(lines)


class Options(argparse.Namespace):
    def call(self, *command):
        p = subprocess.run([str(self.autopar), *map(str, command)], capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError(p.stderr.strip().splitlines()[0][:200] if p.stderr.strip() else f"exit code {p.returncode}")
        return p.stdout


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autopar", type=Path, default=ROOT / "build/release/bin/autopar")
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared/models")
    parser.add_argument("--profiles", type=Path, help="folder of one.yaml and two.yaml (default: measured anew)")
    parser.add_argument("--only", default="*", help="shell pattern of names")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeat", type=int, help="runs of a process in a round (default: for about a second)")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    o = parser.parse_args(namespace=Options())
    o.autopar = o.autopar.resolve()
    return o


def compile_pairs(o, work):
    pairs, left_out = [], []
    for model, make in cases(o.models, work).items():
        if not fnmatch.fnmatch(model, o.only):
            continue
        batch = next(iter(make()[2].values())).shape[0]
        for plan, (_, chosen) in PLANS.items():
            if "--microbatches" in chosen and int(chosen[-1]) > batch:
                continue
            print(f"{model}: {plan}", file=sys.stderr, flush=True)
            try:
                pairs.append(Pair(o, model, plan, make(), work, len(pairs) + len(left_out)))
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                left_out.append((model, plan, str(error)))
    return pairs, left_out


def main():
    o = options()
    with tempfile.TemporaryDirectory(prefix="autopar-bench-") as temporary:
        work = Path(temporary)
        o.profiles = o.profiles or work
        o.profiles.mkdir(parents=True, exist_ok=True)
        for name, devices in (("one", 1), ("two", 2)):
            if not (o.profiles / f"{name}.yaml").exists():
                o.call("profile", "--devices", devices, "-o", o.profiles / f"{name}.yaml")
        pairs, left_out = compile_pairs(o, work)
        for _ in range(o.rounds):
            for p in pairs:
                p.times.append(p.run(p.repeat))
    text = table(pairs, left_out)
    print(text)
    if o.markdown:
        o.markdown.write_text(text + "\n")
    if o.json:
        fields = ("model", "plan", "simulated", "planned", "measured", "error", "times")
        o.json.write_text(json.dumps([{f: getattr(p, f) for f in fields} for p in pairs], indent=1) + "\n")


if __name__ == "__main__":
    main()
