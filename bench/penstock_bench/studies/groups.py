"""Group scheduling (Drizzle, figures 4, 5 and 11): time of a micro-batch by size of its group; tuning."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

import penstock as ps
from penstock.control.groups import GroupFigures
from penstock_bench.meter.job import Run, discard, running, waiting
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.report.chart import Figure, Line, Lines, Mark, figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import Desk, Study, at_most, data_of, machine
from penstock_bench.workloads import WORKLOADS

SIZES, SHORT_SIZES, QUICK_SIZES = (1, 2, 5, 10, 25, 50, 100), (1, 10, 100), (1, 10)
SECONDS, SHORT_S, QUICK_S = 4.0, 3.0, 1.0
TUNING_S, TUNING_SHORT_S, TUNING_QUICK_S = 25.0, 12.0, 3.0
SHAPES = {"one stage": "grep", "with a shuffle": "yahoo"}
INTERVALS = ("50ms", "100ms", "250ms")
LIGHT_EPS, HEAVY_EPS = 20_000.0, 400_000.0
"""Next to nothing to compute in a micro-batch, and so much that computing takes longer than scheduling."""
TUNED_EPS = 200_000.0
START_S_MAX = 30.0
GROUPS_S_MAX = 20.0
TICK_S = 0.01
OVERHEAD_MAX = 0.10
GAIN_MIN = 10.0
"""What scheduling costs a micro-batch in the largest groups, against the smallest."""
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
    """See the module."""

    name = "groups"
    title = "Group scheduling"
    after = "Drizzle, figures 4, 5 and 11"
    method = (
        "The shortest micro-batches follow each other without a break in groups of 1 to 100, each group a Spark job: "
        "for one stage, before a shuffle, and with twenty times the data. Then groups are tuned with micro-batches "
        "of 50, 100 and 250 ms; the sizes begin at 8 (the paper: at 2)."
    )

    def run(self, desk: Desk) -> None:
        parallelism = desk.options.parallelism
        loads = desk.choose({"light": LIGHT_EPS, "heavy": HEAVY_EPS}, {"light": LIGHT_EPS}, {"light": LIGHT_EPS})
        for shape, name in list(SHAPES.items())[: desk.choose(None, None, 1)]:
            for load, rate_eps in loads.items() if shape == "one stage" else [("light", LIGHT_EPS)]:
                for size in desk.choose(SIZES, SHORT_SIZES, QUICK_SIZES):
                    desk.tell(f"{shape}, {load}, groups of {size}")
                    seconds = desk.seconds(desk.choose(SECONDS, SHORT_S, QUICK_S), QUICK_S)
                    took_ms, groups, _ = micro_batches(name, rate_eps, size, "1ms", parallelism, seconds)
                    if groups:
                        overhead = sum(g.overhead for g in groups) / len(groups)
                        scheduling_ms = sum(g.scheduling_ms for g in groups) / len(groups) / size
                        figures = round(took_ms, 3), round(overhead, 4), round(scheduling_ms, 3)
                        desk.append("points", Point(shape, load, size, *figures))
        for interval in INTERVALS[: desk.choose(None, 1, 1)]:
            desk.tell(f"tuning with micro-batches of {interval}")
            seconds = desk.choose(TUNING_S, TUNING_SHORT_S, TUNING_QUICK_S)
            _, groups, backlog = micro_batches("yahoo", TUNED_EPS, None, interval, parallelism, seconds)
            for i, each in enumerate(groups, 1):
                desk.append("tuned", Tuned(interval, i, each.size, each.overhead, backlog))

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        points, tuned = _found(results)
        claimed = {
            ("one stage", "light"): (
                "4(a)",
                "195 ms in groups of 1, below 5 ms in groups of 100; 7 to 46x (128 machines)",
            ),
            ("one stage", "heavy"): ("5(a)", "with 100x the data groups of 25 have most of the benefit"),
            ("with a shuffle", "light"): ("5(b)", "2.7 to 5.5x in groups of 100 (128 machines)"),
        }
        for (shape, load), (number_of, told) in claimed.items():
            own = {point.size: point for point in points if (point.shape, point.load) == (shape, load)}
            if len(own) < 2:
                continue
            first, last = own[min(own)], own[max(own)]
            middle = f", {ms(own[25].scheduling_ms)} ms in groups of 25" if 25 in own else ""
            yield Claim(
                f"Drizzle, figure {number_of}: {shape}, {load}",
                told,
                f"scheduling by micro-batch {ms(first.scheduling_ms)} ms in groups of {first.size}{middle}, "
                f"{ms(last.scheduling_ms)} ms in groups of {last.size}: "
                f"{ratio(first.scheduling_ms, last.scheduling_ms)}; from one "
                f"micro-batch to the next {ms(first.micro_batch_ms)} and {ms(last.micro_batch_ms)} ms; "
                f"{machine(results)}",
                last.scheduling_ms < first.scheduling_ms and last.micro_batch_ms < first.micro_batch_ms,
            )
            if load == "light" and last.size == max(SIZES):
                name, most_ms = f"scheduling per micro-batch, {shape}, groups of {last.size}", first.scheduling_ms
                detail = {"by_group_size_ms": {str(size): point.scheduling_ms for size, point in own.items()}}
                where = f", a tenth of that of groups of {first.size}"
                yield at_most(name, last.scheduling_ms, "ms", most_ms / GAIN_MIN, detail, where=where)
        by_interval = {each.interval: [t for t in tuned if t.interval == each.interval] for each in tuned}
        if by_interval:
            yield Claim(
                "Drizzle, figure 11: tuning",
                "from 2 up to 64 and down to 49 with micro-batches of 100 ms, to 8 with 250 ms, for a scheduling "
                "overhead of 5 to 10 %",
                "sizes over the run: "
                + "; ".join(
                    f"{interval}: {own[0].size} to {own[-1].size}, largest {max(t.size for t in own)}"
                    for interval, own in by_interval.items()
                ),
                None,
            )
        for interval, groups in by_interval.items():
            # The share of the groups at the tuned size, not the average that still remembers the first small ones.
            overhead = sum(each.overhead for each in groups[-3:]) / len(groups[-3:])
            name, trajectory = (
                f"micro-batches of {interval}: scheduling overhead at the tuned size",
                [{"size": each.size, "overhead": each.overhead} for each in groups],
            )
            yield at_most(name, overhead, "share of a group's time", OVERHEAD_MAX, {"trajectory": trajectory}, digits=4)
            if groups[-1].backlog is not None:
                name = f"micro-batches of {interval}: backlog at {number(TUNED_EPS)} events/s"
                most = BATCHES_BEHIND_MAX * float(interval.removesuffix("ms")) / 1000 * TUNED_EPS
                yield at_most(name, groups[-1].backlog, "events", most, where=f", {BATCHES_BEHIND_MAX} micro-batches")

    def figures(self, results: Results) -> list[Figure]:
        points, tuned = _found(results)
        styles = {
            ("one stage", "light"): "record",
            ("one stage", "heavy"): "adaptive",
            ("with a shuffle", "light"): "batch",
        }
        ticks = list(dict.fromkeys(point.size for point in points))

        def panel(title: str, unit: str, field: str, factor: float = 1.0, *, y_log: bool = True) -> Lines:
            lines = []
            for (shape, load), key in styles.items():
                own = [point for point in points if (point.shape, point.load) == (shape, load)]
                label = shape if load == "light" else f"{shape}, 20x the data"
                lines.append(Line.of(label, key, [(point.size, factor * getattr(point, field)) for point in own]))
            return Lines(title, "micro-batches in a group", unit, lines, True, y_log, x_ticks=ticks)

        panels = [
            panel("Scheduling by micro-batch", "ms", "scheduling_ms"),
            panel("Time per micro-batch", "ms", "micro_batch_ms"),
            panel("Share of scheduling", "% of a group's time", "overhead", 100, y_log=False),
        ]
        caption = (
            "One micro-batch after the other in each slot; a group is one Spark job. A micro-batch gathers for at "
            "least 20 ms, so that what each costs stays below a tenth: the time per micro-batch cannot be less."
        )
        return [*figure("groups-sizes", "Micro-batches in groups", caption, panels), *_tuning(tuned)]


def _tuning(tuned: list[Tuned]) -> list[Figure]:
    sizes, overheads = [], []
    for interval, key in zip(INTERVALS, ("record", "adaptive", "batch"), strict=True):
        own, label = [each for each in tuned if each.interval == interval], f"micro-batches of {interval}"
        sizes.append(Line.of(label, key, [(t.at, t.size) for t in own], markers=False, steps=True))
        overheads.append(Line.of(label, key, [(t.at, 100 * t.overhead) for t in own], markers=False))
    bounds = [Mark(5.0, "5 %", horizontal=True), Mark(10.0, "10 %", horizontal=True)]
    panels = [
        Lines("Size of the group", "groups", "micro-batches", sizes),
        Lines("Share of scheduling", "groups", "% of a group's time", overheads, marks=bounds),
    ]
    caption = (
        "Above 10 % the size is doubled, below 5 % one is taken off; the averaged share decides, shown is each group's."
    )
    return figure("groups-tuning", "Tuning the size of groups", caption, panels, columns=2)


def _found(results: Results) -> tuple[list[Point], list[Tuned]]:
    return data_of(results, "points", list[Point]), data_of(results, "tuned", list[Tuned])


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
