"""The large CNN graphs of the ONNX backend tests (their weights are constants), compiled for one device and for two:
stored outputs."""

import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from conftest import DATA

NAMES = ["bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512"]


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """The folder of the onnx package; where it has none, the shared archive."""
    packaged = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    archive = DATA / "onnx-backend-tests" / "light.tar.xz"
    if packaged.is_dir():
        return packaged
    if not archive.is_file():
        pytest.skip(f"no light models in the onnx package nor in {DATA} (set AUTOPAR_DATA)")
    folder = tmp_path_factory.mktemp("light")
    with tarfile.open(archive) as t:
        t.extractall(folder)
    return folder / "light"


@pytest.mark.parametrize("options", [[], ["--devices", 2], ["--devices", 2, "--split", "force"]], ids=["1", "2", "2-force"])
@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs(autopar, light, tmp_path, name, options):
    if not (light / f"light_{name}.onnx").is_file():
        pytest.skip(f"light_{name} is not in {light}")
    m = onnx.load(light / f"light_{name}.onnx")
    weights = {t.name for t in m.graph.initializer}
    args = []
    for i, given in enumerate(v for v in m.graph.input if v.name not in weights):
        shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
        n = int(np.prod(shape))
        np.save(tmp_path / f"x{i}.npy", (np.arange(n, dtype=np.float32) / np.float32(n)).reshape(shape))
        args += ["--input", f"{given.name}={tmp_path}/x{i}.npy"]
    autopar("compile", light / f"light_{name}.onnx", "-o", tmp_path / "out", *options)
    autopar("run", tmp_path / "out", *args, "--output-dir", tmp_path / "r")
    want = numpy_helper.to_array(onnx.load_tensor(light / f"light_{name}_output_0.pb"))
    [file] = (tmp_path / "r").glob("*.npy")
    np.testing.assert_allclose(np.load(file), want, rtol=1e-3, atol=1e-5)
