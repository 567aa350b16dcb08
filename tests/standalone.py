"""A real standalone cluster, as the benchmark tool starts one; its machines have networks of their own where possible.

A host is a network namespace with an address on a bridge. Where the machine allows none, everything is on loopback, and
tests that are about addresses say why they are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from penstock.testing.servers import HOST
from penstock_bench.meter.standalone import Host, Standalone, standalone

CORES, MEMORY = 2, "1g"
"""Of each machine."""


@dataclass(frozen=True)
class Cluster:
    """A master's address, and the environment of whoever uses it.

    Attributes
    ----------
    address : str
        Of the machine that the master and the driver are on.
    alone : str
        Why its workers have no hosts of their own; empty: they have.
    work : path
        Where executors work.
    made : Standalone
        What the machines are added to.
    """

    master: str
    environment: dict[str, str]
    address: str
    alone: str
    work: Path
    made: Standalone
    last: Host

    @contextmanager
    def without_the_last(self) -> Iterator[set[int]]:
        """Lose the machine that came last, with the processes that are told; it is back afterwards."""
        killed = self.made.lose()
        try:
            yield killed
        finally:
            self.made.add(CORES, MEMORY, self.last)


def _ip(*arguments: str, check: bool = True) -> bool:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True).returncode == 0


LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    server.settimeout(5)
    server.accept()
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


def _reaches(one: Host, other: Host) -> bool:
    """Whether a connection can be made from one to the other: a firewall may be in between."""
    python = (sys.executable, "-S", "-c")
    command = [*other.command, *python, LISTEN, other.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as listener:
        assert listener.stdout is not None
        port = listener.stdout.readline().strip()
        command = [*one.command, *python, CONNECT, other.address, port]
        return bool(port) and subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def hosts(count: int) -> Iterator[tuple[str, str, Sequence[Host]]]:
    """This machine's address towards some hosts, why there are none, and the hosts."""
    number = os.getpid()
    bridge, subnet = f"psb{number}", f"10.{64 + number % 128}.{number // 128 % 256}"
    names = [f"penstock-{number}-{each}" for each in range(count)]
    alone = ""
    if shutil.which("ip") is None or os.geteuid() != 0:
        alone = "only root, with iproute2, can make network namespaces"
    elif not _ip("link", "add", bridge, "type", "bridge", check=False):
        alone = "this machine does not allow a bridge between network namespaces"
    elif not all(_ip("netns", "add", name, check=False) for name in names):
        alone = "this machine does not allow network namespaces"
    try:
        if alone:
            yield HOST, alone, [Host(HOST)] * count
            return
        _ip("addr", "add", f"{subnet}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        found = []
        for at, name in enumerate(names):
            outer, address = f"ps{number}v{at}", f"{subnet}.{at + 2}"
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", outer, "master", bridge, "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            found.append(Host(address, ("ip", "netns", "exec", name)))
        if not all(_reaches(one, other) for one, other in pairwise([Host(f"{subnet}.1"), *found])):
            yield HOST, "network namespaces of this machine do not reach each other", [Host(HOST)] * count
            return
        yield f"{subnet}.1", "", found
    finally:
        for name in names:
            _ip("netns", "del", name, check=False)
        _ip("link", "del", bridge, check=False)


@contextmanager
def cluster_of_two(directory: Path) -> Iterator[Cluster]:
    """A master and two machines of two slots each."""
    with hosts(2) as (address, alone, machines), standalone(directory, address) as made:
        made.add(CORES, MEMORY, *machines)
        yield Cluster(made.master, made.environment, address, alone, made.work, made, machines[-1])
