"""Server processes for tests, examples and benchmarks: started in a directory of their own, waited for, ended by id."""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EADDRINUSE
from pathlib import Path
from typing import Self

from penstock.errors import PenstockError

HOST = "127.0.0.1"
START_S_MAX = 120.0
PORTS = range(20_000, 32_000)
"""Outside of those that the system gives to whoever asks for any, which are often in use by the time of the start."""
STOP_S_MAX = 10.0
LOG_CHARS = 2_000
"""How much of its log is shown of a server that did not start."""


class ServerFailed(PenstockError):
    """A server that was started here did not come up."""

    code = "SERVER_FAILED"

    def __init__(self, *, name: str, log: str) -> None:
        super().__init__(f"{name} did not start.", hint=f"The end of its log:\n{log[-LOG_CHARS:]}")


_claims: dict[int, socket.socket] = {}
"""Ports that were found here, each with what tells other processes so."""


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Find different ports that nobody listens on, and that nobody else finds here while this process lives."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server((host, port)):
            _claim(port)
            found.append(port)
    return found


def _claim(port: int) -> None:
    """Have a port, though nobody listens on it yet; OSError: somebody has it."""
    if port in _claims:
        raise OSError(EADDRINUSE, "claimed")
    claim = socket.socket(socket.AF_UNIX)
    if sys.platform == "linux":
        claim.bind(f"\0penstock-port-{port}")  # a name without a file, gone with the process
    _claims[port] = claim


def free_port(host: str = HOST) -> int:
    """Find a port that nobody listens on."""
    return free_ports(1, host)[0]


class Server:
    """A server of ours; with `close`, or as a context, it ends and leaves nothing.

    Parameters
    ----------
    name : str
        What it is called in errors.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._command: Sequence[str] = ()
        self._is_up: Callable[[], bool] = lambda: True
        self._stop = signal.SIGTERM

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def run(self, command: Sequence[str], is_up: Callable[[], bool], stop: signal.Signals = signal.SIGTERM) -> None:
        """Start it, and wait until it answers."""
        self._command, self._is_up, self._stop = command, is_up, stop
        log = self.directory / "log"
        with log.open("ab") as out:
            # In a session of its own: Ctrl-C must not end it before those who talk to it.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        deadline = time.monotonic() + START_S_MAX
        try:
            while not is_up():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise ServerFailed(name=self.name, log=log.read_text(errors="replace"))
                time.sleep(0.01)
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start it again, on the same port and with what it has stored."""
        self.run(self._command, self._is_up, self._stop)

    def stop(self) -> None:
        """End the process; what it has stored stays."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(self._stop)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def restart(self) -> None:
        """End it and start it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it, and remove what it has stored."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
