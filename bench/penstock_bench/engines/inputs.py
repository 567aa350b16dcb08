"""The input of a foreign engine, made before the run: the feeder only sends, so it costs next to nothing meanwhile."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from penstock.errors import InvalidOption
from penstock_bench.meter.subject import Input, Subject

CHUNK_RECORDS = 16_384
INPUT_BYTES_MAX = 8_000_000_000  # more than this is not prepared: it would no longer lie in memory
LINES, ENDS, TIMES = "lines-{}.bin", "ends-{}.npy", "times-{}.npy"


def prepare(
    subject: Subject, given: Input, event_start_us: int, directory: Path, partitions: int, closing: bytes | None = None
) -> None:
    """Write for each partition its lines, where each ends and when each is due; event ``i`` is in ``i % partitions``.

    Event times count from ``event_start_us``; ``closing`` is one more line, due with the last one.
    """
    events, times_us = given.total, given.times_us
    own_times_us = [times_us[p::partitions] for p in range(partitions)]
    ends: list[list[int]] = [[] for _ in range(partitions)]
    written = 0
    with ExitStack() as stack:
        outs = [stack.enter_context((directory / LINES.format(p)).open("wb")) for p in range(partitions)]
        for first in range(0, events, CHUNK_RECORDS):
            lines = [subject.line(record) + b"\n" for record in given.records(first, CHUNK_RECORDS, event_start_us)]
            for p, out in enumerate(outs):
                # The first record of this chunk that belongs to partition p.
                own = lines[(p - first) % partitions :: partitions]
                ends[p].extend(map(len, own))
                out.write(b"".join(own))
            written += sum(map(len, lines))
            if written > INPUT_BYTES_MAX:
                allowed = f"input of at most {INPUT_BYTES_MAX / 1e9:g} GB; choose a shorter time or a lower rate"
                raise InvalidOption(option="rate", given=f"{events:,} events", allowed=allowed)
        if closing is not None:
            ends[-1].append(outs[-1].write(closing + b"\n"))
            own_times_us[-1] = np.append(own_times_us[-1], times_us[-1:])
    for p in range(partitions):
        np.save(directory / ENDS.format(p), np.fromiter(itertools.accumulate(ends[p]), np.int64))
        np.save(directory / TIMES.format(p), own_times_us[p])
