"""The report of a finished job: what `--json` writes and the last lines of a run show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.control.adaptation import Adaptation
from penstock.control.changes import ChangeReport
from penstock.control.monitor import Audit, OperationFigures, WorkerFigures
from penstock.control.rescaling import MoveReport
from penstock.metrics import Histogram
from penstock.pipeline.plan import Plan

if TYPE_CHECKING:
    from penstock.runtime.driver import Driver


class Latency(msgspec.Struct):
    """Percentiles in milliseconds, from the scheduled time of a record."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float

    @staticmethod
    def of(histogram: Histogram) -> Latency | None:
        """Read the percentiles of a histogram of microseconds; None where nothing was measured."""
        if not histogram.total:
            return None
        p50, p90, p99, p999 = (histogram.quantile(q) / 1000 for q in (0.5, 0.9, 0.99, 0.999))
        return Latency(p50, p90, p99, p999, histogram.maximum / 1000)


class Totals(msgspec.Struct):
    """A job since it began with nothing, over all of its runs."""

    runs: int
    """Times that it was started."""
    seconds: float
    """Since the first start, the time between runs included."""
    events_in: int
    results_out: int


class Report(msgspec.Struct):
    """A finished run in figures; ``total`` has those of all runs, where the job goes on from a checkpoint.

    ``lost`` and ``duplicated`` compare, over every edge, the records written with the records read, in a job that was
    not stopped at once; ``reordered`` counts blocks that were taken out of order. Latency counts from a record's
    scheduled time to the update of the last stateful operation, or to the sink where there is none; a record that is
    replayed after a loss counts again. ``offsets`` says for every source how far each partition was read, over all
    runs: together with ``start_us`` it tells exactly which input the results are made of. ``recoveries`` counts how
    often instances were built anew from snapshots, at the start of a run that goes on from a checkpoint too.
    """

    job: str
    seconds: float
    events_in: int
    results_out: int
    lost: int
    duplicated: int
    reordered: int
    late: int
    skipped: int
    dead_letters: int
    latency_ms: Latency | None
    """None where no record came to where it is taken."""
    measured_at: str
    epochs: int
    start_us: int
    offsets: dict[str, list[int]]
    first_result_s: float | None
    operations: list[OperationFigures]
    workers: list[WorkerFigures]
    audit: Audit
    switches: list[ChangeReport]
    recoveries: int = 0
    components_ms: dict[str, float] = msgspec.field(default_factory=dict)
    """Where the mean latency of the measured operation went: out, wait, schedule, process, transmit."""
    adaptation: Adaptation | None = None
    began_us: int = 0
    """When this run began to read; ``start_us`` is when the first one did."""
    total: Totals | None = None
    moves: list[MoveReport] = msgspec.field(default_factory=list)
    """Instances that have moved from one worker to another."""
    timed_out: int = 0
    """Records that sources have dropped because they had waited for longer than ``event_timeout``;"""
    over_bound: int = 0
    """because more than ``queue_bound`` waited. Those that went to the dead letters count there too."""
    placement: list[int] = msgspec.field(default_factory=list)
    """The worker that each instance was on at the end; with ``moves``, who had what at any time."""

    def __repr__(self) -> str:
        """The run in one line, for a REPL; the figures are attributes."""
        late = f", latency p50 {self.latency_ms.p50:g} ms, p99 {self.latency_ms.p99:g} ms" if self.latency_ms else ""
        odd = "late skipped dead_letters timed_out over_bound lost duplicated reordered recoveries".split()
        counts = "".join(f", {getattr(self, each):,} {each.replace('_', ' ')}" for each in odd if getattr(self, each))
        told = f"{self.events_in:,} records in, {self.results_out:,} results out in {self.seconds:.1f} s{late}{counts}"
        return f"<Report of job '{self.job}': {told}>"


def measured_operations(plan: Plan) -> list[str]:
    """Operations at which end-to-end latency is taken: the last stateful ones, else the sinks."""
    stateful = [spec.name for unit in plan.units for spec in unit.ops if spec.operation.stateful]
    if stateful:
        return stateful[-1:]
    return [s.name for unit in plan.units for s in unit.ops if s.sink is not None and unit.name != "dead_letters"]


def make_report(plan: Plan, driver: Driver) -> Report:
    """Sum up a job that has ended."""
    operations = driver.monitor.operations()
    audit = driver.monitor.audit(drained=driver.is_drained)
    measured = measured_operations(plan)
    latency = Histogram()
    for name in measured:
        latency.merge(driver.monitor.latency(name))
    sinks = plan.sinks.keys() - {"dead_letters"}
    status = driver.status()
    adaptation = driver.adaptation()
    first, began_us = driver.first_result_us, driver.began_us
    events_in = driver.monitor.events_in()
    results_out = sum(each.records_in for each in operations if each.name in sinks)
    return Report(
        job=plan.options.name,
        seconds=_seconds(began_us, status.at_us),
        events_in=events_in,
        results_out=results_out,
        lost=audit.lost,
        duplicated=audit.duplicated,
        reordered=audit.reordered,
        late=sum(each.late for each in operations),
        skipped=sum(each.skipped for each in operations),
        dead_letters=sum(each.dead_letters for each in operations),
        latency_ms=Latency.of(latency),
        measured_at=", ".join(measured),
        epochs=status.epoch,
        start_us=driver.start_us,
        offsets=driver.monitor.offsets(),
        first_result_s=_seconds(began_us, first) if first and began_us else None,
        operations=operations,
        workers=status.workers,
        audit=audit,
        switches=adaptation.switches,
        recoveries=status.recoveries,
        components_ms=_components(driver, measured),
        adaptation=adaptation,
        moves=driver.moves(),
        timed_out=sum(each.timed_out for each in operations),
        over_bound=sum(each.over_bound for each in operations),
        placement=status.placement,
        began_us=began_us,
        total=Totals(
            runs=driver.runs,
            seconds=_seconds(driver.start_us, status.at_us),
            events_in=events_in + driver.monitor.before(driver.monitor.sources),
            results_out=results_out + driver.monitor.before(sinks),
        ),
    )


def _seconds(since_us: int, until_us: int) -> float:
    return max(0, until_us - since_us) / 1e6 if since_us else 0.0


def _components(driver: Driver, measured: list[str]) -> dict[str, float]:
    return driver.monitor.components_ms(measured[0], driver.monitor.measured()) if measured else {}
