"""A real standalone cluster, from the installed pyspark; its workers have hosts of their own where that is allowed.

A host is a network namespace with an address on a bridge. Where the machine allows none, everything is on loopback, and
tests that are about addresses say why they are skipped.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pyspark

WAIT_S = 120.0
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Many JVMs start here, and do little afterwards: none should compile much."""
LOOPBACK = "127.0.0.1"


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
    """

    master: str
    environment: dict[str, str]
    address: str
    alone: str
    work: Path


@dataclass(frozen=True)
class Host:
    """Where a process runs: an address, and what a command begins with there."""

    address: str
    command: tuple[str, ...] = ()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + WAIT_S
    while not condition():
        assert monotonic() < deadline, "the cluster did not come up"
        threading.Event().wait(0.05)


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
            yield LOOPBACK, alone, [Host(LOOPBACK)] * count
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
            yield LOOPBACK, "network namespaces of this machine do not reach each other", [Host(LOOPBACK)] * count
            return
        yield f"{subnet}.1", "", found
    finally:
        for name in names:
            _ip("netns", "del", name, check=False)
        _ip("link", "del", bridge, check=False)


@contextmanager
def standalone(directory: Path) -> Iterator[Cluster]:
    """A master and two workers of two slots each."""
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    settings = [f"spark.{each}.extraJavaOptions {JVM}" for each in ("driver", "executor")]
    (directory / "spark-defaults.conf").write_text("\n".join(settings))
    log, deploy = directory / "cluster.log", "org.apache.spark.deploy"
    processes: list[subprocess.Popen[bytes]] = []
    with hosts(2) as (address, alone, machines), log.open("wb") as out:
        with socket.create_server((address, 0)) as free:
            port = free.getsockname()[1]
        master = f"spark://{address}:{port}"
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": address,
            "PYSPARK_PYTHON": sys.executable,
            "PENSTOCK_SPARK_UNAUTHENTICATED": "1",
            "SPARK_CONF_DIR": str(directory),
            "SPARK_DAEMON_JAVA_OPTS": JVM,
        }

        def start(host: Host, *command: str) -> None:
            there = {**environment, "SPARK_LOCAL_IP": host.address}
            arguments = [*host.command, str(launcher), *command, "--host", host.address, "--webui-port", "0"]
            processes.append(subprocess.Popen(arguments, stdout=out, stderr=out, env=there))

        try:
            start(Host(address), f"{deploy}.master.Master", "--port", str(port))
            wait_for(lambda: "I have been elected leader" in log.read_text())
            for host in machines:
                work = ["-d", str(directory / "work"), "--cores", "2", "--memory", "1g"]
                start(host, f"{deploy}.worker.Worker", *work, master)
            wait_for(lambda: log.read_text().count("Registering worker") >= 2)
            yield Cluster(master, environment, address, alone, directory / "work")
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)
