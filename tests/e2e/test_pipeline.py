"""Pipelines end to end: stages, unequal cuts, microbatches that do not divide the batch, skip connections and tied weights run
and give what ONNX Runtime gives; plans of several stages are told, read back and refused like those of one."""

import json
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from make_model import encoder_layer, random_inputs


def tower(layers=6, batch=8, width=16, tied=True):
    """x + relu(x W) with one W for all layers, and a connection from the first layer to the last one."""
    r = np.random.default_rng(3)
    weights, nodes, last = [], [], "x"
    for i in range(layers):
        w = "w" if tied else f"w{i}"
        if i == 0 or not tied:
            weights.append(numpy_helper.from_array((r.standard_normal((width, width)) / 8).astype(np.float32), w))
        nodes += [helper.make_node("MatMul", [last, w], [f"a{i}"], f"mm{i}"),
                  helper.make_node("Relu", [f"a{i}"], [f"r{i}"], f"act{i}"),
                  helper.make_node("Add", [f"r{i}", last], [f"h{i}"], f"add{i}")]
        last = f"h{i}"
    nodes += [helper.make_node("Add", [last, "h0"], ["y"], "skip"), helper.make_node("Identity", ["h1"], ["early"], "early")]
    f = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, width])
    return helper.make_model(helper.make_graph(nodes, "tower", [f("x")], [f("y"), f("early")], weights),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def case(tmp_path):
    def make(model):
        path = tmp_path / "m.onnx"
        onnx.save(model, path)
        feeds = random_inputs(model)
        for k, v in feeds.items():
            np.save(tmp_path / f"{k}.npy", v)
        names = [o.name for o in model.graph.output]
        want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
        return path, [f"--input={k}={tmp_path}/{k}.npy" for k in feeds], dict(zip(names, want))
    return make


def run_and_compare(autopar, tmp_path, case, *options):
    path, inputs, want = case
    plan = autopar.json("compile", path, "-o", tmp_path / "out", "--force", "--check-passes", *options)
    autopar("run", tmp_path / "out", *inputs, "--output-dir", tmp_path / "r")
    for name, y in want.items():
        np.testing.assert_allclose(np.load(tmp_path / "r" / f"{name}.npy"), y, rtol=1e-4, atol=1e-5)
    return plan


@pytest.mark.parametrize("stages,devices,microbatches,batch", [(2, 2, 1, 8), (2, 4, 2, 8), (4, 4, 4, 8), (4, 8, 3, 8), (3, 3, 4, 7),
                                                               (1, 2, 2, 7), (6, 6, 8, 8)])
def test_towers(autopar, tmp_path, case, stages, devices, microbatches, batch):
    plan = run_and_compare(autopar, tmp_path, case(tower(batch=batch)), "--stages", stages, "--devices", devices,
                           "--microbatches", microbatches)
    assert plan["microbatches"] == microbatches and len(plan["stages"]) == stages
    ranks = [r for s in plan["stages"] for r in s["ranks"]]
    assert ranks == list(range(devices))


def test_encoder_on_meshes(autopar, tmp_path, case):
    for options in (["--stages", 2, "--devices", 8, "--mesh", "2x2"], ["--stages", 2, "--devices", 4, "--split", "force", "--microbatches", 2]):
        plan = run_and_compare(autopar, tmp_path, case(encoder_layer()), *options)
        assert all(s["peak_bytes"] >= s["parameter_bytes"] + s["slot_bytes"] > 0 for s in plan["stages"])


def unconnected(outputs):
    """So many functions of x that know nothing of each other."""
    nodes = [helper.make_node(["Relu", "Tanh", "Sigmoid", "Abs"][i % 4], ["x"], [f"y{i}"], f"n{i}") for i in range(outputs)]
    f = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 16])
    return helper.make_model(helper.make_graph(nodes, "unconnected", [f("x")], [f(f"y{i}") for i in range(outputs)]),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("stages,devices,microbatches", [(2, 2, 1), (3, 3, 2), (4, 4, 1), (2, 3, "auto")])
def test_nothing_crosses(autopar, tmp_path, case, stages, devices, microbatches):
    plan = run_and_compare(autopar, tmp_path, case(unconnected(4)), "--stages", stages, "--devices", devices,
                           "--microbatches", microbatches)
    assert len(plan["stages"]) == stages


def pointwise():
    """A chain that is one kernel as long as nobody cuts it, with a normalisation in its middle."""
    ops = ["Relu", "Tanh", "Sigmoid", "LayerNormalization", "Erf", "Neg"]
    nodes = [helper.make_node(op, [f"v{i}" if i else "x"] + (["scale"] if "Layer" in op else []), [f"v{i + 1}"], f"n{i}") for i, op in enumerate(ops)]
    f = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 16])
    return helper.make_model(helper.make_graph(nodes, "pointwise", [f("x")], [f("v6")], [numpy_helper.from_array(np.ones(16, np.float32), "scale")]),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("stages,devices,microbatches", [(2, 2, 1), (6, 6, 2)])
def test_kernels_are_cut_where_stages_need_it(autopar, tmp_path, case, stages, devices, microbatches):
    c = case(pointwise())
    plan = run_and_compare(autopar, tmp_path, c, "--stages", stages, "--devices", devices, "--microbatches", microbatches)
    assert len(plan["stages"]) == stages
    first = (tmp_path / "out" / "plan.json").read_text()
    autopar("compile", c[0], "-o", tmp_path / "again", "--plan", tmp_path / "out" / "plan.json")
    assert (tmp_path / "again" / "plan.json").read_text() == first
    broken = json.loads(first)
    broken["exact"]["opened"] = [1000]
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    assert "no composite" in autopar("compile", c[0], "-o", tmp_path / "broken", "--plan", tmp_path / "broken.json", code=1).stderr


def test_no_more_stages_than_nodes(autopar, tmp_path, case):
    path = case(pointwise())[0]
    assert "it has " in autopar("plan", path, "--devices", 32, "--stages", 32, code=2).stderr


def named_towers():
    """Two towers whose normalisations have their constants in common."""
    nodes, weights = [], [numpy_helper.from_array(np.ones(16, np.float32), "scale")]
    for t in "uv":
        nodes += [helper.make_node("Relu", [t], [f"{t}1"], f"{t}/act"), helper.make_node("LayerNormalization", [f"{t}1", "scale"], [f"{t}2"], f"{t}/norm"),
                  helper.make_node("Abs", [f"{t}2"], [f"{t}o"], f"{t}/out")]
    f = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 16])
    return helper.make_model(helper.make_graph(nodes, "named", [f("u"), f("v")], [f("uo"), f("vo")], weights),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("pins", ["node u/* stage=0\nnode v/* stage=1\n", "node u/norm stage=0\nnode v/norm stage=1\n",
                                  "node uo stage=0\nnode v1 stage=1\n", "node u/act stage=0\nnode u/out stage=1\n"])
def test_pins_of_whole_towers(autopar, tmp_path, case, pins):
    (tmp_path / "pins").write_text(pins)
    plan = run_and_compare(autopar, tmp_path, case(named_towers()), "--devices", 2, "--stages", 2, "--pin", tmp_path / "pins")
    assert len(plan["stages"]) == 2


@pytest.mark.parametrize("pins,text", [("node * stage=0", 'pins:1: it is pinned to stage 0, and no node is left for stage 1'),
                                       ("node n5 stage=1\nnode n0 stage=1", "no node is left for stage 0"),
                                       ("node n1 stage=1\nnode n5 stage=0", "pins:2: it is pinned to stage 0, but line 1 pins a node before it to stage 1"),
                                       ("node n2 stage=0\nnode v3 stage=1\nnode n* stage=1", "by line 1 to stage 0")])
def test_pins_that_leave_stages_empty(autopar, tmp_path, case, pins, text):
    (tmp_path / "pins").write_text(pins)
    assert text in autopar("plan", case(pointwise())[0], "--devices", 2, "--stages", 2, "--pin", tmp_path / "pins", code=2).stderr


@pytest.mark.parametrize("pins,stages", [("node mm1 stage=1", 2), ("node mm0 stage=0\nnode mm1 stage=2", 3), ("node add3 stage=1", 4),
                                         ("node act4 stage=1\nnode mm5 stage=3", 4), ("node mm4 stage=3", "auto")])
def test_stages_that_nothing_is_pinned_to_have_room(autopar, tmp_path, case, pins, stages):
    """What lies before, between and behind pinned nodes is cut into as many layers as stages are wanted there."""
    (tmp_path / "pins").write_text(pins)
    plan = run_and_compare(autopar, tmp_path, case(tower()), "--devices", 4, "--stages", stages, "--pin", tmp_path / "pins")
    assert len(plan["stages"]) == stages or stages == "auto" and len(plan["stages"]) == 4


def test_more_stages_pinned_than_devices(autopar, tmp_path, case):
    (tmp_path / "pins").write_text("node mm5 stage=4")
    text = autopar("plan", case(tower())[0], "--devices", 4, "--pin", tmp_path / "pins", code=2).stderr
    assert "pins:1: there is no stage 4: 4 devices can have 4 at most" in text


@pytest.mark.parametrize("options", [["--devices", 2, "--microbatches", 2], ["--cluster", "p3.16xlarge:2x1"], ["--devices", 2, "--stages", 1],
                                     ["--devices", 2, "--stages", "auto"]])
def test_nothing_is_computed(autopar, tmp_path, case, options):
    f = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3])
    model = helper.make_model(helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", [f("x")], [f("y")]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "same.onnx"
    onnx.save(model, path)
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(4, 3))
    autopar("compile", path, "-o", tmp_path / "out", "--batch", 4, *options)
    autopar("run", tmp_path / "out", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / "r")
    np.testing.assert_array_equal(np.load(tmp_path / "r" / "y.npy"), np.load(tmp_path / "x.npy"))
    assert "it computes nothing" in autopar("plan", path, "--batch", 4, "--devices", 2, "--stages", 2, code=2).stderr


def test_json_tells_all_stages(autopar, case):
    plan = autopar.json("plan", case(tower())[0], "--devices", 4, "--stages", 2, "--microbatches", 4)
    assert {"seconds", "bound", "gap", "planning_seconds", "sharded_flops_fraction", "microbatches", "schedule", "stages"} <= set(plan)
    assert plan["schedule"] == "inference" and 0 <= plan["gap"] < 1 and plan["bound"] <= plan["seconds"]
    for s in plan["stages"]:
        assert {"ranks", "mesh", "nodes", "seconds", "peak_bytes", "transfer_seconds", "slot_bytes"} <= set(s)
        assert s["mesh"] == {"x": 2} and s["nodes"] > 0 and s["seconds"] > 0
    t, c = [s["seconds"] for s in plan["stages"]], [s["transfer_seconds"] for s in plan["stages"]]
    assert c[0] == 0 < c[1]
    slowest = max(a + b for a, b in zip(t, c))  # transfers of this machine wait
    np.testing.assert_allclose(plan["seconds"], sum(t) + sum(c) + 3 * slowest, rtol=1e-9)
    assert plan["peak_bytes"] == max(s["peak_bytes"] for s in plan["stages"])


def test_plans_are_written_and_used(autopar, case, tmp_path):
    path = case(tower())[0]
    options = ["--devices", 4, "--stages", 2, "--microbatches", 2]
    autopar("plan", path, *options, "-o", tmp_path / "plan.json", "-q")
    autopar("compile", path, *options, "-o", tmp_path / "a", "--emit-only")
    autopar("compile", path, "--plan", tmp_path / "plan.json", "-o", tmp_path / "b", "--emit-only", "--check-passes")
    a, b = ({f.name: f.read_bytes() for f in sorted((tmp_path / d).iterdir())} for d in "ab")
    assert a == b and json.loads(a["plan.json"])["schema"] == 2
    # a cut elsewhere is another program
    text = json.loads((tmp_path / "plan.json").read_text())
    text["exact"]["stages"][1]["first"] = str(int(text["exact"]["stages"][1]["first"]) + 1)
    (tmp_path / "plan.json").write_text(json.dumps(text))
    p = autopar("compile", path, "--plan", tmp_path / "plan.json", "-o", tmp_path / "c", code=1)
    assert "is not that of this model" in p.stderr
    # and so are other figures
    text["exact"]["stages"][1]["first"] = str(int(text["exact"]["stages"][1]["first"]) - 1)
    text["exact"]["stages"][0]["peak_bytes"] = str(int(text["exact"]["stages"][0]["peak_bytes"]) - 1)
    (tmp_path / "plan.json").write_text(json.dumps(text))
    assert "do not fit its program" in autopar("compile", path, "--plan", tmp_path / "plan.json", "-o", tmp_path / "c", code=1).stderr
    autopar("compile", path, "--plan", tmp_path / "plan.json", "--stages", 2, "-o", tmp_path / "c", code=2)


def quotient_of_a_slot(node, weight):
    """A quotient of a slot, with the sum over other dimensions that reads it: the slot must stay as it is, no place to compute it in."""
    nodes = [node("Exp", "x", "s"), node("ReduceSum", ["s", weight([-1])], "q"), node("Div", ["s", "q"], "t"), node("GlobalAveragePool", "t", "g"),
             node("Reshape", ["x", weight([5, 128])], "f"), node("MatMul", ["f", weight(np.ones((128, 64), np.float32))], "z")]
    return nodes, [5, 2, 8, 8], ["g", "z"], ["--stages", 2], "node s stage=0\nnode g stage=1\nnode z stage=1\n"


def sum_that_waits(node, weight):
    """p = a + b is read by what comes late: in one kernel with it a and b would have to wait in place of p."""
    w = np.ones((16, 16), np.float32)
    nodes = [node("MatMul", ["x", weight(w)], "a"), node("MatMul", ["x", weight(2 * w)], "b"), node("Add", ["a", "b"], "p"),
             node("MatMul", ["x", weight(np.ones((16, 64), np.float32))], "c"), node("Exp", "c", "d"), node("CumSum", ["d", weight(1)], "e"),
             node("MatMul", ["e", weight(np.ones((64, 16), np.float32))], "f"), node("CumSum", ["f", weight(1)], "h"), node("Tanh", "h", "i"),
             node("Mul", ["p", "i"], "y"), node("CumSum", ["p", weight(1)], "z")]
    return nodes, [32, 16], ["y", "z"], [], ""


def product_of_a_transposed_value(node, weight):
    """Rows that lie apart are packed for a product, into memory that no plan has."""
    nodes = [node("Exp", "x", "e"), node("Transpose", "e", "t", perm=[1, 0, 3, 2]), node("MatMul", ["t", weight(np.ones((16, 8), np.float32))], "y")]
    return nodes, [8, 16, 16, 8], ["y"], [], ""


def weights_of_one_number(node, weight):
    half = numpy_helper.from_array(np.array([.5], np.float32))
    nodes = [node("Tanh", "x", "t"), node("ConstantOfShape", weight([16, 64]), "w", value=half), node("MatMul", ["t", "w"], "y")]
    return nodes, [4, 16], ["y"], [], ""


def rows_without_a_sum(node, weight):
    """A value of one number per row, in a composite that reduces nothing, is made by a kernel of its own."""
    nodes = [node("Slice", ["x", weight([0]), weight([1]), weight([1])], "s"), node("Exp", "s", "e"), node("Tanh", "e", "r"), node("Mul", ["x", "r"], "t"),
             node("Relu", "t", "y")]
    return nodes, [256, 2], ["y"], [], ""


def many_sums_of_a_row(node, weight):
    nodes = [node("Softmax", "x" if k == 0 else f"s{k - 1}", f"s{k}", axis=-1) for k in range(5)]
    return nodes + [node("Exp", "s4", "y")], [64, 32], ["y"], [], ""


@pytest.mark.parametrize("make", [quotient_of_a_slot, sum_that_waits, product_of_a_transposed_value, weights_of_one_number, rows_without_a_sum,
                                  many_sums_of_a_row], ids=lambda f: f.__name__)
def test_no_more_memory_than_was_planned(autopar, tmp_path, make):
    """What lies between the kernels of a composite, what waits for a fused kernel, what a product packs."""
    weights, f = [], lambda name, shape=None: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def weight(x):
        weights.append(numpy_helper.from_array(np.array(x), f"w{len(weights)}"))
        return weights[-1].name

    node = lambda op, ins, out, **k: helper.make_node(op, [ins] if isinstance(ins, str) else ins, [out], out, **k)
    nodes, shape, outputs, options, pins = make(node, weight)
    graph = helper.make_graph(nodes, "tight", [f("x", shape)], [f(o) for o in outputs], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    (tmp_path / "pins").write_text(pins)
    for devices in (2, 1) if not options else (2,):
        plan = autopar.json("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", "--devices", devices, *options, "--pin", tmp_path / "pins",
                            "--emit-only", "--force", "--check-passes")
        source = (tmp_path / "out" / "program.c").read_text()
        need = [sum(map(int, n)) for n in zip(re.findall(r"arena_bytes = (\d+)", source), re.findall(r"param_bytes = (\d+)", source))]
        assert len(need) == len(plan["stages"])
        assert all(n <= s["peak_bytes"] for n, s in zip(need, plan["stages"])), (need, plan["stages"])


def test_broken_programs_are_told_with_the_file(autopar, case, tmp_path):
    path = case(tower())[0]
    autopar("plan", path, "--devices", 2, "--stages", 2, "--microbatches", 2, "-o", tmp_path / "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["ir"] = plan["ir"].replace("ranks 1..1", "ranks 0..0")
    (tmp_path / "broken.json").write_text(json.dumps(plan))
    p = autopar("simulate", tmp_path / "broken.json", code=1)
    assert p.stderr.startswith(f"autopar: {tmp_path}/broken.json: stages @stage0 and @stage1 have ranks in common")


def test_same_bytes_whatever_the_threads(autopar, case, tmp_path):
    path = case(tower())[0]
    for name, threads in (("a", 1), ("b", 2)):
        autopar("plan", path, "--devices", 4, "--stages", 2, "--microbatches", 2, "--threads", threads, "-o", tmp_path / name, "-q")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_one_stage_is_the_plan_as_ever(autopar, case, tmp_path):
    path = case(tower())[0]
    for name, options in (("a", ["--stages", 1, "--microbatches", 1]), ("b", [])):
        autopar("plan", path, "--devices", 2, *options, "-o", tmp_path / name, "-q")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert json.loads((tmp_path / "a").read_text())["ir"].startswith("mesh @m = [x=2] ranks 0..1\n")


def test_states_and_stages_are_dumped(autopar, case, tmp_path):
    path = case(tower())[0]
    options = ["--devices", 4, "--stages", 2, "--microbatches", 2]
    autopar("plan", path, *options, "-o", tmp_path / "plan.json", "-q")
    for state in ("planned", "explicit", "local"):
        whole = autopar("dump", path, *options, "--format", "ir", "--state", state).stdout
        assert whole == autopar("dump", tmp_path / "plan.json", "--format", "ir", "--state", state).stdout.replace("@model", "@m")
        for k in (0, 1):
            part = autopar("dump", tmp_path / "plan.json", "--format", "ir", "--state", state, "--stage", k).stdout
            assert part.strip() in whole
        (tmp_path / "state.ap").write_text(whole)
    assert "stage1" in autopar("dump", tmp_path / "plan.json").stdout
    dot = autopar("dump", tmp_path / "plan.json", "--format", "dot").stdout
    assert dot.count("subgraph cluster_f") == 2 and "-> f1_in0" in dot
    assert autopar.json("simulate", tmp_path / "plan.json")
    autopar("dump", tmp_path / "plan.json", "--format", "ir", "--stage", 2, code=2)
    autopar("dump", tmp_path / "plan.json", "--stage", 0, code=2)
    autopar("dump", path, "--format", "ir", "--state", "normal", "--stage", 0, code=2)


def test_nodes_are_pinned_to_stages(autopar, case, tmp_path):
    path, pins = case(tower())[0], tmp_path / "pins"

    def plan(text, code=0):
        pins.write_text(text)
        p = autopar("dump", path, "--devices", 4, "--stages", 2, "--mesh", 2, "--format", "text", "--pin", pins, code=code)
        return p.stderr if code else p.stdout

    for k in (1, 3):  # act1 is a part of what makes h1
        text = plan(f"node act{k} stage=0\nnode mm{k + 1} stage=1\nvalue h{k} [-,x] # on both sides\n")
        assert f"h{k}" in text.split("nodes of @stage0")[1].split("resharding")[0]
        assert f"a{k + 1}" in text.split("nodes of @stage1")[1]
        assert "stage0 -> stage1  f32[8,16] @m[-,x] -> @m[-,x]" in text
    assert "no node matches" in plan("node nobody stage=1", 2)
    assert "pins:1: there is no stage 2" in plan("node act4 stage=2", 2)
    assert "stage" in plan("node act4 stage=0\nnode act1 stage=1", 2)
    assert "no value matches" in plan("value nobody [-,-]", 2)
    # without --stages they ask for some
    pins.write_text("node act3 stage=0\nnode mm4 stage=1\n")
    assert len(autopar.json("plan", path, "--devices", 2, "--pin", pins)["stages"]) == 2


def test_what_is_wrong_is_told(autopar, case, tmp_path):
    path = case(tower())[0]
    bad = [(["--stages", "5", "--devices", 4], "5 stages, 4 devices"), (["--stages", "0"], "whole number"), (["--stages", "x"], "whole number"),
           (["--microbatches", "0"], "whole number"), (["--objective", "speed"], "'throughput' or 'latency'"),
           (["--stages", 2, "--devices", 4, "--mesh", "4"], "2 stages of '4' have 8 devices"), (["--microbatches", 9], "microbatches"),
           (["--stages", 2, "--microbatches", 9, "--devices", 2], "microbatches")]
    for options, text in bad:
        assert text in autopar("plan", path, *options, code=2).stderr
    p = autopar("plan", path, "--devices", 2, "--stages", 2, "--memory", 1000, code=3)
    assert "no plan fits" in p.stderr
    autopar("plan", path, "--devices", 2, "--stages", 2, "--dump-problem", tmp_path / "p", code=2)


@pytest.mark.parametrize("name,options", [("genai-tiny-gpt2-5l", ["--stages", 4, "--devices", 4]),
                                          ("rxn-albert-mlm-op13", ["--stages", 4, "--devices", 8]),
                                          ("ultraface-rfb320", ["--stages", 2, "--devices", 2]),
                                          ("ort-bert-toy5l", ["--stages", 2, "--devices", 4])])
def test_shared_models(autopar, models, tmp_path, name, options):
    data = models / name / "test_data_set_0"
    autopar("compile", models / name / "model.onnx", "-o", tmp_path / "out", "--shapes-from", data, *options)
    result = autopar.json("check", tmp_path / "out", "--data", data)
    assert result["ok"]
