"""Wrong values of options: one clear message that names the option, exit code 2, nothing on standard output; meshes,
batches and clusters as the command line says them; what an interrupt or a full disk leaves behind."""

import json
import os
import resource
import signal
import subprocess
import time

import onnx
import pytest
from onnx import TensorProto, helper

from make_model import encoder_layer, mlp, model, value


@pytest.fixture
def path(tmp_path):
    onnx.save(mlp(batch=4), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


BAD = [
    ("plan", "--devices", "0"),
    ("plan", "--devices", "-1"),
    ("plan", "--devices", "1025"),
    ("plan", "--devices", "two"),
    ("plan", "--devices", ""),
    ("plan", "--devices", "2.5"),
    ("plan", "--devices", "99999999999999999999"),
    ("plan", "--cluster", "dgx"),
    ("plan", "--cluster", ""),
    ("plan", "--cluster", "dgx-h100:"),
    ("plan", "--cluster", "dgx-h100:0"),
    ("plan", "--cluster", "dgx-h100:1x9"),
    ("plan", "--cluster", "dgx-h100:1x8x2"),
    ("plan", "--cluster", "dgx-h100:9000x8"),
    ("plan", "--cluster", "local:2"),
    ("plan", "--mesh", "2"),
    ("plan", "--mesh", "2x2"),
    ("plan", "--mesh", "x=2,x=2"),
    ("plan", "--mesh", "mb=1"),
    ("plan", "--mesh", "1x1x1x1"),
    ("plan", "--mesh", "a=1,b=1,c=1,d=1"),
    ("plan", "--mesh", "1x"),
    ("plan", "--mesh", "x"),
    ("plan", "--mesh", ""),
    ("plan", "--mesh", "a=1,1"),
    ("plan", "--mesh", "2a=1"),
    ("plan", "--mesh", "=1"),
    ("plan", "--mesh", "0x1"),
    ("plan", "--mesh", "4294967296x4294967296"),
    ("plan", "--memory", "0"),
    ("plan", "--memory", "lots"),
    ("plan", "--memory", "-1GB"),
    ("plan", "--memory", "16 GB of it"),
    ("plan", "--memory", "1e300GB"),
    ("plan", "--memory", "nan"),
    ("plan", "--split", "no"),
    ("plan", "--time-limit", "-1"),
    ("plan", "--time-limit", "soon"),
    ("plan", "--time-limit", "inf"),
    ("plan", "--dim", "batch"),
    ("plan", "--dim", "=4"),
    ("plan", "--dim", "batch=-1"),
    ("plan", "--dim", "batch=1,2"),
    ("plan", "--dim", "batch=99999999999999999999"),
    ("plan", "--dim", "nothing=4"),
    ("plan", "--batch", "0"),
    ("plan", "--batch", "many"),
    ("plan", "--batch", "8"),  # the model has 4
    ("plan", "--batch-dim", "batch"),
    ("dump", "--format", "pdf"),
    ("dump", "--state", "finished"),
    ("compile", "--target", "abacus"),
    ("compile", "--codegen", "fortran"),
    ("compile", "--weights", "heavy"),
    ("compile", "--name", "1st"),
    ("compile", "--name", "a-b"),
    ("compile", "--march", "native -o x"),
    ("compile", "--march", ""),
    ("run", "--target", "abacus"),
    ("run", "--repeat", "0"),
    ("run", "--repeat", "x"),
    ("run", "--input", "x"),
    ("run", "--input", "=x.npy"),
]


@pytest.mark.parametrize("command,option,bad", BAD, ids=[" ".join(b) for b in BAD])
def test_bad_value(autopar, path, tmp_path, command, option, bad):
    args = [command, path, option, bad] + (["-o", tmp_path / "out"] if command == "compile" else [])
    p = autopar(*args, code=2)
    assert p.stdout == "" and len(p.stderr.splitlines()) == 1, p.stderr
    assert option.lstrip("-").split("-")[0] in p.stderr or "nothing" in p.stderr, p.stderr
    assert not list(tmp_path.glob("out*"))


TOLERANCES = [("--rtol", "x"), ("--rtol", "-1"), ("--atol", "nan"), ("--atol", "")]


@pytest.mark.parametrize("option,bad", TOLERANCES, ids=[" ".join(b) for b in TOLERANCES])
def test_bad_tolerance(autopar, tmp_path, option, bad):
    p = autopar("check", tmp_path, "--data", tmp_path, option, bad, code=2)
    assert option[2:] in p.stderr and len(p.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args",
    [("--devices", "2", "--cluster", "local"), ("--plan", "p.json", "--devices", "2"), ("--plan", "p.json", "--pin", "x"),
     ("--batch-dim", "b"), ("--devices",), ("--json=1",), ("--data", "d"), ("--nothing",), ("-x",)])
def test_bad_combination(autopar, path, tmp_path, args):
    p = autopar("compile", path, "-o", tmp_path / "out", *args, code=2)
    assert len(p.stderr.splitlines()) == 1 and not list(tmp_path.glob("out*"))


# ---- meshes ----


@pytest.mark.parametrize(
    "mesh,expected",
    [("auto", {"x": 8}), ("8", {"x": 8}), ("2x4", {"x": 2, "y": 4}), ("2x2x2", {"x": 2, "y": 2, "z": 2}),
     ("dp=2,tp=4", {"dp": 2, "tp": 4}), ("tp=8", {"tp": 8}), ("1x8", {"x": 1, "y": 8})])
def test_mesh(autopar, path, mesh, expected):
    plan = autopar.json("plan", path, "--devices", 8, "--mesh", mesh)
    assert plan["stages"][0]["mesh"] == expected
    assert plan["stages"][0]["ranks"] == list(range(8))


def test_mesh_auto_over_hosts(autopar, path):
    plan = autopar.json("plan", path, "--cluster", "dgx-h100:2x8", "--stages", 1)
    assert plan["stages"][0]["mesh"] == {"x": 2, "y": 8}
    assert (plan["cluster"], plan["hosts"], plan["devices_per_host"]) == ("dgx-h100", 2, 8)


# ---- batches ----


def two_inputs(a, b, names=("a", "b")):
    nodes = [helper.make_node("Add", list(names), ["y"], "sum")]
    return model(nodes, [value(names[0], a), value(names[1], b)], [value("y", None)])


def batch_of(autopar, tmp_path, m, *args, code=0):
    onnx.save(m, tmp_path / "b.onnx")
    p = autopar("plan", tmp_path / "b.onnx", "--batch", 6, *args, code=code)
    return p.stdout if code == 0 else p.stderr


@pytest.mark.parametrize(
    "a,b,args,rows",
    [(["n", 4], ["n", 4], (), 2),  # axis 0 of both
     (["batch_size", 4], [3, "batch_size", 4], (), 2),  # by its name
     (["N", "k"], ["k"], ("--dim", "k=4"), 1),
     (["p", "q"], ["q"], ("--batch-dim", "q", "--dim", "p=2"), 2),
     ([None, 4], [4], ("--batch-dim", "a:0"), 1),
     (["p", "q"], ["q"], ("--batch-dim", "b:0", "--dim", "p=2"), 2),
     ([6, 4], [6, 4], (), 2)])  # fixed, and as said
def test_batch(autopar, tmp_path, a, b, args, rows):
    text = batch_of(autopar, tmp_path, two_inputs(a, b), *args)
    inputs = [line for line in text.splitlines() if line.startswith("  input")]
    assert len(inputs) == 2 and sum("[6," in line or ",6," in line or "6]" in line for line in inputs) == rows, text


@pytest.mark.parametrize(
    "a,b,args,words",
    [(["p", "q"], ["q"], (), ["--batch-dim"]),
     (["batch_a", 4], ["batch_b", 4], (), ["--batch-dim"]),
     (["n", 4], ["n", 4], ("--batch-dim", "m"), ["--batch-dim", '"m"']),
     (["n", 4], ["n", 4], ("--batch-dim", "a:7"), ["--batch-dim", '"a:7"']),
     (["n", 4], ["n", 4], ("--batch-dim", "a:1"), ["axis 1", '"a"', "4"]),
     (["n", 4], ["n", 4], ("--dim", "n=5"), ["5", "--dim", "6", "--batch"]),
     ([5, 4], [5, 4], (), ["axis 0", "5"])])
def test_batch_refused(autopar, tmp_path, a, b, args, words):
    text = batch_of(autopar, tmp_path, two_inputs(a, b), *args, code=2)
    assert len(text.splitlines()) == 1 and all(w in text for w in words), text


# ---- plan --json ----


def test_plan_json_is_complete(autopar, path, tmp_path):
    plan = autopar.json("plan", path, "--devices", 4, "--mesh", "2x2", "--split", "force", "-o", tmp_path / "p.json")
    for key in ("seconds", "bound", "gap", "planning_seconds"):
        assert plan[key] >= 0
    assert plan["microbatches"] == 1 and plan["schedule"] == "inference"
    assert 0 < plan["sharded_flops_fraction"] <= 1
    (stage,) = plan["stages"]
    assert set(stage) >= {"ranks", "mesh", "nodes", "seconds", "peak_bytes"}
    assert autopar.json("plan", path)["sharded_flops_fraction"] == 1  # one device has all of it


def test_sharded_fraction_asks_for_all_devices(autopar, tmp_path):
    """A product whose rows, columns and sums are one element has nothing to divide; one of 2x3 by 3x1 has."""
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"], "fc")]
    for name, k, m in (("p", 3, 2), ("q", 1, 1)):
        onnx.save(model(nodes, [value("a", [m, k]), value("b", [k, 1])], [value("y", [m, 1])]), tmp_path / f"{name}.onnx")
    fraction = lambda name, *args: autopar.json("plan", tmp_path / name, "--split", "force", *args)["sharded_flops_fraction"]
    assert fraction("p.onnx", "--devices", 2) == 1
    assert fraction("p.onnx", "--devices", 7) == 1  # two of them work
    assert fraction("q.onnx", "--devices", 2) == 0


# ---- what is left behind ----


def start(autopar, tmp_path, *args, env=None):
    onnx.save(encoder_layer(layers=6), tmp_path / "big.onnx")
    # whoever runs the tests in the background may have left SIGINT ignored
    return subprocess.Popen([str(autopar.path), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def wait_for(found, process):
    for _ in range(6000):
        if found():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    pytest.fail("nothing to interrupt came up")


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["out.part*", "out.part*/*.c", "out.part*/build.log"])
def test_interrupt(autopar, tmp_path, sig, moment):
    p = start(autopar, tmp_path, "compile", tmp_path / "big.onnx", "-o", tmp_path / "out", "--devices", 2)
    wait_for(lambda: list(tmp_path.glob(moment)), p)
    p.send_signal(sig)
    p.communicate(timeout=60)
    assert p.returncode == -sig
    assert [f.name for f in tmp_path.iterdir()] == ["big.onnx"]


def test_interrupt_keeps_the_old_folder(autopar, tmp_path):
    onnx.save(mlp(batch=4), tmp_path / "m.onnx")
    autopar("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", "--emit-only")
    (tmp_path / "m.onnx").unlink()
    (tmp_path / "out" / "mine").write_text("precious")
    p = start(autopar, tmp_path, "compile", tmp_path / "big.onnx", "-o", tmp_path / "out", "--force")
    wait_for(lambda: list(tmp_path.glob("out.part*")), p)
    p.terminate()
    p.communicate(timeout=60)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["big.onnx", "out"]
    assert (tmp_path / "out" / "mine").read_text() == "precious"


def test_killed_worker(autopar, tmp_path):
    """As the kernel does when memory is out."""
    p = start(autopar, tmp_path, "compile", tmp_path / "big.onnx", "-o", tmp_path / "out")
    wait_for(lambda: list(tmp_path.glob("out.part*")), p)
    (worker,) = open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()
    os.kill(int(worker), signal.SIGKILL)
    err = p.communicate(timeout=60)[1].decode()
    assert p.returncode == 4 and "signal 9" in err
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_plan(autopar, tmp_path, sig):
    """At whatever moment: files are whole or not there."""
    ended = 0
    for i in range(10):
        plan, problem = tmp_path / f"plan{i}.json", tmp_path / f"problem{i}.json"
        p = start(autopar, tmp_path, "plan", tmp_path / "big.onnx", "--devices", 8, "--mesh", "2x2x2", "-o", plan, "--dump-problem", problem)
        time.sleep(0.03 * i)
        p.send_signal(sig)
        p.communicate(timeout=60)
        assert p.returncode in (0, -sig)
        ended += p.returncode == -sig
        for path in (plan, problem):
            assert json.loads(path.read_text()) if path.exists() else p.returncode
        assert not list(tmp_path.glob("*.part*"))
    assert ended


def test_interrupted_run(autopar, tmp_path):
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    p = start(autopar, tmp_path, "run", tmp_path / "big.onnx", "--codegen", "c", env={**os.environ, "TMPDIR": str(tmp)})
    wait_for(lambda: list(tmp.glob("autopar-*/*.c")), p)
    p.terminate()
    p.communicate(timeout=60)
    assert p.returncode == -signal.SIGTERM and not list(tmp.glob("autopar-*"))


@pytest.mark.parametrize("limit", [0, 100, 20000, 200000])
def test_disk_full(autopar, tmp_path, limit):
    """A limit on the size of files is to write(2) what a full disk is."""
    onnx.save(encoder_layer(), tmp_path / "m.onnx")
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    args = [str(autopar.path), "compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out")]
    p = subprocess.run(args, capture_output=True, text=True, preexec_fn=limited)
    assert p.returncode == 4, p.stderr
    assert p.stderr and not list(tmp_path.glob("out*"))
    if limit <= 100:
        plan = [str(autopar.path), "plan", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "plan.json")]
        p = subprocess.run(plan, capture_output=True, text=True, preexec_fn=limited)
        assert p.returncode == 4 and "plan.json" in p.stderr and not list(tmp_path.glob("plan.json*"))


def test_unwritable(autopar, path, tmp_path):
    autopar("compile", path, "-o", "/proc/out", code=4)
    autopar("plan", path, "-o", "/proc/plan.json", code=4)
    (tmp_path / "file").write_text("")
    autopar("compile", path, "-o", tmp_path / "file" / "out", code=4)
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o555)
        autopar("compile", path, "-o", tmp_path / "locked" / "out", code=4)
    with open("/dev/full", "w") as full:
        p = subprocess.run([str(autopar.path), "plan", str(path)], stdout=full, stderr=subprocess.PIPE)
    assert p.returncode == 4


def test_check_passes_draws_indices_that_are_there(autopar, tmp_path):
    """Along an axis of one element the only index is 0."""
    node = helper.make_node("GatherND", ["x", "i"], ["y"], "pick")
    m = model([node], [value("x", [1, 3]), value("i", [2, 1], TensorProto.INT64)], [value("y", [2, 3])])
    onnx.save(m, tmp_path / "m.onnx")
    autopar("plan", tmp_path / "m.onnx", "--devices", 2, "--check-passes")
