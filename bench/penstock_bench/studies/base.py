"""What a study is, and how one is run: what it finds is written down as it comes, and survives Ctrl-C."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_origin

import msgspec

from penstock.errors import PenstockError
from penstock_bench.meter.job import SETTLE_S, WARM_UP_S, carry, observe
from penstock_bench.meter.rows import Check, Claim, ResultRow, Results, StudyNotes, make_header
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import UNKNOWN, faults, label, ms, number
from penstock_bench.workloads import WORKLOADS, Workload

PARALLELISM = 2
QUICK_S = 1.5
WARM_UP_SHORT_S = 2.0
CARRY_S = 5.0
BEYOND = 1.25
"""Times the capacity of the record form: a rate that only the batch form carries."""
OFFERED_EPS = {"yahoo": 4_000_000.0, "wordcount": 4_000_000.0, "grep": 12_000_000.0, "scoring": 12_000_000.0}
OFFERED_MOST_EPS = 6_000_000.0
"""More events/s than any form carries, by workload and of the others."""
T = TypeVar("T")
RECORD, BATCH, ADAPTIVE = "record", "batch", "adaptive"
FORMS = (RECORD, ADAPTIVE, BATCH)


Table = tuple[str, list[str], list[list[str]]]
"""Title, heads and lines."""
Column = tuple[str, Callable[[Any], str]]
"""The head of a column, and what writes the cell of a line."""


@dataclass(frozen=True)
class StudyOptions:
    """How a study is made.

    Attributes
    ----------
    quick : bool
        A trial of the study itself, in seconds; its figures mean nothing.
    short : bool
        Its part of `make bench`: a few of its measurements, for all its checks.
    parallelism : int
        Workers, and slots in batch form.
    seconds : float or None
        Length of each measurement; None for the study's own.
    peer : bool
        Measure Structured Streaming too, where the study has a place for it.
    traces : Path or None
        Directory of recorded loads; None for the usual places.
    """

    quick: bool = False
    short: bool = False
    parallelism: int = PARALLELISM
    seconds: float | None = None
    peer: bool = False
    traces: Path | None = None


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

    def append(self, name: str, value: object) -> None:
        """Keep one more of a list of what fits neither."""
        self.put(name, [*self._data(name, list), value])

    def put_in(self, name: str, key: str, value: object) -> None:
        """Keep what fits neither under a key."""
        self.put(name, {**self._data(name, dict), key: value})

    def _data(self, name: str, kind: type[T]) -> T:
        assert self.results.study is not None
        return msgspec.convert(self.results.study.data.get(name, kind()), kind)

    def seconds(self, usual: float, quick: float = QUICK_S) -> float:
        """How long a measurement lasts."""
        return quick if self.options.quick else self.options.seconds or usual

    def choose(self, full: T, short: T, quick: T) -> T:
        """What is measured, by how much of the study was asked for."""
        return quick if self.options.quick else short if self.options.short else full

    def observe(
        self, name: str, rate: float, form: str, seconds: float, *, workers: int = 0, **options: Any
    ) -> ResultRow:
        """Measure a workload of ours at a rate; whoever asks keeps the row."""
        workers = workers or self.options.parallelism
        warm_up_s = self.choose(WARM_UP_S, WARM_UP_SHORT_S, QUICK_S)
        seconds = self.seconds(seconds)
        return observe(WORKLOADS[name], rate, seconds, workers, form, warm_up_s=warm_up_s, **options)[0]

    def every_form(self, name: str, rates: Iterable[float], seconds: float) -> None:
        """Measure a workload of ours at each rate in each form, and keep the rows."""
        for rate in rates:
            for form in FORMS:
                self.tell(f"{name} at {number(rate)}/s, {form}")
                self.add(self.observe(name, rate, form, seconds))

    def carry(
        self, workload: Workload[Any] | str, form: str, seconds: float = CARRY_S, *, workers: int = 0, **options: Any
    ) -> ResultRow:
        """Measure what gets through under overload; whoever asks keeps the row."""
        workload = WORKLOADS[workload] if isinstance(workload, str) else workload
        offered_eps = options.pop("offered_eps", OFFERED_EPS.get(workload.name, OFFERED_MOST_EPS))
        options.setdefault("settle_s", SETTLE_S)
        if self.options.quick:
            options["settle_s"] = QUICK_S
        workers = workers or self.options.parallelism
        return carry(workload, offered_eps, self.seconds(seconds), workers, form, **options)

    def record_eps(self, name: str) -> float:
        """Measure what the record form carries, and keep it."""
        self.tell(f"{name}: what the record form carries")
        return self.add(self.carry(name, RECORD)).capacity_eps or 1.0

    def beyond_record(self, name: str) -> float:
        """Return a rate that is too high for the record form."""
        return two_digits(BEYOND * self.record_eps(name))


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
    file: ClassVar[str] = ""
    """Name of its results, where that is not its own."""
    beside: ClassVar[int] = 0
    """Processes that its jobs have beside workers and slots: Spark must have places for them."""
    settings: ClassVar[dict[str, object]] = {}
    """What the header of its results says beside the number of workers."""

    @abstractmethod
    def run(self, desk: Desk) -> None:
        """Measure; everything found goes to the desk at once."""

    @abstractmethod
    def findings(self, results: Results) -> Iterator[Claim | Check]:
        """Hold what was found against the papers, and against targets; also of a part of the measurements. Pure."""

    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
        """The findings, apart."""
        found = list(self.findings(results))
        return [each for each in found if isinstance(each, Claim)], [each for each in found if isinstance(each, Check)]

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
    results = Results(header=make_header({**settings, **study.settings}), rows=[], checks=[], study=notes)
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
    if row.faults:
        parts.append(f"NOT EXACT: {faults(row)}")
    return " ".join(parts)


def data_of(results: Results, name: str, kind: type[T]) -> T:
    """Return what a study has put under a name, as the type that it is of; empty where there is nothing."""
    assert results.study is not None
    return msgspec.convert(results.study.data.get(name, {} if get_origin(kind) is dict else []), kind)


def two_digits(rate: float) -> float:
    """Round a rate that was worked out: more digits would say nothing."""
    return float(f"{rate:.2g}")


def machine(results: Results) -> str:
    """On what our figures were measured, in words."""
    header = results.header
    return f"one machine with {header.cores} cores and {header.memory_gb:g} GB"


def rows_of(
    results: Results,
    workload: str | None = None,
    form: str | None = None,
    rate: float | None = None,
    engine: str = "penstock",
    *,
    having: str = "p99_ms",
    **settings: object,
) -> list[ResultRow]:
    """Return the rows of this description in which a figure is known; what is None may be anything."""
    wanted = {"workload": workload, "form": form, "rate": rate, "engine": engine}
    return [
        row
        for row in results.rows
        if all(value in (None, getattr(row, name)) for name, value in wanted.items())
        and settings.items() <= row.settings.items()
        and getattr(row, having) is not None
    ]


def pick(results: Results, *description: Any, **more: Any) -> ResultRow | None:
    """Return the last row of a description; see `rows_of`."""
    found = rows_of(results, *description, **more)
    return found[-1] if found else None


def curve(rows: Iterable[ResultRow], setting: str, field: str) -> list[tuple[int, float]]:
    """Put a figure of rows against a setting of theirs."""
    return sorted((int(str(row.settings[setting])), float(getattr(row, field))) for row in rows)


def table(title: str, items: Iterable[Any], *columns: Column) -> list[Table]:
    """Make a table with a line for each item; none if there is none."""
    lines = [[write(item) for _, write in columns] for item in items]
    return [(title, [head for head, _ in columns], lines)] if lines else []


def fields(write: Callable[[Any], str], place: int | None = None, /, **heads: str) -> list[Column]:
    """Columns of fields by their names: of the items, or of what stands at a place in each; a dash where there is none.

    A name may lead on to a field of a field: ``loss__normal_s``.
    """

    def column(name: str) -> Callable[[Any], str]:
        def told(item: Any) -> str:
            found = item if place is None else item[place]
            for part in name.split("__"):
                found = None if found is None else getattr(found, part)
            return UNKNOWN if found is None else write(found)

        return told

    return [(head, column(name)) for name, head in heads.items()]


def at_most(name: str, value: float, unit: str, most: float, detail: object = None, **more: Any) -> Check:
    """Hold a figure against what it may be at the most; see `_held`."""
    return _held(name, value, unit, "at most", most, value <= most, detail, **more)


def at_least(name: str, value: float, unit: str, least: float, detail: object = None, **more: Any) -> Check:
    """Hold a figure against what it has to be at the least; see `_held`."""
    return _held(name, value, unit, "at least", least, value >= least, detail, **more)


def _held(
    name: str,
    value: float,
    unit: str,
    words: str,
    limit: float,
    met: bool,
    detail: object,
    *,
    digits: int = 3,
    where: str = "",
    also: bool = True,
) -> Check:
    """``where`` says for what the limit holds or what else is asked for; ``also``: whether that is met."""
    target = f"{words} {f'{limit:,.0f}' if limit >= 1_000 else f'{limit:g}'}{where}"
    return Check(name, round(value, digits), unit, target, met and also, msgspec.to_builtins(detail or {}))
