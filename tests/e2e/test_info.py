"""`info` against closed formulas: Megatron-LM (SC'21), equations 2 and 3, and one encoder layer."""

import onnx
import pytest

from make_model import encoder_layer


def info(autopar, tmp_path, m):
    onnx.save(m, tmp_path / "m.onnx")
    return autopar.json("info", tmp_path / "m.onnx")


def test_encoder_layer(autopar, tmp_path):
    """12 H^2 weights in matrices, attention to feed-forward 1 : 2; 2 FLOPs per weight and token besides scores."""
    h, s, b = 64, 32, 2
    x = info(autopar, tmp_path, encoder_layer(seq=s, hidden=h, batch=b))
    biases, norms, scalars = 9 * h, 4 * h, 7
    assert x["parameters"] - x["parameters"] % (12 * h * h) == 12 * h * h
    assert x["parameters"] == 12 * h * h + biases + norms
    assert x["contraction_flops"] == 2 * b * s * 12 * h * h + 2 * 2 * b * s * s * h


@pytest.mark.parametrize("layers,hidden,heads,seq,vocabulary", [(2, 64, 4, 32, 512), (4, 128, 8, 64, 1024)])
def test_gpt(autopar, tmp_path, layers, hidden, heads, seq, vocabulary):
    """P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)); F forward = 24 B s l h^2 (1 + s/(6h) + V/(12 l h)), a
    third of a training step without recomputation, whose vocabulary term has 2 B s h V forward."""
    batch = 2
    x = info(autopar, tmp_path, encoder_layer(seq, hidden, heads, batch, layers, vocabulary=vocabulary))
    final_norm = 2 * hidden
    assert x["parameters"] == 12 * layers * hidden**2 + 13 * layers * hidden + (vocabulary + seq) * hidden + final_norm
    forward = 24 * batch * seq * layers * hidden**2 + 4 * batch * seq**2 * layers * hidden + 2 * batch * seq * hidden * vocabulary
    assert x["contraction_flops"] == forward
