"""A server's process: started in a directory of its own, waited for, and ended by its process id."""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HOST = "127.0.0.1"
START_S_MAX = 120.0
PORTS = range(20_000, 32_000)
"""Outside of those that the system gives to whoever asks for any, which are often in use by the time of the start."""
STOP_S_MAX = 10.0


def free_port(host: str = HOST) -> int:
    """Find a port that nobody listens on."""
    while True:
        try:
            with socket.create_server((host, secrets.choice(PORTS))) as server:
                return int(server.getsockname()[1])
        except OSError:
            continue


class Server:
    """A server of ours.

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
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        deadline = time.monotonic() + START_S_MAX
        while not is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-2_000:]
                self.close()
                raise RuntimeError(f"{self.name} did not start: {text}")
            time.sleep(0.01)

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
        """End it and start it again, on the same port and with what it has stored."""
        self.stop()
        self.run(self._command, self._is_up, self._stop)

    def close(self) -> None:
        """End it, and remove what it has stored."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
