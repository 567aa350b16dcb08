"""Runs workloads on engines and puts what it finds into the format of results; `penstock bench run` and `compare`."""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import msgspec

from penstock_bench.meter.engine import Engine, Rate, RunOptions
from penstock_bench.meter.errors import NotSupported
from penstock_bench.meter.evaluate import SUSTAINED, Evaluation, evaluate
from penstock_bench.meter.rows import Check, ResultRow, Results, latency_fields, make_header
from penstock_bench.meter.subject import Subject

WARM_UP_RULE = (
    "the engine is up and connected before the schedule starts; the schedule's first {:g} s are run at the same rate "
    "and checked, but not measured; the same for all engines"
)


def new_run() -> str:
    """Name a run: when it began, and something that no other one has."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def refuse(engine: Engine, subject: Subject, options: RunOptions) -> None:
    """Raise what keeps an engine from running a workload with these options, before anything is started."""
    engine.check(options.settings)
    reason = engine.supports(subject)
    if reason is not None:
        raise NotSupported(engine=engine.label, workload=subject.name, reason=reason.rstrip("."))


def measure(
    engine: Engine, subject: Subject, rate: Rate, seconds: float, options: RunOptions, run: str
) -> tuple[ResultRow, Evaluation]:
    refuse(engine, subject, options)
    engine.prepare(options.tell)
    version = engine.version()
    observed = engine.run(subject, rate, seconds, options)
    options.tell("checking the results", None)
    found = evaluate(subject, observed, rate, seconds, options)
    row = ResultRow(
        workload=subject.name,
        engine=engine.name,
        form=engine.form,
        rate=float(rate) if isinstance(rate, int | float) else found.events / (options.warm_up_s + seconds),
        seconds=seconds,
        events=found.events,
        **latency_fields(found.latency),
        cpu_cores=round(sum(each.cpu_cores for each in observed.processes), 3),
        pss_mb=round(sum(each.memory_mb or 0.0 for each in observed.processes), 1),
        **asdict(found.found),
        note="; ".join(observed.notes),
        run=run,
        variant=engine.variant,
        version=version,
        warm_up_s=options.warm_up_s,
        results=found.results,
        throughput_eps=round(found.throughput_eps, 1),
        backlog_growth=found.backlog.growth,
        sustained=found.sustained,
        generator_lag_ms=observed.feed_lag_ms,
        processes=observed.processes,
        settings=observed.settings,
    )
    return row, found


def interleaved(engines: Sequence[Engine], repetitions: int) -> Iterable[Engine]:
    """Every engine once in each repetition, each time another one first: drifts of the machine meet all of them."""
    for repetition in range(repetitions):
        shift = repetition % len(engines)
        yield from [*engines[shift:], *engines[:shift]]


class Spread(msgspec.Struct):
    """A figure over repetitions."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        """Sum up the values that were measured."""
        known = [value for value in values if value is not None]
        return Spread(statistics.median(known), min(known), max(known)) if known else None


def results_of(rows: list[ResultRow], checks: list[Check], options: RunOptions, **settings: object) -> Results:
    """Put rows under a header that names machine, versions and settings."""
    told = {
        "warm_up": WARM_UP_RULE.format(options.warm_up_s),
        "sustained": f"{SUSTAINED}, and nothing is lost",
        "parallelism": options.parallelism,
        "seed": options.seed,
        **settings,
    }
    return Results(header=make_header(told), rows=rows, checks=checks)
