"""A sink that notes when each row reached it, whatever becomes of its epoch; the measurement of kills reads it."""

from __future__ import annotations

import os
from operator import attrgetter
from pathlib import Path

import msgspec

from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.runtime.clock import now_us
from penstock.types import Record, Schema
from penstock_bench.meter.timeline import Shown

_SUFFIX = ".notes"


class _Note(msgspec.Struct, array_like=True):
    """Rows that came together: their groups' key, window and count."""

    at_us: int
    rows: list[tuple[str, int, int]]


class Witness(Sink):
    """Takes the rows of a windowed count.

    Parameters
    ----------
    directory : path
        Where the notes are written, one file for each process.
    key : str, optional
        Column of the key; without it the stream is counted as a whole.
    """

    def __init__(self, directory: Path, key: str | None = None) -> None:
        self.directory = directory
        self._key = key

    @property
    def kind(self) -> str:
        return "witness"

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        del schema
        self.directory.mkdir(parents=True, exist_ok=True)
        return _WitnessWriter(self.directory / f"{context.instance}-{os.getpid()}{_SUFFIX}", self._key)

    def shown(self) -> list[Shown]:
        """Read all notes; a line that its process was killed over is left out."""
        decode = msgspec.json.Decoder(_Note).decode
        notes = (
            decode(line)
            for path in self.directory.glob(f"*{_SUFFIX}")
            for line in path.read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n")
        )
        return [Shown(note.at_us, (key, start_us), count) for note in notes for key, start_us, count in note.rows]


class _WitnessWriter(SinkWriter):
    def __init__(self, path: Path, key: str | None) -> None:
        # Unbuffered: what a killed process had in its buffers would be missing.
        self._file = path.open("ab", buffering=0)
        self._keyed = None if key is None else attrgetter(key)
        self._encode = msgspec.json.Encoder().encode

    def write(self, rows: list[Record]) -> None:
        keyed = self._keyed
        noted = [("" if keyed is None else keyed(row), row.window_start, row.count) for row in rows]
        self._file.write(self._encode(_Note(now_us(), noted)) + b"\n")

    def close(self) -> None:
        self._file.close()
