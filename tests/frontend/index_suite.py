#!/usr/bin/env python3
"""Random forms of the operators that work by index, position or quantised number, against ONNX Runtime.

    index_suite.py ONNX_EVAL [--rounds N] [--only OP] [--seed S]

Needs onnx and onnxruntime (exit code 77 without them). Ends with `N passed, N failed`."""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from ort_case import TYPES, node_model, write
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

rng = np.random.default_rng()


def pick(*values):
    return values[rng.integers(len(values))]


def shape(least=1, most=4, extents=(1, 2, 3, 5, 8)):
    return [int(pick(*extents)) for _ in range(rng.integers(least, most + 1))]


def floats(*dims):
    return rng.standard_normal(dims).astype(np.float32)


def numbers(dims, dtype=None):
    dtype = dtype or pick(np.float32, np.float32, np.int64, np.int32)
    return floats(*dims) if dtype == np.float32 else rng.integers(-9, 9, dims).astype(dtype)


def indices(n, dims, negative=True, dtype=None):
    return rng.integers(-n if negative else 0, n, dims).astype(dtype or pick(np.int64, np.int32))


def distinct_along(n, dims, axis):
    """Indices below n that differ along the axis."""
    rows = np.moveaxis(np.zeros(dims, np.int64), axis, -1)
    for at in np.ndindex(rows.shape[:-1]):
        rows[at] = rng.permutation(n)[: rows.shape[-1]]
    return np.ascontiguousarray(np.moveaxis(rows, -1, axis))


def below(dims, axis=None):
    return [int(rng.integers(1, d + 1)) if i != axis else int(pick(1, d, d + 2)) for i, d in enumerate(dims)]


def signed_axis(axis, rank):
    return int(axis - rank) if rng.random() < 0.5 else int(axis)


def scatter_elements():
    s = shape()
    axis = int(rng.integers(len(s)))
    kind = pick("none", "add", "mul", "max", "min")
    k = below(s, axis)
    if kind == "none":
        k[axis] = min(k[axis], s[axis])
        ids = distinct_along(s[axis], k, axis)
    else:
        ids = indices(s[axis], k)
    x = numbers(s)
    return "ScatterElements", [("x", x), ("i", ids), ("u", numbers(k, x.dtype.type))], dict(axis=signed_axis(axis, len(s)), reduction=kind), {}


def scatter_nd():
    s = shape()
    n = int(rng.integers(1, len(s) + 1))
    lead = shape(0, 2)
    kind = pick("none", "add", "mul", "max", "min")
    if kind == "none":
        count = int(np.prod(s[:n]))
        lead = [int(rng.integers(1, count + 1))]
        flat = rng.permutation(count)[: lead[0]]
        ids = np.stack(np.unravel_index(flat, s[:n]), -1).astype(np.int64)
    else:
        ids = np.stack([indices(d, lead, dtype=np.int64) for d in s[:n]], -1)
    x = numbers(s)
    return "ScatterND", [("x", x), ("i", ids), ("u", numbers(lead + s[n:], x.dtype.type))], dict(reduction=kind), {}


def gather():
    s = shape(1, 3)
    axis = int(rng.integers(len(s)))
    return "Gather", [("x", numbers(s)), ("i", indices(s[axis], shape(0, 2)))], dict(axis=signed_axis(axis, len(s))), {}


def gather_elements():
    s = shape()
    axis = int(rng.integers(len(s)))
    return "GatherElements", [("x", numbers(s)), ("i", indices(s[axis], below(s, axis)))], dict(axis=signed_axis(axis, len(s))), {}


def gather_nd():
    s = shape(2, 4)
    batch = int(rng.integers(0, len(s) - 1))
    n = int(rng.integers(1, len(s) - batch + 1))
    lead = s[:batch] + shape(0, 1)
    lead = lead or [2]
    ids = np.stack([indices(d, lead, dtype=np.int64) for d in s[batch:batch + n]], -1)
    return "GatherND", [("x", numbers(s)), ("i", ids)], dict(batch_dims=batch), {}


def topk():
    s = shape()
    axis = int(rng.integers(len(s)))
    k = int(rng.integers(1, s[axis] + 1))
    x = pick(floats(*s), rng.integers(0, 4, s).astype(np.int32), rng.integers(0, 4, s).astype(np.int64))
    return "TopK", [("x", x), ("k", np.array([k], np.int64))], dict(axis=signed_axis(axis, len(s)), largest=int(pick(0, 1))), dict(
        outputs=2, constants=("k",))


def cumsum():
    s = shape()
    axis = np.array(signed_axis(rng.integers(len(s)), len(s)), np.int64)
    return "CumSum", [("x", numbers(s)), ("axis", axis)], dict(exclusive=int(pick(0, 1)), reverse=int(pick(0, 1))), dict(constants=("axis",))


def arg():
    s = shape()
    axis = signed_axis(rng.integers(len(s)), len(s))
    x = pick(floats(*s), rng.integers(0, 4, s).astype(np.int32))
    return pick("ArgMax", "ArgMin"), [("x", x)], dict(axis=axis, keepdims=int(pick(0, 1)), select_last_index=int(pick(0, 1))), {}


def one_hot():
    s = shape(0, 3)
    depth = int(pick(1, 4, 7))
    values = pick(np.array([0, 1], np.float32), np.array([3, -2], np.int64))
    return "OneHot", [("i", rng.integers(-depth - 2, depth + 2, s).astype(np.int64)), ("d", np.array(depth, np.int64)), ("v", values)], dict(
        axis=int(rng.integers(-len(s) - 1, len(s) + 1))), dict(constants=("d",))


def reverse_sequence():
    s = shape(2, 4)
    batch = int(pick(0, 1))
    return "ReverseSequence", [("x", floats(*s)), ("n", rng.integers(1, s[1 - batch] + 1, s[batch]).astype(np.int64))], dict(
        batch_axis=batch, time_axis=1 - batch), {}


def trilu():
    s = shape(2, 4)
    return "Trilu", [("x", numbers(s, pick(np.float32, np.int64))), ("k", np.array(int(rng.integers(-6, 7)), np.int64))], dict(upper=int(pick(0, 1))), dict(
        constants=("k",))


def hardmax():
    s = shape()
    return "Hardmax", [("x", rng.integers(0, 3, s).astype(np.float32))], dict(axis=signed_axis(rng.integers(len(s)), len(s))), {}


def einsum():
    """Letters with extents; each operand takes some, now and then one twice."""
    extent = dict(zip("abcde", (2, 3, 4, 5, 1)))
    terms = []
    for _ in range(rng.integers(1, 4)):
        letters = list(rng.permutation(list("abcde"))[: rng.integers(1, 4)])
        if rng.random() < 0.2:
            letters.append(letters[0])
        terms.append("".join(letters))
    all_letters = sorted(set("".join(terms)))
    result = "".join(rng.permutation(all_letters)[: rng.integers(0, len(all_letters) + 1)])
    equation = ",".join(terms) + ("->" + result if rng.random() < 0.8 else "")
    return "Einsum", [("x%d" % i, floats(*[extent[c] for c in t])) for i, t in enumerate(terms)], dict(equation=equation), {}


def quantise():
    s = shape(2, 4)
    axis = int(rng.integers(len(s)))
    per_axis = rng.random() < 0.5
    dims = [s[axis]] if per_axis else []
    t = pick(np.uint8, np.int8)
    zero = rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, dims).astype(t)
    scale = np.asarray(np.exp(floats(*dims)) * 0.05, np.float32)
    attrs = dict(axis=signed_axis(axis, len(s))) if per_axis else {}
    if rng.random() < 0.5:
        return "QuantizeLinear", [("x", floats(*s) * 4), ("s", scale), ("z", zero)], attrs, {}
    q = rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, s).astype(t)
    return "DequantizeLinear", [("q", q), ("s", scale), ("z", zero)], attrs, {}


def integer_product():
    m, k, n = (int(pick(1, 2, 5, 8)) for _ in range(3))
    lead = shape(0, 1)
    # without VNNI, ONNX Runtime adds pairs of products in 16 bits, saturating: 2 * 255 * 64 fits
    a, b = rng.integers(0, 256, lead + [m, k]).astype(np.uint8), rng.integers(-64, 64, [k, n]).astype(np.int8)
    if rng.random() < 0.5:
        return "MatMulInteger", [("a", a), ("b", b), ("za", np.array(7, np.uint8)), ("zb", np.array(-3, np.int8))], {}, {}
    scale = lambda v: np.array(v, np.float32)
    return "QLinearMatMul", [("a", a), ("sa", scale(0.02)), ("za", np.array(120, np.uint8)), ("b", b), ("sb", scale(0.03)),
                             ("zb", np.array(4, np.int8)), ("sy", scale(0.5)), ("zy", np.array(100, np.uint8))], {}, {}


def loss():
    n, c, rest = int(pick(1, 3, 5)), int(pick(1, 2, 6)), shape(0, 2)
    ids = rng.integers(0, c, [n] + rest).astype(np.int64)
    attrs = dict(reduction=pick("none", "sum", "mean"))
    if rng.random() < 0.5:
        ids.flat[0] = attrs["ignore_index"] = int(pick(-1, 0, c + 3))
        ids.flat[-1] = int(rng.integers(c))
    inputs = [("x", floats(n, c, *rest)), ("t", ids)] + ([("w", rng.random(c).astype(np.float32) + 0.1)] if rng.random() < 0.5 else [])
    return pick("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), inputs, attrs, {}


FORMS = [scatter_elements, scatter_elements, scatter_nd, scatter_nd, gather, gather_elements, gather_nd, topk, cumsum, arg, one_hot,
         reverse_sequence, trilu, hardmax, einsum, einsum, quantise, integer_product, loss]


def main():
    global rng
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    passed = failed = left_out = 0
    with tempfile.TemporaryDirectory() as root:
        for at in range(args.rounds * len(FORMS)):
            form = FORMS[at % len(FORMS)]
            rng = np.random.default_rng([args.seed, at])
            if args.only and form.__name__ != args.only:
                continue
            op, inputs, attrs, how = form()
            folder = os.path.join(root, str(at))
            model, feeds = node_model(op, inputs, attrs, domain="", opset=18, **how)
            for o in model.graph.output:  # ONNX Runtime says which types there are
                o.type.Clear()
            try:
                write(folder, model, feeds)
            except Exception as error:  # a form that ONNX Runtime does not have
                left_out += 1
                if "NOT_IMPLEMENTED" not in str(error) and "Could not find an implementation" not in str(error):
                    print("left out:", at, op, attrs, str(error)[:200])
                continue
            done = subprocess.run([args.tool, os.path.join(folder, "model.onnx"), os.path.join(folder, "test_data_set_0"), "1e-4", "1e-5"],
                                  capture_output=True, text=True, errors="replace")
            if done.stdout.startswith("OK"):
                passed += 1
            else:
                failed += 1
                print("FAILED", at, op, attrs, [(n, a.shape, str(a.dtype)) for n, a in inputs], done.stdout.strip()[:300], done.stderr[:400])
    print("%d passed, %d failed, %d left out" % (passed, failed, left_out))
    return 1 if failed or not passed else 0


sys.exit(main())
