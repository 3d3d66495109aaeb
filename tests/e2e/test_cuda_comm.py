"""Ranks with GPUs, by the test shim: what goes on beside computing is waited for where it must be, and no more; processes
under mpirun, one GPU each, get what threads get; and every way to fail ends with a text that says where.

AUTOPAR_CUDA_MODELS=all takes out every wait, and runs all exchanges under mpirun as well."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

from conftest import ROOT
from make_model import encoder_layer, random_inputs

sys.path.insert(0, str(ROOT / "tests" / "cudashim"))
import build as shim

MPIRUN = shutil.which("mpirun")
PATIENCE = 120
ALL = os.environ.get("AUTOPAR_CUDA_MODELS") == "all"


def environment(tree, seed=0, folder=None):
    env = {**os.environ, "CUDASHIM_SEED": str(seed), "CUDASHIM_QUIET": "1"}
    if folder:  # ranks are processes
        env |= {"CUDASHIM_PROCESSES": str(folder), "AUTOPAR_RT_PLUGIN": str(tree / "lib" / "libautopar_rt_mpi.so"),
                "ASAN_OPTIONS": "detect_leaks=0"}
    return env


def mpirun(ranks):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [MPIRUN, "--quiet", "--oversubscribe", *root, "-n", str(ranks)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder")
    m = encoder_layer(batch=1)
    onnx.save(m, path / "encoder.onnx")
    np.save(path / "x.npy", random_inputs(m)["x"])
    return path / "encoder.onnx"


PLANS = {"2": ("--devices", 2, "--split", "force"), "4": ("--devices", 4, "--stages", 2, "--split", "force")}


@pytest.fixture(scope="module")
def programs(autopar, tree, encoder, tmp_path_factory):
    """plan -> an emitted program, built once."""
    made = {}

    def make(plan):
        if plan not in made:
            out = tmp_path_factory.mktemp("program") / "out"
            autopar("compile", encoder, "-o", out, "--target", "cuda", "--emit-only", "-q", *PLANS[plan])
            shim.build(out, tree)
            made[plan] = out
        return made[plan]

    return make


def run(program, encoder, to, env, before=()):
    return subprocess.run([*before, program / "model", encoder.parent / "x.npy", "--output-dir", to, "--repeat", "3"],
                          capture_output=True, text=True, env=env, timeout=PATIENCE)


# ---- order ----


def test_every_wait_is_needed(tree, encoder, programs, tmp_path):
    """Without any one of the waits for an exchange the shim finds what reads too early, or overwrites."""
    program = tmp_path / "program"
    shutil.copytree(programs("2"), program)
    text = (program / "program.c").read_text()
    waits = [m.span() for m in re.finditer(r"\n *aprt_cuda_arrived\(d, \d+\);", text)]
    assert waits
    for start, end in waits if ALL else waits[:1]:
        (program / "program.c").write_text(text[:start] + text[end:])
        shim.build(program, tree)
        p = run(program, encoder, tmp_path / "y", environment(tree))
        assert p.returncode != 0 and "cudashim: " in p.stderr and "race: " in p.stderr, p.stderr


def test_trace(tree, encoder, programs, tmp_path):
    """Exchanges have a track of their own for each device, and are all there."""
    import json

    env = {**environment(tree), "AUTOPAR_TRACE": str(tmp_path / "trace.json")}
    p = run(programs("2"), encoder, tmp_path / "y", env)
    assert p.returncode == 0, p.stderr
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
              if e.get("ph") == "X" and e["pid"] in (1, 2)]
    predicted = sorted(e["name"] for e in events if e["pid"] == 2)
    for rank in 0, 1:
        names = {t: [e["name"] for e in events if e["pid"] == 1 and e["tid"] == t] for t in (rank, 2 + rank)}
        assert sorted(names[rank] + names[2 + rank]) == predicted
        assert names[2 + rank] and all(re.match("all_|reduce_scatter", n) for n in names[2 + rank])
        assert not any(re.match("all_|reduce_scatter", n) for n in names[rank])


# ---- processes ----


@pytest.mark.skipif(not MPIRUN, reason="there is no mpirun")
@pytest.mark.parametrize("plan", PLANS)
def test_processes(tree, encoder, programs, tmp_path, plan):
    """One rank and one GPU in each process: the bits of threads, and nothing is left where they met."""
    program = programs(plan)
    (tmp_path / "meet").mkdir()
    alone = run(program, encoder, tmp_path / "threads", environment(tree))
    assert alone.returncode == 0, alone.stderr
    p = run(program, encoder, tmp_path / "processes", environment(tree, folder=tmp_path / "meet"), mpirun(plan))
    assert p.returncode == 0 and "cudashim" not in p.stderr, p.stderr
    a, b = (np.load(tmp_path / d / "y.npy") for d in ("threads", "processes"))
    assert a.tobytes() == b.tobytes()
    assert not list((tmp_path / "meet").iterdir())


@pytest.mark.skipif(not MPIRUN, reason="there is no mpirun")
@pytest.mark.parametrize("args", [*([("exchanges", "2")] if ALL else []), ("programs", "3", "0", "6"), ("mixed", "3", "0", "6")])
def test_conformance(tree, tmp_path, args):
    p = subprocess.run([*mpirun(args[1]), tree / "bin" / "comm_check_nccl", *args], capture_output=True, text=True,
                       env=environment(tree, folder=tmp_path), timeout=PATIENCE)
    assert (p.returncode, p.stdout) == (0, "right\n"), p.stderr


# ---- failures ----


PLACE = r'rank 1, stage 0 \("early"\), microbatch 1, instruction 1 \(exchange\), node "sum" \(Op\): '
FAULTS = {
    "none": (0, "$"),
    "open": (4, r"rank [13], stage [01].*: ncclCommInitRank: unhandled system error"),
    "call": (4, PLACE + "the library is ill"),
    "error": (4, r"rank \d.*: a connection between GPUs failed: (unhandled system error|remote process exited)"),
    "skip": (4, "nothing has come from the GPU for 2 seconds"),
    "mismatch": (-6, "cudashim: .*mismatched collective: .* is ncclAllReduce of 9[56] elements"),
}


def broken(tree, kind, rank, mb, folder=None):
    before = mpirun(4) if folder else []
    env = {**environment(tree, folder=folder), "AUTOPAR_WATCHDOG": "2"}
    return subprocess.run([*before, tree / "bin" / "nccl_break", "4", kind, str(rank), str(mb)], capture_output=True,
                          text=True, env=env, timeout=PATIENCE)


@pytest.mark.parametrize("kind, mb", [*((kind, 1) for kind in FAULTS), ("call", 3), ("error", 3)])
def test_failing_rank(tree, kind, mb):
    """While a microbatch is put on streams by calls (1), and while it is captured (3)."""
    p = broken(tree, kind, 1, mb)
    code, text = FAULTS[kind]
    assert p.returncode == code and re.search(text, p.stderr), (p.returncode, p.stderr)
    assert (kind == "none") == (p.stdout == "right\n")


@pytest.mark.skipif(not MPIRUN, reason="there is no mpirun")
@pytest.mark.parametrize("kind", ["none", "call", "error", "kill"])
def test_failing_process(tree, tmp_path, kind):
    p = broken(tree, kind, 1, 1, tmp_path)
    assert (p.returncode == 0) == (kind == "none")
    if kind in ("none", "call"):
        assert re.search(FAULTS[kind][1], p.stderr), p.stderr
