"""Keeps the embedded JVM's greetings off the user's terminal, and passes everything else on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_GREETINGS = (
    b"Using incubator modules",
    b"Setting default log level",
    b"To adjust logging level",
    b"Using Spark's default log4j profile",
    b"Unable to load native-hadoop library",
)


@contextmanager
def quiet_start() -> Iterator[None]:
    """Give a JVM that is started inside a standard error that leaves out what every Spark start prints.

    The JVM and the workers below it keep that stream for life, so what users' functions print still shows.
    """
    read_end, write_end = os.pipe()
    sys.stderr.flush()
    terminal = os.dup(2)
    os.dup2(write_end, 2)
    os.close(write_end)
    threading.Thread(target=_forward, args=(read_end, terminal), name="penstock-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(terminal, 2)


def _forward(read_end: int, terminal: int) -> None:
    with os.fdopen(read_end, "rb") as lines:
        for line in lines:
            if not any(greeting in line for greeting in _GREETINGS):
                os.write(terminal, line)
    os.close(terminal)
