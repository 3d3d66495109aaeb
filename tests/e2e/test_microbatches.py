"""One stage in microbatches, compiled: batches that they divide and batches that they do not, transformers and
convolutions, give the numbers of ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from make_model import encoder_layer, mlp, random_inputs
from test_conv import compare, convolutions

# batch, microbatches: alike, a short last one, a long way short
PARTS = [(4, 2), (4, 4), (5, 2), (7, 3), (10, 4)]
DEVICES = [["--devices", 1], ["--devices", 2], ["--devices", 2, "--split", "force"],
           ["--devices", 4, "--mesh", "2x2", "--split", "force"]]
DEVICE_IDS = ["1", "2", "2-forced", "2x2-forced"]

ENCODERS = {
    "encoder": lambda n: encoder_layer(seq=6, hidden=24, heads=3, batch=n),
    "tokens": lambda n: encoder_layer(seq=5, hidden=16, heads=2, batch=n, vocabulary=33, layers=2),
    "fused": lambda n: encoder_layer(seq=4, hidden=24, heads=4, batch=n, fused=True),
    "mlp": lambda n: mlp(batch=n, hidden=37),
}


@pytest.mark.parametrize("devices", DEVICES, ids=DEVICE_IDS)
@pytest.mark.parametrize("parts", PARTS, ids=lambda p: f"{p[0]}in{p[1]}")
@pytest.mark.parametrize("case", ENCODERS)
def test_transformers(autopar, tmp_path, case, parts, devices):
    m = ENCODERS[case](parts[0])
    compare(autopar, tmp_path, m, random_inputs(m), "--microbatches", parts[1], *devices)


@pytest.mark.parametrize("devices", DEVICES, ids=DEVICE_IDS)
@pytest.mark.parametrize("seed", range(300, 305))
def test_convolutions(autopar, tmp_path, seed, devices):
    n, microbatches = PARTS[seed % len(PARTS)]
    m, feeds = convolutions(seed, batch=n)
    compare(autopar, tmp_path, m, feeds, "--microbatches", microbatches, "--batch", n, "--batch-dim", "images", *devices)


CNNS = ["emx-kws-fp32", "onnxmlir-mnist", "ort-mnist-cntk", "rten-mnist-functions", "onnx2c-mnist-pytorch"]


def rebatch(path, n):
    """A CNN of one image, for n: what it reshapes to begins with the batch."""
    m = onnx.load(path)
    shapes = {x.input[1] for x in m.graph.node if x.op_type == "Reshape"}
    given = {i.name for i in m.graph.initializer}
    tensors = [i for i in m.graph.initializer if i.name in shapes]
    for x in m.graph.node:
        if x.op_type == "Constant" and x.output[0] in shapes:
            tensors += [a.t for a in x.attribute if a.name == "value"]
    for t in tensors:
        v = numpy_helper.to_array(t).copy()
        if v.ndim == 1 and len(v) and v[0] == 1:
            v[0] = n
            t.CopyFrom(numpy_helper.from_array(v, t.name))
    for v in m.graph.input:
        if v.name not in given:
            v.type.tensor_type.shape.dim[0].dim_value = n
    for v in m.graph.output:
        v.type.tensor_type.ClearField("shape")
    del m.graph.value_info[:]
    return m


@pytest.mark.parametrize("devices", DEVICES, ids=DEVICE_IDS)
@pytest.mark.parametrize("parts", [(5, 2)], ids=lambda p: f"{p[0]}in{p[1]}")
@pytest.mark.parametrize("name", CNNS)
def test_cnns(autopar, models, tmp_path, name, parts, devices):
    m = rebatch(models / name / "model.onnx", parts[0])
    given = {i.name for i in m.graph.initializer}
    r = np.random.default_rng(1)
    feeds = {v.name: r.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]).astype(np.float32)
             for v in m.graph.input if v.name not in given}
    onnx.save(m, tmp_path / "m.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), options)
    want = session.run(None, feeds)
    autopar("compile", tmp_path / "m.onnx", "-o", tmp_path / "out", "--microbatches", parts[1], *devices)
    args = []
    for k, (key, x) in enumerate(feeds.items()):
        np.save(tmp_path / f"x{k}.npy", x)
        args += ["--input", f"{key}={tmp_path}/x{k}.npy"]
    autopar("run", tmp_path / "out", *args, "--output-dir", tmp_path / "r")
    files = sorted((tmp_path / "r").glob("*.npy"))
    assert len(files) == len(want)
    got = np.load(files[0])
    assert got.shape == want[0].shape and np.abs(got - want[0]).max() <= 1e-4 * max(1, np.abs(want[0]).max())


def test_what_mixes_the_batch_is_named(autopar, tmp_path):
    from onnx import helper

    from make_model import model, value

    nodes = [helper.make_node("Softmax", ["x"], ["s"], "over_images", axis=0),
             helper.make_node("ReduceMean", ["x"], ["m"], "mean_image", axes=[0]),
             helper.make_node("Sub", ["s", "m"], ["y"], "less")]
    onnx.save(model(nodes, [value("x", [4, 6])], [value("y", None)]), tmp_path / "m.onnx")
    p = autopar("plan", tmp_path / "m.onnx", "--devices", 2, "--microbatches", 2, code=1)
    assert 'node "over_images" (Softmax): no microbatches: reduce ' in p.stderr
    assert 'node "mean_image" (ReduceMean): no microbatches: ' in p.stderr
    assert len(p.stderr.splitlines()) == 2  # one each, although a softmax is two reductions
    p = autopar("plan", tmp_path / "m.onnx", "--devices", 2, "--microbatches", 5, code=2)
    assert "a batch of 4 cannot be cut into 5 microbatches" in p.stderr


@pytest.mark.parametrize("batch, n, empty, nearest", [(1000, 999, 499, "500 and 1000"), (8, 5, 1, "4 and 8"), (5, 4, 1, "3 and 5"),
                                                      (100, 64, 14, "50 and 100")])
def test_empty_microbatches_are_refused(autopar, tmp_path, batch, n, empty, nearest):
    onnx.save(mlp(batch), tmp_path / "m.onnx")
    for more in ([], ["--stages", 2], ["--stages", "auto"]):
        p = autopar("plan", tmp_path / "m.onnx", "--devices", 2, "--microbatches", n, *more, code=2)
        assert f"a batch of {batch} cannot be cut into {n} microbatches" in p.stderr
        assert f"{empty} of them would be empty; the nearest that work are {nearest}" in p.stderr
    autopar("plan", tmp_path / "m.onnx", "--devices", 2, "--stages", 2, "--microbatches", nearest.split()[0])


@pytest.mark.parametrize("batch", [3, 5, 9, 11, 23])
def test_the_planner_leaves_no_microbatch_empty(autopar, tmp_path, batch):
    import json

    from onnx import helper, numpy_helper

    from make_model import model, value

    w = [numpy_helper.from_array(np.ones((512, 512), np.float32), f"w{i}") for i in range(4)]
    nodes = [helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"h{i + 1}"]) for i in range(4)]
    onnx.save(model(nodes, [value("x", [batch, 2048, 512])], [value("h4", None)], w), tmp_path / "m.onnx")
    p = autopar("plan", tmp_path / "m.onnx", "--devices", 4, "--stages", 4, "--microbatches", "auto", "--json")
    n = json.loads(p.stdout)["microbatches"]
    assert n > 1 and (n - 1) * -(-batch // n) < batch
