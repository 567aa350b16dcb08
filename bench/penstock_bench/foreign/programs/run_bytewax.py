"""The workloads on Bytewax: started as ``python -m bytewax.run programs.run_bytewax:flow`` in its own environment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.inputs import DynamicSource, StatelessSourcePartition  # type: ignore[import-not-found]
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]

from . import bytewax_graph
from .bytewax_count import Count
from .bytewax_graph import Mark
from .graph import stateful
from .lines import Lines
from .messages import END_US, line_time_us
from .outlog import OutLog
from .queries import Counting, Query, query

MARK_US = 1_000
"""The least that time has to go on until it is told again."""


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


def _flow(spec: dict[str, Any]) -> Any:
    flow = Dataflow("bench")
    timed = spec["workload"] == "file" and bool(stateful(spec))
    lines = op.input("lines", flow, _Source(spec["port"], timed=timed))
    op.output("out", bytewax_graph.build(lines, spec) if timed else _rows(lines, query(spec)), _Sink(spec["out"]))
    return flow


def _rows(lines: Any, wanted: Query) -> Any:
    if isinstance(wanted, Counting):
        keys, row = wanted.keys, wanted.row
        keyed = op.flat_map_batch("keys", lines, lambda batch: [(key, None) for line in batch for key in keys(line)])
        counted = op.stateful_batch("count", keyed, Count)
        return op.flat_map_batch("rows", counted, lambda batch: [row(key, count) for key, count in batch])
    found = wanted.rows
    return op.flat_map_batch("rows", lines, lambda batch: [row for line in batch for row in found(line)])


flow = _flow(json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text()))
