"""Runs a stream for its first records, in this process and in made-up time; `Stream.take` and `Stream.show` use it."""

from __future__ import annotations

from penstock.connectors import memory
from penstock.pipeline.streams import preview
from penstock.pipeline.streams.stream import Stream
from penstock.testing.harness import Harness

_SECONDS_MAX = 600


def first(stream: Stream, count: int) -> list[dict[str, object]]:
    """Return the first records of a stream, or all where there are fewer."""
    harness = Harness(stream.to(memory()))
    for _ in range(_SECONDS_MAX):
        harness.advance("1s")
        if harness.ended or len(harness.rows()) >= count:
            break
    return harness.rows()[:count]


preview.use(first)
