"""Resize, Pad by index, grids and what puts windows back, compiled, against ONNX Runtime; channels first and last."""

import numpy as np
import pytest
from onnx import helper

from make_model import model, tensor, value
from test_pool import MESHES, compare


class Graph:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.nodes, self.inputs, self.outputs, self.weights, self.feeds = [], [], [], [], {}

    def input(self, shape, last=False, array=None):
        name = f"x{len(self.feeds)}"
        given = array.shape if array is not None else [shape[0], *shape[2:], shape[1]] if last else shape
        x = self.r.standard_normal(given).astype(np.float32) if array is None else array
        self.feeds[name] = x
        self.inputs.append(value(name, x.shape, helper.np_dtype_to_tensor_dtype(x.dtype)))
        if not last:
            return name
        self.nodes.append(helper.make_node("Transpose", [name], [f"t{name}"], perm=[0, len(shape) - 1, *range(1, len(shape) - 1)]))
        return f"t{name}"

    def constant(self, array):
        self.weights.append(tensor(f"w{len(self.weights)}", array))
        return self.weights[-1].name

    def node(self, kind, inputs, **attrs):
        out = f"y{len(self.outputs)}"
        self.nodes.append(helper.make_node(kind, inputs, [out], f"node_{out}", **attrs))
        self.outputs.append(value(out, None))

    def model(self):
        return model(self.nodes, self.inputs, self.outputs, self.weights, opset=20, ir_version=10), self.feeds


def everything(seed):
    g = Graph(seed)
    r = g.r
    for mode in ("nearest", "linear", "cubic"):
        for how in ("asymmetric", "half_pixel", "align_corners"):
            last = bool(r.integers(2))
            scales = [1, 1, *r.choice([0.5, 0.7, 2, 2.5, 3], 2)]
            attrs = {"nearest_mode": "floor"} if mode == "nearest" else {}
            x = g.input([2, int(r.integers(1, 20)), int(r.integers(2, 9)), int(r.integers(2, 9))], last)
            g.node("Resize", [x, "", g.constant(np.array(scales, np.float32))], mode=mode,
                   coordinate_transformation_mode="asymmetric" if mode == "nearest" else how, **attrs)
    g.node("Resize", [g.input([1, 3, 12, 9], True), "", g.constant(np.array([1, 1, 0.4, 0.3], np.float32))], mode="linear",
           antialias=1, exclude_outside=1)
    for mode in ("edge", "reflect", "wrap"):
        g.node("Pad", [g.input([2, 5, 4, 6], True), g.constant(np.array([0, 0, 2, 1, 0, 0, 3, 2], np.int64))], mode=mode)
    grid = (r.random((2, 4, 3, 2)) * 3 - 1.5).astype(np.float32)
    for mode in ("nearest", "linear", "cubic"):
        g.node("GridSample", [g.input([2, 6, 5, 6], True), g.input(None, array=grid)], mode=mode, padding_mode="reflection")
    places = r.permutation(2 * 3 * 16)[:24].reshape(2, 3, 2, 2).astype(np.int64)
    g.node("MaxUnpool", [g.input([2, 3, 2, 2]), g.input(None, array=places)], kernel_shape=[2, 2], strides=[2, 2])
    return g.model()


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("seed", range(2))
def test_equals_onnx_runtime(autopar, tmp_path, seed, mesh):
    m, feeds = everything(seed)
    compare(autopar, tmp_path, m, feeds, *MESHES[mesh])
