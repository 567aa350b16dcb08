"""Penstock as a program of its own, like every engine that it is compared with; `native` starts it.

Results leave through a sink that stamps them as soon as they come, without waiting for a commit, as the others do.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.types import Record, Schema
from penstock_bench.engines.native import decode_rate
from penstock_bench.engines.subjects import subject
from penstock_bench.foreign.programs.outlog import OutLog

POLL_S = 0.05


class Stamped(Sink):
    """Writes every row with the time at which it came; after a failure rows come again: at least once."""

    def __init__(self, directory: str, columns: tuple[str, ...], constants: Mapping[str, str]) -> None:
        self._directory = directory
        self._columns = columns
        self._constants = constants

    @property
    def kind(self) -> str:
        return "stamped"

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        log = OutLog(self._directory, f"{context.instance}-{time.time_ns()}")
        return _StampedWriter(log, self._columns, self._constants)


class _StampedWriter(SinkWriter):
    def __init__(self, log: OutLog, columns: tuple[str, ...], constants: Mapping[str, str]) -> None:
        self._log = log
        # Columns that all rows have in common come first, and the pipeline does not carry them.
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


def run(spec: dict[str, Any]) -> None:
    """Run a specification to its end; tells when the schedule began in a line of JSON."""
    wanted = subject(spec["workload"])
    sink = Stamped(spec["out"], wanted.columns, wanted.constants)
    rate = decode_rate(spec["rate"])
    pipeline = wanted.pipeline(rate, spec["seconds"], sink, seed=spec["seed"])
    with ps.start(pipeline, name="bench", parallelism=spec["parallelism"], **spec["options"]) as job:
        while not job.start_us and job.wait(POLL_S) is None:
            pass
        print(json.dumps({"start_us": job.start_us}), flush=True)
        report = job.wait()
    assert report is not None
    Path(spec["out"], "report.json").write_bytes(msgspec.json.encode(report))


def main() -> None:
    """Argument: the path of the specification."""
    run(json.loads(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
