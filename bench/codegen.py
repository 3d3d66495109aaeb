#!/usr/bin/env python3
"""Kernels that LLVM makes beside those that the C compiler makes of the same loop nests.

    codegen.py [--autopar build/release/bin/autopar] [--models ../shared/models] [--only PATTERN] [--rounds 7]
               [--repeat 20] [--worse 1.3] [--markdown FILE]

Each model of bench/models.py is compiled twice; the two programs run in turns on one device, each telling its time per kernel
(`model --profile`: medians over --repeat runs). A round gives a ratio for each kernel and for the whole; the table has their
medians over the rounds, so that what disturbs the machine for long disturbs both sides. Products, convolutions and the first of rows
are calls of the same library on both sides; what follows a product is counted with it."""

import argparse
import fnmatch
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import onnxruntime

import models as bench

CODEGENS = ("c", "llvm")


class Program:
    def __init__(self, autopar, case, codegen, work):
        self.folder = work / f"{case.name}-{codegen}"
        command = [autopar, "compile", case.model, "-o", self.folder, "--codegen", codegen, "--force", "-q", *case.binds]
        subprocess.run(command, check=True, capture_output=True, text=True)


def inputs(case):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(case.model), options, providers=["CPUExecutionProvider"])
    feeds = case.inputs(session)
    return {p.name: feeds[p.name] for p in session.get_inputs()}


def measure(case, o, work):
    """[(kernel, class, milliseconds in C, ratio)], the whole first."""
    sides = [Program(o.autopar, case, c, work) for c in CODEGENS]
    feeds = inputs(case)
    rounds = []
    for _ in range(o.rounds):
        rounds.append([{r["kernel"]: r for r in bench.profile(s, feeds, work, o.repeat)} for s in sides])
    kernels = list(rounds[0][0])
    rows = []
    for k in kernels:
        times = [(c[k]["ms"], llvm[k]["ms"]) for c, llvm in rounds]
        rows.append((k, rounds[0][0][k]["class"], statistics.median(t[0] for t in times), ratio(times)))
    rows.sort(key=lambda r: -r[2])
    whole = [tuple(sum(r["ms"] for r in side.values()) for side in sides) for sides in rounds]
    return [("all", "", statistics.median(t[0] for t in whole), ratio(whole))] + rows


def ratio(times):
    """Of times below a microsecond nothing can be said."""
    return statistics.median(b / a if a > 1e-3 else 1.0 for a, b in times)


def table(name, rows, worse):
    lines = []
    for kernel, kind, ms, r in rows:
        if kernel == "all" or r > worse:
            lines.append(f"| {name} | {kernel} | {kind} | {ms:.4f} | {r:.2f} |")
    return lines


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autopar", type=Path, default=bench.ROOT / "build/release/bin/autopar")
    parser.add_argument("--models", type=Path, default=bench.ROOT.parent / "shared/models")
    parser.add_argument("--only", default="*", help="shell pattern of names")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=20, help="runs of each program in a round")
    parser.add_argument("--worse", type=float, default=1.3, help="list kernels above this ratio")
    parser.add_argument("--work", type=Path, help="where models and programs are kept (default: a temporary folder)")
    parser.add_argument("--markdown", type=Path)
    o = parser.parse_args()
    o.autopar = o.autopar.resolve()
    bench.AUTOPAR = o.autopar
    return o


def main():
    o = options()
    lines = ["| model | kernel | class | C ms | LLVM over C |", "|---|---|---|---|---|"]
    print("\n".join(lines))
    with tempfile.TemporaryDirectory(prefix="autopar-codegen-") as temporary:
        work = o.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for name, make in bench.cases(o.models, work).items():
            if not fnmatch.fnmatch(name, o.only):
                continue
            try:
                case = make()
                case.name = name
                if not case.model.exists():
                    raise FileNotFoundError(f"no {case.model}")
                new = table(name, measure(case, o, work), o.worse)
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                new = [f"| {name} | left out: {bench.reason_of(error)} | | | |"]
            print("\n".join(new), flush=True)
            lines += new
    if o.markdown:
        o.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
