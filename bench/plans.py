#!/usr/bin/env python3
"""Planning of the models of the shared set: how long it takes, and how far plans can be from the best ones.

    plans.py [--autopar build/release/bin/autopar] [--models ../shared/models] [--only PATTERN] [--meshes 2,4,8,2x4]
             [--threads 2] [--short 10] [--long 60] [--work] [--dump DIR] [--markdown FILE] [--json FILE]

Per model and mesh: planning time and the solver's part of it, the gap without a limit of memory, and the gap at 1.1 times the
least peak that is possible, with so many seconds for the solver. The least peak is the one for which the message of a plan
that does not fit knows a plan; that is at most 1/64 above what is proven to be needed. Shapes come from the first
data set of a model. A model that is refused is left out with the reason. --dump keeps the problems with a limit, as
MODEL-MESH.json, for `autopar solve`. --work is for busy machines: the limits are of deterministic work, about processor
seconds, instead of the clock, and the times of solvers are processor seconds of whole runs."""

import argparse
import fnmatch
import json
import math
import os
import resource
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Planner:
    def __init__(self, a):
        self.a = a

    def plan(self, folder, mesh, *options):
        """(plan or None, what was said)"""
        devices = math.prod(map(int, mesh.split("x")))
        data = folder / "test_data_set_0"
        command = [self.a.autopar, "plan", folder / "model.onnx", "--devices", devices, "--mesh", mesh, "--json", "--threads", self.a.threads]
        command += ["--shapes-from", data] if data.is_dir() else []
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        p = subprocess.run([str(c) for c in command + list(options)], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        plan = json.loads(p.stdout) if p.returncode == 0 else None
        if plan and self.a.work:
            plan["solver_seconds"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return plan, p.stderr.strip()

    def limits(self, seconds):
        if self.a.work:
            return ["--budget", int(seconds * 1e6)]
        return ["--time-limit", seconds, "--budget", 10**15]

    def least_peak(self, folder, mesh):
        _, said = self.plan(folder, mesh, "--memory", 1)
        known = re.search(r"a plan is known for (\d+)", said)
        return int(known[1]) if known else None


def one(p, folder, mesh):
    free, said = p.plan(folder, mesh)
    if not free:
        return {"refused": said.splitlines()[0] if said else "nothing said"}
    out = {k: free[k] for k in ("planning_seconds", "solver_seconds", "gap", "proof", "variables", "strategies", "edges", "peak_bytes")}
    out["least_peak"] = p.least_peak(folder, mesh)
    if out["least_peak"]:
        limit = out["least_peak"] * 11 // 10
        for name, seconds in (("short", p.a.short), ("long", p.a.long)):
            dump = ["--dump-problem", p.a.dump / f"{folder.name}-{mesh}.json"] if p.a.dump else []
            tight = p.plan(folder, mesh, *dump, "--memory", limit, *p.limits(seconds))[0]
            out[name] = {k: tight[k] for k in ("gap", "planning_seconds", "solver_seconds", "proof")} if tight else None
            if tight and tight["gap"] == 0:
                out["long"] = out[name]
                break
    return out


def table_row(name, mesh, r):
    if "refused" in r:
        return [name, mesh, r["refused"]] + [""] * 8
    tight = [f"{r[k]['gap']:.1e} in {r[k]['solver_seconds']:.1f} s" if r.get(k) else "none" for k in ("short", "long")]
    return [name, mesh, str(r["variables"]), str(r["strategies"]), f"{r['planning_seconds']:.2f}", f"{r['solver_seconds']:.3f}", f"{r['gap']:g}",
            r["proof"], f"{r['least_peak'] or 0:,}"] + tight


def main():
    q = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    q.add_argument("--autopar", type=Path, default=ROOT / "build/release/bin/autopar")
    q.add_argument("--models", type=Path, default=Path(os.environ.get("AUTOPAR_DATA", ROOT.parent / "shared")) / "models")
    q.add_argument("--only", default="*")
    q.add_argument("--meshes", default="2,4,8,2x4")
    q.add_argument("--threads", type=int, default=os.cpu_count())
    q.add_argument("--short", type=float, default=10)
    q.add_argument("--long", type=float, default=60)
    q.add_argument("--work", action="store_true")
    q.add_argument("--dump", type=Path)
    q.add_argument("--markdown", type=Path)
    q.add_argument("--json", type=Path)
    p = Planner(q.parse_args())
    if p.a.dump:
        p.a.dump.mkdir(parents=True, exist_ok=True)
    head = ["model", "mesh", "nodes", "strategies", "planning s", "solver s", "gap", "proof", "least peak", f"{p.a.short:g} s at 1.1", f"{p.a.long:g} s at 1.1"]
    rows, results = [], {}
    for folder in sorted(f for f in p.a.models.iterdir() if (f / "model.onnx").exists() and fnmatch.fnmatch(f.name, p.a.only)):
        for mesh in p.a.meshes.split(","):
            r = results[f"{folder.name} {mesh}"] = one(p, folder, mesh)
            rows.append(table_row(folder.name, mesh, r))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
            if "refused" in r:
                break
    text = "\n".join(["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)] + ["| " + " | ".join(r) + " |" for r in rows]) + "\n"
    print(text)
    good = [r for r in results.values() if "refused" not in r]
    tight = [r for r in good if r.get("long")]
    print(f"{len(good)} plans: {sum(r['gap'] == 0 for r in good)} proven without a limit, "
          f"{sum(r['gap'] == 0 and r['solver_seconds'] < 1 for r in good)} of them within 1 s of the solver; "
          f"{len(tight)} with memory for 1.1 times the least peak: {sum(bool(r['short']) and r['short']['gap'] <= 1e-2 for r in tight)} "
          f"within 1e-2 after {p.a.short:g} s, {sum(r['long']['gap'] <= 1e-3 for r in tight)} within 1e-3 after {p.a.long:g} s")
    for path, what in ((p.a.markdown, text), (p.a.json, json.dumps(results, indent=1) + "\n")):
        if path:
            path.write_text(what)


if __name__ == "__main__":
    main()
