#!/usr/bin/env python3
"""Compares frontend/onnx.proto with the descriptors of the installed onnx package: same messages, same field numbers,
kinds and labels, same enumeration values. Exit code 77 (skipped) without the package.

    check_proto.py PATH/onnx.proto
"""
import re
import sys

try:
    from onnx import onnx_ml_pb2
except ImportError:
    print("skipped: no onnx package")
    sys.exit(77)

SCALARS = {1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 9: "string", 12: "bytes"}


def parse(text):
    """{message: {field number: (name, type, repeated)}} and {enum: {value}} of a proto file, names without package."""
    messages, enums, stack = {}, {}, []
    for line in re.sub(r"//[^\n]*", "", text).split("\n"):
        opened = re.match(r"\s*(message|enum|oneof)\s+(\w+)\s*{", line)
        field = re.match(r"\s*(optional |repeated |)([\w.]+)\s+(\w+)\s*=\s*(\d+)", line)
        value = re.match(r"\s*(\w+)\s*=\s*(\d+);", line)
        if opened:
            stack.append((opened[1], opened[2]))
            if opened[1] == "message":
                messages[".".join(n for k, n in stack if k == "message")] = {}
        elif line.strip() == "}":
            stack.pop()
        elif stack and stack[-1][0] == "enum" and value:
            enums.setdefault(".".join(n for k, n in stack), set()).add(int(value[2]))
        elif stack and field:
            name = ".".join(n for k, n in stack if k == "message")
            messages[name][int(field[4])] = (field[3], field[2], field[1] == "repeated ")
    return messages, enums


def theirs(descriptor, prefix, messages, enums):
    name = prefix + descriptor.name
    messages[name] = {}
    for f in descriptor.fields:
        kind = SCALARS.get(f.type) or (f.message_type or f.enum_type).name
        messages[name][f.number] = (f.name, kind, f.label == 3 if hasattr(f, "label") else f.is_repeated)
    for e in descriptor.enum_types:
        enums[name + "." + e.name] = {v.number for v in e.values}
    for nested in descriptor.nested_types:
        theirs(nested, name + ".", messages, enums)


def main():
    with open(sys.argv[1]) as f:
        our_messages, our_enums = parse(f.read())
    messages, enums = {}, {}
    for d in onnx_ml_pb2.DESCRIPTOR.message_types_by_name.values():
        theirs(d, "", messages, enums)
    bad = 0
    for name, fields in sorted(messages.items()):
        for number, field in sorted(fields.items()):
            ours = our_messages.get(name, {}).get(number)
            if ours != field:
                print("%s field %d: ours %s, theirs %s" % (name, number, ours, field))
                bad += 1
        for number in set(our_messages.get(name, {})) - set(fields):
            print("%s field %d is ours alone" % (name, number))
            bad += 1
    for name, values in sorted(enums.items()):
        if our_enums.get(name) != values:
            print("enum %s: ours %s, theirs %s" % (name, our_enums.get(name), values))
            bad += 1
    print("%d messages, %d enums compared, %d differences" % (len(messages), len(enums), bad))
    return 1 if bad or len(messages) < 20 else 0


sys.exit(main())
