"""Pins of ONNX nodes of which nothing is left say so."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from make_model import model, value


def test_folded_and_absorbed_nodes_are_told(autopar, tmp_path):
    weights = [numpy_helper.from_array(np.ones((16, 16), np.float32), "w"),
               numpy_helper.from_array(np.ones(16, np.float32), "c")]
    nodes = [helper.make_node("Shape", ["x"], ["s"], "folded"), helper.make_node("Dropout", ["x"], ["i"], "absorbed"),
             helper.make_node("MatMul", ["i", "w"], ["h"], "first"),
             helper.make_node("Reshape", ["h", "s"], ["r"], "same"), helper.make_node("Add", ["r", "c"], ["a"], "bias"),
             helper.make_node("MatMul", ["a", "w"], ["y"], "last")]
    onnx.save(model(nodes, [value("x", [8, 16])], [value("y", None)], weights), tmp_path / "m.onnx")
    options = [tmp_path / "m.onnx", "--devices", 2, "--stages", 2, "--pin", tmp_path / "pins"]
    for name, op in ("folded", "Shape"), ("absorbed", "Dropout"):
        (tmp_path / "pins").write_text(f"node first stage=0\nnode {name} stage=1\n")
        p = autopar("plan", *options, code=2)
        assert f'pins:2: no node that is left matches "{name}": "{name}" ({op}) was computed when compiling' in p.stderr
    (tmp_path / "pins").write_text("node nobody stage=1\n")
    assert 'no node matches "nobody"' in autopar("plan", *options, code=2).stderr
    (tmp_path / "pins").write_text("node first stage=0\nnode last stage=1\n")
    autopar("plan", *options)
