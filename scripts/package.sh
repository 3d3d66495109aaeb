#!/bin/sh
# The release build as others get it: installed, moved to another folder, and used from there by another user (when
# this is run as root): compile and run, find_package(autopar) with examples/two_models, pkg-config with the shared
# runtime, the CMakeLists.txt beside emitted code, manual pages, completion, README's worked example.
# Needs build/release, built, and build/venv with the onnx package.
#   scripts/package.sh [BUILD]    default build/release
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
python=$PWD/build/venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
complain() {
    echo "package: $1" >&2
    exit 1
}

cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/prefix" # it may be moved
prefix=$scratch/prefix
mkdir "$scratch/models" "$scratch/work"
cp -r examples/two_models "$scratch/example"
$python tests/e2e/make_model.py mlp "$scratch/models/mlp.onnx"
$python examples/two_models/make_models.py "$scratch/models"

# ---- what is there ----
lib=$(dirname "$(find "$prefix" -name libautopar_rt.a)")
for f in bin/autopar include/autopar_rt.h share/bash-completion/completions/autopar; do
    [ -e "$prefix/$f" ] || complain "$f is not installed"
done
[ -L "$lib/libautopar_rt.so" ] || complain "no libautopar_rt.so"
nm -D --defined-only "$lib/libautopar_rt.so" | awk '{ print $3 }' >"$scratch/symbols"
[ -s "$scratch/symbols" ] || complain "the shared runtime shows nothing"
while read -r symbol; do
    grep -q "\b$symbol(" runtime/autopar_rt.h || complain "the shared runtime shows $symbol, which autopar_rt.h does not declare"
done <"$scratch/symbols"
if command -v scdoc >/dev/null; then
    for command in $("$prefix/bin/autopar" help --tables rows | awk -F '\t' '$2 == ":" { print $1 }'); do
        page=$prefix/share/man/man1/autopar-$command.1
        [ -s "$page" ] || complain "no manual page of $command"
        for option in $("$prefix/bin/autopar" help "$command" | grep -o '^ .\{4\} --[a-z-]*' | grep -o '\--.*'); do
            tr -d '\\' <"$page" | grep -q -e "$option" || complain "$option is not in the manual page of $command"
        done
    done
else
    echo "package: no scdoc, manual pages are not checked"
fi

# ---- as another user, who may read the prefix but write only his own folder ----
as=
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$scratch"
    chmod -R a+rX "$scratch"
    chown 65534:65534 "$scratch/work"
    as="setpriv --reuid=65534 --regid=65534 --clear-groups"
else
    echo "package: not root, so that no other user is tried"
fi
cat >"$scratch/use.sh" <<'EOF'
set -eu
cd "$work"
"$prefix/bin/autopar" compile "$models/mlp.onnx" -o mlp --devices 2 --dim batch=4
"$prefix/bin/autopar" run mlp --input "x=$models/x.npy" --output-dir result
[ -s result/y.npy ]
if command -v mpirun >/dev/null && [ -e "$lib/libautopar_rt_mpi.so" ]; then
    "$prefix/bin/autopar" run mlp --input "x=$models/x.npy" --output-dir processes --launcher mpi
    cmp result/y.npy processes/y.npy
    # by itself it finds the plugin where it was linked
    mpirun --quiet --oversubscribe -n 2 mlp/model "$models/x.npy" --output-dir alone
    cmp result/y.npy alone/y.npy
else
    echo "package: no mpirun or no plugin, --launcher mpi is not tried"
fi

cmake -S "$example" -B two -DCMAKE_PREFIX_PATH="$prefix" -DMODELS="$models" >cmake.log || { cat cmake.log; exit 1; }
cmake --build two >build.log 2>&1 || { cat build.log; exit 1; }
two/two_models >printed.txt
cat printed.txt
cmp printed.txt "$models/expected.txt"

# the shared runtime, by pkg-config
PKG_CONFIG_PATH=$lib/pkgconfig:$work/mlp
export PKG_CONFIG_PATH
cat >use.c <<'EOC'
#include "mlp.h"
int main(void)
{
    static float x[4][16], y[4][8];
    mlp_instance *m;
    int bad = mlp_open(&(mlp_options){.weights = "mlp/weights.safetensors"}, &m);
    bad = bad ? bad : mlp_run(m, (const void *[]){x}, (void *[]){y});
    mlp_close(m);
    return bad;
}
EOC
# shellcheck disable=SC2046 # words
cc use.c -o use $(pkg-config --cflags --libs mlp)
readelf -d use | grep -q 'libautopar_rt.so.[0-9]'
LD_LIBRARY_PATH=$lib ./use

# emitted sources built anew against the package
"$prefix/bin/autopar" compile "$models/mlp.onnx" -o sources --name net --emit-only --dim batch=4 -q
cmake -S sources -B again -DCMAKE_PREFIX_PATH="$prefix" >cmake.log || { cat cmake.log; exit 1; }
cmake --build again >build.log 2>&1 || { cat build.log; exit 1; }
sources/model --input "x=$models/x.npy" --output-dir again
[ -s again/y.npy ]
EOF
$as env -i PATH="$PATH" HOME="$scratch/work" work="$scratch/work" prefix="$prefix" lib="$lib" \
    models="$scratch/models" example="$scratch/example" sh "$scratch/use.sh" || complain "the installed package does not work"

bash tests/completion.sh "$prefix/share/bash-completion/completions/autopar"
mkdir "$scratch/readme"
$python tests/e2e/make_model.py encoder "$scratch/readme/encoder.onnx"
PKG_CONFIG_PATH=$lib/pkgconfig:encoder LD_LIBRARY_PATH=$lib \
    $python scripts/readme_check.py README.md "$prefix/bin" "$scratch/readme"
echo "package: installed, moved and used"
