#!/usr/bin/env python3
"""Of each kernel of an emitted program for GPUs: threads of a block, registers, shared memory, and how many of a multiprocessor's warps
can be there at once, for sm_80 and sm_90.

    scripts/occupancy.py DIR [--nvcc PATH] [--runtime INCLUDE,...]       DIR: of `autopar compile --target cuda [--emit-only]`

Registers and static shared memory are ptxas's; threads and dynamic shared memory stand in kernels.cu at the launch. The formulas are
those of NVIDIA's occupancy calculator: registers are given to warps in pieces of 256, warps by fours, shared memory to blocks in
pieces of 128 bytes and 1 KiB more for the system. What else is in the way (few blocks, long waits) is not counted."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# per multiprocessor: warps, blocks, registers, bytes of shared memory (CUDA C++ Programming Guide, technical specifications)
LIMITS = {"sm_80": (64, 32, 65536, 164 << 10), "sm_90": (64, 32, 65536, 228 << 10)}


def resident_warps(arch, threads, registers, shared):
    """Warps of a kernel that a multiprocessor can hold, and of how many."""
    most_warps, most_blocks, all_registers, all_shared = LIMITS[arch]
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256
    by_registers = all_registers // per_warp // 4 * 4 // warps if per_warp else most_blocks
    by_shared = all_shared // (-(-(shared + 1024) // 128) * 128)
    return min(most_warps // warps, most_blocks, by_registers, by_shared) * warps, most_warps


def launches(text):
    """kernel: (threads, bytes of dynamic shared memory), from its launch."""
    found = {}
    for start in (m.end() for m in re.finditer(r"APRT_LAUNCH\(", text)):
        depth, parts, at = 1, [""], start
        while depth:
            c = text[at]
            depth += (c == "(") - (c == ")")
            if c == "," and depth == 1:
                parts.append("")
            elif depth:
                parts[-1] += c
            at += 1
        name, _, block, shared = (re.sub(r"\((?:int|int64_t|size_t|unsigned int)\)|INT64_C", "", p).strip() for p in parts[:4])
        found[name.strip("()").split("<")[0].strip()] = tuple(number(p, text) for p in (block, shared))
    return found


def number(expression, text):
    names = {"APRT_FOLD_BYTES": "512", "APRT_COLUMN_BYTES": "512"}
    for name, value in names.items():
        expression = expression.replace(name, value)
    if not re.fullmatch(r"[0-9+*/() ]+", expression):
        raise ValueError(f"'{expression}' is no number")
    return int(eval(expression.replace("/", "//")))


def compiled(nvcc, directory, include, arch):
    """kernel: (registers, bytes of static shared memory, bytes spilled)"""
    with tempfile.TemporaryDirectory() as work:
        p = subprocess.run([nvcc, "-std=c++17", "-O3", f"-arch={arch}", "-Xptxas", "-v", *(f"-I{i}" for i in include), "-c",
                            str(directory / "kernels.cu"), "-o", f"{work}/kernels.o"], capture_output=True, text=True)
    if p.returncode:
        sys.exit(p.stderr)
    found = {}
    for part in re.split(r"Compiling entry function '", p.stderr)[1:]:
        mangled = part.split("'")[0]
        name = re.match(r"_Z(?:L|N\d*_GLOBAL__N\w*?)?(\d+)(\w+)", mangled)
        name = name[2][:int(name[1])] if name else mangled
        spilled = sum(map(int, re.findall(r"(\d+) bytes spill", part)))
        shared = re.search(r"(\d+) bytes smem", part)
        found[name] = (int(re.search(r"Used (\d+) registers", part)[1]), int(shared[1]) if shared else 0, spilled)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--nvcc", default=os.environ.get("NVCC") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--runtime", type=lambda s: s.split(","), default=[ROOT / "runtime", ROOT / "runtime/cuda"])
    o = parser.parse_args()
    started = launches((o.dir / "kernels.cu").read_text())
    by_arch = {arch: compiled(o.nvcc, o.dir, o.runtime, arch) for arch in LIMITS}
    print("| kernel | threads | shared, bytes | registers sm_80 | resident | registers sm_90 | resident |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    for name, (threads, dynamic) in started.items():
        cells = []
        for arch, kernels in by_arch.items():
            registers, static, spilled = kernels[name]
            warps, of = resident_warps(arch, threads, registers, static + dynamic)
            cells += [f"{registers}{f', {spilled} bytes spilled' if spilled else ''}", f"{warps} of {of} warps"]
        print(f"| `{name}` | {threads} | {static + dynamic} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
