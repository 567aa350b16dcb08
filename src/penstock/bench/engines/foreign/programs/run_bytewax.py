"""The workloads on Bytewax: started as ``python -m bytewax.run programs.run_bytewax:flow`` in its own environment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.inputs import DynamicSource, StatelessSourcePartition  # type: ignore[import-not-found]
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]

from .lines import Lines
from .outlog import OutLog
from .queries import Counting, query


class _Partition(StatelessSourcePartition):  # type: ignore[misc]
    def __init__(self, port: int) -> None:
        self._lines = Lines(port, blocking=False)

    def next_batch(self) -> list[bytes]:
        lines = self._lines.read()
        if lines is None:
            raise StopIteration
        return lines

    def close(self) -> None:
        self._lines.close()


class _Source(DynamicSource):  # type: ignore[misc]
    """Every worker opens a connection of its own and gets its share of the events."""

    def __init__(self, port: int) -> None:
        self._port = port

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Partition:
        return _Partition(self._port)


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


class _Count(op.StatefulBatchLogic):  # type: ignore[misc]
    """The running count of one key; a row for every event."""

    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[Any]) -> tuple[Iterable[int], bool]:
        first = self._count + 1
        self._count += len(values)
        return range(first, self._count + 1), False

    def snapshot(self) -> int:
        return self._count


def _flow(spec: dict[str, Any]) -> Any:
    wanted = query(spec)
    flow = Dataflow("bench")
    lines = op.input("lines", flow, _Source(spec["port"]))
    if isinstance(wanted, Counting):
        keys, row = wanted.keys, wanted.row
        keyed = op.flat_map_batch("keys", lines, lambda batch: [(key, None) for line in batch for key in keys(line)])
        counted = op.stateful_batch("count", keyed, _Count)
        rows = op.flat_map_batch("rows", counted, lambda batch: [row(key, count) for key, count in batch])
    else:
        found = wanted.rows
        rows = op.flat_map_batch("rows", lines, lambda batch: [row for line in batch for row in found(line)])
    op.output("out", rows, _Sink(spec["out"]))
    return flow


flow = _flow(json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text()))
