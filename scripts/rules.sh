#!/bin/sh
# The rules of the house that a machine can check: format, arrows between rooms, no operator known by name where
# tables must serve (docs/tour.md), file sizes, licence lines.
set -eu
cd "$(dirname "$0")/.."
bad=0
complain() {
    echo "rules: $1" >&2
    bad=1
}

sources=$(find ir frontend passes backend runtime driver tests examples -name '*.[ch]')

# shellcheck disable=SC2086 # a list of files without blanks
clang-format --dry-run --Werror $sources || complain "run clang-format -i on the files above"

# Back ends know no operators; passes only where they match patterns or legalise.
if grep -n 'AP_OP_[A-Z]' -r backend runtime; then
    complain "AP_OP_ in backend or runtime"
fi
patterns='passes/(fold|slices|views|embed|rows|refine|refine_apply)\.c'
if grep -n 'AP_OP_[A-Z]' -r passes | grep -vE "^$patterns:" | grep -v AP_OP_COUNT; then
    complain "AP_OP_ in a pass that matches no patterns"
fi

# frontend, passes, backend never include each other; ir includes none of them; runtime includes nothing of the compiler.
arrows() {
    if grep -nE "#include \"($2)/" -r "$1" --include='*.[ch]'; then
        complain "$1 must not include $2"
    fi
}
arrows ir 'frontend|passes|backend|driver|runtime'
arrows frontend 'passes|backend|driver|runtime'
arrows passes 'frontend|backend|driver|runtime'
# The tables of a program that LLVM compiles are made in memory, in the types of the runtime's header.
if grep -nE '#include "runtime/' -r backend --include='*.[ch]' | grep -v '^backend/llvm/.*"runtime/autopar_rt.h"'; then
    complain "backend must not include runtime, but for autopar_rt.h in backend/llvm"
fi
arrows backend 'frontend|passes|driver'
arrows runtime 'ir|frontend|passes|backend|driver'

# shellcheck disable=SC2086
long=$(wc -l $sources | awk '$2 != "total" && $1 > 900 { print $2 }')
[ -z "$long" ] || complain "over 900 lines: $long"

# What goes into output, or is linked with it, is MIT.
for f in runtime/*.[ch] runtime/*/*.[ch]* runtime/*/*/*.[ch]* ir/op/pointwise.def examples/*/*.c; do
    head -2 "$f" | grep -q 'SPDX-License-Identifier: MIT' || complain "$f: no MIT SPDX line"
done
exit $bad
