"""The log of what left an engine, one file per writer, a line per row: microseconds, a tab, a JSON array.

Penstock's rows come into it through a sink of its own; programs of other engines write it themselves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path

import msgspec

from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.types import Record, Schema
from penstock_bench.foreign.programs.outlog import OutLog
from penstock_bench.meter.engine import Output
from penstock_bench.meter.timeline import Shown

PATTERN = "out-*.log"


def read_outputs(directory: Path) -> list[Output]:
    """Read all logs of a run in the order of time; rows of one writer that left together keep their order.

    A line that its process was killed over is left out.
    """
    decode = msgspec.json.Decoder(list).decode
    outputs = []
    for path in sorted(directory.glob(PATTERN)):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                at, _, row = line.partition(b"\t")
                outputs.append(Output(int(at), decode(row)))
    outputs.sort(key=lambda output: output.out_us)
    return outputs


class Stamped(Sink):
    """Writes every row with the time at which it came, whatever becomes of its epoch: at least once after a failure.

    ``columns`` are written of a row; ``constants`` are the first of them, where all rows have the same values in them
    and the pipeline does not carry those. ``at_once`` writes without buffers: what a killed process had in its buffers
    would be missing.
    """

    def __init__(
        self,
        directory: Path,
        columns: tuple[str, ...],
        constants: Mapping[str, str] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        self.directory = directory
        self._columns, self._constants, self._at_once = columns, constants or {}, at_once

    @property
    def kind(self) -> str:
        return "stamped"

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        self.directory.mkdir(parents=True, exist_ok=True)
        log = OutLog(str(self.directory), f"{context.instance}-{time.time_ns()}", at_once=self._at_once)
        return _StampedWriter(log, self._columns, self._constants)


class Witness(Stamped):
    """Takes the rows of a windowed count; without ``key``, the column of its key, the stream is counted as a whole."""

    def __init__(self, directory: Path, key: str | None = None) -> None:
        super().__init__(directory, (*([key] if key else []), "window_start", "count"), at_once=True)

    def shown(self) -> list[Shown]:
        """What could be seen when, as far as it was written whole."""
        rows = [(each.out_us, ["", *each.values][-3:]) for each in read_outputs(self.directory)]
        return [Shown(at_us, (key, start_us), count) for at_us, (key, start_us, count) in rows]


class _StampedWriter(SinkWriter):
    def __init__(self, log: OutLog, columns: tuple[str, ...], constants: Mapping[str, str]) -> None:
        self._log = log
        self._common = [constants[name] for name in columns if name in constants]
        self._values = attrgetter(*(name for name in columns if name not in constants))
        self._encode = msgspec.json.Encoder().encode

    def write(self, rows: list[Record]) -> None:
        common, values, encode = self._common, self._values, self._encode
        self._log.rows([encode([*common, *values(row)]) for row in rows])

    def prepare(self, epoch: int) -> None:
        self._log.flush()

    def close(self) -> None:
        self._log.close()
