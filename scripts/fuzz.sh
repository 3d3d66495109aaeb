#!/bin/sh
# Builds the fuzz targets (clang, AddressSanitizer, UndefinedBehaviorSanitizer) and runs each for a fixed number of
# executions with a fixed seed, from the kept corpus. What it finds is written to build/fuzz/TARGET-*.
#   scripts/fuzz.sh [RUNS [TARGET...]]      RUNS per target (default 20000)
# AUTOPAR_FUZZ_SEED: another seed (default 1). The corpora grow in build/fuzz/corpus; nothing is written elsewhere.
set -eu
cd "$(dirname "$0")/.."
runs=${1:-20000}
[ $# -eq 0 ] || shift
python=build/venv/bin/python
[ -x $python ] || python=python3

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzz_targets autopar
rm -rf build/fuzz/seeds
mkdir -p build/fuzz/corpus build/fuzz/seeds
cp -r tests/fuzz/corpus/. build/fuzz/seeds
$python tests/fuzz/make_corpus.py build/fuzz/bin/autopar build/fuzz/seeds
for f in tests/ir/*.ap tests/passes/*.ap; do
    case $f in *local*) to=local ;; *pipeline*) to=pipeline ;; *program*) to=program ;; *) to=module ;; esac
    cp "$f" build/fuzz/seeds/$to
done

[ $# -gt 0 ] || set -- module pipeline local program pins plan cluster model tensor weights reference problem
bad=0
for target; do
    rm -rf "build/fuzz/corpus/$target"
    mkdir -p "build/fuzz/corpus/$target" "build/fuzz/seeds/$target"
    dict=
    [ ! -f "tests/fuzz/$target.dict" ] || dict=-dict=tests/fuzz/$target.dict
    # shellcheck disable=SC2086 # empty or one word
    if "build/fuzz/bin/fuzz_$target" -seed="${AUTOPAR_FUZZ_SEED:-1}" -runs="$runs" -max_len=16384 -timeout=20 \
        -rss_limit_mb=2048 -malloc_limit_mb=512 -artifact_prefix="build/fuzz/$target-" $dict \
        "build/fuzz/corpus/$target" "build/fuzz/seeds/$target" >"build/fuzz/$target.log" 2>&1; then
        echo "fuzz: $target: $(tail -1 "build/fuzz/$target.log")"
    else
        echo "fuzz: $target: found something, see build/fuzz/$target.log" >&2
        grep -m3 -E 'ERROR|runtime error|^/.*\.c:' "build/fuzz/$target.log" >&2 || true
        bad=1
    fi
done
exit $bad
