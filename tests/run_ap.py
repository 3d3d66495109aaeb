#!/usr/bin/env python3
"""Runs the text tests: every .ap file below a folder.

    run_ap.py APOPT FOLDER [NAME...]

A file says how it is run and what must come out, in comments:

    ; RUN: apopt %s --passes=explicit     any number; %s is the file
    ; CHECK: text                         on a line further down than the last match
    ; CHECK-NEXT: text                    on the very next line
    ; CHECK-NOT: text                     not between the matches around it
    ; CHECK-LABEL: text                   like CHECK; what stands between two labels is matched there only
    ; ERROR: text                         in a message; the command must then fail, else it must succeed

Texts match anywhere in a line, with runs of blanks equal to one; {{...}} holds a regular expression.
With several RUN lines each must satisfy all checks. For every file that parses, printing, parsing and
printing again must give the same text; a file without RUN line is a golden one: it must print as itself.
"""
import os
import re
import subprocess
import sys
import tempfile

DIRECTIVE = re.compile(r";\s*(RUN|CHECK|CHECK-NEXT|CHECK-NOT|CHECK-LABEL|ERROR):\s*(.*?)\s*$")


def squeeze(text):
    return re.sub(r"[ \t]+", " ", text).strip()


def pattern(text):
    parts = re.split(r"\{\{(.*?)\}\}", squeeze(text))
    return re.compile("".join(p if i % 2 else re.escape(p) for i, p in enumerate(parts)))


def read(path):
    runs, checks, errors = [], [], []
    with open(path, encoding="utf-8", errors="surrogateescape") as f:
        for number, line in enumerate(f, 1):
            m = DIRECTIVE.search(line)
            if not m:
                continue
            kind, text = m.groups()
            if kind == "RUN":
                runs.append(text)
            elif not text:
                raise ValueError(f"{path}:{number}: {kind} without text")
            elif kind == "ERROR":
                errors.append((number, text))
            else:
                checks.append((number, kind, text))
    return runs, checks, errors


def find(lines, start, end, regex):
    for i in range(start, end):
        if regex.search(lines[i]):
            return i
    return None


def match_section(lines, start, end, checks):
    """Checks without labels on lines[start:end]; a message, or None."""
    at, forbidden = start, []
    for number, kind, text in checks + [(0, "END", "")]:
        if kind == "CHECK-NOT":
            forbidden.append((number, text))
            continue
        if kind == "END":
            hit = end
        elif kind == "CHECK-NEXT":
            hit = at if at < end and pattern(text).search(lines[at]) else None
        else:
            hit = find(lines, at, end, pattern(text))
        if hit is None:
            where = lines[at] if at < end else "the end"
            return f"line {number}: {kind}: {text}\n    not found; searched from: {where}"
        for n, t in forbidden:
            bad = find(lines, at, hit, pattern(t))
            if bad is not None:
                return f"line {n}: CHECK-NOT: {t}\n    found: {lines[bad]}"
        at, forbidden = hit + 1, []
    return None


def match(output, checks):
    lines = [squeeze(s) for s in output.splitlines()]
    sections, at = [[0, []]], 0
    for c in checks:
        if c[1] != "CHECK-LABEL":
            sections[-1][1].append(c)
            continue
        hit = find(lines, at, len(lines), pattern(c[2]))
        if hit is None:
            return f"line {c[0]}: CHECK-LABEL: {c[2]}\n    not found"
        sections.append([hit + 1, []])
        at = hit + 1
    for i, (start, part) in enumerate(sections):
        end = sections[i + 1][0] - 1 if i + 1 < len(sections) else len(lines)
        message = match_section(lines, start, end, part)
        if message:
            return message
    return None


def run(apopt, arguments):
    p = subprocess.run([apopt] + arguments, capture_output=True, timeout=300)
    return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")


def check_run(apopt, path, command, checks, errors):
    words = [path if w == "%s" else w for w in command.split()]
    if not words or words[0] != "apopt":
        return f"RUN: {command}: only apopt can be run"
    code, out, err = run(apopt, words[1:])
    if code < 0 or "Sanitizer" in err or "runtime error" in err:
        return f"RUN: {command}: crashed ({code})\n{err}"
    if errors:
        if code == 0:
            return f"RUN: {command}: must fail but succeeded"
        for number, text in errors:
            if not pattern(text).search(squeeze(err)):
                return f"line {number}: ERROR: {text}\n    messages were:\n{err}"
    elif code != 0:
        return f"RUN: {command}: exit code {code}\n{err}"
    message = match(out, checks)
    return f"RUN: {command}: {message}\n--- output\n{out}" if message else None


def check_stability(apopt, path, runs, errors):
    flags = ["--print-only"] + (["--read-local"] if any("--read-local" in r for r in runs) else [])
    code, first, err = run(apopt, [path] + flags)
    if code != 0:
        return None if errors else f"--print-only: exit code {code}\n{err}"
    if not runs:
        with open(path, encoding="utf-8") as f:
            if f.read() != first:
                return f"does not print as itself:\n{first}"
    with tempfile.TemporaryDirectory() as folder:
        again = os.path.join(folder, "again.ap")
        with open(again, "w", encoding="utf-8") as f:
            f.write(first)
        code, second, err = run(apopt, [again] + flags)
    if code != 0:
        return f"its own print does not parse\n{err}"
    return None if first == second else f"print(parse(print)) differs\n--- first\n{first}--- second\n{second}"


def check_file(apopt, path):
    runs, checks, errors = read(path)
    if (checks or errors) and not runs:
        return "CHECK or ERROR without RUN"
    for command in runs:
        message = check_run(apopt, path, command, checks, errors)
        if message:
            return message
    return check_stability(apopt, path, runs, errors)


def main():
    apopt, root, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    paths = [os.path.join(d, f) for d, _, files in os.walk(root) for f in files if f.endswith(".ap")]
    passed = failed = 0
    for path in sorted(paths):
        name = os.path.relpath(path, root)
        if names and not any(n in name for n in names):
            continue
        try:
            message = check_file(apopt, path)
        except (ValueError, subprocess.TimeoutExpired) as e:
            message = str(e)
        if message:
            failed += 1
            print(f"FAILED {name}: {message}")
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
