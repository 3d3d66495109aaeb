#!/usr/bin/env python3
"""readme_check.py README.md BIN MODELS: runs the worked example of the README in an empty folder, with BIN first in the
path and the files of MODELS beside it, and compares what is printed with what the README shows.

In a fenced block of kind `console` a line that begins with `$ ` is a command (a backslash at its end goes on), the
lines below it are what it prints; a line `...` stands for any number of lines, a block without output lines says nothing
about it; `...` at the end of a line, for the rest of it. A fenced block of kind `c` whose first line is `/* NAME.c */` is written to that file. Numbers with a decimal
point or an exponent are measured or depend on the machine: any number agrees with them, blanks with any blanks."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NUMBER = re.compile(r"\b\d+\.\d+(e[-+]?\d+)?\b|\b\d+e[-+]?\d+\b|\b[0-9a-f]{32}\b")


def blocks(text):
    for kind, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.S | re.M):
        yield kind, body


def commands(body):
    """[(command, [expected lines])]"""
    found, lines = [], iter(body.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines)
            found.append((command, []))
        else:
            found[-1][1].append(line)
    return found


def masked(line):
    return re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip()


def same(want, got):
    if want.endswith(" ..."):
        return got.startswith(want[:-4])
    return want == got


def agrees(want, got):
    """Each run of lines between `...` must occur in order, adjacent lines adjacent."""
    at = 0
    anchored = True
    parts = [[]]
    for line in want:
        if line.strip() == "...":
            parts.append([])
        else:
            parts[-1].append(masked(line))
    got = [masked(line) for line in got]
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        places = [at] if anchored else range(at, len(got) - len(part) + 1)
        if last and not anchored and part:
            places = [len(got) - len(part)]
        place = next((p for p in places if p >= at and len(got) >= p + len(part) and all(map(same, part, got[p:]))), None)
        if place is None:
            return False
        at = place + len(part)
        anchored = False
    return want[-1].strip() == "..." or at == len(got)


def main(readme, bin_dir, models):
    env = dict(os.environ, PATH=f"{Path(bin_dir).resolve()}:{os.environ['PATH']}")
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for f in Path(models).iterdir():
            if f.is_file():
                shutil.copy(f, folder)
        for kind, body in blocks(Path(readme).read_text()):
            named = re.match(r"/\* (\w+\.c)", body)
            if kind == "c" and named:
                (Path(folder) / named[1]).write_text(body)
            if kind != "console":
                continue
            for command, want in commands(body):
                p = subprocess.run(command, shell=True, cwd=folder, env=env, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, timeout=600)
                got = p.stdout.splitlines()
                if p.returncode != 0 or (want and not agrees(want, got)):
                    print(f"readme: $ {command}\nends with {p.returncode} and prints\n{p.stdout}\nthe README shows\n" + "\n".join(want))
                    return 1
                count += 1
    if count < 5:
        print(f"readme: only {count} commands found")
        return 1
    print(f"readme: {count} commands do what the README shows")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
