"""What a study is, and how one is run: what it finds is written down as it comes, and survives Ctrl-C."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import msgspec

from penstock.errors import PenstockError
from penstock_bench.meter.rows import Check, Claim, ResultRow, Results, StudyNotes, make_header
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import label, ms, number

PARALLELISM = 2
RECORD, BATCH, ADAPTIVE = "record", "batch", "adaptive"
FORMS = (RECORD, ADAPTIVE, BATCH)


Table = tuple[str, list[str], list[list[str]]]
"""Title, heads and lines."""


@dataclass(frozen=True)
class StudyOptions:
    """How a study is made.

    Attributes
    ----------
    quick : bool
        A trial of the study itself, in seconds; its figures mean nothing.
    parallelism : int
        Workers, and slots in batch form.
    seconds : float or None
        Length of each measurement; None for the study's own.
    peer : bool
        Measure Structured Streaming too, where the study has a place for it.
    """

    quick: bool = False
    parallelism: int = PARALLELISM
    seconds: float | None = None
    peer: bool = False


@dataclass
class Desk:
    """Where a study puts down what it finds; each piece is kept at once."""

    options: StudyOptions
    results: Results
    keep: Callable[[Results], None]
    say: Callable[[str], None]
    _began_s: float = field(default_factory=time.monotonic)

    def tell(self, what: str) -> None:
        """Say what is being measured now."""
        self.say(f"[{time.monotonic() - self._began_s:4.0f} s] {what}")

    def add(self, row: ResultRow) -> ResultRow:
        """Keep a measurement."""
        self.results.rows.append(row)
        self.say(f"         {summary(row)}")
        self.keep(self.results)
        return row

    def check(self, check: Check) -> None:
        """Keep a figure that has a target."""
        self.results.checks.append(check)
        self.say(f"         {_told(check)}")
        self.keep(self.results)

    def put(self, name: str, value: object) -> None:
        """Keep what fits neither."""
        assert self.results.study is not None
        self.results.study.data[name] = msgspec.to_builtins(value)
        self.keep(self.results)

    def seconds(self, usual: float, quick: float) -> float:
        """How long a measurement lasts."""
        return quick if self.options.quick else self.options.seconds or usual


class Study(ABC):
    """A question put to the engine after a paper.

    Attributes
    ----------
    name : str
        Name on the command line.
    title : str
        What it is about.
    after : str
        The figures and tables of the papers that it repeats.
    method : str
        What is done, in two or three sentences.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    after: ClassVar[str]
    method: ClassVar[str]

    @abstractmethod
    def run(self, desk: Desk) -> None:
        """Measure; everything found goes to the desk at once."""

    @abstractmethod
    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
        """Hold what was found against the papers, and against targets; also of a part of the measurements. Pure."""

    @abstractmethod
    def figures(self, results: Results) -> list[Figure]:
        """Figures of what was found. Pure."""

    def tables(self, results: Results) -> list[Table]:
        """Tables of what is neither rows nor checks. Pure."""
        del results
        return []


def conduct(study: Study, options: StudyOptions, path: Path, say: Callable[[str], None]) -> tuple[Results, bool]:
    """Run a study and write its results to a file, again with every measurement; False if it was interrupted.

    What could be measured before Ctrl-C, or before a failure, is judged and stays in the file.
    """
    notes = StudyNotes(name=study.name, title=study.title, method=study.method, complete=False, quick=options.quick)
    settings: dict[str, object] = {"parallelism": options.parallelism, "after": study.after}
    results = Results(header=make_header(settings), rows=[], checks=[], study=notes)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise PenstockError(f"'{path}' cannot be written: {error.strerror}.") from error

    def keep(found: Results) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")

    complete = False
    try:
        study.run(Desk(options, results, keep, say))
        complete = True
    except KeyboardInterrupt:
        say("interrupted: what was measured is kept")
    finally:
        notes.complete = complete
        notes.claims, judged = study.judge(results)
        if options.quick:
            notes.claims = [msgspec.structs.replace(claim, holds=None) for claim in notes.claims]
        results.checks += judged
        keep(results)
    for check in judged:
        say(_told(check))
    return results, complete


def _told(check: Check) -> str:
    mark = "ok" if check.met else "MISSED"
    return f"{check.name}: {number(check.value)} {check.unit} (target {check.target}) {mark}"


def summary(row: ResultRow) -> str:
    """A measurement in a line."""
    rate = "" if row.rate is None else f" at {number(row.rate)}/s"
    parts = [f"{row.workload}, {label(row)}{rate}:"]
    if row.p50_ms is not None:
        parts.append(f"p50 {ms(row.p50_ms)} ms, p99 {ms(row.p99_ms)} ms")
    if row.sustained_eps is not None:
        parts.append(f"sustains {number(row.sustained_eps)}/s")
    if row.capacity_eps is not None:
        parts.append(f"carries {number(row.capacity_eps)}/s")
    if row.lost or row.duplicated or row.reordered:
        parts.append(f"NOT EXACT: lost {row.lost}, duplicated {row.duplicated}, reordered {row.reordered}")
    return " ".join(parts)


def machine(results: Results) -> str:
    """On what our figures were measured, in words."""
    header = results.header
    return f"one machine with {header.cores} cores and {header.memory_gb:g} GB"


def pick(
    results: Results, workload: str, form: str, rate: float | None = None, engine: str = "penstock"
) -> ResultRow | None:
    """Return the last row of this description."""
    found = [
        row
        for row in results.rows
        if row.workload == workload and row.form == form and row.engine == engine and rate in (None, row.rate)
    ]
    return found[-1] if found else None
