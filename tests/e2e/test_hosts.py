"""Several hosts: four network namespaces on a bridge, each with its own name, joined by nothing but TCP. A job of one or
two ranks in each has the bits of threads; a cut link, a killed rank end it everywhere. Needs root and `ip`."""

import os
import re
import shutil
import subprocess
import time

import numpy as np
import onnx
import pytest

from make_model import encoder_layer, random_inputs
from test_mpi import PATIENCE, all_gone, children, comm

HOSTS = 4
NET = "10.77.43"
pytestmark = pytest.mark.skipif(not shutil.which("mpirun") or not shutil.which("ip"), reason="there is no mpirun or no ip")

# What mpirun starts its daemons with: AGENT HOST COMMAND...
AGENT = """#!/bin/sh
n=${{1##*.}}
shift
exec ip netns exec {name}h$n unshare --uts sh -c "hostname host$n; $*"
"""


def ip(*args):
    return subprocess.run(["ip", *map(str, args)], capture_output=True, text=True)


class Net:
    def __init__(self, path):
        self.name = f"ap{os.getpid() % 100000}"
        self.agent = path / "agent"
        self.agent.write_text(AGENT.format(name=self.name))
        self.agent.chmod(0o755)

    def make(self):
        """The first complaint, or None."""
        steps = [("link", "add", f"{self.name}b", "type", "bridge"), ("link", "set", f"{self.name}b", "up"),
                 ("addr", "add", f"{NET}.254/24", "dev", f"{self.name}b")]
        for i in range(1, HOSTS + 1):
            host = f"{self.name}h{i}"
            steps += [("netns", "add", host),
                      ("link", "add", f"{self.name}v{i}", "type", "veth", "peer", "name", "eth0", "netns", host),
                      ("link", "set", f"{self.name}v{i}", "master", f"{self.name}b", "up"),
                      ("-n", host, "link", "set", "lo", "up"),
                      ("-n", host, "addr", "add", f"{NET}.{i}/24", "dev", "eth0"),
                      ("-n", host, "link", "set", "eth0", "up")]
        for step in steps:
            p = ip(*step)
            if p.returncode != 0:
                return f"ip {' '.join(step)}: {p.stderr.strip()}"
        return None

    def remove(self):
        for i in range(1, HOSTS + 1):
            ip("netns", "del", f"{self.name}h{i}")
        ip("link", "del", f"{self.name}b")

    def set_link(self, host, state):
        assert ip("link", "set", f"{self.name}v{host}", state).returncode == 0

    def file(self, path, ranks_each):
        path.write_text("".join(f"{NET}.{i} slots={ranks_each}\n" for i in range(1, HOSTS + 1)))
        return path

    def env(self, watchdog):
        return {**os.environ, "AUTOPAR_WATCHDOG": str(watchdog), "OMPI_MCA_plm_rsh_agent": str(self.agent),
                "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": f"{NET}.0/24",
                "OMPI_MCA_oob_tcp_if_include": f"{NET}.0/24", "ASAN_OPTIONS": "detect_leaks=0"}


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    n = Net(tmp_path_factory.mktemp("net"))
    why = n.make()
    if why:
        n.remove()
        pytest.skip(f"no network namespaces here: {why}")
    yield n
    n.remove()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder")
    m = encoder_layer()
    onnx.save(m, path / "encoder.onnx")
    np.save(path / "x.npy", random_inputs(m)["x"])
    return path / "encoder.onnx"


def compiled(autopar, encoder, out, *planning):
    if not (autopar.path.parent.parent / "lib" / "libautopar_rt_mpi.so").exists():
        pytest.skip("built without MPI")
    autopar("compile", encoder, "-o", out, *planning)
    return out


@pytest.mark.parametrize("each, planning", [
    (1, ("--devices", 4, "--split", "force")),
    (1, ("--devices", 4, "--stages", 4, "--microbatches", 2)),
    (2, ("--devices", 8, "--stages", 2, "--microbatches", 2)),
])
def test_same_bits(autopar, net, encoder, tmp_path, each, planning):
    out = compiled(autopar, encoder, tmp_path / "out", *planning)
    run = "run", out, "--input", f"x={encoder.parent}/x.npy", "--repeat", 3
    autopar(*run, "--output-dir", tmp_path / "threads")
    autopar(*run, "--output-dir", tmp_path / "hosts", "--launcher", "mpi", "--hosts",
            net.file(tmp_path / "hostfile", each), env=net.env(60))
    a, b = (np.load(tmp_path / d / "y.npy") for d in ("threads", "hosts"))
    assert a.tobytes() == b.tobytes()


def started(autopar, net, encoder, tmp_path, out, watchdog):
    """A long job; all its processes, and those of the ranks by host."""
    p = subprocess.Popen(["unshare", "--uts", "sh", "-c", 'hostname host0; exec "$@"', "sh", autopar.path, "run", out,
                          "--input", f"x={encoder.parent}/x.npy", "--output-dir", tmp_path, "--repeat", "1000000",
                          "--launcher", "mpi", "--hosts", net.file(tmp_path / "hostfile", 1)],
                         env=net.env(watchdog), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + PATIENCE
    while True:
        ranks = {host_of(net, c): c for c in everyone(net) if comm(c) == "model"}
        if len(ranks) == HOSTS:
            time.sleep(2)
            assert p.poll() is None, p.stderr.read()
            return p, everyone(net) + children(p.pid), ranks
        assert p.poll() is None and time.monotonic() < end, p.stderr.read() if p.poll() is not None else "too slow"
        time.sleep(0.05)


def everyone(net):
    """Processes of all hosts."""
    pids = []
    for i in range(1, HOSTS + 1):
        pids += [int(x) for x in ip("netns", "pids", f"{net.name}h{i}").stdout.split()]
    return pids


def host_of(net, pid):
    found = re.search(r"h(\d)$", ip("netns", "identify", pid).stdout.strip())
    return int(found.group(1)) if found else 0


def test_cut_link(autopar, net, encoder, tmp_path):
    """Both sides notice: nothing is left on any host, on either side of the cut."""
    out = compiled(autopar, encoder, tmp_path / "out", "--devices", 4, "--stages", 4, "--microbatches", 2)
    p, pids, _ = started(autopar, net, encoder, tmp_path, out, 3)
    net.set_link(3, "down")
    try:
        _, err = p.communicate(timeout=PATIENCE)
        assert p.returncode == 4, err
        assert "rank 2 on host3 has not been heard of for 3 seconds" in err
        all_gone(pids)
        assert not everyone(net)
    finally:
        net.set_link(3, "up")


def test_killed_rank(autopar, net, encoder, tmp_path):
    out = compiled(autopar, encoder, tmp_path / "out", "--devices", 4, "--split", "force")
    p, pids, ranks = started(autopar, net, encoder, tmp_path, out, 30)
    os.kill(ranks[2], 9)
    _, err = p.communicate(timeout=PATIENCE)
    assert p.returncode == 4 and "signal 9" in err, err
    all_gone(pids)
    assert not everyone(net)
