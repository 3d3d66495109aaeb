#!/bin/sh
# Builds the fuzz targets (clang, AddressSanitizer, UndefinedBehaviorSanitizer) and runs each for a fixed number of
# executions with a fixed seed, from the kept corpus. What it finds is written to build/fuzz/TARGET-*.
#   scripts/fuzz.sh [RUNS [TARGET...]]      RUNS per target (default 20000)
# AUTOPAR_FUZZ_SEED: another seed (default 1). The corpora grow in build/fuzz/corpus; nothing is written elsewhere.
set -eu
cd "$(dirname "$0")/.."

# --one TARGET RUNS: what is run side by side, one per processor
if [ "${1:-}" = --one ]; then
    target=$2
    rm -rf "build/fuzz/corpus/$target"
    mkdir -p "build/fuzz/corpus/$target" "build/fuzz/seeds/$target"
    dict=
    [ ! -f "tests/fuzz/$target.dict" ] || dict=-dict=tests/fuzz/$target.dict
    # shellcheck disable=SC2086 # empty or one word
    if "build/fuzz/bin/fuzz_$target" -seed="${AUTOPAR_FUZZ_SEED:-1}" -runs="$3" -max_len=16384 -timeout=20 \
        -rss_limit_mb=2048 -malloc_limit_mb=512 -artifact_prefix="build/fuzz/$target-" $dict \
        "build/fuzz/corpus/$target" "build/fuzz/seeds/$target" >"build/fuzz/$target.log" 2>&1; then
        echo "fuzz: $target: $(tail -1 "build/fuzz/$target.log")"
        exit 0
    fi
    echo "fuzz: $target: found something, see build/fuzz/$target.log" >&2
    grep -m3 -E 'ERROR|runtime error|^/.*\.c:' "build/fuzz/$target.log" >&2 || true
    exit 1
fi

runs=${1:-20000}
[ $# -eq 0 ] || shift
python=build/venv/bin/python
[ -x $python ] || python=python3

# The seeds are made by an autopar of any build; one of its own only where there is no other.
cmake --preset fuzz >/dev/null
autopar=build/release/bin/autopar
[ -x $autopar ] || autopar=build/debug/bin/autopar
[ -x $autopar ] || autopar=build/fuzz/bin/autopar
if [ $autopar = build/fuzz/bin/autopar ]; then
    cmake --build --preset fuzz --target fuzz_targets autopar
else
    cmake --build --preset fuzz --target fuzz_targets
fi
rm -rf build/fuzz/seeds
mkdir -p build/fuzz/corpus build/fuzz/seeds
cp -r tests/fuzz/corpus/. build/fuzz/seeds
$python tests/fuzz/make_corpus.py $autopar build/fuzz/seeds
for f in tests/ir/*.ap tests/passes/*.ap; do
    case $f in *local*) to=local ;; *pipeline*) to=pipeline ;; *program*) to=program ;; *) to=module ;; esac
    cp "$f" build/fuzz/seeds/$to
done

[ $# -gt 0 ] || set -- module pipeline local program pins plan cluster model tensor weights reference problem
printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' ./scripts/fuzz.sh --one '{}' "$runs"
