#!/bin/sh
# ThreadSanitizer over what runs in threads: exchanges and channels of the runtime, emitted kernels, several instances of two
# models at a time, compiled models on 2 and 4 devices, and the solver. Runtime and emitted code are both instrumented.
set -eu
cd "$(dirname "$0")/.."
cmake --preset tsan >/dev/null
cmake --build --preset tsan --target autopar unit_runtime_exchange unit_runtime_pipeline comm_check unit_backend_kernels \
    unit_backend_model
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=build/venv/bin/python
[ -x $python ] || python=python3
TSAN_OPTIONS=halt_on_error=1
export TSAN_OPTIONS

# One per processor; the longest first.
# shellcheck disable=SC2016 # for the shells that xargs starts
printf '%s\n' backend_model backend_kernels runtime_pipeline runtime_exchange | xargs -P "$(nproc)" -I '{}' sh -c '
    build/tsan/bin/unit_$1 >"$0/log_$1" 2>&1 || { cat "$0/log_$1" >&2; echo "tsan: unit_$1 failed" >&2; exit 1; }
    echo "tsan: unit_$1: clean"' "$scratch" '{}'

# Random programs of stages and channels.
for ranks in 3 6; do
    build/tsan/bin/comm_check programs $ranks 0 300 >"$scratch/log" 2>&1 ||
        { cat "$scratch/log" >&2; echo "tsan: random programs on $ranks ranks failed" >&2; exit 1; }
    echo "tsan: 300 random programs on $ranks ranks: clean"
done

# The solver on two threads, stopped by the clock of its third.
PYTHONPATH=tests/e2e PYTHONDONTWRITEBYTECODE=1 $python -c \
    'import json, sys, test_solve; json.dump(test_solve.grid(20), open(sys.argv[1], "w"))' "$scratch/grid.json"
build/tsan/bin/autopar solve "$scratch/grid.json" -q --threads 2 --timeout 5 >"$scratch/solution"
echo "tsan: solve: clean"

# Two runs of each program at a time, several requests each.
for model in mlp encoder; do
    $python tests/e2e/make_model.py $model "$scratch/$model.onnx"
    dims=
    [ $model != mlp ] || dims="--dim batch=4"
    for devices in 2 4; do
        dir=$scratch/$model$devices
        # shellcheck disable=SC2086 # two words or none
        build/tsan/bin/autopar compile "$scratch/$model.onnx" -q -o "$dir" --devices $devices --split force $dims
        pids=
        for k in 1 2; do
            mkdir "$dir/result$k"
            "$dir/model" --input x="$scratch/x.npy" --output-dir "$dir/result$k" --repeat 5 >"$dir/log$k" 2>&1 &
            pids="$pids $!"
        done
        k=0
        for pid in $pids; do
            k=$((k + 1))
            wait "$pid" || { cat "$dir/log$k" >&2; echo "tsan: $model on $devices devices failed" >&2; exit 1; }
        done
        cmp "$dir/result1/y.npy" "$dir/result2/y.npy"
        echo "tsan: $model on $devices devices: clean"
    done
done
