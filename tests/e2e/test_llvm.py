"""Models by LLVM: `run MODEL.onnx` in the process of autopar and `compile --codegen llvm` give the same bits, what the C compiler's
program gives within rounding, and the outputs of ONNX Runtime that are stored beside the models.

AUTOPAR_LLVM_MODELS=all: every model of test_models.py."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

import test_models
from make_model import encoder_layer, random_inputs

onnx = pytest.importorskip("onnx")

ALL = os.environ.get("AUTOPAR_LLVM_MODELS") == "all"
# a transformer; convolutions and max pools; lookups and updates of state; averages over windows
FEW = ["vespa-bert2l", "onnxmlir-mnist", "ort-gpt2-1l-past", "ultraface-rfb320"]
WAYS = {
    "1": ("--devices", 1),
    "2-forced": ("--devices", 2, "--split", "force"),
    "2-stages": ("--devices", 2, "--stages", 2),
}


@pytest.fixture(scope="module", autouse=True)
def has_llvm(autopar):
    if "llvm" not in autopar("--version").stdout:
        pytest.skip("built without LLVM")


def tensor(path):
    t = onnx.TensorProto()
    t.ParseFromString(path.read_bytes())
    return onnx.numpy_helper.to_array(t)


def arguments(model, data):
    """--input NAME=FILE of a data set, the names in the order of the model's inputs."""
    graph = onnx.load(model, load_external_data=False).graph
    constants = {t.name for t in graph.initializer}
    names = [i.name for i in graph.input if i.name not in constants]
    return [a for i, name in enumerate(names) for a in ("--input", f"{name}={data}/input_{i}.pb")]


def run(autopar, subject, out, *options, env=None):
    """The outputs in order."""
    said = autopar("run", subject, "--output-dir", out, "--json", *options, env=env).stdout
    return [np.load(o["file"]) for o in json.loads(said)["outputs"]]


def close(got, want, rtol, atol):
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", test_models.MODELS if ALL else FEW)
def test_model(autopar, models, tmp_path, name, way):
    model, data = models / name / "model.onnx", models / name / "test_data_set_0"
    plan = ("--shapes-from", data, *WAYS[way])
    feeds = arguments(model, data)
    jit = run(autopar, model, tmp_path / "jit", *feeds, *plan)
    want = [tensor(data / f"output_{i}.pb") for i in range(len(jit))]
    for a, b in zip(jit, want):
        close(a, b, 1e-3, 1e-5)
    autopar("compile", model, "-o", tmp_path / "llvm", "--codegen", "llvm", *plan)
    for a, b in zip(jit, run(autopar, tmp_path / "llvm", tmp_path / "of-llvm", *feeds)):
        assert a.tobytes() == b.tobytes()
    if ALL or (way == "2-forced" and name != "ultraface-rfb320"):  # the C compiler takes long over that one
        autopar("compile", model, "-o", tmp_path / "c", *plan)
        for a, b in zip(jit, run(autopar, tmp_path / "c", tmp_path / "of-c", *feeds)):
            close(a, b, 1e-4, 1e-4 * np.abs(b).max(initial=1e-30) if b.dtype.kind == "f" else 0)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """(model, --input options)"""
    folder = tmp_path_factory.mktemp("encoder")
    m = encoder_layer(batch=2)
    onnx.save(m, folder / "encoder.onnx")
    feeds = []
    for name, array in random_inputs(m).items():
        np.save(folder / f"{name}.npy", array)
        feeds += ["--input", f"{name}={folder / name}.npy"]
    return folder / "encoder.onnx", feeds


def test_no_files_no_compiler(autopar, encoder, tmp_path):
    """Nothing but the outputs is written, and no other program runs."""
    (tmp_path / "tmp").mkdir()
    env = {"PATH": str(tmp_path / "empty"), "TMPDIR": str(tmp_path / "tmp"), "CC": "false"}
    run(autopar, encoder[0], tmp_path / "out", *encoder[1], "--devices", 2, env=env)
    assert not list((tmp_path / "tmp").iterdir())
    assert len(list((tmp_path / "out").iterdir())) == 1
    autopar("compile", encoder[0], "-o", tmp_path / "objects", "--codegen", "llvm", "--emit-only", env=env)
    assert (tmp_path / "objects" / "kernels.o").exists()


def test_emit_only(autopar, encoder, tmp_path):
    """The folder builds by its CMakeLists.txt where autopar is installed; here the runtime of the build stands for that."""
    out = tmp_path / "objects"
    autopar("compile", encoder[0], "-o", out, "--codegen", "llvm", "--emit-only")
    files = {f.name for f in out.iterdir()}
    assert files == {"encoder.h", "encoder.pc", "CMakeLists.txt", "kernels.o", "program.o", "main.o", "plan.json", "plan.txt",
                     "weights.safetensors"}
    again = tmp_path / "again"
    autopar("compile", encoder[0], "-o", again, "--codegen", "llvm", "--emit-only")
    for f in files:
        assert (out / f).read_bytes() == (again / f).read_bytes(), f
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    package = tmp_path / "package"
    package.mkdir()
    lib = autopar.path.parents[1] / "lib"
    (package / "autoparConfig.cmake").write_text(
        "find_package(Threads REQUIRED)\nadd_library(autopar::rt INTERFACE IMPORTED)\n"
        f"target_link_libraries(autopar::rt INTERFACE {lib}/libautopar_rt.a cjson Threads::Threads m)\n")
    for command in (["-S", out, "-B", tmp_path / "b", f"-Dautopar_DIR={package}"], ["--build", tmp_path / "b"]):
        p = subprocess.run(["cmake", *command], capture_output=True, text=True)
        assert p.returncode == 0, p.stdout + p.stderr
    want = run(autopar, encoder[0], tmp_path / "1", *encoder[1])
    for a, b in zip(want, run(autopar, out, tmp_path / "2", *encoder[1])):
        assert a.tobytes() == b.tobytes()


def test_built_folder(autopar, encoder, tmp_path):
    """What was linked stays beside it, as sources do."""
    autopar("compile", encoder[0], "-o", tmp_path / "out", "--codegen", "llvm")
    assert {"kernels.o", "program.o", "main.o", "model", "libencoder.a", "CMakeLists.txt"} <= {
        f.name for f in (tmp_path / "out").iterdir()}


def test_profile(autopar, tmp_path):
    env = {"PATH": str(tmp_path / "empty"), "TMPDIR": str(tmp_path), "CC": "false"}
    said = autopar("profile", "--quick", "--devices", 1, "--codegen", "llvm", "--json", env=env).stdout
    assert "kernels by LLVM" in said and not list(tmp_path.iterdir())
    assert all(c["measured_us"] > 0 for c in json.loads(said)["cases"])
    assert "--codegen" in autopar("profile", "--codegen", "x", code=2).stderr


def test_options(autopar, encoder, tmp_path):
    for options, words in [
        (("run", encoder[0], "--march", "z80"), "z80"),
        (("compile", encoder[0], "-o", tmp_path / "o", "--codegen", "llvm", "--march", "z80"), "z80"),
        (("compile", encoder[0], "-o", tmp_path / "o", "--codegen", "rust"), "'c' and 'llvm'"),
        (("compile", encoder[0], "-o", tmp_path / "o", "--codegen", "llvm", "--target", "cuda"), "nvcc"),
    ]:
        assert words in autopar(*options, code=2).stderr
        assert not (tmp_path / "o").exists()
