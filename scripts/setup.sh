#!/bin/sh
# Brings a Debian 12 machine to where autopar builds and its tests run: packages by apt (as root or with
# sudo), the Python oracles in build/venv. What is there already is left alone, so a second run is quick.
#   scripts/setup.sh build     what the compiler and its runtime need
#   scripts/setup.sh tests     that, and what the tests need
# bench_gemm compares with libopenblas-pthread-dev; nothing else asks for it.
set -eu
cd "$(dirname "$0")/.."

build="gcc libc6-dev cmake ninja-build pkg-config protobuf-c-compiler libprotobuf-c-dev libglpk-dev \
libcjson-dev libcmocka-dev libxxhash-dev libyaml-dev zlib1g-dev libdnnl-dev openmpi-bin libopenmpi-dev scdoc"
# LLVM is found, not demanded: without it there is no JIT and no --codegen llvm.
tests="llvm-19-dev libzstd-dev g++ make clang libclang-rt-dev clang-format clang-tidy python3 python3-venv xz-utils"

want=$build
[ "${1:-build}" = tests ] && want="$build $tests"

missing=
for package in $want; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    root=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "setup: packages are missing and there is no sudo:$missing" >&2; exit 4; }
        root=sudo
    fi
    echo "setup: installing$missing"
    $root apt-get update -qq
    # shellcheck disable=SC2086 # a list of names
    DEBIAN_FRONTEND=noninteractive $root apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

[ "${1:-build}" = tests ] || exit 0
oracles="numpy==2.2.6 onnx==1.22.0 onnxruntime==1.23.2 pytest==8.4.2 pytest-xdist==3.8.0"
stamp=build/venv/.installed
if [ "$(cat "$stamp" 2>/dev/null)" != "$oracles" ]; then
    mkdir -p build
    rm -rf build/venv
    python3 -m venv build/venv
    # shellcheck disable=SC2086
    build/venv/bin/pip install --quiet --disable-pip-version-check $oracles
    echo "$oracles" >"$stamp"
fi
