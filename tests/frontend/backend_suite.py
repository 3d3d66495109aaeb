#!/usr/bin/env python3
"""Runs onnx_eval over the ONNX backend tests and the models of the shared data.

    backend_suite.py ONNX_EVAL [SHARED] [--only GLOB] [--category node,...] [--verbose]

Many tests feed shapes and axes as inputs; where that is why a test is skipped, it is tried again with those inputs
as initializers (this needs the onnx package, and is left out without it). What imports must be right. What is not supported is skipped and counted by reason; what ONNX Runtime does not pass
itself has no agreed answer and is not judged. SHARED is the folder with the data, by default that of the environment variable AUTOPAR_DATA, then `shared` beside the
checkout. Ends with `N passed, N failed, N skipped`; exit code 1 if any
failed, 77 without data.
"""
import argparse
import collections
import concurrent.futures
import csv
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

FROZEN = ["scales", "roi"]  # floats that shapes depend on
CATEGORIES = ["node", "simple", "pytorch-operator", "pytorch-converted"]


def backend_tests(shared, folder, categories):
    """Yields (name, model, data folders, judged)."""
    root = os.path.join(shared, "onnx-backend-tests")
    for category in categories:
        with tarfile.open(os.path.join(root, category + ".tar.xz")) as archive:
            archive.extractall(folder, filter="data") if sys.version_info >= (3, 12) else archive.extractall(folder)
    with open(os.path.join(root, "INDEX.tsv"), newline="") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            if row["category"] not in categories or row["ort_1_30"] == "nontensor":
                continue
            path = os.path.join(folder, row["category"], row["test"])
            yield row["category"] + "/" + row["test"], path, row["ort_1_30"] == "pass"


def wheel_tests(categories):
    """The same kind from the onnx package, which holds them up to 1.22. Without an index: whether a test is judged is
    asked of ONNX Runtime when it fails here (None)."""
    try:
        import onnx
    except ImportError:
        return
    root = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
    for category in categories:
        folder = os.path.join(root, category)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            yield category + "/" + name, os.path.join(folder, name), None


def runtime_passes(path):
    """Whether ONNX Runtime gives the stored outputs."""
    import numpy as np
    import onnx
    import onnxruntime

    def load(file):
        with open(file, "rb") as f:
            return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))

    try:
        onnxruntime.set_default_logger_severity(4)
        session = onnxruntime.InferenceSession(os.path.join(path, "model.onnx"))
        for data in data_sets(path):
            feeds = {x.name: load(os.path.join(data, "input_%d.pb" % i)) for i, x in enumerate(session.get_inputs())}
            for i, y in enumerate(session.run(None, feeds)):
                want = load(os.path.join(data, "output_%d.pb" % i))
                if y.dtype != want.dtype or y.shape != want.shape:
                    return False
                if not np.allclose(y, want, rtol=1e-3, atol=1e-5, equal_nan=want.dtype.kind == "f"):
                    return False
        return True
    except Exception:  # whatever it does not support
        return False


def model_tests(shared):
    root = os.path.join(shared, "models")
    with open(os.path.join(root, "INDEX.tsv"), newline="") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            yield "models/" + row["name"], os.path.join(root, row["name"]), True


def data_sets(path):
    if not os.path.isdir(path):
        return []
    sets = [d for d in sorted(os.listdir(path)) if d.startswith("test_data_set_")]
    return [os.path.join(path, d) for d in sets if os.path.exists(os.path.join(path, d, "output_0.pb"))]


def freeze(path, to):
    """A copy of a test in which small integers, single numbers and scales are initializers. None: nothing to freeze."""
    try:
        import onnx
        import onnx.numpy_helper as helper
    except ImportError:
        return None
    model = onnx.load(os.path.join(path, "model.onnx"))
    fed = [i for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer}]
    frozen = set()
    data = data_sets(path)[0]
    out = os.path.join(to, "test_data_set_0")
    os.makedirs(out)
    kept = 0
    for i, info in enumerate(fed):
        pb = os.path.join(data, "input_%d.pb" % i)
        tensor = onnx.TensorProto()
        with open(pb, "rb") as f:
            tensor.ParseFromString(f.read())
        array = helper.to_array(tensor)
        if (array.dtype.kind in "iu" and array.ndim <= 1 and array.size <= 64) or array.ndim == 0 or info.name in FROZEN:
            tensor.name = info.name
            model.graph.initializer.append(tensor)
            frozen.add(info.name)
        else:
            shutil.copy(pb, os.path.join(out, "input_%d.pb" % kept))
            kept += 1
    for pb in os.listdir(data):
        if pb.startswith("output_"):
            shutil.copy(os.path.join(data, pb), out)
    rest = [i for i in model.graph.input if i.name not in frozen]
    del model.graph.input[:]
    model.graph.input.extend(rest)
    onnx.save(model, os.path.join(to, "model.onnx"))
    return to if frozen else None


def run(tool, path):
    result = run_as_is(tool, path)
    if result[0] == "SKIP" and ("known only at run time" in result[1] or "at compile time" in result[1]):
        with tempfile.TemporaryDirectory() as to:
            frozen = freeze(path, to)
            if frozen:
                return run_as_is(tool, frozen)
    return result


def run_as_is(tool, path):
    worst = ("OK", "")
    for data in data_sets(path):
        done = subprocess.run([tool, os.path.join(path, "model.onnx"), data], capture_output=True, text=True,
                              errors="replace", timeout=600)
        word, _, rest = done.stdout.strip().partition(" ")
        if word not in ("OK", "DIFF", "SKIP", "ERROR"):
            word, rest = "CRASH", (done.stdout + done.stderr)[:600]
        if word == "SKIP":
            return word, rest
        if word != "OK":
            worst = (word, rest)
    return worst


def reason(text):
    """The first diagnostic without names and numbers, to count by."""
    first = text.split(" | ")[1] if " | " in text else text.lstrip("| ")
    operator = re.search(r"operator (\S+) of (\S+)", first)
    if operator:
        return "operator %s (%s)" % operator.groups()
    first = re.sub(r'^.*?: (node ".*?" \((\w+)\): )?', lambda m: (m.group(2) + ": ") if m.group(2) else "", first)
    return re.sub(r"-?\d+", "N", re.sub(r'"[^"]*"', '"…"', first))[:110]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "shared")
    parser.add_argument("shared", nargs="?", default=os.environ.get("AUTOPAR_DATA") or beside)
    parser.add_argument("--only", default="*")
    parser.add_argument("--category", default=",".join(CATEGORIES))
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    wheel = not os.path.isdir(os.path.join(args.shared, "onnx-backend-tests"))
    counts, reasons, unjudged = collections.Counter(), collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        categories = [c for c in args.category.split(",") if c in CATEGORIES]
        tests = list(wheel_tests(categories) if wheel else backend_tests(args.shared, folder, categories))
        if not tests:
            print("skipped: no data in", args.shared, "and none in the onnx package")
            return 77
        if wheel:
            print("no data in", args.shared + ": the onnx package's")
        elif "models" in args.category or args.category == ",".join(CATEGORIES):
            tests += list(model_tests(args.shared))
        tests = [t for t in tests if fnmatch.fnmatch(t[0], args.only) and data_sets(t[1])]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            results = pool.map(lambda t: run(args.tool, t[1]), tests)
            for (name, path, judged), (word, text) in zip(tests, results):
                if word == "SKIP":
                    counts["skipped"] += 1
                    reasons[reason(text)] += 1
                elif word == "OK":
                    counts["passed"] += 1
                elif word == "CRASH" or judged or (judged is None and runtime_passes(path)):
                    counts["failed"] += 1
                    print("FAILED", name, word, text)
                else:
                    counts["skipped"] += 1
                    unjudged.append(name)
                if args.verbose:
                    print(word, name, text)
    for why, n in reasons.most_common():
        print("  skipped %4d: %s" % (n, why))
    if unjudged:
        print("  skipped %4d: differ, but ONNX Runtime does not pass them either: %s" % (len(unjudged),
                                                                                        " ".join(unjudged)))
    print("%d passed, %d failed, %d skipped" % (counts["passed"], counts["failed"], counts["skipped"]))
    return 1 if counts["failed"] or not counts["passed"] else 0


sys.exit(main())
