"""Devices that a plan leaves without work are told, wherever a plan is shown."""

import onnx
import pytest

from make_model import encoder_layer


@pytest.mark.parametrize("stages, devices", [(2, 5), (2, 4), (1, 3)])
def test_idle_devices_are_told(autopar, tmp_path, stages, devices):
    onnx.save(encoder_layer(), tmp_path / "m.onnx")
    options = [tmp_path / "m.onnx", "--devices", devices, "--stages", stages, "--microbatches", 2]
    plan = autopar.json("plan", *options)
    used = sum(len(s["ranks"]) for s in plan["stages"])
    assert plan["idle_devices"] == devices - used and (used < devices) == (devices == 5)
    idle = f"idle: {devices - used} of {devices} devices have no work\n"
    assert (idle in autopar("plan", *options).stdout) == (used < devices)
    line = autopar("compile", *options, "--emit-only", "-o", tmp_path / "out").stdout
    assert (f"{used} of {devices} devices ({devices - used} idle), " if used < devices else f": {devices} device(s), ") in line
    assert (idle in (tmp_path / "out" / "plan.txt").read_text()) == (used < devices)
