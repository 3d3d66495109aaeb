#!/usr/bin/env python3
"""Predicted against measured, kernel by kernel: the models of the shared set, compiled for one CPU device of this
machine as `autopar profile` describes it.

    predicted.py [--autopar build/release/bin/autopar] [--models ../shared/models] [--profile FILE] [--only PATTERN]
                 [--rounds 9] [--repeat N] [--worst 20] [--json FILE] [--clusters FILE...]

A program runs --rounds times with a trace, which has its last of --repeat runs (so that caches are as they are when a
model runs again and again); the time of a kernel is the lower quartile over the rounds. The error is |predicted -
measured| / measured. Printed for each model and for all: the median error over the kernels (every instruction counts
once), the median by measured time (half of the time is spent in kernels predicted better), and the sum of all
predictions against the sum of all measured times; and the same by class of kernel.

Without --profile the machine is measured first. With --clusters the measured times are compared with the predictions
by other cluster files as well; the kernels are the same ones."""

import argparse
import fnmatch
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parent.parent
RUN_SECONDS = 0.05


def inputs_of(folder, model):
    """[(name, array)] from the first data set of the model."""
    m = onnx.load(model, load_external_data=False)
    held = {t.name for t in m.graph.initializer}
    feeds = []
    for i, port in enumerate(p for p in m.graph.input if p.name not in held):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"input_{i}.pb").read_bytes())
        feeds.append((port.name, numpy_helper.to_array(tensor)))
    return feeds


class Program:
    """A model compiled for one device, with the times of its kernels."""

    def __init__(self, o, name, work, cluster):
        model, data = o.models / name / "model.onnx", o.models / name / "test_data_set_0"
        self.name, self.model, self.data, self.folder = name, model, data, work / name
        self.autopar, self.trace = o.autopar, work / "trace.json"
        self.compile(cluster, self.folder)
        self.command = [self.folder / "model", "--output-dir", work]
        for i, (port, array) in enumerate(inputs_of(data, model)):
            np.save(self.folder / f"in{i}.npy", array)
            self.command += ["--input", f"{port}={self.folder / f'in{i}.npy'}"]
        self.rounds, self.repeat = [], o.repeat or 5
        if not o.repeat:
            once = self.run()
            self.repeat = max(3, min(1000, int(RUN_SECONDS / max(once, 1e-6))))

    def compile(self, cluster, folder, *options):
        command = [self.autopar, "compile", self.model, "-o", folder, "--name", "m", "-q", "--shapes-from", self.data,
                   "--weights", "reference", "--cluster", cluster, *options]
        p = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError(p.stderr.strip().splitlines()[0][:160] if p.stderr.strip() else f"exit code {p.returncode}")

    def run(self):
        command = [str(c) for c in [*self.command, "--repeat", self.repeat, "--trace", self.trace]]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return float(re.search(r"^time: median ([\d.]+) ms", said, re.M)[1]) * 1e-3

    def measure(self):
        self.run()
        events = json.loads(self.trace.read_text())["traceEvents"]
        kernels = [e for e in events if e.get("pid") == 1 and "predicted_us" in e.get("args", {})]
        self.kernels = [(e["name"], e["args"]["node"], e["args"]["predicted_us"]) for e in kernels]
        self.rounds.append([e["dur"] for e in kernels])

    def classes(self):
        """Of each kernel: nest, gemm, conv, pool, topk; exchange."""
        text = subprocess.run([str(self.autopar), "dump", str(self.folder), "--format", "ir", "--state", "local"],
                              check=True, capture_output=True, text=True).stdout
        of = {name: kind for kind, name in re.findall(r"^\s*kernel (\w+) @(\S+)", text, re.M)}
        return [of.get(k[0], "exchange") for k in self.kernels]

    def predicted_by(self, cluster, work):
        """Microseconds of each kernel by another cluster file, from the emitted table."""
        folder = work / (self.name + "-other")
        self.compile(cluster, folder, "--emit-only", "--force")
        text = (folder / "program.c").read_text()
        table = re.findall(r'^    /\* \d+ \*/ \{"((?:[^"\\]|\\.)*)", "(?:[^"\\]|\\.)*", "(?:[^"\\]|\\.)*", (\d+)\},$', text, re.M)
        if [name for name, _ in table] != [k[0] for k in self.kernels]:
            raise RuntimeError(f"{self.name}: other kernels by {cluster}")
        return [int(ps) * 1e-6 for _, ps in table]

    @property
    def measured(self):
        """Microseconds; a clock has steps, so that none is 0."""
        return [max(np.percentile(times, 25, method="lower"), 0.001) for times in zip(*self.rounds)]


def weighted_median(values, weights):
    order = np.argsort(values)
    sums = np.cumsum(np.asarray(weights)[order])
    return float(np.asarray(values)[order][np.searchsorted(sums, sums[-1] / 2)])


def summary(predicted, measured):
    """(median error, median error by time, sum over sum), in parts of 1."""
    p, m = np.asarray(predicted), np.asarray(measured)
    error = abs(p - m) / m
    return float(np.median(error)), weighted_median(error, m), float(p.sum() / m.sum() - 1)


def report(programs, predictions):
    rows = [(p.name, len(p.kernels), sum(p.measured), *summary(predictions[p.name], p.measured)) for p in programs]
    every = [[x for p in programs for x in predictions[p.name]], [x for p in programs for x in p.measured]]
    rows.append(("all", len(every[0]), sum(every[1]), *summary(*every)))
    print("| model | kernels | measured us | median error % | by time % | sum % |\n|---|---|---|---|---|---|")
    for name, n, us, one, two, three in rows:
        print(f"| {name} | {n} | {us:.1f} | {100 * one:.0f} | {100 * two:.0f} | {100 * three:+.0f} |")


def by_class(programs, predictions):
    rows = {}
    for p in programs:
        for kind, predicted, measured in zip(p.classes(), predictions[p.name], p.measured):
            rows.setdefault(kind, []).append((predicted, measured))
    print("\n| class | kernels | measured us | median error % | within 25 % | by time % | sum % |\n|---|---|---|---|---|---|---|")
    for kind, pairs in sorted(rows.items()):
        predicted, measured = np.asarray(pairs).T
        one, two, three = summary(predicted, measured)
        within = np.mean(abs(predicted - measured) <= 0.25 * measured)
        print(f"| {kind} | {len(pairs)} | {measured.sum():.1f} | {100 * one:.0f} | {100 * within:.0f} | {100 * two:.0f} | {100 * three:+.0f} |")


def worst(programs, count):
    rows = [(abs(math.log(k[2] / m)) * m, p.name, *k, m) for p in programs for k, m in zip(p.kernels, p.measured) if k[2] > 0]
    print("\nFurthest off, by time:")
    for _, model, what, node, predicted, measured in sorted(rows, reverse=True)[:count]:
        print(f"  {model:24} {what:28.28} {node:40.40} predicted {predicted:10.2f} us, measured {measured:10.2f} us")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autopar", type=Path, default=ROOT / "build/release/bin/autopar")
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared/models")
    parser.add_argument("--profile", type=Path, help="cluster file of one device (default: measured)")
    parser.add_argument("--clusters", type=Path, nargs="*", default=[], help="others to compare")
    parser.add_argument("--only", default="*", help="shell pattern of names")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeat", type=int, help="runs of a process in a round (default: for a twentieth of a second)")
    parser.add_argument("--worst", type=int, default=20)
    parser.add_argument("--json", type=Path)
    o = parser.parse_args()
    o.autopar = o.autopar.resolve()
    return o


def main():
    o = options()
    with tempfile.TemporaryDirectory(prefix="autopar-bench-") as temporary:
        work, programs = Path(temporary), []
        if not o.profile:
            o.profile = work / "one.yaml"
            subprocess.run([str(o.autopar), "profile", "--devices", "1", "-o", str(o.profile)], check=True)
        for data in sorted(o.models.glob("*/test_data_set_0")):
            if not fnmatch.fnmatch(data.parent.name, o.only) or not (data / "input_0.pb").exists():
                continue
            try:
                programs.append(Program(o, data.parent.name, work, o.profile))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(f"left out: {data.parent.name}: {error}", file=sys.stderr)
        for _ in range(o.rounds):
            for p in programs:
                p.measure()
        predictions = {p.name: [k[2] for k in p.kernels] for p in programs}
        report(programs, predictions)
        by_class(programs, predictions)
        worst(programs, o.worst)
        said = {p.name: {"kernels": p.kernels, "measured_us": p.measured} for p in programs}
        for i, cluster in enumerate(o.clusters):
            other = {p.name: p.predicted_by(cluster, work) for p in programs}
            print(f"\nBy {cluster}:")
            report(programs, other)
            for p in programs:
                said[p.name].setdefault("other_us", []).append(other[p.name])
        if o.json:
            o.json.write_text(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
