"""A Redis server from the system's package."""

from __future__ import annotations

import shutil

from penstock.testing.servers import HOST, Server, free_port

PASSWORD = "red-pass-word"


def missing() -> str | None:
    """Say what is not installed; None: nothing."""
    if shutil.which("redis-server") is None:
        return "needs redis-server (apt-get install redis-server)"
    return None


class Redis(Server):
    """A Redis with a password and without a disk.

    Attributes
    ----------
    url : str
        Where it is, with its password.
    """

    def __init__(self) -> None:
        super().__init__("redis")
        import redis

        port = free_port()
        self.port = port
        self.url = f"redis://:{PASSWORD}@{HOST}:{port}/0"
        self.client = redis.Redis.from_url(self.url, decode_responses=True)
        settings = {"bind": HOST, "port": port, "dir": self.directory, "save": "", "requirepass": PASSWORD}
        command = ["redis-server", *(str(part) for name, value in settings.items() for part in (f"--{name}", value))]
        self.run(command, self._answers)

    def _answers(self) -> bool:
        import redis

        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def close(self) -> None:
        self.client.close()
        super().close()
