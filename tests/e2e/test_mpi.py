"""Ranks as processes of an MPI job: the conformance suite under mpirun, compiled models with the bits of threads, and
every way to fail: each ends all processes, with a message that says where."""

import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

import numpy as np
import onnx
import pytest

from make_model import encoder_layer, random_inputs

MPIRUN = shutil.which("mpirun")
pytestmark = pytest.mark.skipif(not MPIRUN, reason="there is no mpirun")
PATIENCE = 120  # seconds until a job counts as hanging; the machine may be busy


@pytest.fixture(scope="module")
def tools(autopar):
    """Where comm_check and comm_break lie, and the environment in which they find the plugin."""
    plugin = autopar.path.parent.parent / "lib" / "libautopar_rt_mpi.so"
    if not plugin.exists():
        pytest.skip("built without MPI")
    # MPI keeps memory to the end
    return autopar.path.parent, {**os.environ, "AUTOPAR_RT_PLUGIN": str(plugin), "ASAN_OPTIONS": "detect_leaks=0"}


def mpirun(ranks):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [MPIRUN, "--quiet", "--oversubscribe", *root, "-n", str(ranks)]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_gone(pids):
    end = time.monotonic() + PATIENCE
    while any(is_alive(p) for p in pids):
        assert time.monotonic() < end, f"still there: {[p for p in pids if is_alive(p)]}"
        time.sleep(0.05)


class Job:
    """comm_break in processes; their ids are known once the program is open in all of them."""

    def __init__(self, tools, ranks, *args, watchdog=30):
        where, env = tools
        self.process = subprocess.Popen([*mpirun(ranks), str(where / "comm_break"), str(ranks), *map(str, args)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**env, "AUTOPAR_WATCHDOG": str(watchdog)})
        self.ranks = ranks

    def pids(self):
        found = {}
        while len(found) < self.ranks:
            word = self.process.stdout.readline().split()
            assert len(word) == 4, "the job ended early"
            found[int(word[1])] = int(word[3])
        return found

    def end(self):
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


# ---- right numbers ----


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_exchanges(tools, ranks):
    where, env = tools
    p = subprocess.run([*mpirun(ranks), where / "comm_check", "exchanges", str(ranks)], capture_output=True, text=True,
                       env=env, timeout=900)
    assert (p.returncode, p.stdout) == (0, "right\n"), p.stderr


@pytest.mark.parametrize("ranks", [2, 3, 6])
def test_random_programs(tools, ranks):
    where, env = tools
    rounds = {2: "300", 3: "200", 4: "100", 6: "40"}[ranks]  # more ranks than processors wait for each other
    p = subprocess.run([*mpirun(ranks), where / "comm_check", "programs", str(ranks), "0", rounds], capture_output=True,
                       text=True, env=env, timeout=900)
    assert (p.returncode, p.stdout) == (0, "right\n"), p.stderr


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder")
    m = encoder_layer()
    onnx.save(m, path / "encoder.onnx")
    np.save(path / "x.npy", random_inputs(m)["x"])
    return path / "encoder.onnx"


def compiled(autopar, encoder, out, *planning):
    autopar("compile", encoder, "-o", out, *planning)
    return out


PLANS = {
    "1": ("--devices", 1),
    "2": ("--devices", 2, "--split", "force"),
    "4": ("--devices", 4, "--split", "force"),
    "2 stages": ("--devices", 4, "--stages", 2, "--microbatches", 2),
    "sliced": ("--devices", 2, "--stages", 2, "--microbatches", 2, "--weights", "sliced"),
}


@pytest.mark.parametrize("plan", PLANS)
def test_same_bits(autopar, tools, encoder, tmp_path, plan):
    """What threads compute, processes compute, to the last bit; every one of several runs."""
    out = compiled(autopar, encoder, tmp_path / "out", *PLANS[plan])
    run = "run", out, "--input", f"x={encoder.parent}/x.npy", "--repeat", 3
    autopar(*run, "--output-dir", tmp_path / "threads")
    autopar(*run, "--output-dir", tmp_path / "processes", "--launcher", "mpi", env=tools[1])
    a, b = (np.load(tmp_path / d / "y.npy") for d in ("threads", "processes"))
    assert a.tobytes() == b.tobytes()


def test_check(autopar, tools, models, tmp_path):
    """The data set of a model, compared by rank 0's outputs."""
    model = models / "genai-tiny-gpt2-5l"
    data = model / "test_data_set_0"
    if not data.is_dir():
        pytest.skip(f"no {data}")
    out = tmp_path / "out"
    autopar("compile", model / "model.onnx", "-o", out, "--devices", 2, "--split", "force", "--shapes-from", data)
    p = autopar("check", out, "--data", data, "--launcher", "mpi", "--json", env=tools[1])
    assert json.loads(p.stdout)["ok"]


def test_trace(autopar, tools, encoder, tmp_path):
    """Rank 0 writes what all ranks did: two microbatches of every instruction, and what was sent."""
    out = compiled(autopar, encoder, tmp_path / "out", "--devices", 2, "--stages", 2, "--microbatches", 2)
    run = "run", out, "--input", f"x={encoder.parent}/x.npy", "--output-dir", tmp_path, "--launcher", "mpi"
    autopar(*run, "--trace", tmp_path / "trace.json", env=tools[1])
    autopar(*run, env={**tools[1], "AUTOPAR_TRACE": str(tmp_path / "other.json")})
    for file in "trace.json", "other.json":
        events = [e for e in json.loads((tmp_path / file).read_text())["traceEvents"] if e.get("ph") == "X"]
        measured = [e for e in events if e["pid"] == 1]
        assert {e["tid"] for e in measured} == {0, 1}
        assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in events)
        for step, rank in ("send", 0), ("recv", 1):
            assert {e["args"]["microbatch"] for e in measured if e["name"] == step and e["tid"] == rank} == {0, 1}
        for rank in 0, 1:
            kernels = [e["name"] for e in measured if e["tid"] == rank and "node" in e["args"]]
            predicted = [e["name"] for e in events if e["pid"] == 2 and e["tid"] == rank]
            assert sorted(kernels) == sorted(predicted)


# ---- what goes wrong ----


@pytest.mark.parametrize("kind, code, text", [
    ("index", 1, 'rank 1, stage 1 ("link"), microbatch 3, instruction 1 (gather), node "emb" (Gather): index 12 is '
                 "outside [0, 7)"),
    ("call", 4, 'rank 1, stage 1 ("link"), microbatch 3, instruction 1 (gather), node "emb" (Gather): the library is ill'),
    ("exit", 4, "ends while a program is open"),
    ("open", 4, "rank 1, stage 1 (\"link\"): nowhere/weights.safetensors: No such file"),
])
def test_failing_rank(tools, kind, code, text):
    job = Job(tools, 4, kind, 1, 3)
    found, _, err = job.end()
    assert found == code and text in err, (found, err)
    if kind in ("index", "call", "open"):
        assert f"host {os.uname().nodename}: " in err
        assert err.count("chain: ") == 1


def test_rank_leaves(tools):
    """A list that ends too early: who waits for whom."""
    code, _, err = Job(tools, 3, "leave", 1, 2, watchdog=1).end()
    assert code == 4 and "nothing has moved for 1 seconds" in err
    assert 'rank 2 (stage "link") waits for rank 1 to send microbatch 2 of channel "h"' in err


def test_slow_kernel(tools):
    """A kernel may take longer than the bound."""
    code, out, err = Job(tools, 3, "slow", 1, 2, 3, watchdog=1).end()
    assert code == 0 and "right" in out, err


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_process_is_ended_or_stopped(tools, rank, sig):
    job = Job(tools, 3, "none", 0, 0, 0.001, watchdog=2)
    pids = job.pids()
    time.sleep(0.3)
    os.kill(pids[rank], sig)
    code, _, err = job.end()
    assert code != 0
    if sig == signal.SIGSTOP:
        bound = 2.5 if rank == 0 else 2
        assert f"rank {rank} on {os.uname().nodename} has not been heard of for {bound:g} seconds" in err, err
    all_gone(pids.values())


def children(pid):
    """All descendants."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            direct = [int(x) for x in f.read().split()]
    except FileNotFoundError:
        return []
    return direct + [g for c in direct for g in children(c)]


def started(autopar, out, encoder, tmp_path, env):
    """A long job under `autopar run`; its processes once all ranks are there."""
    p = subprocess.Popen([autopar.path, "run", out, "--input", f"x={encoder.parent}/x.npy", "--output-dir", tmp_path,
                          "--repeat", "1000000", "--launcher", "mpi"], env=env, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + PATIENCE
    while True:
        below = [c for c in children(p.pid) if comm(c) == "model"]
        if len(below) == 2 and time.monotonic() > end - PATIENCE + 2:
            return p, below
        assert p.poll() is None and time.monotonic() < end, p.stderr.read() if p.poll() is not None else "too slow"
        time.sleep(0.05)


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    except FileNotFoundError:
        return ""


def environment(pid):
    with open(f"/proc/{pid}/environ") as f:
        return dict(x.split("=", 1) for x in f.read().split("\0") if "=" in x)


@pytest.fixture(scope="module")
def two(autopar, encoder, tmp_path_factory):
    return compiled(autopar, encoder, tmp_path_factory.mktemp("two") / "out", "--devices", 2, "--split", "force")


@pytest.mark.parametrize("sig, watchdog", [(signal.SIGKILL, 30), (signal.SIGSTOP, 2)])
def test_run_ends(autopar, tools, two, encoder, tmp_path, sig, watchdog):
    """`autopar run` ends with 4 when a rank does, and nothing is left."""
    p, ranks = started(autopar, two, encoder, tmp_path, {**tools[1], "AUTOPAR_WATCHDOG": str(watchdog)})
    all_of_it = children(p.pid)
    rank_of = {r: environment(r)["OMPI_COMM_WORLD_RANK"] for r in ranks}
    os.kill(ranks[1], sig)
    _, err = p.communicate(timeout=PATIENCE)
    assert p.returncode == 4, err
    dead = f"rank {rank_of[ranks[1]]} on host {os.uname().nodename} was ended by signal 9 (Killed)"
    assert (dead if sig == signal.SIGKILL else "has not been heard of") in err
    assert len(err.splitlines()) == 1, err
    assert not [c for c in all_of_it if is_alive(c)]


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_run_is_ended(autopar, tools, two, encoder, tmp_path, sig):
    """Whatever ends `autopar run` ends the job."""
    with tempfile.TemporaryDirectory(dir="/tmp") as tmp:  # a short name
        p, _ = started(autopar, two, encoder, tmp_path, {**tools[1], "TMPDIR": tmp})
        all_of_it = children(p.pid)
        assert glob.glob(f"{tmp}/autopar-*")
        p.send_signal(sig)
        p.communicate(timeout=PATIENCE)
        assert p.returncode == -sig
        all_gone(all_of_it)
        assert not glob.glob(f"{tmp}/autopar-*")


def test_wrong_number_of_processes(tools, two, encoder):
    p = subprocess.run([*mpirun(3), two / "model", encoder.parent / "x.npy"], capture_output=True, text=True, env=tools[1],
                       timeout=PATIENCE)
    assert p.returncode != 0
    assert "the program has 2 ranks, but the job has 3 processes: start 2" in p.stderr


def test_no_plugin(tools, two, encoder):
    p = subprocess.run([*mpirun(2), two / "model", encoder.parent / "x.npy"], capture_output=True, text=True,
                       env={**tools[1], "AUTOPAR_RT_PLUGIN": "/nowhere/plugin.so"}, timeout=PATIENCE)
    assert p.returncode == 4
    assert "/nowhere/plugin.so" in p.stderr and "AUTOPAR_RT_PLUGIN" in p.stderr


def test_found_without_help(autopar, two, encoder, tmp_path):
    """A program knows where the plugin of the runtime lies that it was linked with."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("AUTOPAR_RT")}
    p = subprocess.run([*mpirun(2), two / "model", encoder.parent / "x.npy", "--output-dir", tmp_path], capture_output=True,
                       text=True, env=env, timeout=PATIENCE)
    assert p.returncode == 0, p.stderr
    assert (tmp_path / "y.npy").exists()


@pytest.mark.parametrize("harm", ["short", "empty", "missing"])
def test_weights(autopar, tools, two, encoder, tmp_path, harm):
    """One message, whatever the number of processes."""
    copy = tmp_path / "copy"
    shutil.copytree(two, copy)
    weights = copy / "weights.safetensors"
    data = weights.read_bytes()
    weights.unlink()
    if harm != "missing":
        weights.write_bytes(data[: len(data) // 2] if harm == "short" else b"")
    for launcher in "local", "mpi":
        p = autopar("run", copy, "--input", f"x={encoder.parent}/x.npy", "--output-dir", tmp_path, "--launcher", launcher,
                    env=tools[1], code=4)
        assert p.stderr.count("weights.safetensors") == 1, p.stderr
        assert not (tmp_path / "y.npy").exists()


def lookup(tmp_path):
    """Rows of a table, and numbers of rows of which one is not there."""
    graph = onnx.helper.make_graph([onnx.helper.make_node("Gather", ["w", "i"], ["g"], "rows"), onnx.helper.make_node("Relu", ["g"], ["y"])],
                                   "lookup", [onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [4])],
                                   [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 6])],
                                   [onnx.numpy_helper.from_array(np.ones((11, 6), np.float32), "w")])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    np.save(tmp_path / "i.npy", np.array([0, 1, 2, 99]))
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("shared", [True, False])
def test_wrong_data(autopar, tools, tmp_path, shared):
    """Exit code 1 and one message, also where ranks cannot reach the folder of whoever started the job. What mpirun says about
    its own messages is not passed on."""
    autopar("compile", lookup(tmp_path), "-o", tmp_path / "out", "--devices", 2, "--split", "force")
    (tmp_path / "bin").mkdir()
    noise = ("[vm:1] [[1,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file ../orte/util/show_help.c at line 507\n"
             "[vm:2] Read -1, expected 8192, errno = 3")
    folder = "" if shared else "export AUTOPAR_JOB_FAILED=/nowhere/failed\n"
    (tmp_path / "bin" / "mpirun").write_text(f'#!/bin/sh\n{folder}echo "{noise}" >&2\nexec {MPIRUN} "$@"\n')
    (tmp_path / "bin" / "mpirun").chmod(0o755)
    p = autopar("run", tmp_path / "out", "--input", f"i={tmp_path}/i.npy", "--output-dir", tmp_path, "--launcher", "mpi",
                env={**tools[1], "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}, code=1)
    assert p.stderr.startswith("autopar: host ") and p.stderr.count("\n") == 1 and "index 99 is outside" in p.stderr


@pytest.mark.parametrize("launcher", ["local", "mpi"])
def test_trace_that_cannot_be_written(autopar, tools, two, encoder, tmp_path, launcher):
    p = autopar("run", two, "--input", f"x={encoder.parent}/x.npy", "--output-dir", tmp_path, "--launcher", launcher,
                env={**tools[1], "AUTOPAR_TRACE": "/nowhere/trace.json"}, code=4)
    assert "AUTOPAR_TRACE: /nowhere/trace.json: No such file" in p.stderr


@pytest.mark.parametrize("args, text", [
    (("--launcher", "pigeon"), "--launcher is local or mpi"),
    (("--hosts", "hosts.txt"), "--hosts is for --launcher mpi"),
])
def test_usage(autopar, two, args, text):
    p = autopar("run", two, *args, code=2)
    assert text in p.stderr


@pytest.mark.parametrize("launcher", ["local", "mpi"])
@pytest.mark.parametrize("weights", ["sliced", "copy"])
def test_short_weights_are_the_environment(autopar, tools, encoder, tmp_path, launcher, weights):
    """Exit code 4, and the rank, its host, its stage and the file are named."""
    out = compiled(autopar, encoder, tmp_path / "out", *PLANS["sliced"][:-1], weights)
    path = out / ("weights.1.safetensors" if weights == "sliced" else "weights.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    p = autopar("run", out, "--input", f"x={encoder.parent}/x.npy", "--output-dir", tmp_path / "r", "--launcher", launcher,
                env=tools[1], code=4)
    assert path.name in p.stderr and "outside" in p.stderr
    if launcher == "mpi":
        assert f"host {os.uname().nodename}: rank " in p.stderr
    if launcher == "mpi" or weights == "sliced":
        assert "stage " in p.stderr and ("rank 1, stage 1" in p.stderr or weights == "copy")


@pytest.mark.parametrize("text, code, says", [
    ("", 2, "hosts: there is no host in it"), ("# nobody\n  \n", 2, "hosts: there is no host in it"),
    ("nowhere.invalid slots=2\n", 4, "mpirun ended with code"),
])
def test_hosts_that_are_none(autopar, tools, two, encoder, tmp_path, text, code, says):
    (tmp_path / "hosts").write_text(text)
    p = autopar("run", two, "--input", f"x={encoder.parent}/x.npy", "--output-dir", tmp_path, "--launcher", "mpi",
                "--hosts", tmp_path / "hosts", env=tools[1], code=code)
    assert says in p.stderr and "signal" not in p.stderr


def test_unknown_communicator(two, encoder, tmp_path):
    p = subprocess.run([two / "model", encoder.parent / "x.npy", "--output-dir", tmp_path], capture_output=True, text=True,
                       env={**os.environ, "AUTOPAR_COMM": "foo"}, timeout=PATIENCE)
    assert p.returncode == 2 and 'AUTOPAR_COMM is local or not set, not "foo"' in p.stderr
