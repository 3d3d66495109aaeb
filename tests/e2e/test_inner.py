"""Collectives inside composites: norms and softmax over a row that is split give ONNX Runtime's numbers."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from make_model import model, random_inputs, tensor, value


def rows(n, hidden, seed=0):
    """Layer norm, product, softmax over rows of `hidden`."""
    r = np.random.default_rng(seed)
    f = lambda *s: (r.standard_normal(s) / np.sqrt(s[0])).astype(np.float32)
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "b"], ["n"], "norm", axis=-1, epsilon=1e-5),
        helper.make_node("MatMul", ["n", "w"], ["h"], "fc"),
        helper.make_node("Softmax", ["h"], ["y"], "soft", axis=-1),
    ]
    weights = [tensor("w", f(hidden, hidden)), tensor("g", f(hidden)), tensor("b", f(hidden))]
    return model(nodes, [value("x", [1, n, hidden])], [value("y", [1, n, hidden])], weights)


def run(autopar, path, *options):
    autopar("compile", path / "m.onnx", "-o", path / "out", "--check-passes", *options)
    autopar("run", path / "out", "--input", f"x={path}/x.npy", "--output-dir", path / "r")
    return np.load(path / "r" / "y.npy")


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("n", [1, 3])
def test_split_rows(autopar, tmp_path, devices, n):
    m = rows(n, 64)
    onnx.save(m, tmp_path / "m.onnx")
    feeds = random_inputs(m)
    np.save(tmp_path / "x.npy", feeds["x"])
    expected = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, feeds)[0]
    (tmp_path / "pins").write_text("".join(f"value {v} [-,-,x]\n" for v in ("x", "n", "h", "y")))
    y = run(autopar, tmp_path, "--devices", devices, "--pin", tmp_path / "pins", "--split", "force")
    assert np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()

    if n > 1:
        return  # the rows themselves may be split, also where they do not divide
    planned = autopar("dump", tmp_path / "out", "--format", "ir", "--state", "planned").stdout
    assert len(re.findall(r"^    %\S+ = reshard ", planned, re.M)) == 4  # mean, variance; maximum, sum
    explicit = autopar("dump", tmp_path / "out", "--format", "ir", "--state", "explicit").stdout
    assert "composite" not in explicit and len(re.findall(r"= all_reduce ", explicit)) >= 4


def test_planner_gathers_short_rows_by_itself(autopar, tmp_path):
    """The same pins without force: a row of 64 is cheaper gathered than completed four times."""
    onnx.save(rows(3, 64), tmp_path / "m.onnx")
    (tmp_path / "pins").write_text("value x [-,-,x]\nvalue y [-,-,x]\n")
    options = ("plan", tmp_path / "m.onnx", "--devices", 2, "--pin", tmp_path / "pins")
    free, forced = autopar.json(*options), autopar.json(*options, "--split", "force")
    assert free["seconds"] < forced["seconds"]
