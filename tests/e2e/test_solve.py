"""`autopar solve`: answers against enumeration and an evaluation of our own, in every form of output; what is refused;
signals and limits; the planner's problem, dumped and solved."""

import gzip
import itertools
import json
import random
import re
import signal
import subprocess
import time

import onnx
import pytest

from make_model import encoder_layer, mlp

FORBIDDEN = 10**18


def make(r, nodes, strategies, memory=True, pairs=True):
    """A random problem; costs may be negative, entries forbidden, edges parallel, intervals empty."""
    n = [r.randint(1, strategies) for _ in range(nodes)]
    cost = lambda: FORBIDDEN if r.random() < 0.08 else r.randint(-20, 60)
    interval = lambda: (lambda lo: [lo, lo + r.choice([0, 1, 2, 5])])(r.randint(0, 8))
    usage = lambda k: [r.randint(0, 20) for _ in range(k)]
    ends = [r.sample(range(nodes), 2) for _ in range(2 * nodes)] if nodes > 1 else []
    p = {
        "name": "random",
        "nodes": {"intervals": [interval() for _ in n], "costs": [[cost() for _ in range(k)] for k in n], "usages": [usage(k) for k in n]},
        "edges": {"nodes": ends, "costs": [[cost() for _ in range(n[u] * n[v])] for u, v in ends]},
    }
    if memory:
        p["usage_limit"] = r.randint(10, 20 + 8 * nodes)
    if pairs and ends:
        e = [r.randrange(len(ends)) for _ in range(3)]
        p["pair_demands"] = {"edges": e, "intervals": [interval() for _ in e], "usages": [usage(len(p["edges"]["costs"][i])) for i in e]}
        v = [r.randrange(nodes) for _ in range(2)]
        p["demands"] = {"nodes": v, "intervals": [interval() for _ in v], "usages": [usage(n[i]) for i in v]}
    return {"problem": p}


def evaluate(problem, x):
    """(cost, peak)"""
    p = problem["problem"]
    nodes, edges = p["nodes"], p["edges"]
    entry = lambda e: x[edges["nodes"][e][0]] * len(nodes["costs"][edges["nodes"][e][1]]) + x[edges["nodes"][e][1]]
    assert len(x) == len(nodes["costs"])
    cost = sum(c[i] for c, i in zip(nodes["costs"], x)) + sum(c[entry(e)] for e, c in enumerate(edges["costs"]))
    held = [(iv, u[i]) for iv, u, i in zip(nodes["intervals"], nodes["usages"], x)]
    more = p.get("demands", {"nodes": [], "intervals": [], "usages": []})
    held += [(iv, u[x[v]]) for v, iv, u in zip(more["nodes"], more["intervals"], more["usages"])]
    pair = p.get("pair_demands", {"edges": [], "intervals": [], "usages": []})
    held += [(iv, u[entry(e)]) for e, iv, u in zip(pair["edges"], pair["intervals"], pair["usages"])]
    change = {}
    for (lo, hi), bytes in held:
        change[lo] = change.get(lo, 0) + bytes
        change[hi] = change.get(hi, 0) - bytes
    return cost, max(itertools.accumulate((change[t] for t in sorted(change)), initial=0))


def enumerate_all(problem):
    p = problem["problem"]
    best = None
    for x in itertools.product(*(range(len(c)) for c in p["nodes"]["costs"])):
        cost, peak = evaluate(problem, x)
        if cost < FORBIDDEN // 2 and peak <= p.get("usage_limit", peak) and (best is None or cost < best):
            best = cost
    return best


def write(path, problem, packed=False, indent=None):
    text = json.dumps(problem, indent=indent).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    return path


def check(problem, x, cost=None):
    got, peak = evaluate(problem, x)
    assert peak <= problem["problem"].get("usage_limit", peak)
    assert got < FORBIDDEN // 2
    if cost is not None:
        assert got == cost
    return got


def last_line(p):
    return json.loads(p.stdout.splitlines()[-1])


@pytest.mark.parametrize("seed", range(12))
def test_small(autopar, tmp_path, seed):
    r = random.Random(seed)
    problem = make(r, r.randint(1, 6), 4, memory=seed % 4 > 0, pairs=seed % 3 > 0)
    path = write(tmp_path / "p", problem, packed=seed % 2 == 0, indent=seed % 3 or None)
    least = enumerate_all(problem)
    if least is None:
        p = autopar("solve", path, code=3)
        assert p.stdout == "" and "no solution (proven)" in p.stderr
        return
    p = autopar("solve", path)
    assert check(problem, last_line(p)) == least
    j = autopar.json("solve", path, "-o", tmp_path / "s")
    assert j["cost"] == j["bound"] == least and j["gap"] == 0 and j["proof"] != "none"
    assert check(problem, json.loads((tmp_path / "s").read_text())) == least
    assert 0 <= j["seconds_to_best"] <= j["seconds"] and set(j["phases"]) >= {"read", "check"}
    assert abs(sum(j["phases"].values()) - j["seconds"]) < 1e-6
    j = autopar.json("solve", path)
    check(problem, j["solution"], least)
    assert json.loads(autopar("solve", path, "-q").stdout) == j["solution"]


def grid(side, seed=0):
    """Too much for a proof within seconds, with answers at once: a torus with a memory limit."""
    r = random.Random(seed)
    n, k = side * side, 5
    costs = [[r.randint(0, 1000) for _ in range(k)] for _ in range(n)]
    ends = [[v, w] for v in range(n) for w in ((v // side) * side + (v + 1) % side, (v + side) % n) if v != w]
    usages = [[1000 - c + r.randint(0, 300) for c in row] for row in costs]
    p = {
        "nodes": {"intervals": [[v // 7, v // 7 + 12] for v in range(n)], "costs": costs, "usages": [[max(u, 0) for u in row] for row in usages]},
        "edges": {"nodes": ends, "costs": [[r.randint(0, 1500) for _ in range(k * k)] for _ in ends]},
    }
    problem = {"problem": p}
    _, least = evaluate(problem, [min(range(k), key=row.__getitem__) for row in p["nodes"]["usages"]])
    p["usage_limit"] = least * 13 // 10
    return problem


def test_time_limit(autopar, tmp_path):
    problem = grid(40)
    path = write(tmp_path / "p.json.gz", problem, packed=True)
    j = autopar.json("solve", path, "--timeout", 3)
    check(problem, j["solution"], j["cost"])
    assert j["bound"] <= j["cost"] and 0 <= j["gap"] < 1


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signal(autopar, tmp_path, sig):
    problem = grid(40)
    path = write(tmp_path / "p.json", problem)
    p = subprocess.Popen([str(autopar.path), "solve", str(path), "--timeout", "300"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(4)
    p.send_signal(sig)
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0, err
    check(problem, json.loads(out.splitlines()[-1]))


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_signal_at_any_time(autopar, tmp_path, sig):
    """While the file is read, presolved or searched: the best so far, or nothing, whole."""
    problem = grid(40)
    path, out = write(tmp_path / "p.json.gz", problem, packed=True), tmp_path / "s"
    for i in range(8):
        out.unlink(missing_ok=True)
        p = subprocess.Popen([str(autopar.path), "solve", str(path), "-o", str(out), "-q"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.04 * i)
        p.send_signal(sig)
        text, err = p.communicate(timeout=120)
        assert p.returncode in (0, 3, -sig), err  # nothing by then; or not yet on its way
        assert out.exists() == (p.returncode == 0)
        if p.returncode == 0:
            check(problem, json.loads(out.read_text()))
            assert text == out.read_text()
        assert not list(tmp_path.glob("*.part*"))


def test_short_time(autopar, tmp_path):
    """There is an answer all the same."""
    problem = grid(40)
    path = write(tmp_path / "p.json", problem)
    j = autopar.json("solve", path, "--timeout", "0.05")
    check(problem, j["solution"], j["cost"])


def test_budget(autopar, tmp_path):
    """The same bytes, whatever the threads; more work is not worse."""
    path = write(tmp_path / "p.json", grid(12))
    out = [autopar("solve", path, "-q", "--budget", 300000, "--threads", n).stdout for n in (1, 1, 2)]
    assert out[0] == out[1] == out[2]
    assert json.loads(autopar("solve", path, "--json", "--budget", 3000000).stdout)["cost"] <= evaluate(grid(12), json.loads(out[0]))[0]


NODES = '"nodes": {"intervals": [[0, 1], [0, 1]], "costs": [[1, 2], [3]], "usages": [[4, 5], [6]]}'
EDGES = '"edges": {"nodes": [[0, 1]], "costs": [[7, 8]]}'
REFUSED = {
    "empty": ("", ":1:1: the file ends where '{' should stand"),
    "not json": ('{"problem":\n  x}', ":2:3: 'x' where '{' should stand"),
    "fraction": ('{"problem": {%s, %s, "usage_limit": 1.5}}' % (NODES, EDGES), "numbers must be whole"),
    "no strategy": ('{"problem": {%s, %s}}' % (NODES.replace("[3]", "[]").replace("[6]", "[]"), EDGES), "node 1 has no strategy"),
    "ragged": ('{"problem": {%s, %s}}' % (NODES, EDGES.replace("[[7, 8]]", "[[7]]")), "edge 0 has 1 costs, its strategies make 2"),
    "large": ('{"problem": {%s, %s}}' % (NODES.replace("[3]", "[%d]" % (10**18 - 1)), EDGES), "costs are too large"),
    "usages": ('{"problem": {%s, %s}}' % (NODES.replace("[6]", "[%d]" % (2**63 - 1)), EDGES), "memory demands are too large"),
    "hyperedge": ('{"problem": {%s, %s}}' % (NODES, EDGES.replace("[0, 1]", "[0, 1, 1]")), "edge 0 joins 3 nodes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(autopar, tmp_path, name):
    text, message = REFUSED[name]
    path = tmp_path / "p.json"
    path.write_text(text)
    p = autopar("solve", path, "-o", tmp_path / "s", code=1)
    assert p.stdout == "" and len(p.stderr.splitlines()) == 1 and not (tmp_path / "s").exists()
    assert str(path) in p.stderr and message in p.stderr


def test_environment(autopar, tmp_path):
    assert "cannot open" in autopar("solve", tmp_path / "nothing.json", code=4).stderr
    assert "not a regular file" in autopar("solve", tmp_path, code=4).stderr
    one = {"nodes": {"intervals": [[0, 2]], "costs": [[1, 2]], "usages": [[5, 4]]}, "edges": {"nodes": [], "costs": []}}
    path = write(tmp_path / "p.json", {"problem": one})
    p = autopar("solve", path, "-o", tmp_path / "no" / "where", code=4)
    assert "cannot create" in p.stderr and last_line(p) == [0]  # the answer is not lost
    for option in ("--timeout", "--budget", "--threads"):
        p = autopar("solve", path, option, "-1", code=2)
        assert p.stdout == "" and option[2:] in p.stderr


def test_infeasible(autopar, tmp_path):
    one = {"nodes": {"intervals": [[0, 2]], "costs": [[1, 2]], "usages": [[5, 4]]}, "edges": {"nodes": [], "costs": []}}
    path = write(tmp_path / "p.json", {"problem": one | {"usage_limit": 3}})
    p = autopar("solve", path, code=3)
    assert p.stdout == "" and "no solution (proven)" in p.stderr and "holds at least 4; the limit is 3" in p.stderr
    assert "the limit is -1" in autopar("solve", write(path, {"problem": one | {"usage_limit": -1}}), code=3).stderr
    one["nodes"]["usages"] = [[2**61 + 9, 2**62 - 1]]
    p = autopar("solve", write(path, {"problem": one | {"usage_limit": 2**61}}), code=3)
    least = int(re.search(r"holds at least (\d+)", p.stderr)[1])
    assert 2**61 < least <= 2**61 + 9
    one["nodes"]["costs"] = [[FORBIDDEN, FORBIDDEN]]
    assert "forbidden entries exclude every choice" in autopar("solve", write(path, {"problem": one}), code=3).stderr
    nothing = {"nodes": {"intervals": [], "costs": [], "usages": []}, "edges": {"nodes": [], "costs": []}}
    p = autopar("solve", write(path, {"problem": nothing}))
    assert last_line(p) == [] and "cost 0" in p.stdout


def test_name_is_text(autopar, tmp_path):
    """A name is told in UTF-8, whatever the file has in its place."""
    head = b'{"problem": {"nodes": {"intervals": [], "costs": [], "usages": []}, "edges": {"nodes": [], "costs": []}, "name": "'
    long = "\u20ac" * 60
    for name, told in (("h\u00e9 \u20ac \U0001f600".encode(), "h\u00e9 \u20ac \U0001f600"), (b"a\xffb\xc3", "a?b?"), (b"\xe0\x80\x80\xed\xa0\x80", "?" * 6), (long.encode(), long[:42] + "?")):
        (tmp_path / "p.json").write_bytes(head + name + b'"}}')
        assert autopar.json("solve", tmp_path / "p.json")["name"] == told


MODELS = {"mlp": (mlp(batch=8), ()), "encoder": (encoder_layer(), ("--memory", "100kB")), "deep": (encoder_layer(layers=3), ())}


@pytest.mark.parametrize("mesh", ["4", "2x2"])
@pytest.mark.parametrize("name", MODELS)
def test_dump_problem(autopar, tmp_path, name, mesh):
    """What the planner asks costs what the planner's plan costs."""
    m, options = MODELS[name]
    onnx.save(m, tmp_path / "m.onnx")
    plan = autopar.json("plan", tmp_path / "m.onnx", "--devices", 4, "--mesh", mesh, *options, "--budget", 2000000, "--dump-problem", tmp_path / "p.json")
    problem = json.loads((tmp_path / "p.json").read_text())
    j = autopar.json("solve", tmp_path / "p.json", "--budget", 2000000)
    check(problem, j["solution"], j["cost"])
    assert j["cost"] == round(plan["seconds"] * 1e12) and j["bound"] <= j["cost"]
    assert j["gap"] == pytest.approx(plan["gap"])
    if options:
        assert len(problem["problem"]["pair_demands"]["edges"]) > 0 and problem["problem"]["usage_limit"] == 100000


def test_dump_problem_without_plan(autopar, tmp_path):
    """Written before it is solved: a problem without an answer can be looked at."""
    onnx.save(encoder_layer(), tmp_path / "m.onnx")
    autopar("plan", tmp_path / "m.onnx", "--devices", 4, "--memory", "1kB", "--dump-problem", tmp_path / "p.json", code=3)
    assert "no solution (proven)" in autopar("solve", tmp_path / "p.json", code=3).stderr


def test_gap_is_shown(autopar, tmp_path):
    onnx.save(encoder_layer(), tmp_path / "m.onnx")
    j = autopar.json("plan", tmp_path / "m.onnx", "--devices", 2)
    assert j["gap"] == 0 and j["bound"] == j["seconds"]
    text = autopar("plan", tmp_path / "m.onnx", "--devices", 2).stdout
    assert "solver: bound " in text and ", gap 0, proven by " in text
