"""A Redis for one run of the workload `lookup`: started on loopback, filled, and ended with the run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock_bench.engines.program import Program
from penstock_bench.meter.errors import EngineFailed
from penstock_bench.workloads.lookup import ADDRESS

SERVER = "redis-server"
HOST = "127.0.0.1"
START_S_MAX = 10.0
ATTEMPTS_MAX = 3
"""A port that was free a moment ago may be taken when the server comes to it; then another one is tried."""
POLL_S = 0.01
SETTINGS = {"bind": HOST, "save": "", "appendonly": "no"}
"""All that is not the server's default, beside its port and its directory: nothing is written to disk."""


class RedisMissing(PenstockError):
    """The server or the client's package is not installed."""

    code = "REDIS_MISSING"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}.")


def missing() -> str | None:
    """What is not installed here, and how to install it; None if nothing is missing."""
    if shutil.which(SERVER) is None:
        return f"it needs {SERVER}, which is not on the PATH; on Debian and Ubuntu: apt-get install {SERVER}"
    if importlib.util.find_spec("redis") is None:
        return "it needs the Python package redis; install it with: pip install 'penstock-bench[lookup]'"
    return None


@contextmanager
def serving(table: Mapping[bytes, bytes]) -> Iterator[dict[str, object]]:
    """Run a server that holds a table, and name it in the environment for everything that is started meanwhile.

    Parameters
    ----------
    table : mapping
        Keys and values that are there before anybody asks.

    Yields
    ------
    dict
        Version and settings of the server, for the results.

    Raises
    ------
    RedisMissing
        Says what to install.
    """
    if (reason := missing()) is not None:
        raise RedisMissing(reason)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-redis-")))
        port, client = _start(stack, directory)
        client.mset(table)
        version = client.info("server")["redis_version"]
        before = os.environ.get(ADDRESS)
        os.environ[ADDRESS] = f"{HOST}:{port}"
        try:
            yield {SERVER: version, **{f"redis.{name}": value for name, value in SETTINGS.items()}}
        finally:
            if before is None:
                del os.environ[ADDRESS]
            else:
                os.environ[ADDRESS] = before


def _start(stack: ExitStack, directory: Path) -> tuple[int, Any]:
    """Start a server that the stack will end; return its port and a client of it."""
    import redis

    for attempt in range(ATTEMPTS_MAX):
        port = _free_port()
        settings = {"port": str(port), "dir": str(directory), **SETTINGS}
        command = [SERVER, *(part for name, value in settings.items() for part in (f"--{name}", value))]
        # In a group of its own, so that Ctrl-C does not end it before those who ask it.
        program = stack.enter_context(Program(SERVER, command, directory / f"server-{attempt}.log"))
        client = stack.enter_context(redis.Redis(host=HOST, port=port))
        deadline_s = time.monotonic() + START_S_MAX
        while not program.ended and time.monotonic() < deadline_s:
            try:
                # Somebody else's server may have been faster on this port.
                if client.info("server")["process_id"] == program.pid:
                    return port, client
            except redis.ConnectionError:
                pass
            time.sleep(POLL_S)
    raise EngineFailed(engine=SERVER, what=f"did not come up in {ATTEMPTS_MAX} attempts", log=program.log())


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port
