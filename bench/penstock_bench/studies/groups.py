"""Group scheduling (Drizzle, figures 4, 5 and 11): time of a micro-batch by size of its group; tuning."""

from __future__ import annotations

import time
from statistics import fmean
from typing import Any

import msgspec

import penstock as ps
from penstock.control.groups import GroupFigures
from penstock_bench.meter.job import Run, discard, running, waiting
from penstock_bench.meter.rows import Claim, Results
from penstock_bench.report.chart import Figure, Lines, Mark, figure
from penstock_bench.report.words import grouped, ms, number, ratio
from penstock_bench.studies.base import Desk, Study
from penstock_bench.studies.findings import Findings, at_most, curve
from penstock_bench.workloads import WORKLOADS

SIZES, SHORT_SIZES, QUICK_SIZES = (1, 2, 5, 10, 25, 50, 100), (1, 10, 100), (1, 10)
SECONDS, SHORT_S, QUICK_S = 4.0, 3.0, 1.0
TUNING_S, TUNING_SHORT_S, TUNING_QUICK_S = 25.0, 12.0, 3.0
ONE, SHUFFLE = "one stage", "with a shuffle"
WORKLOAD = {ONE: "grep", SHUFFLE: "yahoo"}
LOADS_EPS = {"light": 20_000.0, "heavy": 400_000.0}
"""Next to nothing to compute in a micro-batch, and so much that computing takes longer than scheduling."""
SHAPES = {
    (ONE, "light"): ("record", "4(a)", "195 ms in groups of 1, below 5 ms in groups of 100; 7 to 46x (128 machines)"),
    (ONE, "heavy"): ("adaptive", "5(a)", "with 100x the data groups of 25 have most of the benefit"),
    (SHUFFLE, "light"): ("batch", "5(b)", "2.7 to 5.5x in groups of 100 (128 machines)"),
}
"""What is measured: its colour, its figure in the paper, and what that says."""
INTERVALS = {"50ms": "record", "100ms": "adaptive", "250ms": "batch"}
TUNED_EPS = 200_000.0
START_S_MAX, GROUPS_S_MAX, TICK_S = 30.0, 20.0, 0.01
OVERHEAD_MAX, GAIN_MIN = 0.10, 10.0
"""Share of scheduling at the tuned size; what it costs a micro-batch in the smallest groups, against the largest."""
BATCHES_BEHIND_MAX = 3


class Point(msgspec.Struct):
    """Micro-batches in groups of one size."""

    shape: str
    load: str
    size: int
    micro_batch_ms: float
    """From one to the next in a slot, its share of scheduling included."""
    overhead: float
    """Share of scheduling in the time of a group."""
    scheduling_ms: float
    """Of a group, from its submission until its tasks are up, by micro-batch."""


class Tuned(msgspec.Struct):
    """A group of a job whose sizes are tuned."""

    interval: str
    at: int
    size: int
    overhead: float
    backlog: int | None = None
    """At the end, of its interval's job."""


class GroupsStudy(Study):
    """The shortest micro-batches follow each other without a break in groups of 1 to 100, each group a Spark job: for
    one stage, before a shuffle, and with twenty times the data. Then groups are tuned with micro-batches of 50, 100 and
    250 ms; the sizes begin at 8 (the paper: at 2).
    """

    name = "groups"
    title = "Group scheduling"
    after = "Drizzle, figures 4, 5 and 11"

    def run(self, desk: Desk) -> None:
        parallelism = desk.options.parallelism
        light = [(ONE, "light"), (SHUFFLE, "light")]
        for shape, load in desk.choose(list(SHAPES), light, light[:1]):
            for size in desk.choose(SIZES, SHORT_SIZES, QUICK_SIZES):
                desk.tell(f"{shape}, {load}, groups of {size}")
                seconds = desk.seconds(desk.choose(SECONDS, SHORT_S, QUICK_S), QUICK_S)
                found = micro_batches(WORKLOAD[shape], LOADS_EPS[load], size, "1ms", parallelism, seconds)
                took_ms, groups, _ = found
                if groups:
                    overhead = round(fmean(each.overhead for each in groups), 4)
                    scheduling_ms = round(fmean(each.scheduling_ms for each in groups) / size, 3)
                    desk.append("points", Point(shape, load, size, round(took_ms, 3), overhead, scheduling_ms))
        for interval in list(INTERVALS)[: desk.choose(None, 1, 1)]:
            desk.tell(f"tuning with micro-batches of {interval}")
            seconds = desk.choose(TUNING_S, TUNING_SHORT_S, TUNING_QUICK_S)
            _, groups, backlog = micro_batches("yahoo", TUNED_EPS, None, interval, parallelism, seconds)
            for i, each in enumerate(groups, 1):
                desk.append("tuned", Tuned(interval, i, each.size, each.overhead, backlog))

    def findings(self, results: Results) -> Findings:
        points = grouped(results.data("points", list[Point]), "shape", "load")
        for (shape, load), (_, number_of, told) in SHAPES.items():
            own = {point.size: point for point in points.get((shape, load), [])}
            if len(own) < 2:
                continue
            first, last = own[min(own)], own[max(own)]
            middle = f", {ms(own[25].scheduling_ms)} ms in groups of 25" if 25 in own else ""
            yield Claim(
                f"Drizzle, figure {number_of}: {shape}, {load}",
                told,
                f"scheduling by micro-batch {ms(first.scheduling_ms)} ms in groups of {first.size}{middle}, "
                f"{ms(last.scheduling_ms)} ms in groups of {last.size}: "
                f"{ratio(first.scheduling_ms, last.scheduling_ms)}; from one micro-batch to the next "
                f"{ms(first.micro_batch_ms)} and {ms(last.micro_batch_ms)} ms; {results.machine}",
                last.scheduling_ms < first.scheduling_ms and last.micro_batch_ms < first.micro_batch_ms,
            )
            if load == "light" and last.size == max(SIZES):
                name, most_ms = f"scheduling per micro-batch, {shape}, groups of {last.size}", first.scheduling_ms
                by_size = {"by_group_size_ms": {str(size): point.scheduling_ms for size, point in own.items()}}
                where = f", a tenth of that of groups of {first.size}"
                yield at_most(name, last.scheduling_ms, "ms", most_ms / GAIN_MIN, by_size, where=where)
        by_interval = grouped(results.data("tuned", list[Tuned]), "interval")
        if by_interval:
            sizes = "; ".join(
                f"{interval}: {own[0].size} to {own[-1].size}, largest {max(each.size for each in own)}"
                for interval, own in by_interval.items()
            )
            yield Claim(
                "Drizzle, figure 11: tuning",
                "from 2 up to 64 and down to 49 with micro-batches of 100 ms, to 8 with 250 ms, for a scheduling "
                "overhead of 5 to 10 %",
                f"sizes over the run: {sizes}",
                None,
            )
        for interval, groups in by_interval.items():
            # The share of the groups at the tuned size, not the average that still remembers the first small ones.
            overhead = fmean(each.overhead for each in groups[-3:])
            name = f"micro-batches of {interval}: scheduling overhead at the tuned size"
            detail = {"trajectory": [{"size": each.size, "overhead": each.overhead} for each in groups]}
            yield at_most(name, overhead, "share of a group's time", OVERHEAD_MAX, detail, digits=4)
            if groups[-1].backlog is not None:
                name = f"micro-batches of {interval}: backlog at {number(TUNED_EPS)} events/s"
                most = BATCHES_BEHIND_MAX * float(interval.removesuffix("ms")) / 1000 * TUNED_EPS
                yield at_most(name, groups[-1].backlog, "events", most, where=f", {BATCHES_BEHIND_MAX} micro-batches")

    def figures(self, results: Results) -> list[Figure]:
        points = grouped(results.data("points", list[Point]), "shape", "load")
        tuned = grouped(results.data("tuned", list[Tuned]), "interval")
        ticks = list(dict.fromkeys(point.size for own in points.values() for point in own))

        def by_size(title: str, unit: str, field: str, factor: float = 1.0, *, y_log: bool = True) -> Lines:
            lines = []
            for (shape, load), (key, _, _) in SHAPES.items():
                label = shape if load == "light" else f"{shape}, 20x the data"
                lines.append(curve(label, key, points.get((shape, load), []), "size", field, factor))
            return Lines(title, "micro-batches in a group", unit, lines, True, y_log, x_ticks=ticks)

        def over_time(title: str, unit: str, field: str, factor: float = 1.0, **more: Any) -> Lines:
            style = {"factor": factor, "markers": False, "steps": field == "size"}
            lines = [
                curve(f"micro-batches of {interval}", key, tuned.get(interval, []), "at", field, **style)
                for interval, key in INTERVALS.items()
            ]
            return Lines(title, "groups", unit, lines, **more)

        sizes = [
            by_size("Scheduling by micro-batch", "ms", "scheduling_ms"),
            by_size("Time per micro-batch", "ms", "micro_batch_ms"),
            by_size("Share of scheduling", "% of a group's time", "overhead", 100, y_log=False),
        ]
        caption = (
            "One micro-batch after the other in each slot; a group is one Spark job. A micro-batch gathers for at "
            "least 20 ms, so that what each costs stays below a tenth: the time per micro-batch cannot be less."
        )
        bounds = [Mark(5.0, "5 %", horizontal=True), Mark(10.0, "10 %", horizontal=True)]
        tuning = [
            over_time("Size of the group", "micro-batches", "size"),
            over_time("Share of scheduling", "% of a group's time", "overhead", 100, marks=bounds),
        ]
        told = (
            "Above 10 % the size is doubled, below 5 % one is taken off; the averaged share decides, shown is each "
            "group's."
        )
        return [
            *figure("groups-sizes", "Micro-batches in groups", caption, sizes),
            *figure("groups-tuning", "Tuning the size of groups", told, tuning, columns=2),
        ]


def micro_batches(
    workload: str, rate_eps: float, size: int | None, interval: str, parallelism: int, seconds: float
) -> tuple[float, list[GroupFigures], int]:
    """Run a job in batch form: time from one micro-batch to the next in a slot, groups of that time, the backlog."""
    pipeline = WORKLOADS[workload].pipeline(rate_eps, ps.foreach(discard))
    options = {"interval": interval, "group_size": size}
    with running(pipeline, parallelism=parallelism, forms="batch", memory=False, **options) as run:
        if size is None:
            time.sleep(seconds)
            groups, took_s = run.job.adaptation().groups, seconds
        else:
            # From the end of a group to that of another: a part of one would count as nothing.
            first, began_s = _group_ended(run, 1, START_S_MAX)
            time.sleep(seconds)
            last, ended_s = _group_ended(run, len(run.job.adaptation().groups), GROUPS_S_MAX)
            groups, took_s = run.job.adaptation().groups[first:last], ended_s - began_s
        backlog = waiting(run.job.status())
        run.end()
    batches = sum(each.micro_batches for each in groups)
    return took_s * 1000 * parallelism / max(1, batches), groups, backlog


def _group_ended(run: Run, known: int, seconds_max: float) -> tuple[int, float]:
    """Wait until more groups than those known have ended; returns how many there are, and when that was."""
    run.until(lambda: len(run.job.adaptation().groups) > known, seconds_max, TICK_S)
    return len(run.job.adaptation().groups), time.monotonic()
