"""A real standalone cluster of Spark on this machine, from the installed pyspark; `peer_failure` kills parts of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

START_S_MAX = 60.0
_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def standalone(directory: Path, cores: int, memory_gb: int) -> Iterator[str]:
    """Run a master and one worker machine's daemon; yield the master's address."""
    import pyspark

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    local = ["--host", "127.0.0.1", "--webui-port", "0"]
    size = ["--cores", str(cores), "--memory", f"{memory_gb}g", "-d", str(directory / "work")]
    commands = [
        ([f"{_DEPLOY}.master.Master", *local, "--port", str(port)], "I have been elected leader"),
        ([f"{_DEPLOY}.worker.Worker", *local, *size, address], "Registering worker"),
    ]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    log = directory / "cluster.log"
    processes: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as out:
        try:
            for command, sign in commands:
                processes.append(subprocess.Popen([str(launcher), *command], stdout=out, stderr=out, env=environment))
                _wait_for(log, sign)
            yield address
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


def _wait_for(log: Path, sign: str) -> None:
    deadline = time.monotonic() + START_S_MAX
    while sign not in log.read_text():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the cluster did not say '{sign}' in {START_S_MAX:g} s:\n{log.read_text()}")
        time.sleep(0.05)


def executors() -> list[psutil.Process]:
    """JVMs of executors below this process."""
    return _below("CoarseGrainedExecutorBackend")


def python_workers() -> list[psutil.Process]:
    """Processes that run Python functions for Spark below this process: the forks of pyspark's daemon."""
    daemons = _below("pyspark.daemon")
    parents = {process.pid for process in daemons}
    return [process for process in daemons if process.ppid() in parents]


def _below(word: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if word in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
