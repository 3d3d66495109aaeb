"""What users do by mistake: nothing is lost, overwritten or ignored in silence, nothing waits for ever, and no mistake of
theirs ends with the code of a bug of ours."""

import json
import os
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from make_model import encoder_layer, mlp, model, value
from test_mesh import LAB


@pytest.fixture
def path(tmp_path):
    onnx.save(mlp(batch=4), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((4, 16), np.float32))
    return tmp_path / "m.onnx"


@pytest.fixture(scope="module")
def shared(autopar, tmp_path_factory):
    """A compiled model, its input and a data set."""
    d = tmp_path_factory.mktemp("shared")
    onnx.save(mlp(batch=4), d / "m.onnx")
    x = np.ones((4, 16), np.float32)
    np.save(d / "x.npy", x)
    autopar("compile", d / "m.onnx", "-o", d / "out")
    autopar("run", d / "out", "--input", f"x={d}/x.npy", "--output-dir", d)
    (d / "set").mkdir()
    (d / "set" / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    (d / "set" / "output_0.pb").write_bytes(numpy_helper.from_array(np.load(d / "y.npy")).SerializeToString())
    autopar("check", d / "out", "--data", d / "set")
    return d


def one_line(p, *words):
    text = p.stderr if isinstance(p.stderr, str) else p.stderr.decode()
    assert len(text.splitlines()) == 1 and all(w in text for w in words), text


# ---- standard output that cannot be written ----

COMMANDS = {
    "dump": ["{autopar}", "dump", "{d}/out"],
    "ir": ["{autopar}", "dump", "{d}/out", "--format", "ir", "--state", "local"],
    "plan": ["{autopar}", "plan", "{d}/m.onnx"],
    "ops": ["{autopar}", "ops"],
    "run": ["{autopar}", "run", "{d}/out", "--input", "x={d}/x.npy", "--output-dir", "{d}/r"],
    "program": ["{d}/out/model", "{d}/x.npy"],
    "help of the program": ["{d}/out/model", "--help"],
}


@pytest.mark.parametrize("how", [">/dev/full", ">&-", "limit"])
@pytest.mark.parametrize("command", COMMANDS)
def test_output_is_not_lost(autopar, shared, tmp_path, command, how):
    args = [a.format(autopar=autopar.path, d=shared) for a in COMMANDS[command]]
    script = f'ulimit -f 0; trap "" XFSZ; exec "$@" >{tmp_path}/t.txt' if how == "limit" else f'exec "$@" {how}'
    if command == "run" and how == "limit":
        pytest.skip("the outputs are files as well")
    p = subprocess.run(["bash", "-c", script, "bash", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100)
    assert p.returncode == 4, p.stderr
    one_line(p, "standard output")


def test_output_cut_in_the_middle(autopar, tmp_path):
    """The first writes are well, one in the middle is not, and the last may be well again."""
    onnx.save(encoder_layer(layers=4), tmp_path / "m.onnx")
    script = f'ulimit -f 8; trap "" XFSZ; exec "$@" >{tmp_path}/t.txt'
    p = subprocess.run(["bash", "-c", script, "bash", str(autopar.path), "plan", str(tmp_path / "m.onnx")],
                       stderr=subprocess.PIPE, timeout=100)
    assert p.returncode == 4
    one_line(p, "standard output")


# ---- what is no file ----


def test_pipe_as_input(autopar, shared, tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    p = subprocess.run([str(shared / "out" / "model"), str(tmp_path / "x.npy")], capture_output=True, timeout=20)
    assert p.returncode == 4
    one_line(p, "x.npy", "not a regular file")
    os.mkfifo(tmp_path / "input_0.pb")
    p = subprocess.run([str(autopar.path), "check", str(shared / "out"), "--data", str(tmp_path)], capture_output=True, timeout=20)
    assert p.returncode == 4
    one_line(p, "input_0.pb", "not a regular file")


# ---- no bug of ours ----


@pytest.mark.parametrize("command", ["compile", "run"])
@pytest.mark.parametrize("many", [("--devices", 257), ("--cluster", "dgx-h100:33x8")])
def test_more_devices_than_a_program_has(autopar, path, tmp_path, command, many):
    args = ("-o", tmp_path / "out", "--emit-only") if command == "compile" else ()
    one_line(autopar(command, path, *many, *args, code=2), "256", "257" if many[1] == 257 else "264")
    assert not (tmp_path / "out").exists()


def test_a_plan_for_many_devices_is_no_program(autopar, path, tmp_path):
    autopar("plan", path, "--devices", 1024, "-o", tmp_path / "p.json", "-q")
    one_line(autopar("compile", path, "--plan", tmp_path / "p.json", "-o", tmp_path / "out", code=2), "256", "1024")


def test_the_most_devices(autopar, path, tmp_path):
    """What the compiler allows is what the runtime takes."""
    autopar("compile", path, "--devices", 256, "-o", tmp_path / "out")
    autopar("run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path)


@pytest.mark.parametrize("figure", ["cost_ps", "peak_bytes"])
def test_edited_figures(autopar, path, tmp_path, figure):
    autopar("plan", path, "-o", tmp_path / "p.json", "-q")
    plan = json.loads((tmp_path / "p.json").read_text())
    plan["exact"][figure] = str(int(plan["exact"][figure]) + 1)
    (tmp_path / "p.json").write_text(json.dumps(plan))
    one_line(autopar("compile", path, "--plan", tmp_path / "p.json", "-o", tmp_path / "out", code=1), "p.json", "figures")


# ---- nothing is overwritten that nobody can make again ----


def test_force_replaces_only_what_was_made(autopar, path, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    autopar("compile", path, "-o", out, "--emit-only", "--force")  # it was empty
    autopar("compile", path, "-o", out, "--emit-only", "--force")  # it was made
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("precious")
    for content in (None, "{}", '{"schema": "x"}', "no JSON"):
        if content:
            (mine / "plan.json").write_text(content)
        one_line(autopar("compile", path, "-o", mine, "--emit-only", "--force", code=2), "mine", "not made by autopar")
    autopar("plan", path, "-o", mine / "plan.json", "-q")  # a plan alone makes no folder of a program
    one_line(autopar("compile", path, "-o", mine, "--emit-only", "--force", code=2), "not made by autopar")
    assert (mine / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("args", [("plan", "-o"), ("plan", "--dump-problem"), ("run", "--trace")])
def test_the_model_stays(autopar, path, tmp_path, args):
    before = path.read_bytes()
    os.symlink(path, tmp_path / "link")
    os.link(path, tmp_path / "hard")
    for name in ("m.onnx", "link", "hard"):
        one_line(autopar(args[0], path, args[1], tmp_path / name, code=2), str(tmp_path / name), "itself")
    assert path.read_bytes() == before


# ---- nothing is ignored ----


@pytest.mark.parametrize(
    "args", [("--devices", "2"), ("--memory", "1GB"), ("--pin", "none"), ("--mesh", "1x1"), ("--cluster", "dgx-h100"),
             ("--split", "force"), ("--plan", "p.json"), ("--dim", "n=1"), ("--batch", "8"), ("--march", "native"),
             ("--check-passes",)])
def test_run_of_a_folder_takes_no_planning(autopar, shared, tmp_path, args):
    p = autopar("run", shared / "out", "--input", f"x={shared}/x.npy", "--output-dir", tmp_path, *args, code=2)
    one_line(p, args[0])


@pytest.mark.parametrize("name", ["input_9.pb", "output_9.pb", "output_1.pb"])
def test_more_in_the_data_set(autopar, shared, tmp_path, name):
    for f in (shared / "set").iterdir():
        (tmp_path / f.name).write_bytes(f.read_bytes())
    (tmp_path / name).write_bytes((shared / "set" / "input_0.pb").read_bytes())
    one_line(autopar("check", shared / "out", "--data", tmp_path, code=1), name)


# ---- messages ----


def test_check_wants_a_folder(autopar, shared):
    one_line(autopar("check", shared / "m.onnx", "--data", shared / "set", code=2), "m.onnx", "folder", "compile")


def pinned(autopar, path, tmp_path, text, code):
    (tmp_path / "pins").write_text(text)
    return autopar("plan", path, "--devices", 2, "--pin", tmp_path / "pins", code=code)


@pytest.mark.parametrize("sharding", ["[x]", "[q,-]", "[x,x]", "[x,-] then", "nonsense", "@n[x,-]"])
def test_bad_sharding_is_one_line(autopar, path, tmp_path, sharding):
    one_line(pinned(autopar, path, tmp_path, f"value x {sharding}\n", 2), "pins:1", "no sharding")


@pytest.mark.parametrize("later", ["[-,x]", "forbid x"])
def test_pins_that_disagree(autopar, path, tmp_path, later):
    one_line(pinned(autopar, path, tmp_path, f"# both\nvalue x [x,-]\n\nvalue x {later}\n", 2), "pins:4", "line 2")


@pytest.mark.parametrize("pin", ["value x [x,-] # rows", "value x [x,-]\t# a # b", "value x forbid x # not", "#value"])
def test_comment_behind_a_pin(autopar, path, tmp_path, pin):
    pinned(autopar, path, tmp_path, pin + "\n", 0)


def test_only_a_comment_for_a_sharding(autopar, path, tmp_path):
    one_line(pinned(autopar, path, tmp_path, "value x # [x,-]\n", 2), "pins:1")


@pytest.mark.parametrize("name", ["name: \"a\\nb\"", "name: \"a\\tb\"", "name: \"a\\e[31m\""])
def test_control_characters_in_a_cluster(autopar, path, tmp_path, name):
    (tmp_path / "lab.yaml").write_text(LAB.replace("name: lab", name))
    one_line(autopar("plan", path, "--cluster", tmp_path / "lab.yaml", code=2), "lab.yaml:2", '"name"')


def test_control_characters_in_the_cluster_of_a_plan(autopar, path, tmp_path):
    autopar("plan", path, "-o", tmp_path / "p.json", "-q")
    text = (tmp_path / "p.json").read_text()
    assert '"local"' in text
    (tmp_path / "p.json").write_text(text.replace('"local"', '"lo\\ncal"'))
    one_line(autopar("dump", tmp_path / "p.json", code=1), "p.json", "cluster")


def test_note_of_another_machine(autopar, path, tmp_path):
    args = ("compile", path, "--cluster", "dgx-h100:1x2", "--emit-only", "-o")
    one_line(autopar(*args, tmp_path / "a"), "note", "dgx-h100", "threads of this machine")
    assert autopar(*args, tmp_path / "b", "-q").stderr == ""
    assert autopar("compile", path, "--devices", 2, "--emit-only", "-o", tmp_path / "c").stderr == ""


def test_names_of_outputs_that_meet(autopar, tmp_path):
    nodes = [helper.make_node("Neg", ["x"], ["a/b"], "n"), helper.make_node("Abs", ["x"], ["a_b"], "m")]
    onnx.save(model(nodes, [value("x", [2])], [value("a/b", [2]), value("a_b", [2])]), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.array([1, -2], np.float32))
    autopar("run", tmp_path / "m.onnx", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / "r")
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == ["0_a_b.npy", "1_a_b.npy"]
    assert np.load(tmp_path / "r" / "0_a_b.npy").tolist() == [-1, 2]
