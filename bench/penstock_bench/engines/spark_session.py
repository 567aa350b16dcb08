"""Spark for the peers: a session with Spark's settings but for a few, and a standalone cluster to kill parts of."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

START_S_MAX = 60.0
_DEPLOY = "org.apache.spark.deploy"
SHUFFLE_PARTITIONS = 2
"""As many as there are cores; the default of 200 would only be slower."""
SETTINGS = {"trigger": "as fast as possible", "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS}


@contextmanager
def open_spark(master: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """Start Spark with its own settings, but for those named here and in ``settings``."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = (
        builder.config("spark.sql.shuffle.partitions", SHUFFLE_PARTITIONS)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


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
