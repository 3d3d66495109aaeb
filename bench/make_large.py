"""The large models of published deployments as ONNX graphs, for planning: the weights are external data that need not exist.

    make_large.py NAME FOLDER          writes FOLDER/NAME.onnx; NAME: opt-175b, bloom-176b, gpt-39b, wrn-13b, moe-70b
    make_large.py all FOLDER

Dimensions `batch` and `sequence` are symbolic (of the images only `batch`). Each has the published number of parameters, which is
asserted. As a module: `make(NAME, weights="random", layers=2, width=64, ...)` is the same graph at any size with random weights.

    opt-175b     Zhang et al. 2022 (OPT), decoder, learned positions, ReLU, tied head
    bloom-176b   BigScience 2022, decoder, fused projection per head, ALiBi, normed embedding, GELU by tanh, tied head
    gpt-39b      Narayanan et al. 2021 (Megatron-LM, table 1) and Zheng et al. 2022 (Alpa), decoder, fused projection, tied head with bias
    wrn-13b      Zheng et al. 2022: bottlenecks whose 3x3 convolutions are 16 times as wide
    moe-70b      Zheng et al. 2022 after Lepikhin et al. 2020 (GShard): every second layer has experts, the two best of each token,
                 with a capacity, by one-hot dispatch and combine"""

import math
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ELEMENT = {np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.float32): TensorProto.FLOAT}


class Graph:
    """Nodes and weights in order; weights are absent (external data in weights.bin) or random."""

    def __init__(self, weights, dtype, seed=0):
        self.random = np.random.default_rng(seed) if weights == "random" else None
        self.dtype, self.nodes, self.weights = np.dtype(dtype), [], []
        self.parameters, self.offset, self.names = 0, 0, set()

    def op(self, kind, inputs, name, outputs=1, **attributes):
        out = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, out, name, **attributes))
        return out[0] if outputs == 1 else out

    def weight(self, name, *shape, mean=0.0, spread=None):
        self.parameters += math.prod(shape)
        if self.random is not None:
            spread = shape[-2] ** -0.5 if spread is None and len(shape) > 1 else 0.1 if spread is None else spread
            data = (mean + spread * self.random.standard_normal(shape)).astype(self.dtype)
            self.weights.append(numpy_helper.from_array(data, name))
            return name
        size = math.prod(shape) * self.dtype.itemsize
        t = TensorProto(name=name, data_type=ELEMENT[self.dtype], dims=shape, data_location=TensorProto.EXTERNAL)
        for k, v in (("location", "weights.bin"), ("offset", self.offset), ("length", size)):
            t.external_data.add(key=k, value=str(v))
        self.weights.append(t)
        self.offset += (size + 4095) // 4096 * 4096
        return name

    def constant(self, name, value, dtype=None):
        """A small constant of the graph, not a parameter; the same name is the same constant."""
        if name not in self.names:
            self.names.add(name)
            self.weights.append(numpy_helper.from_array(np.asarray(value, dtype or self.dtype), name))
        return name

    def ints(self, *values):
        return self.constant("i" + "_".join(map(str, values)), values, np.int64)

    def linear(self, x, k, n, name):
        product = self.op("MatMul", [x, self.weight(name + ".weight", k, n)], name + ".product")
        return self.op("Add", [product, self.weight(name + ".bias", n)], name)

    def norm(self, x, width, name):
        scale, bias = self.weight(name + ".scale", width, mean=1.0), self.weight(name + ".bias", width)
        return self.op("LayerNormalization", [x, scale, bias], name, axis=-1, epsilon=1e-5)

    def model(self, inputs, outputs):
        graph = helper.make_graph(self.nodes, "large", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    # ---- transformers ----

    def length(self, ids):
        """The number of tokens as a scalar, and 0, 1, 2, ... of them."""
        one = self.op("Gather", [self.op("Shape", [ids], "ids.shape"), self.constant("scalar1", 1, np.int64)], "length", axis=0)
        zero, step = self.constant("scalar0", 0, np.int64), self.constant("scalar1", 1, np.int64)
        return one, self.op("Range", [zero, one, step], "positions")

    def causal(self, positions):
        """[sequence, sequence]: 0 where a token may look, else the most negative number."""
        row = self.op("Unsqueeze", [positions, self.ints(1)], "mask.row")
        seen = self.op("LessOrEqual", [positions, row], "mask.seen")
        least = self.constant("least", np.finfo(self.dtype).min)
        return self.op("Where", [seen, self.constant("zero", 0), least], "mask")

    def heads(self, x, n, name, perm):
        x = self.op("Reshape", [x, self.ints(0, 0, n, -1)], name + ".split")
        return self.op("Transpose", [x], name + ".heads", perm=perm)

    def attention(self, q, k, v, width, heads, name, bias=()):
        """q, v: [batch, heads, tokens, d], k: [batch, heads, d, tokens]; `bias` is added to the scores."""
        scale = self.constant("scale", (width // heads) ** -0.5)
        s = self.op("MatMul", [self.op("Mul", [q, scale], name + ".scaled"), k], name + ".scores")
        for i, b in enumerate(bias):
            s = self.op("Add", [s, b], f"{name}.biased{i}")
        c = self.op("MatMul", [self.op("Softmax", [s], name + ".weights", axis=-1), v], name + ".context")
        c = self.op("Transpose", [c], name + ".tokens", perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", [c, self.ints(0, 0, -1)], name + ".joined"), width, width, name + ".out")

    def separate_attention(self, x, width, heads, name, bias):
        q = self.heads(self.linear(x, width, width, name + ".q"), heads, name + ".q", [0, 2, 1, 3])
        k = self.heads(self.linear(x, width, width, name + ".k"), heads, name + ".k", [0, 2, 3, 1])
        v = self.heads(self.linear(x, width, width, name + ".v"), heads, name + ".v", [0, 2, 1, 3])
        return self.attention(q, k, v, width, heads, name, bias)

    def fused_attention(self, x, width, heads, name, bias):
        """As GPT-2 has it: one projection, q, k and v side by side."""
        p = self.linear(x, width, 3 * width, name + ".qkv")
        parts = self.op("Split", [p], name + ".parts", outputs=3, axis=-1, num_outputs=3)
        q, k, v = (self.heads(t, heads, f"{name}.{c}", perm)
                   for t, c, perm in zip(parts, "qkv", ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])))
        return self.attention(q, k, v, width, heads, name, bias)

    def interleaved_attention(self, x, width, heads, name, bias):
        """As BLOOM has it: one projection, q, k and v of a head side by side."""
        p = self.linear(x, width, 3 * width, name + ".qkv")
        p = self.op("Reshape", [p, self.ints(0, 0, heads, 3, width // heads)], name + ".split")
        parts = []
        for i, (c, perm) in enumerate(zip("qkv", ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))):
            one = self.op("Gather", [p, self.constant(f"scalar{i}", i, np.int64)], f"{name}.{c}", axis=3)
            parts.append(self.op("Transpose", [one], f"{name}.{c}.heads", perm=perm))
        return self.attention(*parts, width, heads, name, bias)

    def gelu(self, x, name):
        return self.op("Gelu", [x], name, approximate="tanh")

    def embed(self, ids, vocabulary, width):
        table = self.weight("tokens", vocabulary, width, spread=0.1)
        return table, self.op("Gather", [table, ids], "embedded", axis=0)

    def head(self, x, table, bias=None):
        y = self.op("MatMul", [x, self.op("Transpose", [table], "head.weight", perm=[1, 0])], "head" if bias else "logits")
        return self.op("Add", [y, bias], "logits") if bias else y

    def decoder(self, vocabulary, inputs=("ids",)):
        ids = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "sequence"]) for n in inputs]
        logits = helper.make_tensor_value_info("logits", ELEMENT[self.dtype], ["batch", "sequence", vocabulary])
        return self.model(ids, [logits])


def opt(g, layers=96, width=12288, heads=96, vocabulary=50272, longest=2048):
    table, x = g.embed("ids", vocabulary, width)
    _, positions = g.length("ids")
    mask = g.causal(positions)
    rows = g.op("Add", [positions, g.constant("scalar2", 2, np.int64)], "position.rows")
    x = g.op("Add", [x, g.op("Gather", [g.weight("positions.table", longest + 2, width, spread=0.1), rows], "position", axis=0)], "x")
    for i in range(layers):
        at = f"layer{i}"
        a = g.separate_attention(g.norm(x, width, at + ".norm1"), width, heads, at + ".attention", [mask])
        x = g.op("Add", [x, a], at + ".sum1")
        h = g.op("Relu", [g.linear(g.norm(x, width, at + ".norm2"), width, 4 * width, at + ".fc1")], at + ".relu")
        x = g.op("Add", [x, g.linear(h, 4 * width, width, at + ".fc2")], at + ".sum2")
    g.head(g.norm(x, width, "norm"), table)
    return g.decoder(vocabulary)


def alibi_slopes(heads):
    """Press et al. 2022: a geometric sequence; for numbers that are no power of two, every second of the next one."""
    near = 2 ** math.floor(math.log2(heads))
    base = 2.0 ** (-8.0 / near)
    slopes = [base ** (i + 1) for i in range(near)]
    finer = 2.0 ** (-4.0 / near)
    return slopes + [finer ** (2 * i + 1) for i in range(heads - near)]


def bloom(g, layers=70, width=14336, heads=112, vocabulary=250880):
    table, x = g.embed("ids", vocabulary, width)
    x = g.norm(x, width, "embedding.norm")
    _, positions = g.length("ids")
    mask = g.causal(positions)
    slopes = g.constant("slopes", np.array(alibi_slopes(heads)).reshape(heads, 1, 1))
    distance = g.op("Cast", [positions], "alibi.positions", to=ELEMENT[g.dtype])
    alibi = g.op("Mul", [slopes, distance], "alibi")
    for i in range(layers):
        at = f"layer{i}"
        a = g.interleaved_attention(g.norm(x, width, at + ".norm1"), width, heads, at + ".attention", [alibi, mask])
        x = g.op("Add", [x, a], at + ".sum1")
        h = g.gelu(g.linear(g.norm(x, width, at + ".norm2"), width, 4 * width, at + ".fc1"), at + ".gelu")
        x = g.op("Add", [x, g.linear(h, 4 * width, width, at + ".fc2")], at + ".sum2")
    g.head(g.norm(x, width, "norm"), table)
    return g.decoder(vocabulary)


def gpt(g, layers=48, width=8192, heads=64, vocabulary=51200, longest=1024):
    table, x = g.embed("ids", vocabulary, width)
    _, positions = g.length("ids")
    mask = g.causal(positions)
    x = g.op("Add", [x, g.op("Gather", [g.weight("positions.table", longest, width, spread=0.1), positions], "position", axis=0)], "x")
    for i in range(layers):
        at = f"layer{i}"
        a = g.fused_attention(g.norm(x, width, at + ".norm1"), width, heads, at + ".attention", [mask])
        x = g.op("Add", [x, a], at + ".sum1")
        h = g.gelu(g.linear(g.norm(x, width, at + ".norm2"), width, 4 * width, at + ".fc1"), at + ".gelu")
        x = g.op("Add", [x, g.linear(h, 4 * width, width, at + ".fc2")], at + ".sum2")
    g.head(g.norm(x, width, "norm"), table, g.weight("head.bias", vocabulary))
    return g.decoder(vocabulary)


# ---- experts ----


def chosen(g, gates, experts, name):
    """The expert with the largest gate as one-hot [groups, tokens, experts], and its gate [groups, tokens]."""
    index = g.op("ArgMax", [gates], name + ".index", axis=-1, keepdims=0)
    hot = g.op("OneHot", [index, g.constant("experts", experts, np.int64), g.constant("off_on", [0, 1])], name + ".hot", axis=-1)
    return hot, g.op("ReduceSum", [g.op("Mul", [gates, hot], name + ".picked"), g.ints(-1)], name + ".gate", keepdims=0)


def placed(g, hot, before, capacity, name):
    """Places in the expert's queue: those within the capacity as one-hot [groups, tokens, experts], and [groups, tokens] places.
    Counts are exact in f32."""
    wide = g.op("Cast", [hot], name + ".wide", to=TensorProto.FLOAT)
    place = g.op("Sub", [g.op("CumSum", [wide, g.constant("axis1", 1, np.int64)], name + ".sum"), wide], name + ".order")
    if before:
        place = g.op("Add", [place, before], name + ".behind")
    fits = g.op("Less", [place, g.constant("capacity", capacity, np.float32)], name + ".fits")
    kept = g.op("Where", [fits, wide, g.constant("zero32", 0, np.float32)], name + ".kept")
    return kept, g.op("ReduceSum", [g.op("Mul", [place, kept], name + ".places"), g.ints(-1)], name + ".place", keepdims=0)


def spread(g, gate, kept, place, capacity, name):
    """gate x kept x one-hot of the place: [groups, tokens, experts, capacity]"""
    narrow = g.op("Cast", [kept], name + ".narrow", to=ELEMENT[g.dtype])
    share = g.op("Mul", [narrow, g.op("Unsqueeze", [gate, g.ints(-1)], name + ".column")], name + ".share")
    index = g.op("Cast", [place], name + ".at", to=TensorProto.INT64)
    slot = g.op("OneHot", [index, g.constant("slots", capacity, np.int64), g.constant("off_on", [0, 1])], name + ".slot", axis=-1)
    return g.op("Einsum", [share, slot], name, equation="gse,gsc->gsec")


def gating(g, x, width, experts, capacity, name):
    """Combine weights [groups, tokens, experts, capacity] of the two best experts of every token (GShard, algorithm 1)."""
    logits = g.op("MatMul", [x, g.weight(name + ".gate", width, experts, spread=0.5)], name + ".logits")
    gates = g.op("Softmax", [logits], name + ".gates", axis=-1)
    hot1, gate1 = chosen(g, gates, experts, name + ".first")
    rest = g.op("Mul", [gates, g.op("Sub", [g.constant("one", 1), hot1], name + ".others")], name + ".rest")
    hot2, gate2 = chosen(g, rest, experts, name + ".second")
    kept1, place1 = placed(g, hot1, None, capacity, name + ".first")
    count = g.op("ReduceSum", [kept1, g.ints(1)], name + ".count", keepdims=1)
    kept2, place2 = placed(g, hot2, count, capacity, name + ".second")
    both = g.op("Add", [gate1, gate2], name + ".both")
    shares = [g.op("Div", [gate, both], f"{name}.share{i}") for i, gate in ((1, gate1), (2, gate2))]
    first = spread(g, shares[0], kept1, place1, capacity, name + ".first.combine")
    second = spread(g, shares[1], kept2, place2, capacity, name + ".second.combine")
    return g.op("Add", [first, second], name + ".combine")


def expert_layer(g, x, width, inner, experts, group, name):
    capacity = 2 * group // experts
    tokens = g.op("Reshape", [x, g.ints(-1, group, width)], name + ".groups")
    combine = gating(g, tokens, width, experts, capacity, name)
    dispatch = g.op("Cast", [g.op("Greater", [combine, g.constant("zero", 0)], name + ".used")], name + ".dispatch", to=ELEMENT[g.dtype])
    sent = g.op("Einsum", [dispatch, tokens], name + ".sent", equation="gsec,gsm->egcm")
    h = g.op("Einsum", [sent, g.weight(name + ".wi", experts, width, inner)], name + ".wi.product", equation="egcm,emh->egch")
    h = g.op("Add", [h, g.weight(name + ".bi", experts, 1, 1, inner, spread=0.1)], name + ".wi.sum")
    h = g.op("Relu", [h], name + ".relu")
    y = g.op("Einsum", [h, g.weight(name + ".wo", experts, inner, width)], name + ".wo.product", equation="egch,ehm->egcm")
    y = g.op("Add", [y, g.weight(name + ".bo", experts, 1, 1, width, spread=0.1)], name + ".wo.sum")
    y = g.op("Einsum", [combine, y], name + ".combined", equation="gsec,egcm->gsm")
    return g.op("Reshape", [y, g.op("Shape", [x], name + ".shape")], name)


def moe(g, layers=32, width=2048, heads=16, vocabulary=32000, experts=64, group=2048, longest=1024):
    table, x = g.embed("ids", vocabulary, width)
    _, positions = g.length("ids")
    x = g.op("Add", [x, g.op("Gather", [g.weight("positions.table", longest, width, spread=0.1), positions], "position", axis=0)], "x")
    x = g.norm(x, width, "embedding.norm")
    for i in range(layers):
        at = f"layer{i}"
        a = g.separate_attention(x, width, heads, at + ".attention", [])
        x = g.norm(g.op("Add", [x, a], at + ".sum1"), width, at + ".norm1")
        if i % 2 == 0:
            h = expert_layer(g, x, width, 8 * width, experts, group, at + ".experts")
        else:
            h = g.linear(g.gelu(g.linear(x, width, 8 * width, at + ".fc1"), at + ".gelu"), 8 * width, width, at + ".fc2")
        x = g.norm(g.op("Add", [x, h], at + ".sum2"), width, at + ".norm2")
    g.head(x, table, g.weight("head.bias", vocabulary))
    return g.decoder(vocabulary)


# ---- images ----


def conv(g, x, k, n, kernel, stride, name, act=True):
    pad = kernel // 2
    w = g.weight(name + ".weight", n, k, kernel, kernel, spread=(k * kernel * kernel / 2) ** -0.5)
    y = g.op("Conv", [x, w], name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
    scale, bias = g.weight(name + ".scale", n, mean=1.0), g.weight(name + ".bias", n)
    rest = [g.constant(f"zeros{n}", np.zeros(n)), g.constant(f"ones{n}", np.ones(n))] if g.random is None else \
        [g.constant(name + ".mean", g.random.standard_normal(n) / 10), g.constant(name + ".variance", 0.5 + g.random.random(n))]
    y = g.op("BatchNormalization", [y, scale, bias, *rest], name + ".norm", epsilon=1e-5)
    return g.op("Relu", [y], name + ".relu") if act else y


def wide_resnet(g, blocks=(3, 4, 23, 3), base=320, width=16, classes=1024, pixels=224):
    x = conv(g, "image", 3, base, 7, 2, "stem")
    x = g.op("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = base
    for s, count in enumerate(blocks):
        p = base * 2**s
        for b in range(count):
            at, stride = f"stage{s}.block{b}", 2 if s > 0 and b == 0 else 1
            y = conv(g, x, channels, p, 1, 1, at + ".conv1")
            y = conv(g, y, p, p * width, 3, stride, at + ".conv2")
            y = conv(g, y, p * width, 4 * p, 1, 1, at + ".conv3", act=False)
            if channels != 4 * p or stride != 1:
                x = conv(g, x, channels, 4 * p, 1, stride, at + ".shortcut", act=False)
            channels = 4 * p
            x = g.op("Relu", [g.op("Add", [x, y], at + ".sum")], at)
    x = g.op("Flatten", [g.op("GlobalAveragePool", [x], "mean")], "features")
    y = g.op("Gemm", [x, g.weight("head.weight", channels, classes), g.weight("head.bias", classes)], "scores")
    element = ELEMENT[g.dtype]
    return g.model([helper.make_tensor_value_info("image", element, ["batch", 3, pixels, pixels])],
                   [helper.make_tensor_value_info(y, element, ["batch", classes])])


# ---- the published ones ----

# Exact numbers of parameters: OPT of the checkpoint; BLOOM of its model card. Of the others the formulas of Alpa's benchmarks,
# L (12 h^2 + 13 h) + V (h + 1) for GPT, and what they leave out: positions, the last norm, the experts' gates.
H, E = 2048, 64
MODELS = {
    "opt-175b": (opt, np.float16, 174_604_468_224),
    "bloom-176b": (bloom, np.float16, 176_247_271_424),
    "gpt-39b": (gpt, np.float16, 48 * (12 * 8192**2 + 13 * 8192) + 51200 * 8193 + 1024 * 8192 + 2 * 8192),
    "wrn-13b": (wide_resnet, np.float32, None),
    "moe-70b": (moe, np.float16, 16 * (20 * H**2 + 17 * H) + 16 * (4 * H**2 + 4 * H + E * (16 * H**2 + 9 * H) + 4 * H)
                + 32000 * (H + 1) + 1024 * H + 2 * H + 16 * H * E),
}


def make(name, weights="absent", dtype=None, seed=0, **sizes):
    """The model and its number of parameters."""
    build, usual, _ = MODELS[name]
    g = Graph(weights, dtype or usual, seed)
    return build(g, **sizes), g.parameters


def main(name, folder):
    if name == "all":
        return [main(n, folder) for n in MODELS]
    model, parameters = make(name)
    want = MODELS[name][2]
    billions = int(name.split("-")[1][:-1])
    assert want is None or parameters == want, f"{name}: {parameters} parameters, {want} are published"
    assert round(parameters / 1e9) == billions, f"{name}: {parameters} parameters"
    path = Path(folder) / f"{name}.onnx"
    onnx.save(model, path)
    print(f"{path}: {parameters} parameters, {len(model.graph.node)} nodes, {path.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in (*MODELS, "all"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
