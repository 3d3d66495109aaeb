"""Real models: compiled for 1, 2 and 4 devices by the planner's own choice, they give the outputs of ONNX Runtime that
are stored beside them."""

import pytest

# Decomposed transformers and MLPs exported by others. Data sets differ in batch size, so each is compiled for.
MODELS = [
    "rxn-albert-mlm-op13",
    "vespa-bert2l",
    "vespa-bert2l-notypes",
    "vespa-t5-decoder",
    "ort-bert-toy5l",
    "ort-gpt2-12l-past",
    "ort-gpt2-1l",
    "ort-gpt2-1l-past",
    "ort-gelu-erf",
    "ort-gelu-tanh",
    "ort-biasgelu",
    "ort-biassoftmax",
    "ort-layernorm-decomposed",
    "ort-skiplayernorm",
    "ort-megatron-mlp",
    "ort-megatron-bart-mlp",
    "ort-megatron-bart-selfattn",
    "ortgo-fanout",
    "onnx2c-mnist-pytorch",
]


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_check(autopar, models, tmp_path, name, devices):
    sets = sorted((models / name).glob("test_data_set_*"))
    assert sets
    for data in sets:
        out = tmp_path / data.name
        autopar("compile", models / name / "model.onnx", "-o", out, "--shapes-from", data, "--devices", devices)
        result = autopar.json("check", out, "--data", data)
        assert result["ok"] and result["outputs"], result


@pytest.mark.parametrize("name", MODELS)
def test_every_pass_keeps_the_numbers(autopar, models, name):
    """Verifier and evaluator after every pass, on 2 emulated devices, with the stored inputs."""
    data = models / name / "test_data_set_0"
    autopar("plan", models / name / "model.onnx", "--shapes-from", data, "--devices", 2, "--check-passes", "-q")
