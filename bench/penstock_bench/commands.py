"""`penstock bench run`, `search` and `compare`, after the command line has read their options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
from rich.console import Console

from penstock.errors import InvalidOption
from penstock_bench.engines import Engine, RunOptions, Subject
from penstock_bench.kafka.course import Course
from penstock_bench.meter.engine import Rate
from penstock_bench.meter.rows import Check, ResultRow, Results
from penstock_bench.meter.runner import interleaved, measure, new_run, results_of
from penstock_bench.meter.search import search
from penstock_bench.report.presentation import (
    ProgressView,
    check_line,
    comparison_tables,
    is_exact,
    number,
    progress_view,
    row_lines,
)

REPETITIONS_MAX = 100
Keep = Callable[[Results], None]
"""Takes what there is after every measurement, so that it outlives an interruption."""
Settings = dict[str, dict[str, str]]
"""An engine's own options by its label."""
TABLE_NOTE = (
    "ms: from the scheduled time of an event to its result. out/s: events whose\n"
    "result came within the measured time. cores, MB: of all processes together.\n"
    "kept up: runs whose backlog did not grow. exact: runs with nothing lost,\n"
    "duplicated, wrong or reordered."
)


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


def run_search(
    engine: Engine,
    subject: Subject,
    first_eps: float,
    seconds: float,
    options: RunOptions,
    console: Console,
    *,
    precision: float,
    keep: Keep,
    gauge: Course,
) -> Results:
    """Look for the highest rate that an engine sustains; every trial is a whole run with a warm-up of its own."""
    run, rows = new_run(), list[ResultRow]()
    with progress_view(console) as view:
        checks = _meter(gauge, subject, [], options, view)
        limit_eps = checks[0].value
        results = results_of(rows, checks, options, precision=precision)

        def sustains(rate: float) -> bool:
            view.begin(f"{engine.label}, trial {len(rows) + 1} at {rate:,.0f}/s")
            row, found = measure(engine, subject, rate, seconds, replace(options, tell=view.tell), run)
            rows.append(row)
            word = "sustained" if found.sustained else "not sustained"
            growth = f"backlog {found.backlog.growth:+.1%}"
            _show(console, [f"{rate:,.0f}/s: {word}, {growth}, p99 {number(row.p99_ms)} ms, lost {row.lost:,}"])
            keep(results)
            return found.sustained

        found = search(sustains, first_eps, precision=precision, ceiling_eps=limit_eps)
    above = "" if found.failed_eps is None else f"; {found.failed_eps:,.0f}/s was not"
    if found.sustained_eps >= limit_eps:
        above = "; more than the generator can send was not tried"
    note = f"{len(found.trials)} trials of {seconds:g} s{above}"
    best = next((row for row in rows if row.rate == found.sustained_eps), rows[-1])
    summary = msgspec.structs.replace(best, rate=None, sustained_eps=round(found.sustained_eps), note=note)
    rows.append(summary)
    _show(
        console,
        [
            *map(check_line, checks),
            f"{subject.name} on {engine.label} {best.version} sustains {found.sustained_eps:,.0f} events/s ({note})",
        ],
    )
    return results


def run_comparison(
    engines: Sequence[Engine],
    subject: Subject,
    rates: Sequence[Rate],
    seconds: float,
    options: RunOptions,
    settings: Settings,
    console: Console,
    *,
    repetitions: int,
    floor: bool,
    keep: Keep,
    gauge: Course,
) -> tuple[Results, bool]:
    """Measure engines side by side, or one alone, and show it; also tells whether every output was exact."""
    with progress_view(console) as view:

        def options_of(engine: Engine) -> RunOptions:
            return replace(options, settings=settings[engine.label], tell=view.tell)

        taken: list[ResultRow] = []
        run, checks = new_run(), _meter(gauge, subject, rates if floor else [], options, view)
        results = results_of(taken, checks, options, repetitions=repetitions)
        for rate in rates:
            for engine in interleaved(engines, repetitions):
                view.begin(f"{engine.label} at {_rate_text(rate)}")
                row, _ = measure(engine, subject, rate, seconds, options_of(engine), run)
                taken.append(row)
                _show(console, row_lines(row))
                keep(results)
    _show(console, [check_line(check) for check in checks])
    if len(taken) > 1:
        for table in comparison_tables(taken):
            console.print(table)
        _show(console, [TABLE_NOTE])
    return results, all(map(is_exact, taken))


def check_comparison(engines: Sequence[Engine], rates: Sequence[Rate], repetitions: int) -> None:
    """Refuse what cannot be compared, before anything is started."""
    if not 1 <= repetitions <= REPETITIONS_MAX:
        raise InvalidOption(option="--repeat", given=repetitions, allowed=f"1 to {REPETITIONS_MAX}")
    for option, given in (("--engine", [each.label for each in engines]), ("--rate", list(rates))):
        for i, each in enumerate(given):
            if each in given[:i]:
                raise InvalidOption(option=option, given=each, allowed="each one once; --repeat N repeats all of them")


def _rate_text(rate: Rate) -> str:
    return f"{rate:,.0f}/s" if isinstance(rate, int | float) else "its own rate"


def _meter(
    gauge: Course, subject: Subject, rates: Sequence[Rate], options: RunOptions, view: ProgressView
) -> list[Check]:
    view.begin("the meter itself")
    view.tell("the generator's limit", None)
    floors = (gauge.floor(subject, rate, replace(options, tell=view.tell)) for rate in rates)
    return [gauge.limit(subject), *floors]


def _show(console: Console, lines: Sequence[str]) -> None:
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
