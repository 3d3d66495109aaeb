"""Builds an emitted program for GPUs (autopar compile --target cuda --emit-only) with the test shim: DIR/model then runs
on the CPU, and `autopar run DIR` and `autopar check DIR` find it there.

    build.py DIR BUILD        BUILD: a build of autopar with tests, its lib/ has the runtime and the shim
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARIES = ["libautopar_rt_cuda_shim.a", "libautopar_rt.a", "libcudashim.a"]


def missing(build):
    """Why nothing can be built, or None."""
    if not shutil.which(os.environ.get("CXX", "g++")):
        return "no g++"
    lost = [name for name in LIBRARIES if not (Path(build) / "lib" / name).exists()]
    return f"{build}/lib has no {', '.join(lost)}" if lost else None


def sanitizers(library):
    """The sanitizers that a library was compiled with."""
    names = subprocess.run(["nm", library], capture_output=True, text=True).stdout
    flags = ["-fsanitize=address"] if "__asan_init" in names else []
    return flags + (["-fsanitize=undefined"] if "__ubsan_" in names else [])


def run(command):
    p = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if p.returncode != 0:
        raise RuntimeError(f"{' '.join(str(part) for part in command)}\n{p.stderr}")


def build(directory, tree, optimise="-O1"):
    """Compiles and links DIR. Kernels tell the shim of each access, in the way that ThreadSanitizer has for it."""
    directory, tree = Path(directory), Path(tree)
    libraries = [tree / "lib" / name for name in LIBRARIES]
    include = ["-I", ROOT / "runtime", "-I", ROOT / "runtime" / "cuda", "-I", directory]
    extra = sanitizers(libraries[1])
    cxx, cc = os.environ.get("CXX", "g++"), os.environ.get("CC", "gcc")
    objects = []
    for source in sorted(directory.glob("*.c")) + sorted(directory.glob("*.cu")):
        target = directory / (source.name + ".o")
        if source.suffix == ".cu":
            run([cxx, "-x", "c++", "-std=c++17", optimise, "-g", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-fsanitize=thread",
                 "--param=tsan-distinguish-volatile=1", "-ffp-contract=fast", *include, "-I", HERE / "include",
                 "-include", "cudashim.h", "-c", source, "-o", target])
        else:
            run([cc, "-std=c17", optimise, "-g", *extra, "-ffp-contract=fast", *include, "-c", source, "-o", target])
        objects.append(target)
    run([cxx, *extra, *objects, *libraries, "-lcjson", "-lm", "-pthread", "-o", directory / "model"])
    for target in objects:
        target.unlink()


if __name__ == "__main__":
    reason = missing(sys.argv[2])
    if reason:
        sys.exit(reason)
    build(sys.argv[1], sys.argv[2])
