"""The arena of every shared model that compiles: hardly larger than what is live in it at one time, and never larger than
the planner said."""

import re

import pytest

from conftest import DATA

MODELS = sorted(p.parent.name for p in (DATA / "models").glob("*/model.onnx")) if (DATA / "models").is_dir() else []


def planning(folder, devices, force):
    data = sorted(folder.glob("test_data_set_*"))
    shapes = ["--shapes-from", data[0]] if data else []
    return [folder / "model.onnx", "--devices", devices, *shapes, *(["--split", "force"] if force else [])]


@pytest.mark.parametrize("devices, force", [(1, False), (2, False), (2, True), (4, False), (4, True)])
@pytest.mark.parametrize("name", MODELS)
def test_arena_is_small(autopar, models, name, devices, force):
    options = planning(models / name, devices, force)
    p = autopar.run_any("dump", *options, "--format", "ir", "--state", "local")
    if p.returncode:
        pytest.skip(p.stderr.splitlines()[-1][:200])
    arena, live, params = re.search(r" arena (\d+)(?: live (\d+))? params (\d+)\n", p.stdout).groups()
    arena, live, params = int(arena), int(live or 0), int(params)
    assert live <= arena <= 1.01 * live
    planned = autopar.json("plan", *options)["peak_bytes"]
    assert arena + params <= planned
