"""make_models.py FOLDER: writes backbone.onnx, head.onnx, and in expected.txt what the program must print, computed
here with NumPy in double precision."""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(nodes, x, y, weights):
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, y[0], [info(*x)], [info(*y)], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main(folder):
    r = np.random.default_rng(5)
    w, b, v, c = (r.standard_normal(s).astype(np.float32) for s in ((16, 32), (32,), (32, 5), (5,)))
    layer = lambda x, y, w, b: [
        helper.make_node("MatMul", [x, w], [x + w], "product"), helper.make_node("Add", [x + w, b], [y], "bias")]
    onnx.save(model([*layer("x", "h", "w", "b"), helper.make_node("Relu", ["h"], ["found"], "relu")],
                    ("x", [4, 16]), ("found", [4, 32]), {"w": w, "b": b}), folder / "backbone.onnx")
    onnx.save(model([*layer("found", "h", "v", "c"), helper.make_node("Softmax", ["h"], ["p"], "softmax", axis=-1)],
                    ("found", [4, 32]), ("p", [4, 5]), {"v": v, "c": c}), folder / "head.onnx")
    x = (np.arange(64) * 37 % 101 / 50 - 1).reshape(4, 16)
    h = np.maximum(x @ w.astype(float) + b, 0) @ v.astype(float) + c
    p = np.exp(h - h.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    lines = [f"row {i}: class {row.argmax()}, probability {row.max():.3f}\n" for i, row in enumerate(p)]
    (folder / "expected.txt").write_text("".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
