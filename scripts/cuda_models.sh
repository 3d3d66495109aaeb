#!/bin/sh
# All shared models for GPUs: emitted, compiled by nvcc for sm_80 and sm_90 with warnings as errors, registers and spills
# listed, run by the test shim on 1, 2, 4 devices and in 2 stages, compared with ONNX Runtime's outputs: those stored
# beside the model, or made here where there are none (PYTHON with onnx and onnxruntime). Prints a table; not part of CI.
#
#     scripts/cuda_models.sh [BUILD [MODEL...]]        BUILD: a build with tests (build/release)
#
# Per architecture: kernels; most registers of one; bytes spilled. Per way of running: ok and the seconds of the run, or
# the first line of what is wrong. AUTOPAR_DATA: where models/ is. CUDASHIM_SEED: the order of what is not ordered. NVCC:
# the compiler. The shim computes in plain loops and checks every access: the watchdog waits ten minutes.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/release}
[ $# -gt 0 ] && shift
models=${AUTOPAR_DATA:-$root/../shared}/models
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CUDASHIM_QUIET=1
export AUTOPAR_WATCHDOG="${AUTOPAR_WATCHDOG:-600}"
python=${PYTHON:-$root/build/venv/bin/python}
[ -x "$python" ] || python=python3
bad=0

# registers and spills of kernels.cu for one architecture, from ptxas
by_nvcc() {
    if ! "$nvcc" -std=c++17 -O3 -arch="$2" -Werror all-warnings -Xptxas -v -Xcompiler -Wall,-Wno-unknown-pragmas \
        -I "$root/runtime" -I "$root/runtime/cuda" -c "$1/kernels.cu" -o "$work/kernels.o" >"$work/ptxas" 2>&1; then
        echo "refused: $(grep -m1 -E 'error|warning' "$work/ptxas")"
        return 1
    fi
    awk '/Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used") r = $(i + 1) + 0; n++; if (r > most) most = r }
         /bytes spill stores/ { for (i = 1; i < NF; i++) if ($i == "bytes" && $(i + 1) == "spill") spilled += $(i - 1) }
         END { printf "%d kernels, %d registers, %d spilled\n", n, most, spilled; exit spilled > 0 }' "$work/ptxas"
}

# emitted, built with the shim, compared
by_shim() {
    name=$1
    data=$2
    shift 2
    rm -rf "$work/out"
    if ! "$build/bin/autopar" compile "$models/$name/model.onnx" -o "$work/out" --target cuda --emit-only -q \
        --shapes-from "$data" "$@" >"$work/log" 2>&1; then
        echo "not emitted: $(tail -1 "$work/log")"
        return 1
    fi
    if ! python3 "$root/tests/cudashim/build.py" "$work/out" "$build" >"$work/log" 2>&1; then
        echo "not built: $(grep -m1 error "$work/log")"
        return 1
    fi
    begin=$(date +%s)
    if ! timeout 1800 "$build/bin/autopar" check "$work/out" --data "$data" >"$work/log" 2>&1; then
        echo "wrong: $(head -1 "$work/log")"
        return 1
    fi
    echo "ok, $(($(date +%s) - begin)) s"
}

# The data set of a model; made if there is none. Fails for what is no model.
data_of() {
    [ -f "$models/$1/model.onnx" ] || return 1
    if [ -d "$models/$1/test_data_set_0" ]; then
        echo "$models/$1/test_data_set_0"
        return 0
    fi
    rm -rf "$work/data"
    "$python" "$root/tests/frontend/model_inputs.py" "$models" "$1" "$work/data" >"$work/log" 2>&1 || return 1
    echo "$work/data/test_data_set_0"
}

[ $# -gt 0 ] || set -- $(cd "$models" && ls -- */model.onnx | sed 's|/model.onnx||')
for name; do
    echo "$name"
    if ! data=$(data_of "$name"); then
        echo "    no data: $(tail -1 "$work/log" 2>/dev/null)"
        bad=1
        continue
    fi
    for ways in "--devices 1" "--devices 2" "--devices 4" "--devices 4 --split force" "--devices 2 --stages 2"; do
        # shellcheck disable=SC2086 # options
        result=$(by_shim "$name" "$data" $ways) || bad=1
        printf '    %-26s %s\n' "$ways" "$result"
        if [ "$ways" = "--devices 1" ] && [ -x "$nvcc" ] && [ -f "$work/out/kernels.cu" ]; then
            for arch in sm_80 sm_90; do
                result=$(by_nvcc "$work/out" $arch) || bad=1
                printf '    %-26s %s\n' "$arch" "$result"
            done
        fi
    done
done
exit $bad
