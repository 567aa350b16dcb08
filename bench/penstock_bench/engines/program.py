"""A program that an engine runs in: started in a process group of its own, watched, and ended with all below it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock_bench.meter.errors import EngineFailed

END_S = 10.0  # how long a program may take to end when it is asked to
POLL_S = 0.05


class Program:
    """A running program; lines of JSON on its standard output are its messages, all else is its log."""

    def __init__(
        self,
        engine: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        messages: bool = False,
    ) -> None:
        self._engine = engine
        self._log = log
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if messages else errors,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        if messages:
            threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = None
            with suppress(ValueError):
                message = json.loads(line)
            if isinstance(message, dict):
                self._messages.put(message)
            else:
                with self._log.open("ab") as log:
                    log.write(line)

    def message(self, key: str, timeout_s: float, *others: Program) -> Any:
        """Wait for the message with ``key`` and return its value; fails if this or one of ``others`` ends badly."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                message = self._messages.get(timeout=POLL_S)
            except queue.Empty:
                for each in (self, *others):
                    each.check()
                if self.ended and self._messages.empty():
                    break
                continue
            if key in message:
                return message[key]
        # The others may say why: a feeder waits for an engine that does not connect.
        told = "\n".join(each.log() for each in (self, *others))
        raise EngineFailed(engine=self._engine, what=f"gave no '{key}' within {timeout_s:g} s", log=told)

    def tell(self, words: str) -> None:
        """Give it words on its standard input."""
        self._stdin.write(f"{words}\n".encode())
        self._stdin.flush()

    def ask(self, word: str, timeout_s: float) -> Any:
        """Give it a word, and return the message of that name."""
        self.tell(word)
        return self.message(word, timeout_s)

    def finish(self, timeout_s: float) -> bool:
        """End its input, which is the word to stop, and wait until it has; return whether it did in time."""
        self._stdin.close()
        return self.wait(timeout_s)

    def check(self) -> None:
        """Fail if it has ended with an error."""
        if code := self._process.poll():
            raise EngineFailed(engine=self._engine, what=f"ended with exit code {code}", log=self.log())

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; return whether it came in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self.check()
        return True

    def close(self) -> None:
        """End it and everything in its group: first by the end of its input, then by signals."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        with suppress(ProcessLookupError):
            for number in (signal.SIGTERM, signal.SIGKILL):
                os.killpg(self.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
        self._process.wait()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
