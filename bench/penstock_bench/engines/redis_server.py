"""A Redis for one run of the workload `lookup`: started on loopback, filled, and ended with the run."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from penstock.errors import PenstockError
from penstock.testing.servers import HOST, Server, free_port
from penstock_bench.workloads.lookup import ADDRESS

SERVER = "redis-server"
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

    Yields version and settings of the server, for the results; `RedisMissing` says what to install.
    """
    if (reason := missing()) is not None:
        raise RedisMissing(reason)
    with _Redis() as server:
        server.client.mset(table)
        version = server.client.info("server")["redis_version"]
        before = os.environ.get(ADDRESS)
        os.environ[ADDRESS] = f"{HOST}:{server.port}"
        try:
            yield {SERVER: version, **{f"redis.{name}": value for name, value in SETTINGS.items()}}
        finally:
            if before is None:
                del os.environ[ADDRESS]
            else:
                os.environ[ADDRESS] = before


class _Redis(Server):
    def __init__(self) -> None:
        import redis

        super().__init__(SERVER)
        self.port = free_port()
        self.client = redis.Redis(host=HOST, port=self.port)
        settings = {"port": str(self.port), "dir": str(self.directory), **SETTINGS}
        self.run([SERVER, *(part for name, value in settings.items() for part in (f"--{name}", value))], self._answers)

    def _answers(self) -> bool:
        import redis

        try:
            # Somebody else's server may have been faster on this port.
            return bool(self.client.info("server")["process_id"] == self.pid)
        except redis.ConnectionError:
            return False

    def close(self) -> None:
        self.client.close()
        super().close()
