"""Wrong models and wrong command lines: one clear message, the promised exit code, nothing left behind."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from make_model import mlp, model, tensor, value


def compile_fails(autopar, tmp_path, path, *words, code=1, options=()):
    p = autopar("compile", path, "-o", tmp_path / "out", *options, code=code)
    for w in words:
        assert w in p.stderr, p.stderr
    assert p.stdout == ""
    assert not list(tmp_path.glob("out*")), "something was left behind"
    return p


def save(tmp_path, m, name="m.onnx"):
    path = tmp_path / name
    onnx.save(m, path)
    return path


def test_truncated(autopar, tmp_path):
    path = save(tmp_path, mlp(batch=4))
    path.write_bytes(path.read_bytes()[:-50])
    p = compile_fails(autopar, tmp_path, path, "m.onnx", "truncated")
    assert len(p.stderr.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"hello world, this is a text\n", b"\x89PNG\r\n\x1a\n" + bytes(range(256))])
def test_not_onnx(autopar, tmp_path, content):
    (tmp_path / "m.onnx").write_bytes(content)
    p = compile_fails(autopar, tmp_path, tmp_path / "m.onnx", "m.onnx", "ONNX")
    assert len(p.stderr.splitlines()) == 1


def test_missing_file(autopar, tmp_path):
    compile_fails(autopar, tmp_path, tmp_path / "none.onnx", "none.onnx", code=4)


def test_unknown_operators_all_at_once(autopar, tmp_path):
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "fine"),
        helper.make_node("Wobble", ["b"], ["y"], "second", domain="com.example"),
    ]
    m = model(nodes, [value("x", [2])], [value("y", [2])])
    m.opset_import.append(helper.make_opsetid("com.example", 1))
    p = compile_fails(autopar, tmp_path, save(tmp_path, m), "Frobnicate", "first", "Wobble", "second")
    assert "fine" not in p.stderr


def external(tmp_path, location, make=True):
    m = mlp(batch=4)
    t = m.graph.initializer[0]
    raw = t.raw_data
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for k, v in (("location", location), ("offset", "0"), ("length", str(len(raw)))):
        t.external_data.add(key=k, value=v)
    if make:
        (tmp_path / "w.bin").write_bytes(raw)
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    return path


def test_external_data(autopar, tmp_path):
    autopar("compile", external(tmp_path, "w.bin"), "-o", tmp_path / "out", "--emit-only")


def test_external_data_missing(autopar, tmp_path):
    path = external(tmp_path, "w.bin", make=False)
    compile_fails(autopar, tmp_path, path, "w.bin", "w1")
    autopar("plan", path)  # needs no weights


@pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "/etc/passwd"])
def test_external_data_outside(autopar, tmp_path, location):
    compile_fails(autopar, tmp_path, external(tmp_path, location), location, "w1")


def test_external_data_link_out(autopar, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    path = external(inner, "link.bin")
    os.rename(inner / "w.bin", tmp_path / "w.bin")
    os.symlink(tmp_path / "w.bin", inner / "link.bin")
    compile_fails(autopar, tmp_path, path, "link.bin")


def test_shape_mismatch(autopar, tmp_path):
    m = model([helper.make_node("MatMul", ["x", "w"], ["y"], "fc1")], [value("x", [4, 8])], [value("y", [4, 5])],
              [tensor("w", np.zeros((12, 5), np.float32))])
    compile_fails(autopar, tmp_path, save(tmp_path, m), "m.onnx", '"fc1" (MatMul)', "8", "12")


def test_unbound_dimension(autopar, tmp_path):
    path = save(tmp_path, mlp())
    compile_fails(autopar, tmp_path, path, "batch", "--dim")
    autopar("compile", path, "-o", tmp_path / "out", "--dim", "batch=3", "--emit-only")


def test_exit_codes_of_usage(autopar, tmp_path):
    path = save(tmp_path, mlp(batch=4))
    out = tmp_path / "exists"
    out.mkdir()
    autopar("compile", path, "-o", out, code=2)
    assert list(out.iterdir()) == []
    autopar("compile", path, code=2)
    autopar("compile", path, "-o", tmp_path / "o", "--devices", "0", code=2)
    autopar("compile", path, "-o", tmp_path / "o", "--frobnicate", code=2)
    autopar("nonsense", code=2)
    autopar("check", out, code=2)
    autopar("plan", path, "--devices", "2", "--memory", "100", code=3)


def test_force_replaces(autopar, tmp_path):
    path = save(tmp_path, mlp(batch=4))
    autopar("compile", path, "-o", tmp_path / "out", "--emit-only")
    (tmp_path / "out" / "stale").write_text("old")
    autopar("compile", path, "-o", tmp_path / "out", "--emit-only", "--force")
    assert not (tmp_path / "out" / "stale").exists()


def test_functions_that_multiply(autopar, tmp_path):
    """Forty functions, each of which calls the next one twice: 2^40 calls in a file of a few kilobytes."""
    own = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    call = lambda i, a, b: helper.make_node(f"f{i}", [a], [b], f"n{b}", domain="own")
    functions = [helper.make_function("own", f"f{i}", ["a"], ["b"], [call(i + 1, "a", "t"), call(i + 1, "t", "b")], own) for i in range(40)]
    functions.append(helper.make_function("own", "f40", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], own))
    graph = helper.make_graph([call(0, "x", "y")], "g", [value("x", [4])], [value("y", [4])])
    m = helper.make_model(graph, opset_imports=own, ir_version=8, functions=functions)
    compile_fails(autopar, tmp_path, save(tmp_path, m), "m.onnx", "more than 131072 calls of functions")


@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_kernel_larger_than_what_is_there(autopar, tmp_path, op):
    w = [tensor("w", np.zeros((3, 2, 5, 5), np.float32))] if op == "Conv" else []
    node = helper.make_node(op, ["x"] + [t.name for t in w], ["y"], "big", kernel_shape=[5, 5], pads=[1, 1, 1, 1])
    m = model([node], [value("x", [1, 2, 2, 9])], [value("y", [1, len(w) * 3 or 2, 0, 7])], w)
    compile_fails(autopar, tmp_path, save(tmp_path, m), '"big"', "over 5 elements, 4 are there")
