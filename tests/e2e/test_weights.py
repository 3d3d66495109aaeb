"""Where a program finds its parameters: in a copy, in the model itself, in one file per device. The numbers are the same, and
what is missing, short or changed is named."""

import json
import os
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from make_model import encoder_layer, mlp, model, random_inputs, tensor, value

FORMS = ["copy", "reference", "sliced"]
MESHES = [["--devices", 1], ["--devices", 2], ["--devices", 4, "--mesh", "2x2"], ["--devices", 3]]


def mixed():
    """Weights in every form a file has them: raw bytes, typed fields, one number repeated, two users of one tensor."""
    r = np.random.default_rng(3)
    f = lambda *s: r.standard_normal(s).astype(np.float32)
    typed = helper.make_tensor("typed", TensorProto.FLOAT, [7], f(7).tolist())
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "fc1"),
        helper.make_node("Add", ["a", "typed"], ["b"], "bias"),
        helper.make_node("Mul", ["b", "ones"], ["c"], "scale"),
        helper.make_node("Transpose", ["w"], ["wt"], "turn", perm=[1, 0]),
        helper.make_node("MatMul", ["c", "wt"], ["d"], "fc2"),
        helper.make_node("Gather", ["w", "ids"], ["e"], "rows"),
        helper.make_node("Concat", ["d", "d2"], ["y"], "both", axis=1),
        helper.make_node("MatMul", ["e", "wt"], ["d2"], "fc3"),
    ]
    nodes[-1], nodes[-2] = nodes[-2], nodes[-1]
    weights = [tensor("w", f(10, 7)), typed, tensor("ones", np.full(7, 3, np.float32)),
               tensor("ids", np.array([1, 4, 9, 0, 2], np.int64))]
    return model(nodes, [value("x", [5, 10])], [value("y", [5, 20])], weights)


def encoder():
    return encoder_layer(seq=6, hidden=48, heads=12, batch=2, vocabulary=57)


@pytest.fixture(scope="module", params=[mixed, encoder], ids=["mixed", "encoder"])
def case(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param.__name__)
    m = request.param()
    onnx.save(m, folder / "m.onnx")
    feeds = random_inputs(m)
    np.save(folder / "x.npy", feeds["x"])
    np.save(folder / "want.npy", onnxruntime.InferenceSession(str(folder / "m.onnx")).run(None, feeds)[0])
    return folder


def run(autopar, case, out, **how):
    return autopar("run", out, "--input", f"x={case}/x.npy", "--output-dir", f"{out}.r", **how)


@pytest.mark.parametrize("mesh", MESHES, ids=["1", "2", "2x2", "3"])
def test_all_forms_are_equal(autopar, case, tmp_path, mesh):
    got = {}
    for form in FORMS:
        out = tmp_path / form
        autopar("compile", case / "m.onnx", "-o", out, "--weights", form, "--split", "force", *mesh)
        run(autopar, case, out)
        got[form] = np.load(f"{out}.r/y.npy")
    want = np.load(case / "want.npy")
    assert np.abs(got["copy"] - want).max() <= 1e-4 * np.abs(want).max()
    for form in FORMS:
        assert got[form].tobytes() == got["copy"].tobytes(), form


def test_run_of_a_model_refers_to_it(autopar, case, tmp_path):
    autopar("run", case / "m.onnx", "--input", f"x={case}/x.npy", "--output-dir", tmp_path / "r", "--devices", 2)
    want = np.load(case / "want.npy")
    assert np.abs(np.load(tmp_path / "r" / "y.npy") - want).max() <= 1e-4 * np.abs(want).max()


def test_slices_hold_what_a_device_needs(autopar, tmp_path):
    onnx.save(mlp(batch=1, hidden=4096), tmp_path / "m.onnx")
    autopar("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", "--weights", "sliced", "--devices", 4, "--split", "force")
    whole = (16 * 4096 + 4096 + 4096 * 8 + 8) * 4
    for r in range(4):
        data = (tmp_path / "out" / f"weights.{r}.safetensors").stat().st_size
        assert whole / 4 <= data <= whole / 4 + 2048
    assert (tmp_path / "out" / "weights.safetensors").stat().st_size < 256


def test_reference_copies_nothing(autopar, case, tmp_path):
    autopar("compile", case / "m.onnx", "-o", tmp_path / "out", "--weights", "reference")
    listed = json.loads((tmp_path / "out" / "weights.json").read_text())["tensors"]
    model_file = (case / "m.onnx").read_bytes()
    raw = {"param/" + t.name: t.raw_data for t in onnx.load(case / "m.onnx").graph.initializer if t.raw_data}
    assert listed
    for name, t in listed.items():
        assert t["file"] == str((case / "m.onnx").resolve()) and t["file_size"] == len(model_file)
        if name in raw:
            assert model_file[t["offset"]:t["offset"] + t["size"]] == raw[name]


@pytest.fixture
def referring(autopar, tmp_path):
    os.mkdir(tmp_path / "src")
    m = encoder()
    onnx.save(m, tmp_path / "src" / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    np.save(tmp_path / "x.npy", random_inputs(m)["x"])
    autopar("compile", tmp_path / "src" / "m.onnx", "-o", tmp_path / "out", "--weights", "reference", "--devices", 2)
    return tmp_path


def test_program_moves_the_model_stays(autopar, referring):
    shutil.move(referring / "out", referring / "elsewhere")
    run(autopar, referring, referring / "elsewhere")


def test_model_is_gone(autopar, referring):
    os.remove(referring / "src" / "w.bin")
    assert "w.bin" in run(autopar, referring, referring / "out", code=4).stderr


def test_model_has_another_size(autopar, referring):
    with open(referring / "src" / "w.bin", "ab") as f:
        f.write(b"x")
    assert "w.bin has" in run(autopar, referring, referring / "out", code=4).stderr


@pytest.mark.parametrize("change, text", [
    (lambda j: j["tensors"]["param/wte"].update(offset=1 << 40), "outside"),
    (lambda j: j["tensors"]["param/wte"].update(size=12), "not those of its shape"),
    (lambda j: j["tensors"]["param/wte"].update(shape=[3]), "the program needs"),
    (lambda j: j["tensors"]["param/wte"].update(file=7), "no file, offset"),
    (lambda j: j["tensors"].pop("param/wte"), "missing"),
    (lambda j: j.pop("tensors"), "not a JSON object with tensors"),
])
def test_list_is_wrong(autopar, referring, change, text):
    path = referring / "out" / "weights.json"
    j = json.loads(path.read_text())
    change(j)
    path.write_text(json.dumps(j))
    assert text in run(autopar, referring, referring / "out", code=4).stderr


def test_slice_is_missing_or_wrong(autopar, case, tmp_path):
    out = tmp_path / "out"
    autopar("compile", case / "m.onnx", "-o", out, "--weights", "sliced", "--devices", 2)
    part = out / "weights.1.safetensors"
    data = part.read_bytes()
    part.write_bytes(data[:-4])
    message = run(autopar, case, out, code=4).stderr
    assert "rank 1: " in message and "weights.1.safetensors" in message
    part.write_bytes(data.replace(b"@0", b"@X"))
    assert "missing" in run(autopar, case, out, code=4).stderr
    part.unlink()
    assert "weights.1.safetensors" in run(autopar, case, out, code=4).stderr
    other = tmp_path / "other"
    autopar("compile", case / "m.onnx", "-o", other, "--weights", "sliced", "--devices", 4)
    shutil.copy(other / "weights.safetensors", out / "weights.safetensors")
    assert "parts for 4 devices, the program has 2" in run(autopar, case, out, code=4).stderr


def test_slices_of_another_device(autopar, tmp_path):
    """Files that were exchanged are noticed: names say where the box begins."""
    m = mlp(batch=1, hidden=64)
    onnx.save(m, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", random_inputs(m)["x"])
    out = tmp_path / "out"
    autopar("compile", tmp_path / "m.onnx", "-o", out, "--weights", "sliced", "--devices", 2, "--split", "force")
    run(autopar, tmp_path, out)
    shutil.copy(out / "weights.0.safetensors", out / "weights.1.safetensors")
    message = run(autopar, tmp_path, out, code=4).stderr
    assert "weights.1.safetensors" in message and "missing" in message
