#!/usr/bin/env python3
"""Faults that other compilers had, provoked here one by one: docs/faults.md tells what each row is about.

    faults.py ONNX_EVAL [AUTOPAR] [--only GLOB] [--table]

With AUTOPAR each model is also compiled, plain for one device and with every split forced for two, and checked. A case
gives numbers (`want`), is refused with a message (`refuse`), or fails when it runs (`fails`). Expected numbers come
from numpy. Needs onnx (exit code 77 without it). --table prints what came out. Ends with `N passed, N failed`."""
import argparse
import fnmatch
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

F, I64, I32, F16, BOOL = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT16, TensorProto.BOOL)
TYPES = {np.dtype("float32"): F, np.dtype("int64"): I64, np.dtype("int32"): I32, np.dtype("float16"): F16,
         np.dtype("bool"): BOOL, np.dtype("uint8"): TensorProto.UINT8, np.dtype("int8"): TensorProto.INT8}
CASES = {}


def case(name, nodes, feeds=(), init=(), want=None, refuse=None, fails=None, opset=17, ir=8, also_inputs=(), tweak=None,
         beside=None, out="y", said=None):
    """feeds, init: {name: array}; want: array or {output: array}. tweak(model) edits, beside(folder) adds files."""
    feeds, init = dict(feeds), dict(init)
    wants = want if isinstance(want, dict) else {out: want}
    inputs = [helper.make_tensor_value_info(n, TYPES[a.dtype], a.shape) for n, a in feeds.items()]
    inputs += [helper.make_tensor_value_info(n, TYPES[init[n].dtype], init[n].shape) for n in also_inputs]
    outputs = [onnx.ValueInfoProto(name=n) for n in wants]
    for o, a in zip(outputs, wants.values()):
        o.CopyFrom(helper.make_tensor_value_info(o.name, F if a is None else TYPES[np.asarray(a).dtype],
                                                 None if a is None else np.shape(a)))
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in init.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    if tweak:
        tweak(model)
    CASES[name] = dict(model=model, feeds=list(feeds.values()), want=None if want is None else list(wants.values()),
                       refuse=refuse, fails=fails, beside=beside)


def node(op, inputs, outputs="y", **attrs):
    return helper.make_node(op, inputs.split(",") if inputs else [], outputs.split(","), name="n_" + op, **attrs)


def f32(*values):
    return np.array(values, np.float32)


def i64(*values):
    return np.array(values, np.int64)


def ramp(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


rng = np.random.default_rng(5)
x34 = ramp(3, 4)


def softmax(x, axes=-1):
    e = np.exp(x - x.max(axis=axes, keepdims=True))
    return e / e.sum(axis=axes, keepdims=True)


# ---- the file ----

def external(location, **more):
    def tweak(model):
        t = model.graph.initializer[0]
        t.ClearField("raw_data")
        t.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            t.external_data.add(key=key, value=value)
    return tweak


def add_file(name, link=None, hard=False):
    def beside(folder):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if link:
            outside = os.path.join(folder, "..", "outside.bin")
            with open(outside, "wb") as f:
                f.write(f32(1, 2, 3, 4).tobytes())
            (os.link if hard else os.symlink)(os.path.realpath(outside), path)
            return
        with open(path, "wb") as f:
            f.write(f32(1, 2, 3, 4).tobytes())
    return beside


add = [node("Add", "x,w")]
one_to_four = dict(feeds={"x": f32(1, 1, 1, 1)}, init={"w": f32(0, 0, 0, 0)})
case("B002 link", add, **one_to_four, tweak=external("w.bin"), beside=add_file("w.bin", link=True),
     refuse='"w.bin" is a link that leaves the model\'s folder')
case("B002 hard link", add, **one_to_four, tweak=external("w.bin"), beside=add_file("w.bin", link=True, hard=True),
     want=f32(2, 3, 4, 5))
case("B002 dots", add, **one_to_four, tweak=external("../w.bin"), refuse="leaves the model's folder by")
case("B003", add, **one_to_four, tweak=external("sub/w.bin"), beside=add_file("sub/w.bin"), want=f32(2, 3, 4, 5))


def unsorted(model):
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))


square = rng.standard_normal((4, 4)).astype(np.float32)
case("B005", [node("MatMul", "x,w", "m"), node("Add", "m,b")], {"x": x34}, {"w": square, "b": f32(1, 2, 3, 4)},
     want=x34 @ square + f32(1, 2, 3, 4), tweak=unsorted)


def body(nodes, inputs, outputs, init=()):
    info = {"i": (I64, []), "c": (BOOL, []), "b": (F, [1])}
    value = lambda n: helper.make_tensor_value_info(n, *info.get(n, (F, [1])))
    return helper.make_graph(nodes, "inner", [value(n) for n in inputs],
                             [helper.make_tensor_value_info("cc", BOOL, []) if n == "cc" else value(n) for n in outputs],
                             list(init))


loop = dict(feeds={"b": f32(0)}, init={"n": np.array(3, np.int64), "t": np.array(True), "one": f32(1)})
case("B006", [node("Loop", "n,t,b", body=body([node("Add", "z,one", "o"), node("Identity", "b", "z"),
                                                  node("Identity", "c", "cc")], ["i", "c", "b"], ["cc", "o"]))],
     **loop, refuse='node "n_Loop" .Loop.: operator Loop')
case("B007", [node("Add", "x,B", "A"), node("Mul", "A,x", "B"), node("Identity", "B")], {"x": f32(1, 2)},
     refuse='the graph has a cycle, each node using the next: "n_Add" -> "n_Mul" -> "n_Add"')
case("B008", [node("If", "t", then_branch=body([node("Identity", "w", "o")], [], ["o"], [numpy_helper.from_array(f32(7), "w")]),
                   else_branch=body([node("Identity", "w", "o")], [], ["o"]))],
     init={"t": np.array(True), "w": f32(1)}, refuse='node "n_If" .If.: operator If')
case("B009", [node("Loop", "n,t,b", body=body([node("Add", "b,one", "o"), node("Identity", "c", "cc")],
                                                  ["i", "c", "b"], ["cc", "o"]))],
     **loop, refuse='node "n_Loop" .Loop.: operator Loop')
case("B013 IR 8", add, {"x": f32(1, 2)}, {"w": f32(3, 4)}, also_inputs=["w"], want=f32(4, 6))
case("B013 IR 3", add, {"x": f32(1, 2)}, {"w": f32(3, 4)}, also_inputs=["w"], want=f32(4, 6), ir=3, opset=8)
case("B014", [node("Add", "a,b")], init={"a": np.float32(1).reshape(()), "b": np.float32(1).reshape(())},
     want=np.array(2, np.float32))
case("B015", [node("DequantizeLinear", "q,s,z")], {"q": np.array([[0, 4], [-2, 1]], np.int32)},
     {"s": np.array(0.5, np.float32), "z": np.array(0, np.int32)}, want=f32([0, 2], [-1, 0.5]))
case("B017", [node("Resize", "x,roi,scales,sizes")], {"x": ramp(1, 1, 2, 2)},
     {"roi": f32(), "scales": f32(), "sizes": i64(1, 1, 4, 4)}, want=ramp(1, 1, 2, 2).repeat(2, 2).repeat(2, 3))


def resize_data(size):
    def tweak(model):
        model.graph.initializer[0].raw_data = b"\0" * size
    return tweak


for size in (20, 28):
    case("B018 %d bytes" % size, add, {"x": ramp(2, 3)}, {"w": ramp(2, 3)}, tweak=resize_data(size),
         refuse='initializer "w": its dimensions ask for 24 bytes, its data has %d' % size)


def elem_type(model):
    model.graph.input[0].type.tensor_type.elem_type = 77


case("B019 type code", [node("Relu", "x")], {"x": f32(1)}, tweak=elem_type, refuse='input "x": 77 is no element type')
case("B019 no type", [node("Relu", "x", "h"), node("Neg", "h")], {"x": f32(1, -1)}, want=f32(-1, 0),
     tweak=lambda m: m.graph.value_info.add(name="h"))
case("B020 none", [node("Relu", "")], refuse='"n_Relu" .Relu.: Relu takes at least 1 input, here are 0')
case("B020 one", [node("Add", "x")], {"x": f32(1)}, refuse='"n_Add" .Add.: Add takes at least 2 inputs, here is 1')
case("B021", [node("BitwiseNot", "x")], {"x": np.array([0, 5, -7], np.int32)}, want=np.array([-1, -6, 6], np.int32), opset=18)
case("B022", [node("Gemm", "a,b,c")], {"a": ramp(2, 1), "b": np.array(3, np.float32), "c": f32(1, 2)},
     refuse="the factors must be matrices")
case("B028", [node("Gelu", "x")], {"x": f32(1)}, refuse="Gelu needs opset 20")
dropout = dict(feeds={"x": f32(1, 2)}, opset=12)
case("B031 training", [node("Dropout", "x,r,t")], **dropout, init={"r": np.array(0.5, np.float32), "t": np.array(True)},
     refuse="dropout in training mode is not supported")
case("B031 ratio 0", [node("Dropout", "x,r,t")], **dropout, init={"r": np.array(0, np.float32), "t": np.array(True)},
     want=f32(1, 2))


def false_shape(model):
    model.graph.value_info.append(helper.make_tensor_value_info("r", F, [2, 4]))


case("B032", [node("Reshape", "x,shape", "r"), node("Neg", "r")], {"x": ramp(0, 4)}, {"shape": i64(0, -1)},
     refuse="the -1 of the shape .* cannot be found for", tweak=false_shape)
case("B032 kept", [node("Reshape", "x,shape", "r"), node("Neg", "r")], {"x": ramp(0, 4)}, {"shape": i64(0, 4)},
     want=ramp(0, 4), tweak=false_shape)
branch = lambda *dims: helper.make_graph([node("Identity", "w" if len(dims) == 2 else "v", "o")], "b", [],
                                         [helper.make_tensor_value_info("o", F, dims)])
case("B033", [node("If", "t", then_branch=branch(1, 4), else_branch=branch(4))],
     init={"t": np.array(True), "w": ramp(1, 4), "v": ramp(4)}, refuse="operator If")
case("B035", [node("Shape", "x", "s"), node("Gather", "s,i", axis=0)], {"x": x34}, {"i": np.array(0, np.int64)},
     want=np.array(3, np.int64))

# ---- operators ----
x234 = rng.standard_normal((2, 3, 4)).astype(np.float32)
case("B036", [node("Softmax", "x")], {"x": x234}, opset=11, want=softmax(x234.reshape(2, 12)).reshape(2, 3, 4))
wide = rng.standard_normal((1, 1000, 4, 5)).astype(np.float32)
case("B037 opset 11", [node("Softmax", "x")], {"x": wide}, opset=11, want=softmax(wide.reshape(1, -1)).reshape(wide.shape))
case("B037 opset 13", [node("Softmax", "x")], {"x": wide}, opset=13, want=softmax(wide))
case("B039", [node("Softmax", "x", axis=-2)], {"x": ramp(1, 1023)}, opset=13, want=np.ones((1, 1023), np.float32))
case("B040", [node("Clip", "x,,hi")], {"x": f32(-5, 0, 5, 9)}, {"hi": np.array(6, np.float32)}, want=f32(-5, 0, 5, 6))
case("B041", [node("Clip", "x")], {"x": f32(-5, 0, 5)}, want=f32(-5, 0, 5))
cut = lambda s, e, a, st: {"s": i64(s), "e": i64(e), "a": i64(a), "st": i64(st)}
slices = [node("Slice", "x,s,e,a,st")]
case("B044 -1", slices, {"x": ramp(10)}, cut(9, 0, 0, -1), want=ramp(10)[9:0:-1])
case("B044 -3", slices, {"x": ramp(10)}, cut(9, 0, 0, -3), want=ramp(10)[9:0:-3])
case("B044 rows", slices, {"x": x34}, cut(2, 0, 0, -1), want=x34[2:0:-1])
case("B045", slices, {"x": ramp(5)}, cut(0, 5, 0, -1), want=ramp(0))
case("B046", slices, {"x": ramp(0, 3)}, cut(-1, -9, 0, -1), want=ramp(0, 3))
reshape = lambda name, x, shape, allow, **how: case(name, [node("Reshape", "x,shape", allowzero=allow)], {"x": x},
                                                    {"shape": i64(*shape)}, **how)
reshape("B047 first", ramp(0, 8, 2), (4, 2, -1), 0, want=ramp(4, 2, 0))
reshape("B047 second", ramp(4, 2, 0), (0, 0, 4), 1, want=ramp(0, 0, 4))
reshape("B048", ramp(0, 3, 4), (3, 4, 0), 1, want=ramp(3, 4, 0))
reshape("B048 with -1", ramp(0, 3, 4), (3, -1, 0), 1, refuse="cannot hold both 0 and -1")
reshape("B049", ramp(2, 0), (1, 2, 0), 0, refuse="copies a dimension that .* does not have")
reshape("B049 allowed", ramp(2, 0), (1, 2, 0), 1, want=ramp(1, 2, 0))
case("B058 constant", [node("Gather", "x,i", axis=0)], {"x": x34}, {"i": i64(-1, 0)}, want=x34[[2, 0]])
case("B058 computed", [node("Gather", "x,i", axis=0)], {"x": x34, "i": i64(-1, 0)}, want=x34[[2, 0]])
case("B059 constant", [node("Gather", "x,i", axis=0)], {"x": ramp(3)}, {"i": i64(5)},
     refuse="index 5 is out of range for the 3 entries")
case("B059 computed", [node("Gather", "x,i", axis=0)], {"x": ramp(3), "i": i64(5)}, fails="index 5")
case("B060", [node("GatherElements", "x,i", axis=0)], {"x": ramp(4, 2), "i": i64([0, 4])}, fails="index 4")
case("B060 pairs", [node("GatherND", "x,i")], {"x": ramp(4, 2), "i": i64([0, 2])}, fails="index 2")
case("B060 constant", [node("GatherElements", "x,i", axis=0)], {"x": ramp(4, 2)}, {"i": i64([0, 4])}, refuse="index 4")
eights = np.full((1, 8), 9, np.int8)
blocks = {"s": f32([1, 2, 3, 4]), "z": np.array([[1, 2, 3, 4]], np.int8)}
case("B066", [node("DequantizeLinear", "x,s,z", axis=1, block_size=2)], {"x": eights}, blocks, opset=21,
     want=f32([8, 8, 14, 14, 18, 18, 20, 20]))
case("B067", [node("DequantizeLinear", "x,s", "q", axis=-1), node("Transpose", "q")],
     {"x": np.arange(6, dtype=np.int8).reshape(2, 3)}, {"s": f32(1, 2, 3)}, want=f32([0, 3], [2, 8], [6, 15]))
case("B088", [node("ScatterElements", "x,i,u", reduction="add")], {"x": np.zeros(3, np.float32), "i": i64(1, 1), "u": f32(2, 3)},
     opset=18, want=f32(0, 5, 0))
case("B089", [node("ScatterND", "x,i,u")], {"x": np.zeros((2, 3), np.float32), "i": i64([0, 2], [1, -1]), "u": f32(5, 6)},
     opset=18, want=f32([0, 0, 5], [0, 0, 6]))
case("B089 out of range", [node("ScatterND", "x,i,u")], {"x": np.zeros((2, 3), np.float32), "i": i64([0, 2], [1, 3]), "u": f32(5, 6)},
     opset=18, fails="index 3")
abc, cd, def_ = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 4), (4, 5), (5, 6, 7)))
case("B092", [node("Einsum", "a,b,c", equation="abc,cd,def->abd")], {"a": abc, "b": cd, "c": def_},
     want=np.einsum("abc,cd,def->abd", abc, cd, def_))
case("B093", [node("Einsum", "a,b", equation="ij,jk->ik")], {"a": f32([2], [3]), "b": ramp(4, 2)},
     want=f32([2], [3]) * ramp(4, 2).sum(0))
top = lambda name, x, k, want: case(name, [node("TopK", "x,k", "v,y")], {"x": x}, {"k": i64(k)}, want=want)
top("B094 ties", f32(2, 2, 1), 2, i64(0, 1))
case("B094 unsigned", [node("TopK", "x,k", "y,i")], {"x": np.array([0, 5], np.uint8)}, {"k": i64(1)}, want=np.array([5], np.uint8))
case("B095", [node("Hardmax", "x")], {"x": f32([3, 3, 1])}, want=f32([1, 0, 0]))
case("B096", [node("ArgMax", "x", select_last_index=1, keepdims=0)], {"x": f32(3, 1, 3)}, want=np.array(2, np.int64))
cumsum = lambda name, want, **how: case(name, [node("CumSum", "x,axis", **how)], {"x": f32(1, 2, 3)},
                                        {"axis": np.array(0, np.int64)}, want=want)
cumsum("B099 reverse", f32(6, 5, 3), reverse=1)
cumsum("B099 exclusive", f32(0, 1, 3), exclusive=1)
cumsum("B099 both", f32(5, 3, 0), reverse=1, exclusive=1)
case("B098", [node("Div", "x,y1")], {"x": i64(9007199254740993)}, {"y1": i64(1)}, want=i64(9007199254740993))
case("B101", [node("Flatten", "x", "f", axis=0), node("Abs", "f", "a"), node("ReduceSum", "a,ax")],
     {"x": -ramp(3, 3, 2, 3, 2, 5)}, {"ax": i64(0)}, want=ramp(1, 540))
case("B104", [node("MatMul", "a,b")], {"a": f32(1, 2, 3), "b": f32(4, 5, 6)}, want=np.array(32, np.float32))
a96, b96 = (rng.standard_normal(s).astype(np.float32) for s in ((1, 96), (58, 96)))
for form, c in (("[58]", ramp(58)), ("[1]", f32(2)), ("rank 0", np.array(3, np.float32)), ("[M,1]", ramp(2, 1))):
    a = np.concatenate([a96, a96]) if form == "[M,1]" else a96
    case("B106 " + form, [node("Gemm", "a,b,c", transB=1)], {"a": a}, {"b": b96, "c": c}, want=a @ b96.T + c)
case("B109", [node("Mul", "s,o", "m"), node("MatMul", "m,w")], {"s": np.array(2, np.float32)},
     {"o": f32(1), "w": ramp(1, 64)}, want=2 * ramp(64))
case("B110 start", [node("Shape", "x", start=-2)], {"x": ramp(3, 4, 5)}, want=i64(4, 5))
case("B110 end", [node("Shape", "x", end=-1)], {"x": ramp(3, 4, 5)}, want=i64(3, 4))
case("B111", [node("Shape", "x", "s"), node("Constant", "", "c", value=numpy_helper.from_array(i64(-1))),
              node("Concat", "s,c", axis=0)], {"x": ramp(7)}, want=i64(7, -1))

# ---- planes ----
case("B052", [node("AveragePool", "x", kernel_shape=[2], strides=[2], pads=[0, 2], ceil_mode=1)], {"x": ramp(1, 1, 4)},
     opset=19, ir=9, want=f32(0.5, 2.5).reshape(1, 1, 2))
case("B053", [node("MaxPool", "x", kernel_shape=[3] * 3, strides=[3] * 3, pads=[1] * 6, ceil_mode=1)],
     {"x": ramp(1, 2, 3, 6, 5)}, want=np.array([[[[[d * 30 + h * 5 + w + c * 90 for w in (1, 4)] for h in (1, 4, 5)]
                                                for d in (1, 2)] for c in (0, 1)]], np.float32))
case("B054", [node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)],
     {"x": ramp(1, 1, 4, 4) + 1}, opset=19, ir=9, want=f32(6, 7.5, 12, 13.5).reshape(1, 1, 2, 2))
pad = lambda name, x, pads, **how: case(name, [node("Pad", "x,pads", mode="reflect")], {"x": x}, {"pads": i64(*pads)},
                                        opset=13, **how)
pad("B078", ramp(5), (-4, 4), refuse="negative pads in mode reflect")
pad("B079", x34, (1, 0, 0, 0), want=np.pad(x34, ((1, 0), (0, 0)), "reflect"))
pad("B080", ramp(3, 2), (0, 2, 0, 0), refuse="padding by 2 and 0 of 2 entries is not possible")
chain = [node("ConstantOfShape", "n", "zeros", value=numpy_helper.from_array(i64(0))), node("Concat", "given,zeros", "all", axis=0),
         node("Reshape", "all,two", "pairs"), node("Slice", "pairs,s,e,a,st", "back"), node("Transpose", "back", "turned"),
         node("Reshape", "turned,flat", "list"), node("Cast", "list", "pads", to=I64), node("Pad", "x,pads")]
case("B081", chain, {"x": ramp(2, 3, 4)},
     {"n": i64(2), "given": i64(1, 2, 0, 3), "two": i64(-1, 2), "flat": i64(-1), "s": i64(-1), "e": i64(-2**63 + 1),
      "a": i64(0), "st": i64(-1)}, opset=13, want=np.pad(ramp(2, 3, 4), ((0, 0), (0, 3), (1, 2))))
resize = lambda name, x, scales, want, **attrs: case(name, [node("Resize", "x,,scales", **attrs)], {"x": x},
                                                     {"scales": f32(*scales)}, want=want.astype(np.float32))
square = ramp(4, 4, 2, 2)
thirds = np.clip(np.ceil((np.arange(6) + 0.5) / 3 - 0.5), 0, 1).astype(int)
resize("B082", square, (1, 1, 3, 3), square[:, :, thirds][:, :, :, thirds], mode="nearest", nearest_mode="ceil")
resize("B083", ramp(1, 1, 2, 2), (1, 1, 2, 2), ramp(1, 1, 2, 2).repeat(2, 2).repeat(2, 3), mode="nearest")
at = np.clip((np.arange(6) + 0.5) / 1.3 - 0.5, 0, 4)
resize("B085", ramp(1, 1, 5) ** 2, (1, 1, 1.3), np.interp(at, np.arange(5), np.arange(5) ** 2).reshape(1, 1, 6),
       mode="linear")
xbn = rng.standard_normal((2, 3, 4)).astype(np.float32)
sbn, bbn, mbn, vbn = (abs(rng.standard_normal(3)).astype(np.float32) + np.float32(0.5) for _ in range(4))
columns = lambda a: a.reshape(1, 3, 1)
stored = (xbn - columns(mbn)) / np.sqrt(columns(vbn) + 1e-5) * columns(sbn) + columns(bbn)
now = xbn.mean((0, 2)), xbn.var((0, 2))
fresh = (xbn - columns(now[0])) / np.sqrt(columns(now[1]) + 1e-5) * columns(sbn) + columns(bbn)
norm = {"s": sbn, "b": bbn, "m": mbn, "v": vbn}
case("B086 inference", [node("BatchNormalization", "x,s,b,m,v", training_mode=0)], {"x": xbn}, norm, opset=15,
     want=stored.astype(np.float32))
case("B086 training", [node("BatchNormalization", "x,s,b,m,v", "y,m1,v1", training_mode=1, momentum=0.75)], {"x": xbn},
     norm, opset=15, want={"y": fresh.astype(np.float32), "m1": (0.75 * mbn + 0.25 * now[0]).astype(np.float32),
                           "v1": (0.75 * vbn + 0.25 * now[1]).astype(np.float32)})
case("B087", [node("BatchNormalization", "x,s,b,m,v", spatial=1)], {"x": xbn}, norm, opset=7,
     want=stored.astype(np.float32))

# ---- attention and normalisation ----
q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((1, 2, 3, 8), (1, 2, 4, 8), (1, 2, 4, 8)))


def attention(visible, rows=3):
    s = q[:, :, :rows] @ k.transpose(0, 1, 3, 2) / np.sqrt(8)
    with np.errstate(invalid="ignore"):
        p = softmax(np.where(visible, s, -np.inf))
    return (np.nan_to_num(p) @ v).astype(np.float32)


for opset in (23, 24):
    case("B112 opset %d" % opset, [node("Attention", "q,k,v", is_causal=1)], {"q": q[:, :, :1], "k": k, "v": v},
         opset=opset, ir=11, want=attention(np.tri(1, 4, dtype=bool), 1))
some = np.array([[True, False, True, True], [False] * 4, [True] * 4])
case("B113", [node("Attention", "q,k,v,m")], {"q": q, "k": k, "v": v, "m": some}, opset=23, ir=11, want=attention(some))
case("B113 float", [node("Attention", "q,k,v,m")], {"q": q, "k": k, "v": v, "m": np.where(some, 0, -np.inf).astype(np.float32)},
     opset=23, ir=11, want=attention(some))


def layer_norm(x, epsilon=1e-5):
    x = x.astype(np.float64)
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + epsilon)


close = f32([40000, 40001, 40002, 40003])
case("B114", [node("LayerNormalization", "x,s", epsilon=1e-5)], {"x": close}, {"s": f32(1, 1, 1, 1)},
     want=layer_norm(close).astype(np.float32))
half = (rng.choice([-1, 1], (4, 2048)) * rng.uniform(7000, 8000, (4, 2048))).astype(np.float16)
ones = np.ones(2048, np.float16)
case("B115 layer", [node("LayerNormalization", "x,s", epsilon=1e-5)], {"x": half}, {"s": ones},
     want=layer_norm(half).astype(np.float16))
rms = half.astype(np.float64) / np.sqrt((half.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5)
case("B115 rms", [node("RMSNormalization", "x,s", epsilon=1e-5)], {"x": half}, {"s": ones}, opset=23, ir=11,
     want=rms.astype(np.float16))
x38 = rng.standard_normal((3, 8)).astype(np.float32)
g8, b8 = (rng.standard_normal(8).astype(np.float32) for _ in range(2))
case("B116", [node("ReduceMean", "x", "m", axes=[-1]), node("Sub", "x,m", "d"), node("Pow", "d,two", "p"),
              node("ReduceMean", "p", "v", axes=[-1]), node("Add", "v,e", "ve"), node("Sqrt", "ve", "r"),
              node("Div", "d,r", "n"), node("Mul", "n,g", "ng"), node("Add", "ng,b"),
              node("LayerNormalization", "x,g,b", "z", epsilon=1e-5)], {"x": x38},
     {"two": np.array(2, np.float32), "e": np.array(1e-5, np.float32), "g": g8, "b": b8},
     want={n: (layer_norm(x38) * g8 + b8).astype(np.float32) for n in ("y", "z")})


# ---- running ----

def write(folder, c):
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(c["model"].SerializeToString())
    if c["beside"]:
        c["beside"](folder)
    for kind, arrays in (("input", c["feeds"]), ("output", c["want"] or [f32(0)])):
        for i, a in enumerate(arrays):
            with open(os.path.join(data, "%s_%d.pb" % (kind, i)), "wb") as f:
                f.write(numpy_helper.from_array(np.asarray(a)).SerializeToString())


def start(*args):
    done = subprocess.run(args, capture_output=True, text=True, errors="replace", cwd="/")
    text = (done.stdout + done.stderr).strip()
    bad = done.returncode < 0 or "Sanitizer" in text or "runtime error" in text
    return done.returncode, ("CRASH " + text) if bad else text


def judge(c, stage, code, text):
    """None: as expected; else what is wrong. stage: eval, compile, check."""
    if text.startswith("CRASH"):
        return text[:400]
    if c["want"] is not None:
        return None if code == 0 else text[:400]
    pattern = c["refuse"] or c["fails"]
    if c["fails"] and stage == "compile":
        return None if code == 0 else text[:400]
    return None if code and re.search(pattern, text) else "expected /%s/, got (%d) %s" % (pattern, code, text[:400])


def try_case(args, name, c, root):
    folder = os.path.join(root, re.sub(r"\W", "_", name), "model")
    write(folder, c)
    model, data = os.path.join(folder, "model.onnx"), os.path.join(folder, "test_data_set_0")
    tolerance = ["2e-3", "2e-3"] if c["want"] and np.asarray(c["want"][0]).dtype == np.float16 else ["1e-4", "1e-5"]
    code, text = start(args.tool, model, data, *tolerance)
    wrong = judge(c, "eval", code, text)
    said = text
    for devices in (1, 2) if args.autopar and not wrong else ():
        out = folder + str(devices)
        more = (["--split", "force"] if devices == 2 else []) + (["--shapes-from", data] if c["feeds"] else [])
        code, text = start(args.autopar, "compile", model, "-o", out, "--devices", str(devices), "-q", *more)
        wrong = judge(c, "compile", code, text)
        if wrong or c["refuse"]:
            said = text
            break
        code, text = start(args.autopar, "check", out, "--data", data, "--rtol", tolerance[0], "--atol", tolerance[1])
        wrong = judge(c, "check", code, text)
        said = text if c["fails"] else said
        if wrong:
            break
    if args.table:
        print("| %s | %s |" % (name, "right" if c["want"] is not None else re.sub(r"\S*/model\.onnx: ", "", said).strip("| ")))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("autopar", nargs="?")
    parser.add_argument("--only", default="*")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    args.tool = os.path.abspath(args.tool)
    args.autopar = args.autopar and os.path.abspath(args.autopar)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as root:
        for name, c in CASES.items():
            if not fnmatch.fnmatch(name, args.only):
                continue
            wrong = try_case(args, name, c, root)
            passed += not wrong
            failed += bool(wrong)
            if wrong:
                print("FAILED", name, wrong)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


sys.exit(main())
