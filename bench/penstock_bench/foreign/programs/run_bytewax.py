"""The workloads on Bytewax: started as ``python -m bytewax.run programs.run_bytewax:flow`` in its own environment.

Lines come over a socket and rows go into the log, or both are topics, with its own connector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.inputs import DynamicSource, StatelessSourcePartition  # type: ignore[import-not-found]
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]

from . import bytewax_graph
from .bytewax_graph import Mark
from .graph import stateful
from .lines import Lines
from .messages import END_US, line_time_us
from .outlog import OutLog
from .queries import Counting, counting, query, specification

MARK_US = 1_000
"""The least that time has to go on until it is told again."""


class Count(op.StatefulBatchLogic):  # type: ignore[misc]
    """The running count of one key; a row for every event."""

    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[Any]) -> tuple[Iterable[int], bool]:
        first = self._count + 1
        self._count += len(values)
        return range(first, self._count + 1), False

    def snapshot(self) -> int:
        return self._count


class _Partition(StatelessSourcePartition):  # type: ignore[misc]
    def __init__(self, port: int) -> None:
        self._lines = Lines(port, blocking=False)

    def next_batch(self) -> list[Any]:
        lines = self._lines.read()
        if lines is None:
            raise StopIteration
        return lines

    def close(self) -> None:
        self._lines.close()


class _TimedPartition(_Partition):
    """Lines of messages, and behind them how far their times have come."""

    def __init__(self, port: int, worker_index: int) -> None:
        super().__init__(port)
        self._sender = f"source/{worker_index}"
        self._marked_us = 0

    def next_batch(self) -> list[Any]:
        if self._marked_us == END_US:
            raise StopIteration
        lines: list[Any] | None = self._lines.read()
        if lines is None:
            lines, time_us = [], END_US
        elif lines:
            time_us = line_time_us(lines[-1])
        else:
            return lines
        if time_us >= self._marked_us + MARK_US:
            self._marked_us = time_us
            lines.append(Mark(self._sender, time_us))
        return lines


class _Source(DynamicSource):  # type: ignore[misc]
    """Every worker opens a connection of its own and gets its share of the events."""

    def __init__(self, port: int, *, timed: bool) -> None:
        self._port = port
        self._timed = timed

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Partition:
        return _TimedPartition(self._port, worker_index) if self._timed else _Partition(self._port)


class _Writer(StatelessSinkPartition):  # type: ignore[misc]
    def __init__(self, log: OutLog) -> None:
        self._log = log

    def write_batch(self, items: list[bytes]) -> None:
        self._log.rows(items)

    def close(self) -> None:
        self._log.close()


class _Sink(DynamicSink):  # type: ignore[misc]
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Writer:
        return _Writer(OutLog(self._directory, f"{worker_index}"))


def _counts(items: Any, keys: Callable[[Any], Iterable[str]]) -> Any:
    """Keys with their running counts."""
    keyed = op.flat_map_batch("keys", items, lambda batch: [(key, None) for item in batch for key in keys(item)])
    return op.stateful_batch("count", keyed, Count)


def _over_socket(flow: Any, spec: dict[str, Any]) -> None:
    timed = spec["workload"] == "file" and bool(stateful(spec))
    lines = op.input("lines", flow, _Source(spec["port"], timed=timed))
    wanted = None if timed else query(spec)
    if wanted is None:
        rows = bytewax_graph.build(lines, spec)
    elif isinstance(wanted, Counting):
        row = wanted.row
        rows = op.flat_map_batch("rows", _counts(lines, wanted.keys), lambda batch: [row(key, n) for key, n in batch])
    else:
        found = wanted.rows
        rows = op.flat_map_batch("rows", lines, lambda batch: [row for line in batch for row in found(line)])
    op.output("out", rows, _Sink(spec["out"]))


def _over_kafka(flow: Any, spec: dict[str, Any]) -> None:
    from bytewax.connectors.kafka import (  # type: ignore[import-not-found]
        KafkaSink,
        KafkaSinkMessage,
        KafkaSource,
    )
    from confluent_kafka import OFFSET_BEGINNING

    wanted, servers = counting(spec), [spec["servers"]]
    source = KafkaSource(servers, [spec["events"]], tail=True, starting_offset=OFFSET_BEGINNING)
    counts = _counts(op.input("events", flow, source), lambda message: wanted.keys(message.value))
    rows = op.flat_map_batch(
        "rows",
        counts,
        lambda batch: [KafkaSinkMessage(key.partition("\t")[0].encode(), wanted.row(key, n)) for key, n in batch],
    )
    op.output("results", rows, KafkaSink(servers, spec["results"], add_config={"linger.ms": spec["linger_ms"]}))


def _flow(spec: dict[str, Any]) -> Any:
    flow = Dataflow("bench")
    (_over_kafka if "servers" in spec else _over_socket)(flow, spec)
    return flow


flow = _flow(specification())
