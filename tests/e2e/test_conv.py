"""Convolutions compiled, against ONNX Runtime: random shapes, groups, strides, paddings and dilations, transposed ones, with
what stands behind them in models (bias, normalisation, activations, sums, concatenations), on one device and on several."""

import os
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from make_model import model, value

ACTIVATIONS = [[], ["Relu"], ["Clip"], ["LeakyRelu"], ["Sigmoid"], ["Relu", "Clip"]]


class Builder:
    """A model that grows node by node, with its parameters and inputs."""

    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.nodes, self.inputs, self.outputs, self.parameters, self.feeds = [], [], [], [], {}
        self.count = 0

    def name(self, kind="v"):
        self.count += 1
        return f"{kind}{self.count}"

    def pick(self, *of):
        return of[self.r.integers(len(of))]

    def parameter(self, shape, scale=1.0, positive=False, given=False):
        x = (self.r.standard_normal(shape) * scale).astype(np.float32)
        x = np.abs(x) + np.float32(0.5) if positive else x
        name = self.name("w")
        if given:
            return self.given(x, name)
        self.parameters.append(numpy_helper.from_array(x, name))
        return name

    def given(self, x, name=None):
        name = name or self.name("x")
        self.inputs.append(value(name, list(x.shape)))
        self.feeds[name] = x
        return name

    def node(self, kind, operands, **attrs):
        y = self.name()
        self.nodes.append(helper.make_node(kind, operands, [y], self.name("n"), **attrs))
        return y

    def constant(self, x):
        name = self.name("c")
        self.parameters.append(numpy_helper.from_array(np.float32(x), name))
        return name

    def window(self, size, transposed):
        """Kernel and attributes, so that there is at least one result."""
        r, n = self.r, len(size)
        kernel = [int(r.integers(1, min(4, s) + 1)) for s in size]
        if not r.integers(3):
            kernel = [1] * n
        dilation = [int(r.integers(1, 3)) if (k - 1) * 2 + 1 <= s else 1 for k, s in zip(kernel, size)]
        attrs = {"strides": [int(r.integers(1, 4)) for _ in range(n)]}
        if r.integers(2):
            attrs["dilations"] = dilation
        else:
            dilation = [1] * n
        if r.integers(4):
            attrs["pads"] = [int(r.integers(0, min(k, 3))) for k in kernel * 2]
        elif not r.integers(2):
            attrs["auto_pad"] = self.pick("SAME_UPPER", "SAME_LOWER", "VALID")
            attrs.pop("dilations", None)  # not together in ONNX Runtime
        if transposed and r.integers(2):
            attrs["output_padding"] = [int(r.integers(0, min(s, 2))) for s in attrs["strides"]]
        return kernel, attrs

    def conv(self, x, shape, transposed=False):
        r, (n, c, *size) = self.r, shape
        groups = self.pick(1, 1, 1, c, self.pick(*[g for g in range(1, c + 1) if c % g == 0]))
        out = groups * int(r.integers(1, 20 if groups == 1 else 3))
        kernel, attrs = self.window(size, transposed)
        ws = [c, out // groups, *kernel] if transposed else [out, c // groups, *kernel]
        w = self.parameter(ws, (np.prod(ws[1:]) + 1) ** -0.5, given=not r.integers(6))
        operands = [x, w] + ([self.parameter([out])] if r.integers(2) else [])
        y = self.node("ConvTranspose" if transposed else "Conv", operands, group=groups, **attrs)
        return y, out

    def behind(self, y, channels):
        """What follows a convolution."""
        r = self.r
        if not r.integers(3):
            y = self.node("BatchNormalization", [y, *[self.parameter([channels], positive=i in (0, 3)) for i in range(4)]])
        if not r.integers(4):
            y = self.node(self.pick("Mul", "Add"), [y, self.constant(r.standard_normal())])
        for kind in ACTIVATIONS[r.integers(len(ACTIVATIONS))]:
            y = self.node(kind, [y] + ([self.constant(-0.3), self.constant(0.9)] if kind == "Clip" else []))
        return y

    def shape_of(self, y):
        m = self.finish([y])
        m = onnx.shape_inference.infer_shapes(m)
        return [d.dim_value for d in m.graph.output[0].type.tensor_type.shape.dim]

    def finish(self, outputs):
        m = model(self.nodes, self.inputs, [value(y, None) for y in outputs], self.parameters, opset=17, ir_version=8)
        return m


def convolutions(seed, count=6, batch=0):
    """`batch`: of all images, a dimension called that; else each convolution has its own."""
    b = Builder(seed)
    r, results, images = b.r, [], []
    for _ in range(count):
        rank = b.pick(1, 2, 2, 2, 3)
        size = [int(r.integers(1, 14 if rank < 3 else 6)) for _ in range(rank)]
        shape = [batch or int(r.integers(1, 4)), int(r.integers(1, 13)), *size]
        if r.integers(3):
            x = b.given(r.standard_normal(shape).astype(np.float32))
            images.append(x)
        else:  # channels last
            x = b.given(r.standard_normal([shape[0], *size, shape[1]]).astype(np.float32))
            images.append(x)
            x = b.node("Transpose", [x], perm=[0, rank + 1, *range(1, rank + 1)])
        y, channels = b.conv(x, shape, transposed=not r.integers(4))
        y = b.behind(y, channels)
        shape = b.shape_of(y)
        if 0 in shape:
            continue
        kind = r.integers(4)
        if kind == 0:  # a sum of two, one of which has other readers
            w = b.parameter([channels, channels] + [1] * rank, channels ** -0.5)
            z = b.node("Conv", [y, w])
            y = b.node("Relu", [b.node("Add", [z, y])])
        elif kind == 1:  # two side by side
            w = [b.parameter([int(r.integers(1, 9)), channels] + [1] * rank, channels ** -0.5) for _ in range(2)]
            y = b.node("Concat", [y, *[b.node("Relu", [b.node("Conv", [y, v])]) for v in w]], axis=1)
        elif kind == 2 and rank == 2:
            y = b.node("MaxPool", [y], kernel_shape=[1, 1], strides=[2, 2])
            w = b.parameter([5, channels] + [1] * rank, channels ** -0.5)
            y = b.node("Conv", [y, w])
        results.append(y)
    m = b.finish(results)
    for v in m.graph.input:
        if batch and v.name in images:
            v.type.tensor_type.shape.dim[0].dim_param = "images"
    return m, b.feeds


def expected(m, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(m.SerializeToString(), options)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def compare(autopar, path, m, feeds, *options):
    want = expected(m, feeds)
    onnx.save(m, path / "m.onnx")
    autopar("compile", path / "m.onnx", "-o", path / "out", "--check-passes", *options)
    args = []
    for name, x in feeds.items():
        np.save(path / f"{name}.npy", x)
        args += ["--input", f"{name}={path / name}.npy"]
    autopar("run", path / "out", *args, "--output-dir", path)
    for name, y in want.items():
        got = np.load(path / f"{name}.npy")
        assert got.dtype == y.dtype and got.shape == y.shape, name
        np.testing.assert_allclose(got, y, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("seed", range(12))
def test_one_device(autopar, tmp_path, seed):
    compare(autopar, tmp_path, *convolutions(seed))


@pytest.mark.parametrize("options", [["--devices", "2"], ["--devices", "2", "--split", "force"],
                                     ["--devices", "4", "--split", "force"],
                                     ["--devices", "4", "--mesh", "2x2", "--split", "force"],
                                     ["--devices", "3", "--split", "force"]], ids=lambda o: "-".join(o).strip("-"))
@pytest.mark.parametrize("seed", range(100, 106))
def test_devices(autopar, tmp_path, seed, options):
    compare(autopar, tmp_path, *convolutions(seed), *options)


@pytest.mark.parametrize("behind", [["BatchNormalization", "Add", "Relu"], ["Relu", "Add"], ["Add", "Relu"]], ids="-".join)
def test_residuals_stay_in_the_library(autopar, tmp_path, behind):
    """Wherever the sum stands among what follows a convolution, oneDNN has vector code for the whole of it: every
    convolution is one of its primitives, and none is of its reference loops."""
    b = Builder(7)
    x = b.given(b.r.standard_normal([1, 16, 12, 10]).astype(np.float32))
    shortcut = b.node("Relu", [b.node("Conv", [x, b.parameter([48, 16, 1, 1])])])
    y = b.node("Relu", [b.node("Conv", [shortcut, b.parameter([48, 48, 1, 1], 48 ** -0.5)])])
    y = b.node("Conv", [y, b.parameter([48, 48, 1, 1], 48 ** -0.5), b.parameter([48])])
    for kind in behind:
        more = {"BatchNormalization": [b.parameter([48], positive=True) for _ in range(4)], "Add": [shortcut], "Relu": []}
        y = b.node(kind, [y, *more[kind]])
    y = b.node("Conv", [y, b.parameter([5, 48, 1, 1], 48 ** -0.5)])
    compare(autopar, tmp_path, b.finish([y]), b.feeds)
    args = [f"{tmp_path}/out/model", "--input", f"{x}={tmp_path / x}.npy", "--output-dir", str(tmp_path)]
    environment = {**os.environ, "ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1"}
    said = subprocess.run(args, capture_output=True, text=True, check=True, env=environment).stdout
    ran = [line.split(",")[4] for line in said.splitlines() if ",exec,cpu,convolution," in line]
    assert len(ran) == 4 and not [kind for kind in ran if kind.startswith("ref")], said
