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
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from penstock_bench.engines.inputs import ENDS, LINES, TIMES

LINGER_S = 0.0005
"""Least time between two sends, as Penstock's own sources have it."""
SEND_RECORDS_MAX = 4096
SEND_BUFFER_BYTES = 1 << 20


@dataclass
class Sent:
    """What one connection has sent: after each send, how many records in all and how late the oldest of them was."""

    lags_us: list[int] = field(default_factory=list)
    records: int = 0
    ended_us: int = 0


def send(connection: socket.socket, directory: Path, partition: int, start_us: int, paced: bool) -> Sent:
    """Send a partition's lines; each is due at its time after ``start_us``, or at once where not ``paced``."""
    ends = np.load(directory / ENDS.format(partition))
    times_us = np.load(directory / TIMES.format(partition))
    sent = Sent()
    if not len(ends):
        return sent
    with (
        (directory / LINES.format(partition)).open("rb") as lines,
        mmap.mmap(lines.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        at, at_bytes = 0, 0
        while at < len(ends):
            now_us = time.time_ns() // 1000
            due = int(np.searchsorted(times_us, now_us - start_us, side="right")) if paced else len(ends)
            end = min(due, at + SEND_RECORDS_MAX)
            if end > at:
                end_bytes = int(ends[end - 1])
                connection.sendall(data[at_bytes:end_bytes])
                if paced:
                    sent.lags_us.append(time.time_ns() // 1000 - start_us - int(times_us[at]))
                at, at_bytes = end, end_bytes
            if paced and at < len(ends) and end == due:
                wait_s = (start_us + int(times_us[at])) / 1e6 - time.time()
                time.sleep(max(wait_s, LINGER_S))
    sent.records, sent.ended_us = at, time.time_ns() // 1000
    return sent


def serve(directory: Path, partitions: int, lead_s: float | None) -> None:
    """Wait for the engine's connections, then send; tells its progress in lines of JSON on standard output.

    The schedule starts ``lead_s`` after the last connection; None: everything is due at once.
    """
    paced = lead_s is not None
    with socket.create_server(("127.0.0.1", 0), backlog=partitions) as server:
        _tell(port=server.getsockname()[1])
        connections = []
        for _ in range(partitions):
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            connections.append(connection)
    start_us = time.time_ns() // 1000 + round((lead_s or 0.0) * 1e6)
    _tell(start_us=start_us)
    results: list[Sent | None] = [None] * partitions

    def run(p: int) -> None:
        results[p] = send(connections[p], directory, p, start_us, paced)
        connections[p].shutdown(socket.SHUT_WR)

    threads = [threading.Thread(target=run, args=(p,)) for p in range(partitions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [each for each in results if each is not None]
    lags_us = sorted(lag for each in done for lag in each.lags_us)
    _tell(lag_p99_us=lags_us[int(0.99 * (len(lags_us) - 1))] if lags_us else 0)
    # An engine may take the end of its input for the end of its work: the one who started us says when that is.
    sys.stdin.read()


def _tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    """Arguments: directory, partitions, seconds until the start or ``at-once``."""
    directory, partitions, lead = sys.argv[1:]
    serve(Path(directory), int(partitions), None if lead == "at-once" else float(lead))


if __name__ == "__main__":
    main()
