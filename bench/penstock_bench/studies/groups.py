"""Group scheduling (Drizzle, figures 4, 5 and 11): time of a micro-batch by size of its group; tuning."""

from __future__ import annotations

import time

import msgspec

import penstock as ps
from penstock.control.groups import GroupFigures
from penstock_bench.meter.measure import discard, wait_for_start
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.report.chart import Figure, Line, Lines, Mark
from penstock_bench.report.words import ms, ratio
from penstock_bench.studies.base import Desk, Study, machine
from penstock_bench.workloads import WORKLOADS

SIZES = (1, 2, 5, 10, 25, 50, 100)
QUICK_SIZES = (1, 10)
SECONDS, QUICK_S = 4.0, 1.0
TUNING_S, TUNING_QUICK_S = 25.0, 3.0
SHAPES = {"one stage": "grep", "with a shuffle": "yahoo"}
INTERVALS = ("50ms", "100ms", "250ms")
LIGHT_EPS, HEAVY_EPS = 20_000.0, 400_000.0
"""Next to nothing to compute in a micro-batch, and so much that computing takes longer than scheduling."""
START_S_MAX = 30.0
GROUPS_S_MAX = 20.0
TICK_S = 0.01
OVERHEAD_MAX = 0.10


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
        points: list[Point] = []
        quick, parallelism = desk.options.quick, desk.options.parallelism
        loads = {"light": LIGHT_EPS} if quick else {"light": LIGHT_EPS, "heavy": HEAVY_EPS}
        for shape, name in list(SHAPES.items())[: 1 if quick else None]:
            for load, rate_eps in loads.items() if shape == "one stage" else [("light", LIGHT_EPS)]:
                for size in QUICK_SIZES if quick else SIZES:
                    desk.tell(f"{shape}, {load}, groups of {size}")
                    seconds = desk.seconds(SECONDS, QUICK_S)
                    found, groups = micro_batches(name, rate_eps, size, "1ms", parallelism, seconds)
                    if groups:
                        overhead = sum(g.overhead for g in groups) / len(groups)
                        scheduling_ms = sum(g.scheduling_ms for g in groups) / len(groups) / size
                        point = Point(shape, load, size, round(found, 3), round(overhead, 4), round(scheduling_ms, 3))
                        points.append(point)
                        desk.put("points", points)
        tuned: list[Tuned] = []
        for interval in INTERVALS[: 1 if quick else None]:
            desk.tell(f"tuning with micro-batches of {interval}")
            tuning_s = TUNING_QUICK_S if quick else TUNING_S
            _, groups = micro_batches("yahoo", 100_000.0, None, interval, parallelism, tuning_s)
            tuned += [Tuned(interval, i, each.size, each.overhead) for i, each in enumerate(groups, 1)]
            desk.put("tuned", tuned)

    def judge(self, results: Results) -> tuple[list[Claim], list[Check]]:
        points, tuned = _found(results)
        claims, checks = [], []
        where = machine(results)
        claimed = {
            ("one stage", "light"): "195 ms in groups of 1, below 5 ms in groups of 100; 7 to 46x (128 machines)",
            ("one stage", "heavy"): "with 100x the data groups of 25 have most of the benefit",
            ("with a shuffle", "light"): "2.7 to 5.5x in groups of 100 (128 machines)",
        }
        figure = {("one stage", "light"): "4(a)", ("one stage", "heavy"): "5(a)", ("with a shuffle", "light"): "5(b)"}
        for (shape, load), told in claimed.items():
            own = {point.size: point for point in points if (point.shape, point.load) == (shape, load)}
            if len(own) < 2:
                continue
            first, last = own[min(own)], own[max(own)]
            middle = f", {ms(own[25].scheduling_ms)} ms in groups of 25" if 25 in own else ""
            claims.append(
                Claim(
                    source=f"Drizzle, figure {figure[shape, load]}: {shape}, {load}",
                    claimed=told,
                    measured=f"scheduling by micro-batch {ms(first.scheduling_ms)} ms in groups of {first.size}"
                    f"{middle}, {ms(last.scheduling_ms)} ms in groups of {last.size}: "
                    f"{ratio(first.scheduling_ms, last.scheduling_ms)}; from one micro-batch to the next "
                    f"{ms(first.micro_batch_ms)} and {ms(last.micro_batch_ms)} ms; {where}",
                    holds=last.scheduling_ms < first.scheduling_ms and last.micro_batch_ms < first.micro_batch_ms,
                )
            )
        by_interval = {each.interval: [t for t in tuned if t.interval == each.interval] for each in tuned}
        if by_interval:
            ends = {
                interval: f"{interval}: {own[0].size} to {own[-1].size}, largest {max(t.size for t in own)}"
                for interval, own in by_interval.items()
            }
            claims.append(
                Claim(
                    source="Drizzle, figure 11: tuning",
                    claimed="from 2 up to 64 and down to 49 with micro-batches of 100 ms, to 8 with 250 ms, for a "
                    "scheduling overhead of 5 to 10 %",
                    measured="sizes over the run: " + "; ".join(ends.values()),
                    holds=None,
                )
            )
        for interval, groups in by_interval.items():
            overhead = sum(each.overhead for each in groups[-3:]) / len(groups[-3:])
            checks.append(
                Check(
                    name=f"micro-batches of {interval}: scheduling overhead at the tuned size",
                    value=round(overhead, 4),
                    unit="share of a group's time",
                    target=f"at most {OVERHEAD_MAX:g}",
                    met=overhead <= OVERHEAD_MAX,
                )
            )
        return claims, checks

    def figures(self, results: Results) -> list[Figure]:
        points, tuned = _found(results)
        styles = {
            ("one stage", "light"): "record",
            ("one stage", "heavy"): "adaptive",
            ("with a shuffle", "light"): "batch",
        }
        lines, shares, costs = [], [], []
        for (shape, load), key in styles.items():
            own = [point for point in points if (point.shape, point.load) == (shape, load)]
            if own:
                sizes, label = [point.size for point in own], shape if load == "light" else f"{shape}, 20x the data"
                lines.append(Line(label, key, sizes, [point.micro_batch_ms for point in own]))
                shares.append(Line(label, key, sizes, [100 * point.overhead for point in own]))
                costs.append(Line(label, key, sizes, [point.scheduling_ms for point in own]))
        found = []
        if lines:
            ticks = list(dict.fromkeys(point.size for point in points))
            panels = [
                Lines("Scheduling by micro-batch", "micro-batches in a group", "ms", costs, True, True, x_ticks=ticks),
                Lines("Time per micro-batch", "micro-batches in a group", "ms", lines, True, True, x_ticks=ticks),
                Lines(
                    "Share of scheduling",
                    "micro-batches in a group",
                    "% of a group's time",
                    shares,
                    True,
                    x_ticks=ticks,
                ),
            ]
            caption = (
                "One micro-batch after the other in each slot; a group is one Spark job. A micro-batch gathers for at "
                "least 20 ms, so that what each costs stays below a tenth: the time per micro-batch cannot be less."
            )
            found.append(Figure("groups-sizes", "Micro-batches in groups", caption, panels))
        if tuned:
            found.append(_tuning(tuned))
        return found


def _tuning(tuned: list[Tuned]) -> Figure:
    keys = dict(zip(INTERVALS, ("record", "adaptive", "batch"), strict=True))
    sizes, overheads = [], []
    for interval in dict.fromkeys(each.interval for each in tuned):
        own = [each for each in tuned if each.interval == interval]
        at = [each.at for each in own]
        sizes.append(
            Line(f"micro-batches of {interval}", keys[interval], at, [t.size for t in own], markers=False, steps=True)
        )
        overheads.append(
            Line(f"micro-batches of {interval}", keys[interval], at, [100 * t.overhead for t in own], markers=False)
        )
    bounds = [Mark(5.0, "5 %", horizontal=True), Mark(10.0, "10 %", horizontal=True)]
    panels = [
        Lines("Size of the group", "groups", "micro-batches", sizes),
        Lines("Share of scheduling", "groups", "% of a group's time", overheads, marks=bounds),
    ]
    caption = (
        "Above 10 % the size is doubled, below 5 % one is taken off; the averaged share decides, shown is each group's."
    )
    return Figure("groups-tuning", "Tuning the size of groups", caption, panels, columns=2)


def _found(results: Results) -> tuple[list[Point], list[Tuned]]:
    assert results.study is not None
    data = results.study.data
    return msgspec.convert(data.get("points", []), list[Point]), msgspec.convert(data.get("tuned", []), list[Tuned])


def micro_batches(
    workload: str, rate_eps: float, size: int | None, interval: str, parallelism: int, seconds: float
) -> tuple[float, list[GroupFigures]]:
    """Run a job in batch form: the time from one micro-batch to the next in a slot, and the groups of that time."""
    pipeline = WORKLOADS[workload].pipeline(rate_eps, ps.foreach(discard))
    started = ps.start(
        pipeline, name="study-groups", parallelism=parallelism, forms="batch", interval=interval, group_size=size
    )
    with started as job:
        wait_for_start(job)
        if size is None:
            time.sleep(seconds)
            groups, took_s = job.adaptation().groups, seconds
        else:
            # From the end of a group to that of another: a part of one would count as nothing.
            first, began_s = _group_ended(job, 1, START_S_MAX)
            time.sleep(seconds)
            last, ended_s = _group_ended(job, len(job.adaptation().groups), GROUPS_S_MAX)
            groups, took_s = job.adaptation().groups[first:last], ended_s - began_s
        job.stop()
        job.wait()
    batches = sum(each.micro_batches for each in groups)
    return took_s * 1000 * parallelism / max(1, batches), groups


def _group_ended(job: ps.Job, known: int, seconds_max: float) -> tuple[int, float]:
    """Wait until more groups than those known have ended; returns how many there are, and when that was."""
    deadline = time.monotonic() + seconds_max
    while (ended := len(job.adaptation().groups)) <= known and time.monotonic() < deadline:
        time.sleep(TICK_S)
    return ended, time.monotonic()
