"""What compile makes: the same bytes twice, a program that runs on .npy and .pb, plans that can be read back."""

import json
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from make_model import encoder_layer, mlp, random_inputs


@pytest.fixture
def encoder(tmp_path):
    m = encoder_layer()
    onnx.save(m, tmp_path / "encoder.onnx")
    feeds = random_inputs(m)
    for k, v in feeds.items():
        np.save(tmp_path / f"{k}.npy", v)
    session = onnxruntime.InferenceSession(str(tmp_path / "encoder.onnx"))
    return tmp_path / "encoder.onnx", feeds, session.run(None, feeds)


def tree(path):
    return {p.relative_to(path): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("devices", [1, 4])
def test_same_bytes_twice(autopar, encoder, tmp_path, devices):
    for name in ("a", "b"):
        autopar("compile", encoder[0], "-o", tmp_path / name, "--devices", devices, "--emit-only", "--name", "net")
    a, b = tree(tmp_path / "a"), tree(tmp_path / "b")
    assert a == b and len(a) >= 8


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_run_equals_onnx_runtime(autopar, encoder, tmp_path, devices):
    out = tmp_path / "out"
    autopar("compile", encoder[0], "-o", out, "--devices", devices, "--check-passes")
    autopar("run", out, "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / "r")
    y = np.load(tmp_path / "r" / "y.npy")
    assert np.abs(y - encoder[2][0]).max() <= 1e-4 * np.abs(encoder[2][0]).max()


def test_run_model_directly_with_pb(autopar, encoder, tmp_path):
    (tmp_path / "x.pb").write_bytes(numpy_helper.from_array(encoder[1]["x"], "x").SerializeToString())
    autopar("run", encoder[0], "--devices", 2, "--input", f"x={tmp_path}/x.pb", "--output-dir", tmp_path / "r")
    y = np.load(tmp_path / "r" / "y.npy")
    assert np.abs(y - encoder[2][0]).max() <= 1e-4 * np.abs(encoder[2][0]).max()


def test_check_tells_a_difference(autopar, encoder, tmp_path):
    data = tmp_path / "set"
    data.mkdir()
    (data / "input_0.pb").write_bytes(numpy_helper.from_array(encoder[1]["x"], "x").SerializeToString())
    (data / "output_0.pb").write_bytes(numpy_helper.from_array(encoder[2][0] + 1, "y").SerializeToString())
    autopar("compile", encoder[0], "-o", tmp_path / "out")
    result = autopar.json("check", tmp_path / "out", "--data", data, code=1)
    assert not result["ok"] and abs(result["outputs"][0]["max_abs"] - 1) < 0.01
    (data / "output_0.pb").write_bytes(numpy_helper.from_array(encoder[2][0][:1], "y").SerializeToString())
    assert "expected" in autopar("check", tmp_path / "out", "--data", data, code=1).stderr


def test_plan_json_and_reuse(autopar, encoder, tmp_path):
    plan = autopar.json("plan", encoder[0], "--devices", 4, "-o", tmp_path / "plan.json")
    for key in ("seconds", "bound", "gap", "planning_seconds", "sharded_flops_fraction", "microbatches", "schedule"):
        assert key in plan
    (stage,) = plan["stages"]
    assert stage["ranks"] == [0, 1, 2, 3] and stage["mesh"] == {"x": 4} and stage["peak_bytes"] > 0
    autopar("compile", encoder[0], "-o", tmp_path / "a", "--devices", 4, "--emit-only")
    autopar("compile", encoder[0], "-o", tmp_path / "b", "--plan", tmp_path / "plan.json", "--emit-only")
    a, b = tree(tmp_path / "a"), tree(tmp_path / "b")
    assert a == b
    onnx.save(mlp(batch=4), tmp_path / "other.onnx")
    p = autopar("compile", tmp_path / "other.onnx", "-o", tmp_path / "c", "--plan", tmp_path / "plan.json", code=1)
    assert "another model" in p.stderr


@pytest.mark.parametrize("edit", [("= erf ", "= tanh "), ('data(\\"encoder.onnx\\", ', 'data(\\"/etc/passwd\\", ')])
def test_an_edited_plan_is_refused(autopar, encoder, tmp_path, edit):
    autopar("plan", encoder[0], "--devices", 2, "-o", tmp_path / "plan.json", "-q")
    text = (tmp_path / "plan.json").read_text()
    assert edit[0] in text
    (tmp_path / "plan.json").write_text(text.replace(edit[0], edit[1], 1))
    p = autopar("compile", encoder[0], "-o", tmp_path / "out", "--plan", tmp_path / "plan.json", code=1)
    assert "not that of this model" in p.stderr


@pytest.mark.parametrize("state", ["imported", "normal", "planned", "explicit", "local"])
def test_text_is_stable_in_every_state(autopar, encoder, tmp_path, state):
    text = autopar("dump", encoder[0], "--format", "ir", "--state", state, "--devices", 4).stdout
    (tmp_path / "m.ap").write_text(text)
    option = "--read-local" if state == "local" else "--verify"
    again = subprocess.run([str(autopar.apopt), option, str(tmp_path / "m.ap")], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stdout == text


def test_pins(autopar, encoder, tmp_path):
    (tmp_path / "pins").write_text("# keep the input split by sequence\nvalue x [-,x,-]\nvalue y [-,x,-]\n")
    text = autopar("plan", encoder[0], "--devices", 2, "--pin", tmp_path / "pins").stdout
    assert [line for line in text.splitlines() if " input " in f" {line} "][0].count("@m[-,x,-]") == 1
    (tmp_path / "bad").write_text("value nothing [-,x,-]\n")
    assert "nothing" in autopar("plan", encoder[0], "--pin", tmp_path / "bad", code=2).stderr


def test_dump_formats(autopar, encoder, tmp_path):
    autopar("compile", encoder[0], "-o", tmp_path / "out", "--devices", 2, "--emit-only")
    assert "mesh @m = [x=2]" in autopar("dump", tmp_path / "out").stdout
    assert json.loads(autopar("dump", tmp_path / "out", "--format", "json").stdout)["schema"] == 2
    for state in ("planned", "explicit", "local"):
        assert autopar("dump", tmp_path / "out", "--format", "ir", "--state", state).stdout
    autopar("dump", tmp_path / "out", "--format", "ir", "--state", "imported", code=2)


def test_json_of_run_and_dump(autopar, encoder, tmp_path):
    autopar("compile", encoder[0], "-o", tmp_path / "out", "--devices", 2)
    (output,) = autopar.json("run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / "r")["outputs"]
    assert output["name"] == "y" and output["dtype"] == "f32" and output["shape"] == [2, 32, 64]
    assert np.load(output["file"]).shape == (2, 32, 64)
    assert autopar.json("dump", tmp_path / "out")["schema"] == 2


def test_help_names_every_command(autopar):
    text = autopar("help").stdout
    for c in ("compile", "plan", "run", "check", "dump", "info"):
        assert c in text
        assert "options:" in autopar("help", c).stdout
    assert "autopar" in autopar("--version").stdout
