"""A standalone Spark cluster on this machine, from the installed pyspark: a master, and machines that come and go."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from penstock.errors import SparkFailed

WAIT_S = 120.0
END_S = 30.0
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Half a dozen JVMs start, and do little afterwards: none should compile much."""
_DEPLOY = "org.apache.spark.deploy"


class Standalone:
    """The cluster.

    Attributes
    ----------
    master : str
        Its address.
    environment : dict
        Of whoever uses it. Spark's connections are not authenticated: they stay on this machine.
    """

    def __init__(self, directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"
        settings = [f"spark.{each}.extraJavaOptions {JVM}" for each in ("driver", "executor")]
        (directory / "spark-defaults.conf").write_text("\n".join(settings))
        self.environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PENSTOCK_SPARK_UNAUTHENTICATED": "1",
            "SPARK_CONF_DIR": str(directory),
            "SPARK_DAEMON_JAVA_OPTS": JVM,
        }
        self._directory = directory
        self._log = directory / "cluster.log"
        self._machines: list[subprocess.Popen[bytes]] = []
        at = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._master = self._launch([f"{_DEPLOY}.master.Master", *at])
        self._until(lambda log: "I have been elected leader" in log)

    def add(self, cores: int, memory: str = "1g") -> None:
        """Add a machine, which Spark starts an executor on for every application."""
        at = ["--cores", str(cores), "--memory", memory, "--host", "127.0.0.1", "--webui-port", "0"]
        work = ["-d", str(self._directory / "work"), self.master]
        self._machines.append(self._launch([f"{_DEPLOY}.worker.Worker", *at, *work]))
        count = len(self._machines)
        self._until(lambda log: log.count("Registering worker") >= count)

    def remove(self) -> None:
        """Take the machine away that came last, with its executors."""
        self._machines[-1].terminate()

    def close(self) -> None:
        """End all of it."""
        for process in (*self._machines, self._master):
            process.terminate()
        for process in (*self._machines, self._master):
            process.wait(END_S)

    def _launch(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with self._log.open("ab") as out:
            return subprocess.Popen([str(launcher), *arguments], stdout=out, stderr=out, env=self.environment)

    def _until(self, condition: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition(self._log.read_text(errors="replace")):
            if time.monotonic() > deadline:
                raise SparkFailed(f"the cluster did not come up within {WAIT_S:g} s; see {self._log}.")
            time.sleep(0.05)


@contextmanager
def standalone(directory: Path) -> Iterator[Standalone]:
    """A cluster without machines, until the end of the block."""
    cluster = Standalone(directory)
    try:
        yield cluster
    finally:
        cluster.close()
