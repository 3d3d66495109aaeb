#!/bin/sh
# Builds autopar twice (debug with sanitizers, release), runs every test, installs it and uses what was installed.
#   ./test.sh            everything
#   ./test.sh quick      debug build and unit tests only
# AUTOPAR_DATA names a folder with models and ONNX backend tests (default ../shared); tests that need what is
# not there take public data from PyPI packages or are skipped with a count and a reason.
set -eu
cd "$(dirname "$0")"
./scripts/setup.sh tests
AUTOPAR_DATA=${AUTOPAR_DATA:-$PWD/../shared}
export AUTOPAR_DATA

./scripts/rules.sh
cmake --preset debug >/dev/null
cmake --build --preset debug
ctest --test-dir build/debug --output-on-failure -j "$(nproc)" -LE release
[ "${1:-all}" = quick ] && exit 0

cmake --preset release -DAP_CUDA_ARCHITECTURES=80-real >/dev/null # one of four, for the time it takes
cmake --build --preset release
run-clang-tidy -p build/release -quiet -j2 "$PWD/(ir|frontend|passes|backend|runtime|driver)/.*\.c\$" >build/tidy.log 2>&1 ||
    { cat build/tidy.log; exit 1; }
build/venv/bin/python -m pytest -q -ra -p no:cacheprovider -n "$(nproc)" --dist worksteal tests
./scripts/package.sh
ctest --test-dir build/release --output-on-failure -j "$(nproc)" -R '^(memory|backend/cuda_|runtime/(cuda|nccl)_)'
./scripts/fuzz.sh 5000
./scripts/tsan.sh
