"""Fused projections that are split into parts of different widths: queries, keys and values of grouped-query attention.
The parts move onto the weights (passes/slices.c), so heads are split and no weight is gathered."""

import sys
from pathlib import Path

import pytest

np, onnx = pytest.importorskip("numpy"), pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "frontend"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from make_model import model, random_inputs, tensor, value
from ort_case import write

B, S, K, Q, KV, H = 2, 8, 128, 8, 2, 16  # batch, tokens, hidden size, heads of queries, of keys, size of a head
WIDTHS = [Q * H, KV * H, KV * H]


class Builder:
    def __init__(self):
        self.rng = np.random.default_rng(5)
        self.nodes, self.weights, self.names = [], [], iter(range(1 << 20))

    def op(self, kind, *inputs, outputs=1, **attributes):
        out = [f"v{next(self.names)}" for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), out, f"{kind}_{out[0]}", **attributes))
        return out[0] if outputs == 1 else out

    def weight(self, *shape):
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def constant(self, x, dtype=np.float32):
        name = f"w{next(self.names)}"
        self.weights.append(tensor(name, np.asarray(x, dtype)))
        return name

    def ints(self, *x):
        return self.constant(x, np.int64)

    def heads(self, x, n):
        return self.op("Transpose", self.op("Reshape", x, self.ints(B, S, n, H)), perm=[0, 2, 1, 3])

    def repeated(self, x):
        """[b,KV,s,h] -> [b,Q,s,h], as exporters write repeat_kv."""
        x = self.op("Expand", self.op("Unsqueeze", x, self.ints(2)), self.ints(B, KV, Q // KV, S, H))
        return self.op("Reshape", x, self.ints(B, Q, S, H))

    def attention(self, q, k, v):
        q, k, v = self.heads(q, Q), self.repeated(self.heads(k, KV)), self.repeated(self.heads(v, KV))
        s = self.op("Div", self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])), self.constant(4.0))
        a = self.op("MatMul", self.op("Softmax", s, axis=-1), v)
        a = self.op("Reshape", self.op("Transpose", a, perm=[0, 2, 1, 3]), self.ints(B, S, Q * H))
        return self.op("MatMul", a, self.weight(Q * H, K))

    def finish(self, y):
        self.nodes.append(helper.make_node("Identity", [y], ["y"], "out"))
        return model(self.nodes, [value("x", [B, S, K])], [value("y", [B, S, K])], self.weights, 17)


def split_matmul(layers=2):
    """MatMul, Split; residuals, two layers."""
    b, x = Builder(), "x"
    for _ in range(layers):
        c = b.op("MatMul", x, b.weight(K, sum(WIDTHS)))
        x = b.op("Add", x, b.attention(*b.op("Split", c, b.ints(*WIDTHS), outputs=3, axis=2)))
    return b.finish(x)


def slice_gemm():
    """Gemm with transposed weights and bias, Slice."""
    b = Builder()
    flat = b.op("Reshape", "x", b.ints(B * S, K))
    c = b.op("Gemm", flat, b.weight(sum(WIDTHS), K), b.weight(sum(WIDTHS)), transB=1)
    c, at, parts = b.op("Reshape", c, b.ints(B, S, sum(WIDTHS))), 0, []
    for n in WIDTHS:
        parts.append(b.op("Slice", c, b.ints(at), b.ints(at + n), b.ints(2)))
        at += n
    return b.finish(b.attention(*parts))


def heads_first():
    """Heads are made before they are divided among queries, keys and values."""
    b = Builder()
    c = b.op("Add", b.op("MatMul", "x", b.weight(K, sum(WIDTHS))), b.weight(sum(WIDTHS)))
    c = b.op("Reshape", c, b.ints(B, S, Q + 2 * KV, H))
    q, k, v = b.op("Split", c, b.ints(Q, KV, KV), outputs=3, axis=2)
    flat = [b.op("Reshape", x, b.ints(B, S, n * H)) for x, n in ((q, Q), (k, KV), (v, KV))]
    return b.finish(b.attention(*flat))


def ort_attention():
    """com.microsoft Attention whose values are wider than its queries and keys."""
    b = Builder()
    node = helper.make_node("Attention", ["x", b.weight(K, 64 + 64 + 128), b.weight(256)], ["y"], "attention",
                            domain="com.microsoft", num_heads=4, qkv_hidden_sizes=[64, 64, 128])
    graph = helper.make_graph([node], "g", [value("x", [B, S, K])], [value("y", [B, S, 128])], b.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
                             ir_version=8)


def group_query(past=3):
    """com.microsoft GroupQueryAttention on a packed projection: a token behind a cache, lengths known at run time."""
    b = Builder()
    c = b.op("MatMul", "x", b.weight(K, sum(WIDTHS)))
    cache = [b.constant(f(np.outer(np.arange(16), 10.0 ** -np.arange(H // 2)))) for f in (np.cos, np.sin)]
    b.nodes.append(helper.make_node(
        "GroupQueryAttention", [c, "", "", "past_k", "past_v", "lengths", b.constant([past + 1], np.int32), *cache],
        ["a", "present_k", "present_v"], "attention", domain="com.microsoft", num_heads=Q, kv_num_heads=KV, do_rotary=1))
    b.nodes.append(helper.make_node("MatMul", ["a", b.weight(Q * H, K)], ["y"], "out"))
    inputs = [value("x", [B, 1, K]), value("past_k", [B, KV, past, H]), value("past_v", [B, KV, past, H]),
              value("lengths", [B], TensorProto.INT32)]
    outputs = [value("y", [B, 1, K])] + [value(n, [B, KV, past + 1, H]) for n in ("present_k", "present_v")]
    graph = helper.make_graph(b.nodes, "g", inputs, outputs, b.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
                             ir_version=8)


MODELS = {f.__name__: f for f in (split_matmul, slice_gemm, heads_first, ort_attention, group_query)}
MESHES = {"1": ("--devices", 1), "2": ("--devices", 2), "4": ("--devices", 4), "2x2": ("--devices", 4, "--mesh", "2x2")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = {}

    def make(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            feeds = random_inputs(MODELS[name]())
            if "lengths" in feeds:
                feeds["lengths"] = np.array([3, 2], np.int32)
            write(made[name], MODELS[name](), feeds)
        return made[name]

    return make


@pytest.mark.parametrize("force", [(), ("--split", "force")])
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", MODELS)
def test_check(autopar, folder, tmp_path, name, mesh, force):
    options = (*MESHES[mesh], *force)
    case = folder(name)
    autopar("compile", case / "model.onnx", "-o", tmp_path / "out", *options, "--check-passes")
    result = autopar.json("check", tmp_path / "out", "--data", case / "test_data_set_0")
    assert result["ok"] and result["outputs"], result
    plan = autopar.json("plan", case / "model.onnx", *options)
    if force and mesh != "1":
        assert plan["sharded_flops_fraction"] == 1


@pytest.mark.parametrize("name", MODELS)
def test_parts(autopar, folder, name):
    """No slice is left in front of the attention; each part is a parameter of its own; each weight is held once."""
    case = folder(name)
    text = autopar("dump", case / "model.onnx", "--format", "ir", "--state", "normal").stdout
    assert name == "group_query" or " = slice " not in text
    assert text.count(" part @") >= 3
    one = autopar.json("plan", case / "model.onnx", "--devices", 1)["parameter_bytes"]
    weights = sum(w.ByteSize() for w in onnx.load(case / "model.onnx").graph.initializer)
    assert one <= weights + 64 * 16


@pytest.mark.parametrize("name", ["split_matmul", "slice_gemm", "heads_first"])
def test_weights_are_split(autopar, folder, name):
    """Where memory is short, devices hold parts of each projection, and none is gathered."""
    case = folder(name)
    whole = autopar.json("plan", case / "model.onnx", "--devices", 2)
    plan = autopar("dump", case / "model.onnx", "--format", "ir", "--state", "explicit", "--devices", 2, "--split", "force").stdout
    for line in plan.splitlines():
        assert "all_gather @" not in line, line
    split = autopar.json("plan", case / "model.onnx", "--devices", 2, "--split", "force")
    assert split["parameter_bytes"] <= whole["parameter_bytes"]


def test_one_copy_on_disk(autopar, folder, tmp_path):
    """weights.safetensors holds the fused tensor once, under its own name."""
    case = folder("split_matmul")
    autopar("compile", case / "model.onnx", "-o", tmp_path / "out", "--devices", 2, "--split", "force")
    data = (tmp_path / "out" / "weights.safetensors").read_bytes()
    import json

    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    fused = [k for k, v in header.items() if v.get("shape") == [K, sum(WIDTHS)]]
    assert len(fused) == 2
    weights = {"param/" + w.name: w for w in onnx.load(case / "model.onnx").graph.initializer}
    for name in fused:
        start, stop = (int(x) + 8 + int.from_bytes(data[:8], "little") for x in header[name]["data_offsets"])
        assert data[start:stop] == onnx.numpy_helper.to_array(weights[name]).tobytes()
    assert len(data) < sum(w.ByteSize() for w in weights.values()) + 16384


@pytest.mark.parametrize("change, why", [
    ({"smooth_softmax": 1}, "a softmax with a sink is not supported"),
    ({"qk_output": 1}, "the scores as an output are not supported"),
    ({"kv_num_heads": 3}, "do not go together"),
    ("total", "total_sequence_length depends on data that is known only at run time"),
])
def test_refused(autopar, tmp_path, change, why):
    m = group_query()
    if change == "total":
        (t,) = (t for t in m.graph.initializer if t.name == m.graph.node[1].input[6])
        m.graph.initializer.remove(t)
        m.graph.input.append(value(t.name, [1], TensorProto.INT32))
    else:
        kept = [a for a in m.graph.node[1].attribute if a.name not in change]
        del m.graph.node[1].attribute[:]
        m.graph.node[1].attribute.extend(kept + [helper.make_attribute(k, v) for k, v in change.items()])
    onnx.save(m, tmp_path / "m.onnx")
    error = autopar("plan", tmp_path / "m.onnx", code=1).stderr
    assert 'node "attention" (GroupQueryAttention): ' in error and why in error, error
