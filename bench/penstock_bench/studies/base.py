"""What a study is, and how one is run: what it finds is written down as it comes, and survives Ctrl-C."""

from __future__ import annotations

import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from penstock.demo.series import Sampler
from penstock.errors import PenstockError
from penstock.runtime.report import Report
from penstock_bench.engines.program import Program
from penstock_bench.meter.job import SETTLE_S, WARM_UP_S, carry, observe
from penstock_bench.meter.rows import Check, Claim, ResultRow, Results, StudyNotes, make_header
from penstock_bench.report.chart import Figure
from penstock_bench.report.words import faults, label, ms, number
from penstock_bench.studies.findings import Findings, Table
from penstock_bench.workloads import WORKLOADS, Workload

PARALLELISM = 2
QUICK_S = 1.5
WARM_UP_SHORT_S = 2.0
SECONDS, CARRY_S = 6.0, 5.0
"""Of a measurement at a rate, and of one under overload."""
BEYOND = 1.25
"""Times the capacity of the record form: a rate that only the batch form carries."""
OFFERED_EPS = {"yahoo": 4_000_000.0, "wordcount": 4_000_000.0, "grep": 12_000_000.0, "scoring": 12_000_000.0}
OFFERED_MOST_EPS = 6_000_000.0
"""More events/s than any form carries, by workload and of the others."""
T = TypeVar("T")
RECORD, BATCH, ADAPTIVE = "record", "batch", "adaptive"
FORMS = (RECORD, ADAPTIVE, BATCH)
INSIDE = "         "
"""Before what a measurement came to: as wide as its time."""


@dataclass(frozen=True)
class StudyOptions:
    quick: bool = False
    """A trial of the study itself, in seconds; its figures mean nothing."""
    short: bool = False
    """Its part of `make bench`: a few of its measurements, for all its checks."""
    parallelism: int = PARALLELISM
    """Workers, and slots in batch form."""
    seconds: float | None = None
    """Length of each measurement; None for the study's own."""
    peer: bool = False
    """Measure Structured Streaming too, where the study has a place for it."""
    traces: Path | None = None
    """Directory of recorded loads; None for the usual places."""


@dataclass
class Desk:
    """Where a study measures, and puts down what it finds; each piece is kept at once."""

    options: StudyOptions
    results: Results
    keep: Callable[[Results], None]
    say: Callable[[str], None]
    _began_s: float = field(default_factory=time.monotonic)

    def tell(self, what: str) -> None:
        self.say(f"[{time.monotonic() - self._began_s:4.0f} s] {what}")

    def add(self, row: ResultRow, variant: str = "", **settings: object) -> ResultRow:
        """Keep a measurement; a variant and settings tell it from others of its workload, form and rate."""
        row.variant, row.settings = variant or row.variant, {**row.settings, **settings}
        self.results.rows.append(row)
        self.say(INSIDE + summary(row))
        self.keep(self.results)
        return row

    def check(self, *checks: Check) -> None:
        """Keep figures that have a target."""
        for check in checks:
            self.results.checks.append(check)
            self.say(INSIDE + _told(check))
            self.keep(self.results)

    @property
    def _data(self) -> dict[str, Any]:
        assert self.results.study is not None
        return self.results.study.data

    def put(self, name: str, value: object) -> None:
        """Keep what is neither a row nor a check."""
        self._data[name] = msgspec.to_builtins(value)
        self.keep(self.results)

    def append(self, name: str, value: object, told: str = "") -> None:
        """Keep one more of a list, and say what it came to."""
        self.put(name, [*self._data.get(name, []), value])
        if told:
            self.say(INSIDE + told)

    def put_in(self, name: str, key: str, value: object) -> None:
        """Keep one more of a mapping."""
        self.put(name, {**self._data.get(name, {}), key: value})

    def seconds(self, usual: float, quick: float = QUICK_S) -> float:
        return quick if self.options.quick else self.options.seconds or usual

    def choose(self, full: T, short: T, quick: T) -> T:
        """What is measured, by how much of the study was asked for."""
        return quick if self.options.quick else short if self.options.short else full

    @property
    def warm_up_s(self) -> float:
        """How long a job at a rate runs before it is measured."""
        return self.choose(WARM_UP_S, WARM_UP_SHORT_S, QUICK_S)

    def observe(
        self, name: str, rate: float, form: str, seconds: float = SECONDS, *, workers: int = 0, **options: Any
    ) -> ResultRow:
        """Measure a workload of ours at a rate; whoever asks keeps the row."""
        workers = workers or self.options.parallelism
        options.setdefault("warm_up_s", self.warm_up_s)
        return observe(WORKLOADS[name], rate, self.seconds(seconds), workers, form, **options)[0]

    def at_rate(
        self, name: str, rate: float, form: str, seconds: float = SECONDS, *, workers: int = 0, variant: str = ""
    ) -> ResultRow:
        """Measure a workload of ours at a rate, and keep the row."""
        self.tell(f"{name} at {number(rate)}/s, {form}{variant and f', {variant}'}")
        settings = {"workers": workers} if workers else {}
        return self.add(self.observe(name, rate, form, seconds, workers=workers), variant, **settings)

    def grid(self, cases: Mapping[str, Mapping[float, Sequence[str]]]) -> None:
        """Measure each workload at each of its rates in the forms that belong to it, and keep the rows."""
        for name, forms_by_rate in cases.items():
            for rate, forms in forms_by_rate.items():
                for form in forms:
                    self.at_rate(name, rate, form)

    def through(self, workload: Workload[Any], load: Any, form: str, **options: Any) -> tuple[ResultRow, Report, Any]:
        """Run through a load that changes, sampled some times a second; the whole run is measured."""
        sampler: Any = Sampler(load)
        parallelism, options = self.options.parallelism, {"warm_up_s": 0.0, "watchers": [sampler], **options}
        return *observe(workload, load.schedule, load.seconds, parallelism, form, **options), sampler

    def overload(
        self,
        workload: Workload[Any] | str,
        form: str,
        seconds: float = CARRY_S,
        variant: str = "",
        settings: Mapping[str, object] | None = None,
        *,
        workers: int = 0,
        **options: Any,
    ) -> ResultRow:
        """Measure what gets through when more is offered than can be carried, and keep the row."""
        workload = WORKLOADS[workload] if isinstance(workload, str) else workload
        self.tell(f"{workload.name} under overload, {form}{variant and f', {variant}'}")
        offered_eps = options.pop("offered_eps", OFFERED_EPS.get(workload.name, OFFERED_MOST_EPS))
        options["settle_s"] = QUICK_S if self.options.quick else options.get("settle_s", SETTLE_S)
        workers = workers or self.options.parallelism
        row = carry(workload, offered_eps, self.seconds(seconds), workers, form, **options)
        return self.add(row, variant, **settings or {})

    def record_eps(self, workload: Workload[Any] | str, seconds: float = CARRY_S, **options: Any) -> float:
        return self.overload(workload, RECORD, seconds, **options).capacity_eps or 1.0

    def beyond_record(self, name: str) -> float:
        """Return a rate that is too high for the record form."""
        return two_digits(BEYOND * self.record_eps(name))


class Study(ABC):
    """A question put to the engine after a paper. The docstring of a study is its method: what users read of it."""

    name: ClassVar[str]
    title: ClassVar[str]
    after: ClassVar[str]
    """The figures and tables of the papers that it repeats."""
    file: ClassVar[str] = ""
    """Name of its results, where that is not its own."""
    beside: ClassVar[int] = 0
    """Processes that its jobs have beside workers and slots: Spark must have places for them."""
    settings: ClassVar[dict[str, object]] = {}
    """What the header of its results says beside the number of workers."""

    @property
    def method(self) -> str:
        return " ".join((type(self).__doc__ or "").split())

    @abstractmethod
    def run(self, desk: Desk) -> None:
        """Measure; everything found goes to the desk at once."""

    @abstractmethod
    def findings(self, results: Results) -> Findings:
        """Hold what was found against the papers, and against targets; also of a part of the measurements. Pure."""

    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
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

    try:
        study.run(Desk(options, results, keep, say))
        notes.complete = True
    except KeyboardInterrupt:
        say("interrupted: what was measured is kept")
    finally:
        notes.claims, judged = study.judge(results)
        if options.quick:
            notes.claims = [msgspec.structs.replace(claim, holds=None) for claim in notes.claims]
        results.checks += judged
        keep(results)
    for check in judged:
        say(_told(check))
    return results, notes.complete


def _told(check: Check) -> str:
    mark = "ok" if check.met else "MISSED"
    return f"{check.name}: {number(check.value)} {check.unit} (target {check.target}) {mark}"


def summary(row: ResultRow) -> str:
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


@contextmanager
def process(module: str, *arguments: object) -> Iterator[Program]:
    """A module of the studies as a process of its own, which answers in messages."""
    command = [sys.executable, "-m", f"penstock_bench.studies.{module}", *map(str, arguments)]
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        Program(module, command, Path(directory) / "log", messages=True) as program,
    ):
        yield program


def two_digits(rate: float) -> float:
    """Round a rate that was worked out: more digits would say nothing."""
    return float(f"{rate:.2g}")
