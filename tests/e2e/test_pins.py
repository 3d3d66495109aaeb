"""Pins of ONNX nodes of which nothing is left: what was computed on import is in no stage, what went into others is told."""

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
    for name in "absorbed", "i":
        (tmp_path / "pins").write_text(f"node first stage=0\nnode {name} stage=1\n")
        p = autopar("plan", *options, code=2)
        assert f'm.onnx: node "absorbed" (Dropout): {tmp_path}/pins:2: no node that is left matches "{name}"' in p.stderr
        assert '"i", which it makes, went into other nodes' in p.stderr
    plan = None
    for folded in "", "node folded stage=1\n", "node s stage=0\n", "node [s] stage=1\n":
        (tmp_path / "pins").write_text("node first stage=0\nnode last stage=1\n" + folded)
        stages = autopar.json("plan", *options)["stages"]
        assert plan in (None, [s["nodes"] for s in stages])
        plan = [s["nodes"] for s in stages]
    (tmp_path / "pins").write_text("node [si] stage=1\nnode last stage=1\n")
    assert 'went into other nodes' in autopar("plan", *options, code=2).stderr
    (tmp_path / "pins").write_text("node nobody stage=1\n")
    assert 'no node matches "nobody"' in autopar("plan", *options, code=2).stderr
    (tmp_path / "pins").write_text("node first stage=0\nnode last stage=1\n")
    autopar("plan", *options)
