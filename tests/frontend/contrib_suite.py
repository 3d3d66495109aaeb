#!/usr/bin/env python3
"""Operators of com.microsoft, and forms of ai.onnx operators that the ONNX tests leave out, against ONNX Runtime.

    contrib_suite.py ONNX_EVAL [--only GLOB]

Needs onnx and onnxruntime (exit code 77 without them). Ends with `N passed, N failed`."""
import argparse
import fnmatch
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from ort_case import node_model, write
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

rng = np.random.default_rng(7)


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def ints(high, *shape, dtype=np.int32):
    return rng.integers(0, high, shape).astype(dtype)


def attention(mask=None, past=0, b=2, s=3, k=8, n=2, h=4, hv=4, bias=True, add=None, outputs=1, **attrs):
    """The joint projection, which makes its own queries, keys and values."""
    sizes = {"qkv_hidden_sizes": [n * h, n * h, n * hv]} if hv != h else {}
    inputs = [("x", floats(b, s, k)), ("w", floats(k, n * (2 * h + hv))), ("bias", floats(n * (2 * h + hv))) if bias else None,
              None if mask is None else ("mask", np.asarray(mask, np.int32)),
              ("past", floats(2, b, n, past, h)) if past else None, None if add is None else ("add", floats(*add))]
    while inputs[-1] is None:
        inputs.pop()
    return ("Attention", inputs, {"num_heads": n, **sizes, **attrs}, dict(outputs=outputs, constants=("w", "bias")))


def heads(form="apart", b=2, s=3, t=5, n=2, h=4, hv=4, bias=False, mask=None, add=None, past=0, outputs=1, **attrs):
    q = ("q", floats(b, s, n * h))
    if form == "packed":
        inputs = [("q", floats(b, s, n, 3, h)), None, None]
    elif form == "kv":
        inputs = [q, ("k", floats(b, t, n, 2, h)), None]
    elif form == "heads":
        inputs = [q, ("k", floats(b, n, t, h)), ("v", floats(b, n, t, hv))]
    else:
        inputs = [q, ("k", floats(b, t, n * h)), ("v", floats(b, t, n * hv))]
    inputs += [("bias", floats(n * (2 * h + hv))) if bias else None,
               None if mask is None else ("mask", np.asarray(mask, np.int32)), None if add is None else ("add", floats(*add)),
               ("past_k", floats(b, n, past, h)) if past else None, ("past_v", floats(b, n, past, hv)) if past else None]
    while inputs[-1] is None:
        inputs.pop()
    return ("MultiHeadAttention", inputs, {"num_heads": n, **attrs}, dict(outputs=outputs))


def refer(case, change):
    """ONNX Runtime's CPU code lacks the form of `case`; what `change` makes of its inputs must give the same."""
    op, inputs, attrs, how = case
    return (op, inputs, attrs, {**how, "reference": change([a for _, a in filter(None, inputs)])})


def apart(arrays):
    """Packed queries, keys and values, or keys and values, as inputs of their own."""
    *first, packed = arrays
    parts = first + [packed[:, :, :, i].reshape(*packed.shape[:2], -1) for i in range(packed.shape[3])]
    return list(zip("qkv", parts))


def zero_bias(arrays):
    return [("x", arrays[0]), ("w", arrays[1]), ("bias", np.zeros(arrays[1].shape[1], np.float32))]


def embed(segments=True, mask=True, positions=False, outputs=("y", "int")):
    b, s, k = 2, 5, 8
    inputs = [("ids", ints(11, b, s)), ("segments", ints(2, b, s)) if segments else None, ("words", floats(11, k)),
              ("places", floats(9, k)), ("kinds", floats(2, k)) if segments else None, ("gamma", floats(k)),
              ("beta", floats(k)), ("mask", ints(2, b, s)) if mask else None,
              ("positions", ints(9, b, s)) if positions else None]
    while inputs[-1] is None:
        inputs.pop()
    return ("EmbedLayerNormalization", inputs, {"epsilon": 1e-5}, dict(outputs=outputs))


def skip(bias=True, outputs=1, skip_shape=(2, 3, 8), op="SkipLayerNormalization"):
    rms = "Simplified" in op
    inputs = [("x", floats(2, 3, 8)), ("skip", floats(*skip_shape)), ("gamma", floats(8))]
    inputs += [] if rms else [("beta", floats(8))]
    inputs += [("bias", floats(8))] if bias else []
    return (op, inputs, {"epsilon": 1e-5}, dict(outputs=outputs))


def matmul(a, b, **attrs):
    return ("FusedMatMul", [("a", floats(*a)), ("b", floats(*b))], attrs, {})


def rotary(shape, positions, width=None, rows=9, **attrs):
    width = width or shape[-1]
    return ("RotaryEmbedding", [("x", floats(*shape)), ("at", positions), ("c", floats(rows, width // 2)),
                                ("s", floats(rows, width // 2))], attrs, {})


def grouped(s=4, past=0, lengths=None, total=None, b=2, n=6, kv=2, h=16, packed=False, known=False, width=None, buffer=None,
            add=None, positions=None, outputs=3, **attrs):
    """GroupQueryAttention: `past` keys are there, in a buffer of `buffer` rows; `lengths` of each sequence, new keys included."""
    total = total or past + s
    rows, lengths = past if buffer is None else buffer, lengths or [total] * b
    qkv = [floats(b, s, n * h), floats(b, s, kv * h), floats(b, s, kv * h)]
    inputs = [("q", np.concatenate(qkv, 2)), None, None] if packed else list(zip("qkv", qkv))
    inputs += [("past_k", floats(b, kv, rows, h)), ("past_v", floats(b, kv, rows, h))] if rows or past else [None, None]
    inputs += [("lengths", np.array(lengths, np.int32) - 1), ("total", np.array([total], np.int32))]
    rotary = width or attrs.get("do_rotary") and h
    inputs += [("c", floats(16, rotary // 2)), ("sn", floats(16, rotary // 2))] if rotary else [None, None]
    inputs += [positions and ("at", np.array(positions, np.int64)), add and ("add", floats(*add))]
    while inputs[-1] is None:
        inputs.pop()
    constants = ("total", "c", "sn") + (("lengths",) if known else ())
    return ("GroupQueryAttention", inputs, {"num_heads": n, "kv_num_heads": kv, **attrs},
            dict(outputs=outputs, constants=constants))


def onnx_op(op, inputs, outputs=1, opset=17, **attrs):
    return (op, inputs, attrs, dict(domain="", opset=opset, outputs=outputs))


def conv(x, w, bias=True, **attrs):
    return onnx_op("Conv", [("x", floats(*x)), ("w", floats(*w))] + ([("b", floats(w[0]))] if bias else []), **attrs)


def transposed(x, w, bias=None, **attrs):
    return onnx_op("ConvTranspose", [("x", floats(*x)), ("w", floats(*w))] + ([("b", floats(bias))] if bias else []), **attrs)


def fused_conv(x, w, z=None, **attrs):
    inputs = [("x", floats(*x)), ("w", floats(*w)), ("b", floats(w[0]))] + ([("z", floats(*z))] if z else [])
    return ("FusedConv", inputs, attrs, {})


def gather_nd(shape, ids, **attrs):
    return onnx_op("GatherND", [("x", floats(*shape)), ("ids", np.asarray(ids, np.int64))], **attrs)


def resize(x, opset=19, scales=None, sizes=None, roi=None, **attrs):
    inputs = [("x", floats(*x)), None if roi is None else ("roi", np.array(roi, np.float32)),
              None if scales is None else ("scales", np.array(scales, np.float32)),
              None if sizes is None else ("sizes", np.array(sizes, np.int64))]
    while inputs[-1] is None:
        inputs.pop()
    return ("Resize", inputs, attrs, dict(domain="", opset=opset, constants=("roi", "scales", "sizes")))


def resize_cases():
    """Every mode with every transformation of coordinates, up and down."""
    some = {"up": [1, 1, 2, 2.6], "down": [1, 1, 0.6, 0.5]}
    modes = {"nearest": {}, "linear": {}, "cubic": {}, "cubic_outside": {"mode": "cubic", "exclude_outside": 1}}
    for how in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"):
        for mode, more in modes.items():
            for name, scales in some.items():
                if (how, mode, name) in {("align_corners", "nearest", "up")}:
                    continue  # between two entries: rounded either way
                attrs = {"mode": mode, "coordinate_transformation_mode": how, **more}
                yield "resize/%s_%s_%s" % (how, mode, name), resize((2, 3, 5, 7), scales=scales, **attrs)
    for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        yield "resize/" + nearest, resize((1, 2, 5, 4), scales=[1, 1, 2.3, 1.5], mode="nearest", nearest_mode=nearest)
    yield "resize/crop", resize((1, 2, 6, 5), sizes=[1, 2, 4, 7], roi=[0, 0, 0.2, -0.3, 1, 1, 0.9, 1.2], mode="linear",
                                coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=3.5)
    yield "resize/twice", resize((1, 2, 3, 4), scales=[1, 1, 2, 2], mode="nearest",
                                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    yield "resize/half", resize((1, 2, 8, 6), scales=[1, 1, 0.5, 0.5], mode="nearest",
                                coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    yield "resize/not_larger", resize((1, 2, 8, 6), sizes=[12, 12], axes=[2, 3], mode="nearest",
                                      keep_aspect_ratio_policy="not_larger")
    yield "resize/opset_10", ("Resize", [("x", floats(1, 2, 3, 4)), ("scales", np.array([1, 1, 2, 1.5], np.float32))],
                              {"mode": "linear"}, dict(domain="", opset=10, constants=("scales",)))
    yield "resize/upsample", ("Upsample", [("x", floats(1, 2, 3, 4)), ("scales", np.array([1, 1, 2, 3], np.float32))],
                              {"mode": "nearest"}, dict(domain="", opset=9, constants=("scales",)))


def grids():
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (0, 1):
                grid = (rng.random((2, 4, 3, 2)) * 3 - 1.5).astype(np.float32)
                yield "grid/%s_%s_%d" % (mode, padding, align), onnx_op(
                    "GridSample", [("x", floats(2, 3, 5, 6)), ("g", grid)], opset=20, mode=mode, padding_mode=padding,
                    align_corners=align)


def pad(mode, x, pads):
    return ("Pad", [("x", floats(*x)), ("pads", np.array(pads, np.int64))], {"mode": mode},
            dict(domain="", opset=19, constants=("pads",)))


one = [[1, 1, 1], [1, 1, 0]]
CASES = {
    "attention/plain": attention(),
    "attention/no_bias": refer(attention(bias=False), zero_bias),
    "attention/value_size": attention(hv=6),
    "attention/scale": attention(scale=0.3),
    "attention/causal": attention(unidirectional=1),
    "attention/mask_lengths": attention(mask=[3, 2]),
    "attention/mask_length_zero": attention(mask=[3, 0]),
    "attention/mask_ends_starts": attention(mask=[3, 3, 0, 2]),
    "attention/mask_2d": attention(mask=one),
    "attention/mask_2d_all_hidden": attention(mask=[[1, 1, 1], [0, 0, 0]]),
    "attention/mask_2d_causal": attention(mask=one, unidirectional=1),
    "attention/mask_3d": attention(mask=ints(2, 2, 3, 3)),
    "attention/mask_3d_causal": attention(mask=ints(2, 2, 3, 3), unidirectional=1),
    "attention/mask_filter": attention(mask=one, mask_filter_value=-3.4028234663852886e38),
    "attention/bias_add": attention(add=(2, 2, 3, 3)),
    "attention/bias_add_one": attention(add=(1, 1, 3, 3), mask=one),
    "attention/present": attention(outputs=2),
    "attention/past": attention(past=4, outputs=2),
    "attention/past_causal": attention(past=4, outputs=2, unidirectional=1),
    "attention/past_causal_mask": attention(past=2, outputs=2, unidirectional=1, mask=[[1] * 5, [0, 1, 1, 1, 1]]),
    "attention/one_token": attention(s=1, past=4, outputs=2, unidirectional=1),
    "attention/one_head": attention(n=1),
    "heads/apart": heads(),
    "heads/bias": heads(bias=True),
    "heads/value_size": heads(hv=6, bias=True),
    "heads/kv": refer(heads("kv"), apart),
    "heads/packed": refer(heads("packed"), apart),
    "heads/in_heads": heads("heads"),
    "heads/present": heads(outputs=3),
    "heads/past": heads(past=4, outputs=3, bias=True),
    "heads/causal": heads(t=3, unidirectional=1),
    "heads/mask_lengths": heads(mask=[5, 2]),
    "heads/mask_2d": heads(mask=[[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
    "heads/mask_3d": heads(mask=ints(2, 2, 3, 5)),
    "heads/add": heads(add=(1, 2, 3, 5), scale=0.7),
    "embed/all": embed(),
    "embed/no_segments": embed(segments=False),
    "embed/no_mask": embed(mask=False),
    "embed/positions": embed(positions=True),
    "embed/sum": embed(outputs=("y", "int", "sum")),
    "skip/plain": skip(bias=False),
    "skip/sum": skip(outputs=("y", "", "", "sum")),
    "skip/row": skip(skip_shape=(3, 8)),
    "skip/one": skip(skip_shape=(1, 3, 8)),
    "skip/rms": skip(op="SkipSimplifiedLayerNormalization", outputs=("y", "", "", "sum")),
    "gelu/fast": ("FastGelu", [("x", floats(3, 8))], {}, {}),
    "gelu/fast_bias": ("FastGelu", [("x", floats(3, 8)), ("b", floats(8))], {}, {}),
    "gelu/bias": ("BiasGelu", [("x", floats(3, 8)), ("b", floats(8))], {}, {}),
    "gelu/quick": ("QuickGelu", [("x", floats(3, 8))], {"alpha": 1.5}, {}),
    "gelu/plain": ("Gelu", [("x", floats(3, 8))], {}, {}),
    "matmul/plain": matmul((2, 3, 4), (4, 5), alpha=0.5),
    "matmul/a": matmul((2, 4, 3), (2, 4, 5), transA=1),
    "matmul/b": matmul((2, 3, 4), (2, 5, 4), transB=1),
    "matmul/ab": matmul((2, 4, 3), (2, 5, 4), transA=1, transB=1, alpha=-2.0),
    "matmul/batch_a": matmul((3, 2, 4), (2, 4, 5), transBatchA=1),
    "matmul/batch_b": matmul((2, 3, 4), (4, 2, 5), transBatchB=1),
    "matmul/batch_ab": matmul((3, 2, 6, 4), (4, 2, 6, 5), transBatchA=1, transBatchB=1),
    "matmul/batch_b_t": matmul((2, 3, 4), (5, 2, 4), transBatchB=1, transB=1),
    "matmul/batch_a_t": matmul((4, 2, 3), (2, 4, 5), transBatchA=1, transA=1),
    "matmul/vector": matmul((4,), (4, 5), transA=1),
    "rotary/heads": rotary((2, 3, 4, 8), ints(9, 2, 4, dtype=np.int64)),
    "rotary/offset": rotary((2, 3, 4, 8), np.array([5], np.int64)),
    "rotary/flat": rotary((2, 4, 24), ints(9, 2, 4, dtype=np.int64), width=8),
    "rotary/interleaved": rotary((2, 4, 24), ints(9, 2, 4, dtype=np.int64), width=8, interleaved=1),
    "rotary/partial": rotary((2, 4, 24), ints(9, 2, 4, dtype=np.int64), width=4, rotary_embedding_dim=4, num_heads=3),
    "grouped/prompt": grouped(),
    "grouped/prompt_packed": grouped(packed=True),
    "grouped/prompt_buffer": grouped(buffer=7),
    "grouped/prompt_rotary": grouped(do_rotary=1),
    "grouped/prompt_rotary_packed": grouped(packed=True, do_rotary=1, rotary_interleaved=1),
    "grouped/prompt_positions": grouped(do_rotary=1, positions=[[3, 0, 0, 0], [0, 0, 0, 0]]),
    "grouped/prompt_all_heads": grouped(n=2),
    "grouped/prompt_softcap": grouped(softcap=2.0, scale=0.5),
    "grouped/prompt_bias": grouped(add=(2, 6, 4, 4)),
    "grouped/prompt_window": grouped(s=6, local_window_size=2),
    "grouped/token": grouped(s=1, past=5),
    "grouped/token_known": grouped(s=1, past=5, known=True),
    "grouped/token_rotary": grouped(s=1, past=5, do_rotary=1),
    "grouped/token_rotary_known": grouped(s=1, past=5, do_rotary=1, known=True),
    "grouped/token_lengths": grouped(s=1, past=5, lengths=[6, 3], do_rotary=1),
    "grouped/token_lengths_known": grouped(s=1, past=5, lengths=[6, 3], do_rotary=1, known=True),
    "grouped/token_buffer": grouped(s=1, past=5, buffer=9, lengths=[4, 6], do_rotary=1),
    "grouped/token_window": grouped(s=1, past=5, local_window_size=3),
    "grouped/token_bias": grouped(s=1, past=5, add=(1, 1, 1, 6)),
    "grouped/token_positions": grouped(s=1, past=5, do_rotary=1, positions=[[4], [2]]),
    "grouped/tokens": grouped(s=3, past=4, b=1),
    "grouped/tokens_known": grouped(s=3, past=4, b=1, known=True),
    "grouped/tokens_rotary": grouped(s=3, past=4, b=1, do_rotary=1),
    "grouped/tokens_buffer": grouped(s=3, past=4, b=1, buffer=9, total=7, do_rotary=1),
    "grouped/partial_rotary": grouped(s=1, past=5, h=32, width=16, do_rotary=1),
    "conv/1d": conv((2, 3, 9), (4, 3, 3)),
    "conv/pads": conv((2, 3, 6, 7), (4, 3, 3, 3), pads=[1, 0, 2, 1], strides=[2, 1]),
    "conv/groups": conv((2, 6, 5, 5), (4, 3, 2, 2), group=2, bias=False),
    "conv/depthwise": conv((1, 4, 6), (4, 1, 3), group=4, dilations=[2]),
    "conv/same_upper": conv((1, 2, 7), (3, 2, 4), auto_pad="SAME_UPPER", strides=[2]),
    "conv/same_lower": conv((1, 2, 7), (3, 2, 4), auto_pad="SAME_LOWER"),
    "conv/3d": conv((1, 2, 3, 4, 5), (3, 2, 2, 2, 2)),
    "conv/large_kernel": conv((1, 2, 12, 11), (3, 2, 9, 7), pads=[4, 3, 4, 3]),
    "conv/transposed": transposed((2, 4, 5, 3), (4, 3, 3, 3), 3, strides=[2, 1], pads=[1, 0, 0, 2], output_padding=[1, 0]),
    "conv/transposed_groups": transposed((1, 4, 5), (4, 2, 3), 4, group=2, dilations=[2]),
    "conv/transposed_shape": transposed((1, 2, 4, 4), (2, 3, 3, 3), strides=[2, 3], output_shape=[9, 13]),
    "conv/fused_relu": fused_conv((1, 3, 6, 6), (4, 3, 3, 3), activation="Relu"),
    "conv/fused_leaky": fused_conv((1, 3, 6), (4, 3, 3), activation="LeakyRelu", activation_params=[0.1], pads=[1, 1]),
    "conv/fused_clip": fused_conv((1, 3, 6, 6), (4, 3, 1, 1), activation="Clip", activation_params=[-0.5, 0.75]),
    "conv/fused_hard_sigmoid": fused_conv((1, 3, 6, 6), (4, 3, 1, 1), activation="HardSigmoid", activation_params=[0.3, 0.4]),
    "conv/fused_sum": fused_conv((1, 3, 6, 6), (4, 3, 3, 3), z=(1, 4, 4, 4), activation="Relu"),
    "conv/one": conv((2, 1, 1, 4), (1, 1, 1, 1)),
    "pool/max": onnx_op("GlobalMaxPool", [("x", floats(2, 3, 4, 5))]),
    "pool/average": onnx_op("GlobalAveragePool", [("x", floats(2, 3, 4, 5))]),
    "pool/lp": onnx_op("GlobalLpPool", [("x", floats(2, 3, 4, 5))], p=3),
    "pool/lrn": onnx_op("LRN", [("x", floats(2, 7, 4, 5))], size=5, alpha=0.5, beta=0.6, bias=2.0),
    "pool/lrn_three_quarters": onnx_op("LRN", [("x", floats(2, 7, 4, 5))], size=3, alpha=0.5, beta=0.75),
    "pool/window_is_plane": onnx_op("AveragePool", [("x", floats(2, 3, 4, 5))], kernel_shape=[4, 5]),
    "pool/window_is_row": onnx_op("MaxPool", [("x", floats(2, 3, 4, 5))], kernel_shape=[2, 5]),
    "pool/columns": onnx_op("MaxPool", [("x", floats(2, 3, 4, 5))], kernel_shape=[3, 1], strides=[1, 2]),
    "pool/unpool": onnx_op("MaxUnpool", [("x", floats(1, 1, 2, 2)), ("i", np.array([[[[5, 7], [13, 15]]]], np.int64))],
                           kernel_shape=[2, 2], strides=[2, 2]),
    "norm/instance": onnx_op("InstanceNormalization", [("x", floats(2, 3, 4, 5)), ("s", floats(3)), ("b", floats(3))]),
    "norm/group_18": onnx_op("GroupNormalization", [("x", floats(2, 6, 4, 5)), ("s", floats(3)), ("b", floats(3))],
                             opset=18, num_groups=3),
    "norm/group_21": onnx_op("GroupNormalization", [("x", floats(2, 6, 4, 5)), ("s", floats(6)), ("b", floats(6))],
                             opset=21, num_groups=3, epsilon=0.01),
    "norm/mean_variance": onnx_op("MeanVarianceNormalization", [("x", floats(2, 3, 4, 5))]),
    "norm/mean_variance_row": onnx_op("MeanVarianceNormalization", [("x", floats(2, 3, 4))], axes=[2]),
    "norm/lp_1": onnx_op("LpNormalization", [("x", floats(2, 3, 4))], p=1, axis=1),
    "norm/lp_2": onnx_op("LpNormalization", [("x", floats(2, 3, 4))]),
    "pad/edge": pad("edge", (2, 3, 4), [0, 2, 1, 1, 0, 3]),
    "pad/reflect": pad("reflect", (2, 3, 4), [0, 2, 1, 1, 0, 3]),
    "pad/wrap": pad("wrap", (2, 3, 4), [0, 2, 1, 1, 0, 3]),
    "pad/negative": pad("constant", (2, 3, 4), [0, -1, 1, 1, 0, -2]),
    **dict(resize_cases()),
    **dict(grids()),
    "norm/batch": onnx_op("BatchNormalization", [("x", floats(2, 3, 4))] + [(n, abs(floats(3))) for n in "sbmv"]),
    "norm/batch_flat": onnx_op("BatchNormalization", [("x", floats(2, 3))] + [(n, abs(floats(3))) for n in "sbmv"]),
    "gather_nd/rows": gather_nd((3, 4, 5), [[0], [-1], [2]]),
    "gather_nd/pairs": gather_nd((3, 4, 5), [[[0, 1], [-1, -4]], [[2, 3], [1, 0]]]),
    "gather_nd/all": gather_nd((3, 4), [[0, 1], [2, -1]]),
    "gather_nd/batch": gather_nd((2, 4, 5), [[[3], [0]], [[-1], [1]]], batch_dims=1),
    "gather_nd/batch_pairs": gather_nd((2, 4, 5, 3), [[3, 0], [-1, 1]], batch_dims=1),
    "gather_nd/batch_one": gather_nd((2, 1, 5), [[[0], [-1]], [[0], [0]]], batch_dims=1),
    "norm/layer_all": onnx_op("LayerNormalization", [("x", floats(2, 3, 8)), ("s", floats(8)), ("b", floats(8))], outputs=3),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--only", default="*")
    args = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as root:
        for name, (op, inputs, attrs, how) in CASES.items():
            if not fnmatch.fnmatch(name, args.only):
                continue
            folder = os.path.join(root, name)
            reference = how.pop("reference", None)
            model, feeds = node_model(op, inputs, attrs, **how)
            try:
                write(folder, model, feeds, reference and node_model(op, reference, attrs, **how))
            except Exception as error:  # a case that ONNX Runtime refuses is a wrong case
                print("FAILED", name, "ONNX Runtime:", str(error)[:300])
                failed += 1
                continue
            done = subprocess.run([args.tool, os.path.join(folder, "model.onnx"), os.path.join(folder, "test_data_set_0"),
                                   "1e-4", "1e-5"], capture_output=True, text=True, errors="replace")
            if done.stdout.startswith("OK"):
                passed += 1
            else:
                failed += 1
                print("FAILED", name, done.stdout.strip()[:300], done.stderr[:400])
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


sys.exit(main())
