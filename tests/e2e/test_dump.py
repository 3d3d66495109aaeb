"""dump --format dot, ops, and the tables behind help, manual and completion."""

import re
import shutil
import subprocess

import onnx
import pytest

from make_model import encoder_layer

TOKEN = re.compile(r'\s*(?:("(?:[^"\\\n]|\\.)*")|([A-Za-z_][A-Za-z0-9_]*|[0-9.]+)|(->|[\[\]{}=;,]))')


def parse_dot(text):
    """A parser of the part of the language that we write: ({node: label}, {(from, to)}). Raises on anything else."""
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        m = TOKEN.match(text, at)
        assert m, f"not dot: {text[at:at + 60]!r}"
        tokens.append(m.group().strip())
        at = m.end()
    nodes, edges = {}, set()
    pos = 0

    def take(expected=None):
        nonlocal pos
        t = tokens[pos]
        assert expected is None or t == expected, f"expected {expected}, found {t}"
        pos += 1
        return t

    def attributes():
        found = {}
        take("[")
        while tokens[pos] != "]":
            key = take()
            take("=")
            found[key] = take()
            if tokens[pos] == ",":
                take()
        take("]")
        return found

    def body():
        take("{")
        while tokens[pos] != "}":
            if tokens[pos] == "subgraph":
                take()
                assert take().startswith("cluster_")
                body()
                continue
            name = take()
            if tokens[pos] == "=":
                take()
                take()
            elif tokens[pos] == "->":
                take()
                edges.add((name, take()))
            else:
                found = attributes()
                if name != "node":
                    assert name not in nodes, f"{name} is declared twice"
                    nodes[name] = found
            take(";")
        take("}")

    take("digraph")
    take()
    body()
    assert pos == len(tokens)
    assert all(a in nodes and b in nodes for a, b in edges)
    return nodes, edges


def check_dot(text):
    if shutil.which("dot"):
        p = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True)
        assert p.returncode == 0 and not p.stderr, p.stderr
    return parse_dot(text)


@pytest.fixture
def layers(tmp_path):
    onnx.save(encoder_layer(layers=6), tmp_path / "layers.onnx")
    return tmp_path / "layers.onnx"


def test_dot_shows_reshards_and_repeats_once(autopar, layers, tmp_path):
    ir = autopar("dump", layers, "--devices", 4, "--format", "ir", "--state", "planned").stdout
    nodes, edges = check_dot(autopar("dump", layers, "--devices", 4, "--format", "dot").stdout)
    whole, _ = check_dot(autopar("dump", layers, "--devices", 4, "--format", "dot", "-v").stdout)
    drawn = lambda graph: sum(n.get("shape") == "octagon" for n in graph.values())
    assert drawn(whole) == len(re.findall(r"= reshard ", ir)) > 6
    (more,) = [n for n in nodes if "more" in n]
    assert "4 more like it" in nodes[more]["label"]
    assert len(nodes) < len(whole) / 2 and 0 < drawn(nodes) < drawn(whole)
    # everything hangs together: from the input to the output
    reached, todo = set(), ["f0_in0"]
    while todo:
        n = todo.pop()
        if n not in reached:
            reached.add(n)
            todo += [b for a, b in edges if a == n]
    assert more in reached and "f0_out0" in reached
    # the same graph from the plan that was kept
    autopar("plan", layers, "--devices", 4, "-o", tmp_path / "plan.json")
    again, _ = check_dot(autopar("dump", tmp_path / "plan.json", "--format", "dot").stdout)
    assert again == nodes


def test_dot_quotes_names(autopar, tmp_path):
    m = encoder_layer()
    for i, n in enumerate(m.graph.node):
        n.name = f'{i} "quoted" back\\slash \\N new\nline → {{|}} <b>'
    onnx.save(m, tmp_path / "odd.onnx")
    nodes, _ = check_dot(autopar("dump", tmp_path / "odd.onnx", "--devices", 2, "--format", "dot").stdout)
    labels = " ".join(n["label"] for n in nodes.values())
    assert '\\"quoted\\" back\\\\slash \\\\N new?line → {|} <b>' in labels


def test_dot_refusals(autopar, layers):
    assert "--state" in autopar("dump", layers, "--format", "dot", "--state", "local", code=2).stderr
    assert "dot" in autopar("dump", layers, "--format", "svg", code=2).stderr


def test_planning_options_are_heard(autopar, layers):
    """Whoever says how to plan sees the plan."""
    planned = autopar("dump", layers, "--devices", 4, "--stages", 2, "--format", "ir").stdout
    assert planned.startswith("pipeline ") and "stage1" in planned
    assert planned == autopar("dump", layers, "--devices", 4, "--stages", 2, "--format", "ir", "--state", "planned").stdout
    assert "pipeline" not in autopar("dump", layers, "--format", "ir").stdout
    normal = autopar("dump", layers, "--format", "ir", "--state", "normal").stdout
    assert normal == autopar("dump", layers, "--devices", 4, "--format", "ir", "--state", "normal").stdout


def opsets(text):
    """{opset} of a range text, up to 30"""
    found = set()
    for part in text.split(", "):
        m = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))", part)
        found |= set(range(int(m[1]), 31 if m[2] else int(m[3]) + 1))
    return found


def test_ops_agree_with_the_tables(autopar):
    root = autopar.path.parents[3]
    rows = {}
    define = "#define ONNX_OP(domain, name, since, ...) ROW domain name since __VA_ARGS__ END\n"
    source = define + (root / "frontend" / "onnx_ops.def").read_text()
    text = subprocess.run(["cc", "-E", "-P", "-x", "c", "-"], input=source, capture_output=True, text=True, check=True).stdout
    for m in re.finditer(r'ROW\s+"([^"]*)"\s+(\w+)\s+(\d+)(.*?)END', text, re.S):
        until = re.search(r"\.until = (\d+)", m[4])
        rows.setdefault((m[1] or "ai.onnx", m[2]), set()).update(range(int(m[3]), int(until[1]) + 1 if until else 31))
    assert len(rows) > 100
    ops = autopar.json("ops")
    assert {(o["domain"], o["name"]): opsets(o["opsets"]) for o in ops["onnx"]} == rows
    core = [m[1] for m in re.finditer(r'^OP\(\w+, \.name = "(\w+)"', (root / "ir" / "op.def").read_text(), re.M)]
    core += [m[1] for m in re.finditer(r"^POINTWISE\(\w+, (\w+),", (root / "ir/op/pointwise.def").read_text(), re.M)]
    assert [o["name"] for o in ops["core"]] == core
    plain, md = autopar("ops").stdout, autopar("ops", "--format", "md").stdout
    for o in ops["onnx"]:
        assert f"| {o['domain']} | {o['name']} | {o['opsets']} |" in md
        assert re.search(rf"^  {re.escape(o['domain'])} +{o['name']} +{re.escape(o['opsets'])}$", plain, re.M)
    assert "takes no" in autopar("ops", "more", code=2).stderr
    autopar("ops", "--format", "dot", code=2)


def test_tables_say_what_help_says(autopar):
    rows = [r.split("\t") for r in autopar("help", "--tables", "rows").stdout.splitlines()]
    commands = [r[0] for r in rows if r[1] == ":"]
    assert "tables" not in autopar("help", "help").stdout
    for c in commands:
        text = autopar("help", c).stdout
        shown = re.findall(r"^  (?:-\w, |    )(--[\w-]+) ?", text, re.M)
        assert shown == [r[1] for r in rows if r[0] == c and r[1].startswith("--")]
        manual = autopar("help", "--tables", "options", c).stdout.replace("\\", "")
        assert re.findall(r"^(?:\*-\w\*, )?\*(--[\w-]+)\*", manual, re.M) == shown
    autopar("help", "--tables", "nothing", code=2)


@pytest.mark.parametrize("name", ["features", "string", "kernels", "aprt"])
def test_names_that_are_headers(autopar, tmp_path, name):
    onnx.save(encoder_layer(), tmp_path / f"{name}.onnx")
    autopar("compile", tmp_path / f"{name}.onnx", "-o", tmp_path / "out")
    assert (tmp_path / "out" / f"m{name}.h").exists()
    p = autopar("compile", tmp_path / f"{name}.onnx", "-o", tmp_path / "other", "--name", name, code=2)
    assert f"'{name}' is taken" in p.stderr
