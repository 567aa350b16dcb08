"""`penstock bench run`, `search` and `compare`, after the command line has read their options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
from rich.console import Console

from penstock.cli.outcome import JsonOut
from penstock.errors import InvalidOption
from penstock_bench.engines import Engine, RunOptions, Subject
from penstock_bench.kafka.course import Course
from penstock_bench.meter.engine import Rate
from penstock_bench.meter.evaluate import Evaluation
from penstock_bench.meter.rows import Check, ResultRow
from penstock_bench.meter.runner import interleaved, measure, new_run, results_of
from penstock_bench.meter.search import search
from penstock_bench.report import presentation
from penstock_bench.report.presentation import ProgressView, check_line, number, progress_view

REPETITIONS_MAX = 100
Settings = dict[str, dict[str, str]]
"""An engine's own options by its label."""
TABLE_NOTE = (
    "ms: from the scheduled time of an event to its result. out/s: events whose\n"
    "result came within the measured time. cores, MB: of all processes together.\n"
    "kept up: runs whose backlog did not grow. exact: runs with nothing lost,\n"
    "duplicated, wrong or reordered."
)


@dataclass(frozen=True)
class Asked:
    """What a command is to measure, where, and where the results go."""

    engines: Sequence[Engine]
    subject: Subject
    rates: Sequence[Rate]
    seconds: float
    options: RunOptions
    settings: Settings
    place: Course
    out: JsonOut
    console: Console

    def measure(self, engine: Engine, rate: Rate, run: str, view: ProgressView) -> tuple[ResultRow, Evaluation]:
        """Run an engine once, with its own options."""
        options = replace(self.options, settings=self.settings[engine.label], tell=view.tell)
        return measure(engine, self.subject, rate, self.seconds, options, run)

    def show(self, *lines: str) -> None:
        """Tell people."""
        self.console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def parse_settings(texts: Sequence[str], engines: Sequence[Engine]) -> Settings:
    """Read ``name=value``, for every engine that has the option, and ``engine.name=value``, for one engine."""
    found: Settings = {engine.label: {} for engine in engines}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidOption(option="--set", given=text, allowed="name=value or engine.name=value")
        owner, _, rest = name.partition(".")
        owners = [each for each in engines if rest and each.name == owner]
        takers = owners or [each for each in engines if name in each.options]
        if not takers:
            # One that no engine has: the first says which there are.
            engines[0].check({name: value})
        for each in takers:
            found[each.label][rest if owners else name] = value
    for engine in engines:
        engine.check(found[engine.label])
    return found


def run_search(asked: Asked, *, precision: float) -> None:
    """Look for the highest rate that an engine sustains; every trial is a whole run with a warm-up of its own."""
    engine, subject, (first_eps,) = asked.engines[0], asked.subject, asked.rates
    assert isinstance(first_eps, int | float)
    run, rows = new_run(), list[ResultRow]()
    with progress_view(asked.console) as view:
        checks = _meter(asked, [], view)
        limit_eps = checks[0].value
        results = results_of(rows, checks, asked.options, precision=precision)

        def sustains(rate: float) -> bool:
            view.begin(f"{engine.label}, trial {len(rows) + 1} at {rate:,.0f}/s")
            row, found = asked.measure(engine, rate, run, view)
            rows.append(row)
            word = "sustained" if found.sustained else "not sustained"
            growth = f"backlog {found.backlog.growth:+.1%}"
            asked.show(f"{rate:,.0f}/s: {word}, {growth}, p99 {number(row.p99_ms)} ms, lost {row.lost:,}")
            asked.out.keep(results)
            return found.sustained

        found = search(sustains, first_eps, precision=precision, ceiling_eps=limit_eps)
    above = "" if found.failed_eps is None else f"; {found.failed_eps:,.0f}/s was not"
    if found.sustained_eps >= limit_eps:
        above = "; more than the generator can send was not tried"
    note = f"{len(found.trials)} trials of {asked.seconds:g} s{above}"
    best = next((row for row in rows if row.rate == found.sustained_eps), rows[-1])
    rows.append(msgspec.structs.replace(best, rate=None, sustained_eps=round(found.sustained_eps), note=note))
    told = f"{subject.name} on {engine.label} {best.version} sustains {found.sustained_eps:,.0f} events/s ({note})"
    asked.show(*map(check_line, checks), told)
    asked.out.write(results)


def run_comparison(asked: Asked, *, repetitions: int, floor: bool) -> bool:
    """Measure engines side by side, or one alone, show and write it; tells whether every output was exact."""
    taken: list[ResultRow] = []
    with progress_view(asked.console) as view:
        run, checks = new_run(), _meter(asked, asked.rates if floor else [], view)
        results = results_of(taken, checks, asked.options, repetitions=repetitions)
        for rate in asked.rates:
            for engine in interleaved(asked.engines, repetitions):
                told = f"{rate:,.0f}/s" if isinstance(rate, int | float) else "its own rate"
                view.begin(f"{engine.label} at {told}")
                taken.append(asked.measure(engine, rate, run, view)[0])
                asked.show(*presentation.row_lines(taken[-1]))
                asked.out.keep(results)
    asked.show(*map(check_line, checks))
    if len(taken) > 1:
        for table in presentation.comparison_tables(taken):
            asked.console.print(table)
        asked.show(TABLE_NOTE)
    asked.out.write(results)
    return not any(row.faults for row in taken)


def check_comparison(engines: Sequence[Engine], rates: Sequence[Rate], repetitions: int) -> None:
    """Refuse what cannot be compared, before anything is started."""
    if not 1 <= repetitions <= REPETITIONS_MAX:
        raise InvalidOption(option="--repeat", given=repetitions, allowed=f"1 to {REPETITIONS_MAX}")
    for option, given in (("--engine", [each.label for each in engines]), ("--rate", list(rates))):
        for i, each in enumerate(given):
            if each in given[:i]:
                raise InvalidOption(option=option, given=each, allowed="each one once; --repeat N repeats all of them")


def _meter(asked: Asked, rates: Sequence[Rate], view: ProgressView) -> list[Check]:
    view.begin("the meter itself")
    options = replace(asked.options, tell=view.tell)
    asked.place.warm_up(asked.subject, options)
    view.tell("the generator's limit", None)
    floors = (asked.place.floor(asked.subject, rate, options) for rate in rates)
    return [asked.place.limit(asked.subject), *floors]
