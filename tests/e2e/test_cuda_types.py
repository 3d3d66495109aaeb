"""Products of short floats and in TF32 through emitted CUDA and the test shim, in a block of a GPT. The oracle is ONNX Runtime on
the same block in f32, with weights that the short type can hold."""

import os
import re

import numpy as np
import pytest

from test_cuda import checked, program  # noqa: F401 (a fixture)

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
BATCH, LENGTH, WIDTH, HEADS = 2, 12, 32, 4


def rounded(x, kind):
    """x as numbers that `kind` has, in f32."""
    if kind == "f16":
        return x.astype(np.float16).astype(np.float32)
    if kind == "bf16":
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return x


def tensor(name, x, kind):
    if kind == "bf16":
        bits = (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return helper.make_tensor(name, TensorProto.BFLOAT16, x.shape, bits.tobytes(), raw=True)
    return numpy_helper.from_array(x.astype(np.float16 if kind == "f16" else np.float32), name)


def block(kind, hidden, weights_of, after="Gelu"):
    """A block with attention and an MLP in `kind`; what goes in and comes out is f32."""
    rng = np.random.default_rng(5)
    nodes, constants = [], []

    def weight(name, *shape, scale=1.0):
        constants.append(tensor(name, rounded((rng.standard_normal(shape) * scale).astype(np.float32), weights_of), kind))
        return name

    def op(kind_of, *inputs, **attributes):
        nodes.append(helper.make_node(kind_of, inputs, [f"v{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def shape(name, *dims):
        constants.append(numpy_helper.from_array(np.array(dims, np.int64), name))
        return name

    def dense(x, name, n, k):
        return op("Add", op("MatMul", x, weight(f"w_{name}", k, n, scale=k ** -0.5)), weight(f"b_{name}", n, scale=0.3))

    def norm(x, name):
        return op("LayerNormalization", x, weight(f"g_{name}", WIDTH), weight(f"c_{name}", WIDTH), axis=-1)

    def heads(x, perm):
        return op("Transpose", op("Reshape", x, "split"), perm=perm)

    shape("split", BATCH, LENGTH, HEADS, WIDTH // HEADS)
    shape("join", BATCH, LENGTH, WIDTH)
    constants.append(tensor("scale", np.float32((WIDTH // HEADS) ** -0.5).reshape(1), kind))
    x = op("Cast", "x", to=TYPES[kind])
    n = norm(x, "1")
    q, k, v = (dense(n, name, WIDTH, WIDTH) for name in "qkv")
    scores = op("Mul", op("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1])), "scale")
    mixed = op("MatMul", op("Softmax", scores, axis=-1), heads(v, [0, 2, 1, 3]))
    x = op("Add", x, dense(op("Reshape", op("Transpose", mixed, perm=[0, 2, 1, 3]), "join"), "o", WIDTH, WIDTH))
    h = dense(norm(x, "2"), "up", hidden, WIDTH)
    h = op("Gelu", h, approximate="tanh") if after == "Gelu" else op(after, h)
    y = op("Cast", op("Add", x, dense(h, "down", WIDTH, hidden)), to=TensorProto.FLOAT)
    nodes.append(helper.make_node("Identity", [y], ["y"]))
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, LENGTH, WIDTH]) for name in "xy"]
    return helper.make_model(helper.make_graph(nodes, "block", io[:1], io[1:], constants),
                             opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def write(folder, kind, hidden, after="Gelu", spoil=False):
    """MODEL and a data set: an input, and what ONNX Runtime gives for the block in f32."""
    onnx.save(block(kind, hidden, kind, after), folder / "model.onnx")
    x = rounded(np.random.default_rng(3).standard_normal((BATCH, LENGTH, WIDTH)).astype(np.float32), kind)
    if spoil:
        x[1, 3, 5] = np.nan
    session = ort.InferenceSession(block("f32", hidden, kind, after).SerializeToString())
    y, = session.run(None, {"x": x})
    data = folder / "data"
    data.mkdir()
    for name, a in [("input_0", x), ("output_0", y)]:
        (data / f"{name}.pb").write_bytes(numpy_helper.from_array(a, name[0]).SerializeToString())
    return folder / "model.onnx", data


@pytest.mark.parametrize("kind, tolerance, devices", [("bf16", 1e-1, 1), ("f16", 2e-2, 2)])
def test_short_floats(autopar, program, tmp_path, kind, tolerance, devices):  # noqa: F811
    model, data = write(tmp_path, kind, 64)
    out = program(model, tmp_path / "out", "--devices", devices, *(["--split", "force"] if devices > 1 else []))
    kernels = (out / "kernels.cu").read_text()
    tables = re.findall(r"aprt_cuda_product \w+ = \{\s+APRT_(\w+),.*?APRT_CUDA_(\w+)\}", kernels, re.S)
    assert tables and all(t == kind.upper() for t, _ in tables)
    assert "BIAS_GELU_TANH" in [after for _, after in tables], tables
    for seed in range(2):
        checked(autopar, out, data, seed, "--rtol", tolerance, "--atol", tolerance)


def test_epilogue_apart(autopar, program, tmp_path):  # noqa: F811
    """Rows that the shim's library has no algorithm with GELU for: a kernel follows."""
    model, data = write(tmp_path, "f16", 60)
    out = program(model, tmp_path / "out")
    assert "APRT_CUDA_BIAS_GELU_TANH" in (out / "kernels.cu").read_text()
    checked(autopar, out, data, 0, "--rtol", 2e-2, "--atol", 2e-2)


def test_relu_keeps_nan(autopar, program, tmp_path):  # noqa: F811
    """The library's relu may drop NaN, so it is not used: ONNX Runtime's NaN are there."""
    model, data = write(tmp_path, "f32", 64, "Relu", spoil=True)
    y = onnx.load_tensor(data / "output_0.pb")
    assert np.isnan(numpy_helper.to_array(y)).any()
    checked(autopar, program(model, tmp_path / "out"), data, 0)


def test_tf32(autopar, program, tmp_path):  # noqa: F811
    """Near f32, and not the same."""
    model, data = write(tmp_path, "f32", 64)
    out = program(model, tmp_path / "out")
    np.save(tmp_path / "x.npy", numpy_helper.to_array(onnx.load_tensor(data / "input_0.pb")))
    results = []
    for tf32 in "01":
        env = {**os.environ, "AUTOPAR_TF32": tf32, "CUDASHIM_QUIET": "1"}
        autopar("run", out, "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / tf32, env=env)
        results.append(np.load(next((tmp_path / tf32).glob("*.npy"))))
    want = numpy_helper.to_array(onnx.load_tensor(data / "output_0.pb"))
    np.testing.assert_allclose(results[0], want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(results[1], want, rtol=2e-2, atol=2e-2)
    assert np.abs(results[0] - want).max() < np.abs(results[1] - want).max()
