"""Metrics into a file: JSON lines, one object for each time a sample was taken."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.control.changes import Advice, ChangeReport
from penstock.control.rescaling import MoveReport
from penstock.control.shifting import ShiftReport
from penstock.errors import InvalidOption
from penstock.pipeline.outlets import FileOutlet
from penstock.runtime.metrics_out.feeder import OutletFailed
from penstock.runtime.metrics_out.samples import Point, Snapshot

FILE_BYTES_MAX = 4 << 30
"""A file is not written beyond this, about a day of a pipeline of ten operations of four instances."""


class Line(msgspec.Struct):
    """One line of the file."""

    at_us: int
    """When, in microseconds since the epoch."""
    job: str
    run: str
    """Different for every run of a job."""
    engine: str
    version: str
    points: list[Point]
    """The samples: a measurement, what it is of, and its fields; docs/metrics.md lists them."""
    switches: list[ChangeReport]
    """Switches of form since the line before."""
    advised: bool
    """Whether the job only advises."""
    advice: list[Advice] = []
    """What it would have done since the line before."""
    moves: list[MoveReport] = []
    """Moves of instances between workers since the line before."""
    shifts: list[ShiftReport] = []
    """Shifts of key groups between instances since the line before."""


def line_of(snapshot: Snapshot) -> bytes:
    """Render one line, with its end."""
    tags = snapshot.tags
    line = Line(
        at_us=snapshot.at_us,
        job=tags.job,
        run=tags.run,
        engine=tags.engine,
        version=tags.version,
        points=snapshot.points,
        switches=snapshot.switches,
        advised=snapshot.advised,
        moves=snapshot.moves,
        shifts=snapshot.shifts,
        advice=snapshot.advice,
    )
    return msgspec.json.encode(line) + b"\n"


class FileWriter:
    """Appends to one file; lines of several runs are told apart by their ``run``."""

    def __init__(self, outlet: FileOutlet, bytes_max: int = FILE_BYTES_MAX) -> None:
        path = Path(outlet.path)
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            allowed = f"a file that can be written: {error.strerror or error}"
            raise InvalidOption(option="metrics", given=str(outlet), allowed=allowed) from None
        self._bytes_max = bytes_max

    def write(self, snapshot: Snapshot) -> None:
        """Append one line, whole or not at all as far as others can see."""
        line = line_of(snapshot)
        size = self._file.tell()
        if size + len(line) > self._bytes_max:
            raise OutletFailed(f"the file has grown to {size} bytes; it is not written any further", again=False)
        try:
            written = self._file.write(line)
        except OSError as error:
            self._cut(size)
            raise OutletFailed(error.strerror or str(error), again=True) from None
        if written != len(line):
            self._cut(size)
            raise OutletFailed("the disk is full", again=True)

    def _cut(self, size: int) -> None:
        """Take half a line back: whoever reads the file finds whole ones only."""
        try:
            self._file.truncate(size)
            self._file.seek(size)
        except OSError:
            pass  # a pipe or a device

    def close(self) -> None:
        """Let the file go."""
        self._file.close()
