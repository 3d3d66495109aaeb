"""Fixtures: the built programs, the data folder, a small driver for the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("AUTOPAR_DATA", ROOT.parent / "shared"))


class Autopar:
    def __init__(self, build):
        self.path = ROOT / "build" / build / "bin" / "autopar"
        self.apopt = ROOT / "build" / build / "bin" / "apopt"

    def __call__(self, *args, code=0, cwd=None, env=None):
        """Runs it; the exit code must be `code`. Returns the finished process."""
        p = subprocess.run([str(self.path), *map(str, args)], capture_output=True, text=True, cwd=cwd, env=env, timeout=900)
        assert p.returncode == code, f"exit code {p.returncode}, expected {code}\n{p.stdout}\n{p.stderr}"
        return p

    def run_any(self, *args):
        """Runs it; any exit code."""
        return subprocess.run([str(self.path), *map(str, args)], capture_output=True, text=True, timeout=900)

    def json(self, *args, code=0):
        return json.loads(self(*args, "--json", code=code).stdout)


@pytest.fixture(scope="session")
def autopar():
    return Autopar(os.environ.get("AUTOPAR_RELEASE", "release"))


@pytest.fixture(scope="session")
def autopar_debug():
    return Autopar(os.environ.get("AUTOPAR_DEBUG", "debug"))


@pytest.fixture(scope="session")
def tree(autopar):
    """The folder of the build, where programs for GPUs can be built with the shim."""
    sys.path.insert(0, str(ROOT / "tests" / "cudashim"))
    import build as shim

    where = autopar.path.parents[1]
    reason = shim.missing(where)
    if reason:
        pytest.skip(f"no programs for GPUs are built: {reason}")
    return where


@pytest.fixture(scope="session")
def models():
    path = DATA / "models"
    if not path.is_dir():
        pytest.skip(f"no models in {DATA} (set AUTOPAR_DATA)")
    return path


# Modules that ask what is computed and exchanged, in dozens of small programs: -O1 saves 5 to 22 % of their processor time.
# All others (models, operators, speed) are compiled as users compile, with -O3; unit tests, under sanitizers, with -O1
# (tests/CMakeLists.txt).
QUICK = {"test_across", "test_blocks", "test_grouped", "test_hosts", "test_idle", "test_mesh", "test_microbatches", "test_mpi",
         "test_padded", "test_pins", "test_pipeline", "test_pipelines", "test_trace", "test_weights"}


@pytest.fixture(autouse=True, scope="module")
def compiler(request):
    if request.module.__name__ not in QUICK:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOPAR_TEST_CC", os.environ.get("CC", "cc"))
        patch.setenv("CC", str(Path(__file__).with_name("cc_quick")))
        yield
