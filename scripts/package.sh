#!/bin/sh
# Installs the release build into a scratch prefix and compiles, runs a model with it from another folder.
set -eu
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install build/release --prefix "$scratch/prefix" >/dev/null
build/venv/bin/python tests/e2e/make_model.py mlp "$scratch/mlp.onnx"
cd "$scratch"
prefix/bin/autopar compile mlp.onnx -o out --devices 2 --dim batch=4
mkdir -p result
prefix/bin/autopar run out --input x=x.npy --output-dir result
[ -s result/y.npy ] || { echo "package: no output" >&2; exit 1; }
echo "package: installed program compiles and runs"
