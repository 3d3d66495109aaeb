"""profile --target cuda: the program that measures GPUs, run by the test shim, whose times say nothing: what is measured,
the file, and what is said without a GPU."""

import json
import os
import re
import stat
import subprocess

import onnx
import pytest

from conftest import ROOT
from make_model import encoder_layer

LIMIT = 500_000  # FLOPs and bytes: the shim computes in plain loops


@pytest.fixture(scope="module")
def program(autopar, tmp_path_factory):
    """$AUTOPAR_PROFILE_CUDA: the program on the shim, kept to small cases."""
    real = autopar.path.parent / "autopar_profile_cuda_shim"
    if not real.exists():
        pytest.skip(f"no {real}")
    path = tmp_path_factory.mktemp("bin") / "autopar_profile_cuda"
    path.write_text(f'#!/bin/sh\nexec {real} --limit {LIMIT} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def environment(program, **more):
    return {**os.environ, "AUTOPAR_PROFILE_CUDA": str(program), "CUDASHIM_QUIET": "1", **more}


@pytest.fixture(scope="module")
def measured(autopar, program, tmp_path_factory):
    """(file, JSON) of a quick profile of two GPUs."""
    path = tmp_path_factory.mktemp("profile") / "gpus.yaml"
    p = autopar("profile", "--target", "cuda", "--quick", "--devices", 2, "-o", path, "--json", env=environment(program))
    assert "cudashim" not in p.stderr, p.stderr
    return path, json.loads(p.stdout)


def test_cases(measured):
    path, said = measured
    assert path.read_text() == said["cluster"]
    cases = said["cases"]
    assert {c["kind"] for c in cases} == {"launch", "memory", "rows", "product", "convolution", "exchange", "copy"}
    assert {c["type"] for c in cases if c["kind"] == "product"} == {"f32", "bf16", "f16"}
    assert {c["name"].split()[0] for c in cases if c["kind"] == "exchange"} == {
        "all_gather", "all_reduce", "reduce_scatter", "all_to_all"}
    for c in cases:
        assert c["measured_us"] > 0 and c["predicted_us"] > 0, c
        assert c["flops"] <= 2 * LIMIT and c["bytes"] <= LIMIT
    flops = {(c["type"], c["name"]): c["flops"] for c in cases}
    assert flops["bf16", "[16,64]x[64,64]"] == 2 * 16 * 64 * 64
    moved = {c["name"]: c["bytes"] for c in cases}
    assert moved["all_reduce 4 kB over 2"] == 2 * moved["all_gather 4 kB over 2"] == 4096
    assert len(set((c["kind"], c["type"], c["name"]) for c in cases if c["kind"] == "product")) == \
        sum(c["kind"] == "product" for c in cases)  # f32 once: not as TF32 too


def test_file(autopar, measured, tmp_path):
    """A plan for the GPUs that were measured."""
    text = measured[0].read_text()
    assert "kind: gpu" in text and "name: HBM" in text and "name: DRAM" in text and "bf16:" in text
    assert "devices_per_host: 2" in text
    onnx.save(encoder_layer(batch=4), tmp_path / "m.onnx")
    assert autopar.json("plan", tmp_path / "m.onnx", "--cluster", measured[0])["seconds"] > 0
    autopar("compile", tmp_path / "m.onnx", "--target", "cuda", "--emit-only", "--cluster", measured[0], "-o", tmp_path / "out")
    assert (tmp_path / "out" / "kernels.cu").exists()


def test_rows_are_counted_as_plans_do(measured):
    """What a row kernel does the program says itself: by the table of pointwise operators."""
    table = (ROOT / "ir/op/pointwise.def").read_text()
    flops = {name: int(n) for name, n in re.findall(r"^POINTWISE\(\w+, (\w+), \d, \w+, \w+, \{\d, \d\}, (\d+),", table, re.M)}
    half = {name: n // 2 if 4 <= n < 8 else n for name, n in flops.items()}  # passes/cluster_rates.c
    there = {c["name"]: c["flops"] for c in measured[1]["cases"] if c["kind"] == "rows"}
    n = 128 * 128
    assert there["softmax 128x128"] == n * (1 + half["sub"] + half["exp"] + 1 + half["div"])
    assert there["norm 128x128"] == n * (1 + half["sub"] + half["mul"] + 1 + half["mul"]) + 128 * half["rsqrt"]
    assert there["gelu 128x128"] == n * (half["erf"] + half["mul"] + half["add"])
    assert there["polynomial 128x128"] == n * 16


def test_tf32(autopar, program):
    p = autopar("profile", "--target", "cuda", "--quick", "--devices", 1, "--json", env=environment(program, AUTOPAR_TF32="1"))
    kinds = {c["kind"] for c in json.loads(p.stdout)["cases"]}
    assert "exchange" not in kinds and "product" in kinds


def test_failures(autopar, program, tmp_path):
    """One clear line and exit code 4, and nothing stays behind."""
    env = {"TMPDIR": str(tmp_path)}
    for words, more in [
        ("there are 2 GPUs", {"CUDASHIM_DEVICES": "2"}),
        ("there is no GPU, or no driver for it", {"CUDASHIM_DEVICES": "0"}),
        ("no memory for an arena", {"CUDASHIM_MEMORY": "1000000"}),
    ]:
        p = autopar("profile", "--target", "cuda", "--quick", "--devices", 3, code=4, env=environment(program, **env, **more))
        assert words in p.stderr and p.stderr.count("\n") == 1, p.stderr
    autopar("profile", "--target", "cuda", code=4, env=environment("/nowhere", **env))
    assert "not understood" in autopar("profile", "--target", "cuda", code=4, env=environment("/bin/true", **env)).stderr
    assert not list(tmp_path.iterdir())
    for options in (["--target", "gpu"], ["--target", "cuda", "--devices", "9"], ["--target", "cuda", "--codegen", "c"]):
        autopar("profile", *options, code=2)


def test_without_a_gpu(autopar):
    """The real program, where it was built: says that there is no driver; is linked with what it measures, not with libcuda."""
    real = autopar.path.parent / "autopar_profile_cuda"
    if not real.exists():
        pytest.skip(f"no {real}")
    needed = subprocess.run(["readelf", "-d", real], capture_output=True, text=True).stdout
    assert "libcublasLt" in needed and "libnccl" in needed and "libcuda.so" not in needed
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    p = autopar("profile", "--target", "cuda", code=4)
    assert "there is no GPU, or no driver for it" in p.stderr
