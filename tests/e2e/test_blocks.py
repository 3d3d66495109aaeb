"""Two transformer blocks on a fast mesh of 4: with little memory the planner finds, by itself, what Megatron-LM does by
hand: column-parallel then row-parallel products, heads split through a fused QKV projection, norms split by sequence, two
all-gathers and two reduce-scatters a block. With loose memory it finds something at least as cheap. Both run."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest

from make_model import encoder_layer, random_inputs

SEQ = HIDDEN = 1024
CLUSTER = ("--cluster", "dgx-a100-80gb:1x4")


def plan(autopar, tmp_path, memory=None, code=0):
    options = [] if memory is None else ["--memory", memory]
    args = ("plan", tmp_path / "m.onnx", *CLUSTER, "--pin", tmp_path / "pins", *options)
    return autopar.json(*args) if code == 0 else None


def least_memory(autopar, tmp_path, high):
    """By bisection to a thousandth; exit code 3 says that nothing fits."""
    low = 0
    while high - low > high // 1000:
        middle = (low + high) // 2
        p = autopar.run_any("plan", tmp_path / "m.onnx", *CLUSTER, "--pin", tmp_path / "pins", "--memory", middle, "-q")
        assert p.returncode in (0, 3), p.stderr
        low, high = (low, middle) if p.returncode == 0 else (middle, high)
    return high


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    path = tmp_path_factory.mktemp("blocks")
    m = encoder_layer(seq=SEQ, hidden=HIDDEN, heads=16, batch=1, layers=2, fused=True)
    onnx.save(m, path / "m.onnx")
    (path / "pins").write_text("value x [-,x,-]\nvalue y [-,x,-]\n")
    feeds = random_inputs(m)
    np.save(path / "x.npy", feeds["x"])
    return path, onnxruntime.InferenceSession(str(path / "m.onnx")).run(None, feeds)[0]


def check_run(autopar, path, expected, name, *options):
    autopar("compile", path / "m.onnx", "-o", path / name, *options)
    autopar("run", path / name, "--input", f"x={path}/x.npy", "--output-dir", path / (name + ".out"))
    y = np.load(path / (name + ".out") / "y.npy")
    assert np.abs(y - expected).max() <= 1e-4 * np.abs(expected).max()
    return y


def test_megatron_by_itself(autopar, blocks):
    path, expected = blocks
    loose = plan(autopar, path)
    tight_memory = int(least_memory(autopar, path, loose["peak_bytes"]) * 1.04)
    tight = plan(autopar, path, tight_memory)
    assert tight["peak_bytes"] <= tight_memory < loose["peak_bytes"]
    assert loose["seconds"] <= tight["seconds"]

    one = check_run(autopar, path, expected, "one")
    check_run(autopar, path, expected, "loose", *CLUSTER, "--pin", path / "pins")
    y = check_run(autopar, path, expected, "tight", *CLUSTER, "--pin", path / "pins", "--memory", tight_memory)
    assert np.abs(y - one).max() <= 1e-5 * np.abs(one).max()

    text = autopar("dump", path / "tight", "--format", "ir", "--state", "explicit").stdout
    assert len(re.findall(r"= all_gather ", text)) == 4
    assert len(re.findall(r"= reduce_scatter ", text)) == 4
    assert not re.findall(r"= (all_reduce|all_to_all) ", text)
    weights = dict(re.findall(r"param @\S+ : (f32\[\S+\]) (@m\[\S+\])", text))
    assert weights["f32[1024,3.16.64]"] == "@m[-,-.x.-]"  # columns, by head
    assert weights["f32[16.64,1024]"] == "@m[x.-,-]"  # rows
    assert weights["f32[1024,4096]"] == "@m[-,x]" and weights["f32[4096,1024]"] == "@m[x,-]"
    norms = re.findall(r"composite layernorm.* : f32\[1,1024,1024\] (@m\[\S+\])", autopar("dump", path / "tight", "--format", "ir").stdout)
    assert len(norms) == 4 and set(norms) == {"@m[-,x,-]"}
