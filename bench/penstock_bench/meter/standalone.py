"""A standalone Spark cluster on this machine, from the installed pyspark: a master, and machines that come and go."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pyspark

from penstock.errors import SparkFailed
from penstock.testing.servers import HOST, free_port

WAIT_S = 120.0
END_S = 30.0
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Half a dozen JVMs start, and do little afterwards: none should compile much."""
_DEPLOY = "org.apache.spark.deploy"


class Host(NamedTuple):
    """Where a process runs: an address, and what a command begins with there."""

    address: str = HOST
    command: tuple[str, ...] = ()


class Standalone:
    """The cluster; its directory has the settings, the log and, in ``work``, what executors write.

    The programs that use it have the address of the master, and ``environment``. Spark's connections are not
    authenticated: they stay on this machine.
    """

    def __init__(self, directory: Path, address: str = HOST) -> None:
        port = free_port(address)
        self.master = f"spark://{address}:{port}"
        self.work = directory / "work"
        settings = [f"spark.{each}.extraJavaOptions {JVM}" for each in ("driver", "executor")]
        (directory / "spark-defaults.conf").write_text("\n".join(settings))
        self.environment = {
            **os.environ,
            "SPARK_LOCAL_IP": address,
            "PYSPARK_PYTHON": sys.executable,
            "PENSTOCK_SPARK_UNAUTHENTICATED": "1",
            "SPARK_CONF_DIR": str(directory),
            "SPARK_DAEMON_JAVA_OPTS": JVM,
        }
        self._log = directory / "cluster.log"
        self._machines: list[subprocess.Popen[bytes]] = []
        self._added = 0
        self._master = self._launch(Host(address), f"{_DEPLOY}.master.Master", "--port", str(port))
        try:
            self._until(lambda log: "I have been elected leader" in log)
        except BaseException:
            self.close()
            raise

    def add(self, cores: int, memory: str = "1g", *hosts: Host) -> None:
        """Add a machine, or one at each host; Spark starts an executor on each for every application."""
        size = ["-d", str(self.work), "--cores", str(cores), "--memory", memory, self.master]
        self._machines += [self._launch(host, f"{_DEPLOY}.worker.Worker", *size) for host in hosts or [Host()]]
        self._added += len(hosts or [Host()])
        self._until(lambda log: log.count("Registering worker") >= self._added)

    def remove(self) -> None:
        """Take the machine away that came last, with its executors."""
        self._machines[-1].terminate()

    def lose(self) -> set[int]:
        """Kill the machine that came last, with all that runs on it; return the processes. Nobody is told."""
        machine = self._machines.pop()
        there = psutil.Process(machine.pid)
        killed = [there, *there.children(recursive=True)]
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        machine.wait(END_S)
        return {process.pid for process in killed}

    def close(self) -> None:
        for process in (*self._machines, self._master):
            process.terminate()
        for process in (*self._machines, self._master):
            process.wait(END_S)

    def _launch(self, host: Host, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        at = ["--host", host.address, "--webui-port", "0"]
        command = [*host.command, str(launcher), what, *at, *arguments]
        with self._log.open("ab") as out:
            there = {**self.environment, "SPARK_LOCAL_IP": host.address}
            return subprocess.Popen(command, stdout=out, stderr=out, env=there)

    def _until(self, condition: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition(self._log.read_text(errors="replace")):
            if time.monotonic() > deadline:
                raise SparkFailed(f"the cluster did not come up within {WAIT_S:g} s; see {self._log}.")
            time.sleep(0.05)


def standalone(directory: Path, address: str = HOST) -> closing[Standalone]:
    """A cluster without machines, until the end of the block."""
    return closing(Standalone(directory, address))
