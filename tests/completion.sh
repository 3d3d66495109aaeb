#!/bin/bash
# completion.sh FILE: the installed completion, asked as bash asks it.
set -eu
# shellcheck disable=SC1090
source "$1"
# expect WORDS... -- : what is proposed for the last word
proposals() {
    COMP_WORDS=(autopar "$@")
    COMP_CWORD=$#
    _autopar
    echo "${COMPREPLY[*]-}"
}
expect() {
    local want=$1 got
    shift
    got=$(proposals "$@")
    if [[ " $got " != *" $want "* ]]; then
        echo "completion: '$*' proposes '$got', expected among them '$want'" >&2
        exit 1
    fi
}
refuse() {
    local unwanted=$1 got
    shift
    got=$(proposals "$@")
    if [[ " $got " == *" $unwanted "* ]]; then
        echo "completion: '$*' proposes '$unwanted'" >&2
        exit 1
    fi
}
expect compile comp
expect plan ""
refuse dump comp
expect --devices plan --dev
refuse --rtol plan --
expect --rtol check --
expect "text json ir dot trace" dump --format ""
expect dot dump --format = d
expect "text md" ops --format ""
expect force plan model.onnx --split ""
expect check help c
expect --timeout solve --t
refuse --timeout plan --
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
touch "$folder/model.onnx"
mkdir "$folder/data"
expect "$folder/model.onnx" plan "$folder/m"
expect "$folder/data" check out --data "$folder/"
refuse "$folder/model.onnx" check out --data "$folder/"
expect "$folder/model.onnx" compile --pin "$folder/m"
echo "completion: as expected"
