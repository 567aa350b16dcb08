"""The log of what leaves an engine: the time in microseconds, a tab and the row as a JSON array in each line."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

BUFFER_BYTES = 1 << 20


class OutLog:
    """Writes one log; every row is stamped when it is handed over."""

    def __init__(self, directory: str, name: str, *, at_once: bool = False) -> None:
        self._file = (Path(directory) / f"out-{name}.log").open("wb", 0 if at_once else BUFFER_BYTES)
        self._write = self._file.write

    def row(self, row: bytes) -> None:
        self._write(b"%d\t%b\n" % (time.time_ns() // 1000, row))

    def rows(self, rows: list[bytes], at_us: int | None = None) -> None:
        """Take rows that leave together, now or at the time that is given."""
        at = b"%d\t" % (time.time_ns() // 1000 if at_us is None else at_us)
        self._write(b"".join([at + row + b"\n" for row in rows]))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def unique_log(directory: str, *, at_once: bool = False) -> OutLog:
    """Open a log for one of several writers that cannot tell which one it is, as in Flink's thread mode."""
    return OutLog(directory, f"{os.getpid()}-{uuid.uuid4().hex[:8]}", at_once=at_once)
