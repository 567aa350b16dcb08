"""The load generator of foreign engines, a program of its own: sends prepared lines over loopback when they are due.

Open loop: it never waits for the engine but where the socket is full, and then it is late, which the latency shows.
"""

from __future__ import annotations

import json
import mmap
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from penstock_bench.engines.inputs import ENDS, LINES, TIMES

LINGER_S = 0.0005  # least time between two sends, as Penstock's own sources have it
SEND_RECORDS_MAX = 4096
SEND_BUFFER_BYTES = 1 << 20


class Lines:
    """The prepared lines of a partition, and how far they have been sent."""

    def __init__(self, directory: Path, partition: int) -> None:
        self._ends = np.load(directory / ENDS.format(partition))
        self._times_us = np.load(directory / TIMES.format(partition))
        with (directory / LINES.format(partition)).open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if len(self._ends) else b""
        self.sent = 0

    def send(
        self, send: Callable[[int, list[int]], object], start_us: int | None, most: int = SEND_RECORDS_MAX
    ) -> list[int]:
        """Send everything, at most so many lines at a time, each when it is due after ``start_us``; None: at once.

        ``send`` is told where its lines begin in the data, and where each ends. Returns how late the oldest of each
        sending was, in microseconds.
        """
        lags_us, total, at_bytes = list[int](), len(self._ends), 0
        while self.sent < total:
            due = total
            if start_us is not None:
                due = int(np.searchsorted(self._times_us, time.time_ns() // 1000 - start_us, side="right"))
            end = min(due, self.sent + most)
            if end > self.sent:
                ends = self._ends[self.sent : end].tolist()
                send(at_bytes, ends)
                if start_us is not None:
                    lags_us.append(time.time_ns() // 1000 - start_us - int(self._times_us[self.sent]))
                self.sent, at_bytes = end, ends[-1]
            if start_us is not None and end == due < total:
                time.sleep(max((start_us + int(self._times_us[end])) / 1e6 - time.time(), LINGER_S))
        return lags_us


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def tell_lag(lags_us: list[int]) -> None:
    """Say how late lines were sent, 99th percentile."""
    tell(lag_p99_us=sorted(lags_us)[int(0.99 * (len(lags_us) - 1))] if lags_us else 0)


def main() -> None:
    """Argument: a specification in JSON (directory, connections, lead_s).

    Waits for the engine's connections, then sends; tells its progress in lines of JSON. The schedule starts ``lead_s``
    after the last connection; null: everything is due at once.
    """
    spec = json.loads(sys.argv[1])
    count, lead_s = spec["connections"], spec["lead_s"]
    with socket.create_server(("127.0.0.1", 0), backlog=count) as server:
        tell(port=server.getsockname()[1])
        connections = []
        for _ in range(count):
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            connections.append(connection)
    start_us = None if lead_s is None else time.time_ns() // 1000 + round(lead_s * 1e6)
    tell(start_us=start_us)
    lags_us: list[int] = []

    def run(partition: int) -> None:
        lines, connection = Lines(Path(spec["directory"]), partition), connections[partition]
        data = memoryview(lines.data)
        lags_us.extend(lines.send(lambda first, ends: connection.sendall(data[first : ends[-1]]), start_us))
        connection.shutdown(socket.SHUT_WR)

    threads = [threading.Thread(target=run, args=(partition,)) for partition in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell_lag(lags_us)
    # An engine may take the end of its input for the end of its work: the one who started us says when that is.
    sys.stdin.read()


if __name__ == "__main__":
    main()
