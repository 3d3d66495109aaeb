"""Seeds for the fuzz targets that are binary or depend on the version: make_corpus.py AUTOPAR OUT writes
OUT/{model,module,local,plan,tensor,weights}. Everything is small; the same files every time."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from make_model import encoder_layer, mlp, model, tensor, value  # noqa: E402

F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def ints(name, *x):
    return tensor(name, np.array(x, np.int64))


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), f"{kind}_{outputs.split()[0]}", **attributes)


def one(nodes, inputs, outputs, weights=(), opset=17):
    return model(nodes, [value(*i) for i in inputs], [value(*o) for o in outputs], weights, opset)


def shapes():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s i0", "n", axis=0),
        node("Unsqueeze", "n ax", "n1"),
        node("Concat", "n1 m1", "t", axis=0),
        node("Reshape", "x t", "f"),
        node("Slice", "f st en ax2 step", "g"),
        node("Transpose", "g", "h", perm=[1, 0]),
        node("Split", "h", "a b", axis=1),
        node("Concat", "a b", "c", axis=0),
        node("Pad", "c pads", "d"),
        node("Expand", "d ex", "e"),
        node("Squeeze", "e ax", "y"),
    ]
    weights = [tensor("i0", np.array(0, np.int64)), ints("ax", 0), ints("m1", -1), ints("st", 0), ints("en", 9), ints("ax2", 1),
               ints("step", 2), ints("pads", 0, 1, 1, 0), ints("ex", 1, 1, 1)]
    return one(nodes, [("x", ["batch", 2, 4])], [("y", None)], weights)


def indices():
    nodes = [
        node("Gather", "w x", "g", axis=0),
        node("GatherElements", "g k", "ge", axis=1),
        node("Range", "r0 r1 r2", "r"),
        node("Less", "r t", "m"),
        node("Where", "m ge z", "q"),
        node("ConstantOfShape", "cs", "c"),
        node("Cast", "x", "xf", to=F),
        node("OneHot", "x depth vals", "o", axis=-1),
        node("CumSum", "xf r0", "cu"),
        node("ReduceSum", "o ra", "os", keepdims=0),
        node("Add", "q c", "y"),
    ]
    n = lambda name, x: tensor(name, np.array(x, np.int64))
    weights = [tensor("w", np.arange(12, dtype=np.float32).reshape(4, 3)), n("k", [[0, 1, 2], [2, 1, 0]]), n("r0", 0), n("r1", 3),
               n("r2", 1), n("t", 2), tensor("z", np.zeros(3, np.float32)), n("cs", [2, 3]), n("depth", 4),
               tensor("vals", np.array([0, 1], np.float32)), n("ra", [1])]
    return one(nodes, [("x", [2], I64)], [("y", None), ("cu", None), ("os", None)], weights)


def norms():
    nodes = [
        node("LayerNormalization", "x g b", "a", axis=-1),
        node("Softmax", "a", "s", axis=-1),
        node("ReduceMean", "s", "m", axes=[-1], keepdims=1),
        node("Sub", "s m", "d"),
        node("Gemm", "d w c", "e", transB=1, alpha=0.5),
        node("Gelu", "e", "f"),
        node("Einsum", "f w", "h", equation="ij,kj->ik"),
        node("ArgMax", "h", "i", axis=1),
        node("Clip", "h lo hi", "y"),
    ]
    f = lambda name, *s: tensor(name, np.ones(s, np.float32) / 3)
    return one(nodes, [("x", ["batch", 4])], [("y", None), ("i", None, I64)],
               [f("g", 4), f("b", 4), f("w", 4, 4), f("c", 4), f("lo"), f("hi")], 20)


def functions():
    f = helper.make_function("local", "twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"]),],
                             [helper.make_opsetid("", 17)], ["k"])
    m = one([helper.make_node("twice", ["x"], ["h"], "t", domain="local", k=1), node("Neg", "h", "y")], [("x", [2, 3])], [("y", [2, 3])])
    m.opset_import.append(helper.make_opsetid("local", 1))
    m.functions.append(f)
    return m


def external():
    t = TensorProto(name="w", data_type=F, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for k, v in (("location", "w.bin"), ("offset", "16"), ("length", "24")):
        t.external_data.add(key=k, value=v)
    return one([node("Mul", "x w", "y")], [("x", [2, 3])], [("y", [2, 3])], [t])


def constants():
    nodes = [
        node("Constant", "", "a", value_floats=[1.0, 2.0]),
        node("Constant", "", "b", value_ints=[1, 2]),
        node("Constant", "", "c", value=numpy_helper.from_array(np.array([[1, 2]], np.float16))),
        node("Cast", "b", "bf", to=F),
        node("Cast", "c", "cf", to=F),
        node("Add", "a bf", "d"),
        node("Mul", "d cf", "e"),
        node("Add", "e x", "y"),
    ]
    typed = helper.make_tensor("t", F, [2], [3.0, 4.0])
    return one(nodes + [node("Add", "x t", "z")], [("x", [1, 2])], [("y", None), ("z", None)], [typed])


def contrib():
    ms = lambda kind, inputs, outputs, **a: helper.make_node(kind, inputs.split(), outputs.split(), kind, domain="com.microsoft", **a)
    f = lambda name, *s: tensor(name, np.ones(s, np.float32) / 3)
    nodes = [ms("Attention", "x w b", "a", num_heads=2), ms("SkipLayerNormalization", "a x g c", "s"), ms("FastGelu", "s c", "y")]
    m = one(nodes, [("x", [1, 3, 4])], [("y", None)], [f("w", 4, 12), f("b", 12), f("g", 4), f("c", 4)])
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return m


def convolution():
    f = lambda name, *s: tensor(name, np.ones(s, np.float32) / 3)
    nodes = [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"), node("GlobalAveragePool", "r", "g"), node("Flatten", "g", "y")]
    return one(nodes, [("x", [1, 2, 4, 4])], [("y", None)], [f("w", 3, 2, 3, 3), f("b", 3)])


MODELS = {
    "mlp": lambda: mlp(hidden=4),
    "encoder": lambda: encoder_layer(seq=4, hidden=4, heads=2, batch=2),
    "gpt": lambda: encoder_layer(seq=4, hidden=4, heads=2, batch=1, vocabulary=5),
    "shapes": shapes, "indices": indices, "norms": norms, "functions": functions, "external": external,
    "constants": constants, "contrib": contrib, "convolution": convolution,
}


def safetensors(tensors, metadata=None):
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, dtype, shape, size in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += bytes(i % 251 for i in range(size))
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(folder, name, data):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def tensors(out):
    r = np.random.default_rng(0)
    for name, a in {"f4": r.standard_normal((2, 3)).astype("f4"), "i8": np.arange(4), "b1": np.array([True, False]), "e": np.zeros((0, 2), "f2"),
                    "s": np.array(1.5), "fo": np.asfortranarray(np.arange(6, dtype="u1").reshape(2, 3))}.items():
        np.save(os.path.join(out, name + ".npy"), a)
        write(out, name + ".pb", numpy_helper.from_array(np.ascontiguousarray(a), name).SerializeToString())
    write(out, "typed.pb", helper.make_tensor("t", F, [2], [3.0, 4.0]).SerializeToString())
    write(out, "typed64.pb", helper.make_tensor("t", I64, [2], [3, -4]).SerializeToString())
    write(out, "half.pb", helper.make_tensor("t", TensorProto.FLOAT16, [2], [3.0, 4.0]).SerializeToString())


def dumps(autopar, path, name, out):
    """The states of a model as text; what cannot be planned has fewer."""
    dims = ["--dim", "batch=4"] if b"batch" in Path(path).read_bytes() else []
    run = lambda *a: subprocess.run([autopar, *map(str, a)], capture_output=True)
    for devices in (1, 2):
        plan = os.path.join(out, "plan", f"{name}{devices}.json")
        if run("plan", path, "-q", "-o", plan, "--devices", devices, *dims, *(["--split", "force"] if devices > 1 else [])).returncode:
            continue
        for state, folder in (("planned", "module"), ("explicit", "module"), ("local", "local")):
            p = run("dump", plan, "--format", "ir", "--state", state)
            if p.returncode == 0:
                write(os.path.join(out, folder), f"{name}{devices}.{state}.ap", p.stdout)
    plan = os.path.join(out, "plan", f"{name}.mixed.json")
    run("plan", path, "-q", "-o", plan, "--cluster", Path(__file__).with_name("corpus") / "cluster" / "mixed.yaml", *dims)
    for state in ("imported", "normal"):
        p = run("dump", path, "--format", "ir", "--state", state, *dims)
        if p.returncode == 0:
            write(os.path.join(out, "module"), f"{name}.{state}.ap", p.stdout)


def main(autopar, out):
    for folder in ("model", "module", "pipeline", "local", "program", "plan", "tensor", "weights", "reference"):
        os.makedirs(os.path.join(out, folder), exist_ok=True)
    for name, make in MODELS.items():
        path = os.path.join(out, "model", name + ".onnx")
        onnx.save(make(), path)
        dumps(autopar, path, name, out)
    tensors(os.path.join(out, "tensor"))
    whole = [("w1", "F32", [4, 6], 96), ("b1", "F32", [6], 24), ("i", "I64", [], 8), ("e", "BF16", [2, 0, 3], 0)]
    write(os.path.join(out, "weights"), "whole", safetensors(whole, {"format": "autopar"}))
    write(os.path.join(out, "weights"), "some", safetensors(whole[:2]))
    place = {"file": "fixed.safetensors", "file_size": 512}
    listed = {"w1": {"dtype": "F32", "shape": [4, 6], "offset": 64, "size": 96, **place},
              "i": {"dtype": "I64", "shape": [], "offset": 8, "size": 8, **place}}
    for name, tensors_ in (("both", listed), ("one", {"i": listed["i"]})):
        write(os.path.join(out, "reference"), name, json.dumps({"format": "autopar-reference", "tensors": tensors_}).encode())
    counts = {d: len(os.listdir(os.path.join(out, d))) for d in sorted(os.listdir(out))}
    print("corpus:", ", ".join(f"{n} {d}" for d, n in counts.items()))
    if min(counts[d] for d in ("model", "module", "local", "plan", "tensor", "weights", "reference")) < 2:
        sys.exit("corpus: too few seeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
