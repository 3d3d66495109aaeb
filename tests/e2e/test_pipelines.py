"""Pipelines of real models, as programs: on several devices, in several stages and microbatches (the last one short), they
give what one device gives; every device needs what was planned and no more; weights are written once; same bytes twice."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

TRANSFORMERS = ["ort-bert-toy5l", "genai-tiny-gpt2-5l", "ort-gpt2-1l", "ort-embedlayernorm3"]
CNNS = ["emx-kws-qdq"]
# devices, stages, microbatches, batch
CASES = [(2, 2, 1, 4), (2, 2, 4, 7), (4, 3, 2, 4), (4, 2, 2, 5), (4, 4, 4, 4), (4, 1, 2, 5), (8, 2, 4, 7), (8, 3, 2, 5),
         (8, 4, 2, 6)]


def input_names(model):
    graph = onnx.load(model / "model.onnx", load_external_data=False).graph
    return [i.name for i in graph.input if i.name not in {t.name for t in graph.initializer}]


def write_inputs(folder, model, batch):
    """A data set whose inputs are those of the model's own, so many rows of them; rows differ."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    for i in range(len(input_names(model))):
        tensor = onnx.TensorProto.FromString((model / "test_data_set_0" / f"input_{i}.pb").read_bytes())
        x = numpy_helper.to_array(tensor)
        axis = 1 if x.ndim == 5 else 0  # past keys and values stand in front of the batch
        x = np.concatenate([np.take(x, [k % x.shape[axis]], axis) for k in range(batch)], axis)
        if x.dtype.kind == "f":
            x = (x + rng.normal(0, 0.1, x.shape)).astype(x.dtype)
        elif x.ndim > 1 and axis == 0:
            x = np.stack([np.roll(row, k) for k, row in enumerate(x)])
        (folder / f"input_{i}.pb").write_bytes(numpy_helper.from_array(x, tensor.name).SerializeToString())


def one_device(autopar, models, tmp, name, batch):
    """The data set with the outputs of one device."""
    data = tmp / f"{name}-{batch}"
    if data.exists():
        return data
    write_inputs(data, models / name, batch)
    out = tmp / f"{name}-{batch}-one"
    autopar("compile", models / name / "model.onnx", "-o", out, "--devices", 1, "--shapes-from", data)
    inputs = []
    for i, name_ in enumerate(input_names(models / name)):
        inputs += ["--input", f"{name_}={data}/input_{i}.pb"]
    autopar("run", out, *inputs, "--output-dir", tmp / f"{name}-{batch}-r")
    for i, output in enumerate(onnx.load(models / name / "model.onnx", load_external_data=False).graph.output):
        file = tmp / f"{name}-{batch}-r" / (re.sub(r"[^A-Za-z0-9.-]", "_", output.name) + ".npy")
        tensor = numpy_helper.from_array(np.load(file), output.name)
        (data / f"output_{i}.pb").write_bytes(tensor.SerializeToString())
    return data


@pytest.fixture(scope="module")
def shared_tmp(tmp_path_factory):
    return tmp_path_factory.mktemp("pipelines")


def options(devices, stages, microbatches):
    return ["--devices", devices, "--stages", stages, "--microbatches", microbatches]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "x".join(map(str, c)))
@pytest.mark.parametrize("name", TRANSFORMERS + CNNS)
def test_equals_one_device(autopar, models, shared_tmp, tmp_path, name, case):
    devices, stages, microbatches, batch = case
    data = one_device(autopar, models, shared_tmp, name, batch)
    out = tmp_path / "out"
    plan = autopar.json("compile", models / name / "model.onnx", "-o", out, "--shapes-from", data,
                        *options(devices, stages, microbatches))
    assert len(plan["stages"]) == stages and plan["microbatches"] == microbatches
    assert stages != 3 or len({len(s["ranks"]) for s in plan["stages"]}) > 1  # unequal sub-meshes
    autopar("check", out, "--data", data, "--rtol", 1e-5, "--atol", 1e-5)
    source = (out / "program.c").read_text()
    arena = [int(x) for x in re.findall(r"\.arena_bytes = (\d+)", source)]
    params = [int(x) for x in re.findall(r"\.param_bytes = (\d+)", source)]
    assert len(arena) == stages
    for need, stage in zip(map(sum, zip(arena, params)), plan["stages"]):
        assert need <= stage["peak_bytes"]


@pytest.mark.parametrize("name", ["ort-bert-toy5l", "emx-kws-qdq"])
def test_every_state_keeps_the_numbers(autopar, models, shared_tmp, tmp_path, name):
    data = one_device(autopar, models, shared_tmp, name, 5)
    autopar("compile", models / name / "model.onnx", "-o", tmp_path / "out", "--shapes-from", data, *options(4, 2, 2),
            "--check-passes", "--emit-only")


@pytest.mark.parametrize("form", ["copy", "reference", "sliced"])
def test_weights(autopar, models, shared_tmp, tmp_path, form):
    """Whatever the form; a tensor that several stages have (the tied embedding) is written once."""
    name = "genai-tiny-gpt2-5l"
    data = one_device(autopar, models, shared_tmp, name, 4)
    out = tmp_path / "out"
    autopar("compile", models / name / "model.onnx", "-o", out, "--shapes-from", data, *options(4, 4, 2), "--weights", form)
    autopar("check", out, "--data", data, "--rtol", 1e-5, "--atol", 1e-5)
    if form == "sliced":
        assert sorted(p.name for p in out.glob("weights.*.safetensors")) == [f"weights.{r}.safetensors" for r in range(4)]
    else:
        raw = (out / "weights.safetensors").read_bytes()
        names = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
        assert not [n for n in names if "#" in n]


def test_same_bytes_twice(autopar, models, shared_tmp, tmp_path):
    data = one_device(autopar, models, shared_tmp, "ort-bert-toy5l", 5)
    for k in range(2):
        autopar("compile", models / "ort-bert-toy5l" / "model.onnx", "-o", tmp_path / str(k), "--shapes-from", data,
                *options(4, 2, 2), "--emit-only")
    for file in sorted((tmp_path / "0").iterdir()):
        if file.name not in ("plan.json", "plan.txt"):
            assert file.read_bytes() == (tmp_path / "1" / file.name).read_bytes(), file.name
