"""The input of a foreign engine, made before the run: the feeder only sends, so it costs next to nothing meanwhile."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from penstock.errors import InvalidOption
from penstock_bench.meter.subject import Input, Subject

CHUNK_RECORDS = 16_384
INPUT_BYTES_MAX = 8_000_000_000
"""More than this is not prepared: it would no longer lie in memory."""
LINES, ENDS, TIMES = "lines-{}.bin", "ends-{}.npy", "times-{}.npy"


def prepare(
    subject: Subject, given: Input, event_start_us: int, directory: Path, partitions: int, closing: bytes | None = None
) -> None:
    """Write for each partition its lines, where each ends and when each is due; event ``i`` is in ``i % partitions``.

    Parameters
    ----------
    subject : Subject
        Knows how a record becomes a line.
    given : Input
        What the engine will be given.
    event_start_us : int
        What the records' event times count from.
    directory : Path
        Where the files go.
    partitions : int
        Connections that the engine will open.
    closing : bytes, optional
        One more line, due with the last one.
    """
    events, times_us = given.total, given.times_us
    own_times_us = [times_us[p::partitions] for p in range(partitions)]
    ends: list[list[int]] = [[] for _ in range(partitions)]
    written = 0
    outs = [(directory / LINES.format(p)).open("wb") for p in range(partitions)]
    try:
        for first in range(0, events, CHUNK_RECORDS):
            lines = [
                subject.line(r) + b"\n"
                for r in given.records(first, min(CHUNK_RECORDS, events - first), event_start_us)
            ]
            for p, out in enumerate(outs):
                # The first record of this chunk that belongs to partition p.
                own = lines[(p - first) % partitions :: partitions]
                ends[p].extend(map(len, own))
                out.write(b"".join(own))
            written += sum(map(len, lines))
            if written > INPUT_BYTES_MAX:
                raise InvalidOption(
                    option="rate",
                    given=f"{events:,} events",
                    allowed=f"input of at most {INPUT_BYTES_MAX / 1e9:g} GB; choose a shorter time or a lower rate",
                )
        if closing is not None:
            ends[-1].append(outs[-1].write(closing + b"\n"))
            own_times_us[-1] = np.append(own_times_us[-1], times_us[-1:])
    finally:
        for out in outs:
            out.close()
    for p in range(partitions):
        np.save(directory / ENDS.format(p), np.fromiter(itertools.accumulate(ends[p]), np.int64))
        np.save(directory / TIMES.format(p), own_times_us[p])
