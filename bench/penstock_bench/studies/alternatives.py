"""Alternatives exchanged while data flows (QE, section 5): how long nothing comes out, and whether anything is wrong.

Every record is stamped when it leaves the operation. From the stamps alone follows how long nothing came, how many
records came in each tenth of a second, what is missing, what came twice and what came out of its order.
"""

from __future__ import annotations

import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.control.changes import ChangeReport
from penstock_bench.foreign.programs.loads import spin, spins_per_second
from penstock_bench.meter.job import Run, read_rows, running
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.report.chart import Figure, Lines, figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import Desk, Study, Table, at_most, data_of, fields, machine, table
from penstock_bench.studies.hand_overs import pauses

SAME, DOWN, UP, STATE, SIMPLE = "same speed", "slow to fast", "fast to slow", "100K keys", "simple approach"
RATES_EPS = (1_000.0, 20_000.0)
SWITCHES = 100
SLOW_S = 0.03
"""Of an item in the slow alternative; 1,000 of them a second are more than it carries."""
WORK_US = 10.0
SIMPLE_WORK_S = 0.0015
KEYS = 100_000
SETTLE_S = 2.0
BETWEEN_S = 0.25
AROUND_S = 0.5
"""Rates are compared so long before and behind an exchange."""
WAIT_S = 60.0
SCHEMA = "number bigint not null, by string not null, at_us bigint not null"


class Exchanged(msgspec.Struct):
    """One scenario at one rate."""

    name: str
    rate_eps: float
    switches: int
    pause_ms: list[float]
    """Of each exchange, as the job reports it: from its place in the line to the first output behind it."""
    gap_ms: list[float]
    """Of each exchange: the longest time without a record around it, by the stamps."""
    usual_gap_ms: float
    """The 99th percentile of the longest gaps in stretches of the same length without an exchange."""
    dip_percent: list[float]
    """By how much fewer records came in the half second behind an exchange than in the half second before it."""
    missing: int
    duplicated: int
    reordered: int
    moved: int
    warm_ms: float
    disturbed_s: float = 0.0
    """Of the simple approach: how long both gave results."""
    backlog: int = 0


class Alternatives(Study):
    """See the module."""

    name = "alternatives"
    title = "Algorithms exchanged while data flows"
    after = "QE, section 5: figures of the simple and the advanced approach at 1,000 items/s"
    method = (
        f"Two alternatives of one operation, exchanged {SWITCHES} times at 1,000 and at 20,000 items/s: of the same "
        f"speed ({WORK_US:g} µs), from slow ({1000 * SLOW_S:g} ms an item, which falls behind) to fast and back, and "
        "with a running count of 100,000 keys that is handed over. Records are stamped behind the operation; "
        "everything is found from the stamps. The simple approach routes records to another branch at once, while "
        "the first one still has a backlog; it is there to be compared with."
    )

    def run(self, desk: Desk) -> None:
        quick = desk.options.quick
        times = desk.choose(SWITCHES, 20, 4)

        def keep(scene: Exchanged) -> None:
            desk.append("scenes", scene)
            desk.say(f"         {_told(scene)}")

        for rate in RATES_EPS[: 1 if quick else None]:
            desk.tell(f"{SAME}, {number(rate)}/s, {times} exchanges")
            keep(exchange(SAME, rate, desk.options.parallelism, times, _same_speed))
        few = max(2, times // 10)
        desk.tell(f"{DOWN} and {UP}, 1,000/s, {few} of each")
        for scene in slow_and_fast(RATES_EPS[0], few):
            keep(scene)
        desk.tell(f"{STATE}, {number(RATES_EPS[-1])}/s, {times} exchanges")
        settle_s = SETTLE_S if quick else 4 * SETTLE_S
        keep(exchange(STATE, RATES_EPS[-1], desk.options.parallelism, times, _with_state, settle_s))
        desk.tell(f"{SIMPLE}, 1,000/s")
        keep(simple(RATES_EPS[0], 2.0 if quick else 6.0))

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        scenes = data_of(results, "scenes", list[Exchanged])
        for each in scenes:
            where = f"{each.name}, {number(each.rate_eps)}/s"
            if each.name == SIMPLE:
                yield Claim(
                    "QE, section 5: simple approach",
                    "15 s of disturbance, 1,427 items out of order",
                    f"{each.disturbed_s:.1f} s in which both gave results, {each.reordered:,} out of order, "
                    f"backlog {each.backlog:,}; {machine(results)}",
                    each.reordered > 0,
                )
                continue
            goal_ms = {SAME: 20.0, DOWN: 30.0, UP: 50.0, STATE: 50.0}[each.name]
            detail = {"median_ms": _middle(each.pause_ms), "exchanges": each.switches}
            yield at_most(f"{where}: longest pause", max(each.pause_ms, default=0.0), "ms", goal_ms, detail)
            wrong = each.missing + each.duplicated + each.reordered
            yield at_most(f"{where}: missing, duplicated, reordered", wrong, "records", 0)
            if each.name == SAME:
                yield at_most(f"{where}: throughput dip", _middle(each.dip_percent), "%", 1.0)
            if each.name == DOWN:
                yield at_most(f"{where}: moved", each.moved, "records", 0)
            if each.name == STATE:
                yield at_most(f"{where}: warm-up", each.warm_ms, "ms", 0)
        yield from self._claims(results, scenes)

    @staticmethod
    def _claims(results: Results, scenes: Sequence[Exchanged]) -> Iterator[Claim]:
        said = {
            SAME: ("60 ms, throughput from 1,000 down to 950 items/s", 60.0),
            DOWN: ("106 ms, 2,889 items moved in 820 ms", 106.0),
            STATE: ("30 s of warm-up; handing state over is future work", 30_000.0),
        }
        for each in scenes:
            if each.name in said and each.rate_eps == (RATES_EPS[-1] if each.name == STATE else RATES_EPS[0]):
                claimed, paper_ms = said[each.name]
                longest = max(each.pause_ms, default=0.0)
                yield Claim(
                    f"QE, section 5: {each.name}",
                    claimed,
                    f"{each.switches} exchanges: median pause {ms(_middle(each.pause_ms))} ms, longest {ms(longest)} "
                    f"ms; rate {_middle(each.dip_percent):.2f} % lower behind one; {each.moved} moved; warm-up "
                    f"{ms(each.warm_ms)} ms; missing, duplicated, reordered: "
                    f"{each.missing}, {each.duplicated}, {each.reordered}; {machine(results)}",
                    longest <= paper_ms,
                )

    def tables(self, results: Results) -> list[Table]:
        return table(
            "Exchanges",
            data_of(results, "scenes", list[Exchanged]),
            ("scenario", lambda each: f"{each.name}, {number(each.rate_eps)}/s"),
            *fields(str, switches="exchanges"),
            ("pause p50 ms", lambda each: ms(_middle(each.pause_ms))),
            ("pause max ms", lambda each: ms(max(each.pause_ms, default=0.0))),
            ("gap p50 ms", lambda each: ms(_middle(each.gap_ms))),
            ("gap without ms", lambda each: ms(each.usual_gap_ms)),
            ("dip %", lambda each: f"{_middle(each.dip_percent):.2f}"),
            *fields(str, missing="missing", duplicated="duplicated", reordered="reordered", moved="moved"),
            ("disturbed s", lambda each: f"{each.disturbed_s:.1f}"),
        )

    def figures(self, results: Results) -> list[Figure]:
        lines = [
            pauses(f"{each.name}, {number(each.rate_eps)}/s", each.name, each.pause_ms)
            for each in data_of(results, "scenes", list[Exchanged])
            if len(each.pause_ms) > 1
        ]
        panel = Lines("Pauses", "ms", "% of exchanges up to", lines, x_log=True)
        return figure("alternatives", "How long an exchange is felt", "From the stamps of records.", [panel])


# --- pipelines --------------------------------------------------------------------------------------------------------


def _stamped(word: str, work: Callable[[], None]) -> Callable[[Any], Any]:
    def stamped(r: Any) -> tuple[int, str, int]:
        work()
        return r.number, word, time.time_ns() // 1000

    return stamped


def _numbers(rate: float, **fields: Any) -> ps.Stream:
    source = ps.generator({"number": ps.fields.sequence(), **fields}, rate=rate, format="columns", seed=1)
    return ps.stream("events", source)


def _same_speed(rate: float) -> ps.Stream:
    rounds = round(WORK_US * spins_per_second() / 1e6)

    def work() -> None:
        spin(rounds)

    return _numbers(rate).alternatives(
        "score",
        one=lambda s: s.map(_stamped("one", work), schema=SCHEMA),
        two=lambda s: s.map(_stamped("two", work), schema=SCHEMA),
    )


def _slow_fast(rate: float) -> ps.Stream:
    return _numbers(rate).alternatives(
        "score",
        fast=lambda s: s.map(_stamped("fast", lambda: None), schema=SCHEMA),
        slow=lambda s: s.map(_stamped("slow", lambda: time.sleep(SLOW_S)), schema=SCHEMA),
    )


def _with_state(rate: float) -> ps.Stream:
    """A running count by key, which each result tells: that of a key goes 1, 2, 3, whoever counts."""

    def counted(word: str) -> Callable[[ps.Stream], ps.Stream]:
        return lambda s: s.aggregate(n=ps.agg.count(), number=ps.agg.last("number"), emit="every").map(
            lambda r: (r.number, word, time.time_ns() // 1000, r.key, r.n), schema=f"{SCHEMA}, key bigint, n bigint"
        )

    keys = ps.fields.integers(0, KEYS - 1)
    return _numbers(rate, key=keys).key_by("key").alternatives("score", one=counted("one"), two=counted("two"))


# --- scenarios --------------------------------------------------------------------------------------------------------


@contextmanager
def _exchanging(stream: ps.Stream, parallelism: int, settle_s: float) -> Iterator[tuple[Run, Path]]:
    """A job whose alternatives can be exchanged, and where its rows go."""
    with tempfile.TemporaryDirectory(prefix="penstock-alternatives-") as directory:
        out = Path(directory)
        with running(stream.to(ps.files(out)), parallelism=parallelism, forms="record", memory=False) as run:
            run.until(lambda: run.job.status().epoch >= 2, WAIT_S)
            time.sleep(settle_s)
            yield run, out


def _use(run: Run, name: str, rest_s: float) -> None:
    """Exchange, wait until that is done, and a while longer."""
    done = len(run.job.adaptation().switches)
    run.job.use("score", name)
    run.until(lambda: len(run.job.adaptation().switches) > done, WAIT_S)
    time.sleep(rest_s)


def exchange(
    name: str,
    rate: float,
    parallelism: int,
    times: int,
    pipeline: Callable[[float], ps.Stream],
    settle_s: float = SETTLE_S,
) -> Exchanged:
    """Exchange two alternatives, ``times`` times."""
    with _exchanging(pipeline(rate), parallelism, settle_s) as (run, out):
        for number_of in range(times):
            _use(run, ("two", "one")[number_of % 2], BETWEEN_S)
        report = run.end(drain=True)
        rows, offsets = read_rows(out), report.offsets["events"]
    return scene_of(name, rate, rows, report.switches, offsets, report.began_us, settle_s)


def slow_and_fast(rate: float, times: int) -> list[Exchanged]:
    """From fast to slow, which falls behind, and back to fast, which catches up."""
    with _exchanging(_slow_fast(rate), 1, SETTLE_S) as (run, out):
        for _ in range(times):
            _use(run, "slow", 3 * BETWEEN_S)
            _use(run, "fast", 4 * BETWEEN_S)
        report = run.end(drain=True)
        rows, offsets = read_rows(out), report.offsets["events"]
    found = []
    for name, to in ((UP, "slow"), (DOWN, "fast")):
        switches = [each for each in report.switches if each.to == to]
        scene = scene_of(name, rate, rows, switches, offsets, report.began_us)
        scene.dip_percent = []  # the slow one does not carry the rate; what comes behind it catches up
        found.append(scene)
    return found


def simple(rate: float, seconds: float) -> Exchanged:
    """Route records to another branch at once, while the first one has a backlog: the baseline."""
    turn = round(rate * seconds / 2)
    total = round(rate * seconds)
    source = ps.generator({"number": ps.fields.sequence()}, rate=rate, format="columns", total=total, partitions=1)
    branches = ps.stream("events", source).split(first=ps.col("number") < turn)
    slow = (
        branches["first"]
        .key_by("number")
        .map(_stamped("slow", lambda: time.sleep(SIMPLE_WORK_S)), schema=SCHEMA, name="slow")
    )
    fast = branches["rest"].key_by("number").map(_stamped("fast", lambda: None), schema=SCHEMA, name="fast")
    with tempfile.TemporaryDirectory(prefix="penstock-alternatives-") as directory:
        merged = slow.merge(fast).to(ps.files(Path(directory)))
        report = ps.start(merged, name="alternatives", parallelism=1, forms="record").wait(WAIT_S + seconds)
        assert report is not None
        rows = sorted(read_rows(Path(directory)), key=lambda row: row["at_us"])
    first = [row["at_us"] for row in rows if row["by"] == "fast"]
    last = [row["at_us"] for row in rows if row["by"] == "slow"]
    disturbed_s = max(0.0, (last[-1] - first[0]) / 1e6) if first and last else 0.0
    overtaken = sum(at_us > first[0] for at_us in last) if first else 0
    scene = scene_of(SIMPLE, rate, rows, [], [total], 0)
    scene.disturbed_s, scene.backlog, scene.switches = round(disturbed_s, 3), overtaken, 1
    return scene


# --- what the stamps say ----------------------------------------------------------------------------------------------


def scene_of(
    name: str,
    rate: float,
    rows: Sequence[dict[str, Any]],
    switches: Sequence[ChangeReport],
    offsets: Sequence[int],
    began_us: int,
    skip_s: float = 0.0,
) -> Exchanged:
    """Work a scene out from what came and what was to come. Pure."""
    counts = Counter(row["number"] for row in rows)
    parts = len(offsets)
    given = {number_of for at, read in enumerate(offsets) for number_of in range(at, at + parts * read, parts)}
    stamps = sorted(row["at_us"] for row in rows)
    places = [began_us + round(1e6 * each.at_s + 1000 * each.total_ms) for each in switches]
    around_us = round(1e6 * AROUND_S)
    gaps, dips = [], []
    for place in places:
        near = stamps[bisect_left(stamps, place - around_us) : bisect_left(stamps, place + around_us)]
        gaps.append(max((after - before for before, after in pairwise(near)), default=0) / 1000)
        before = bisect_left(near, place)
        dips.append(100.0 * max(0, before - (len(near) - before)) / before if before else 0.0)
    return Exchanged(
        name,
        rate,
        len(switches),
        [round(each.pause_ms, 3) for each in switches],
        [round(gap, 3) for gap in gaps],
        round(_usual_gap_ms(stamps, places, around_us, round(1e6 * skip_s)), 3),
        [round(dip, 3) for dip in dips],
        missing=len(given - counts.keys()),
        duplicated=sum(count - 1 for count in counts.values()) + len(counts.keys() - given),
        reordered=_reordered(rows, parts),
        moved=sum(each.moved_records for each in switches),
        warm_ms=max((each.warm_ms for each in switches), default=0.0),
    )


def _usual_gap_ms(stamps: Sequence[int], places: Sequence[int], around_us: int, skip_us: int) -> float:
    """Gaps where nothing was exchanged: before the first one, or everywhere if there was none."""
    calm = [at_us for at_us in stamps if not places or stamps[0] + skip_us // 2 <= at_us < places[0] - around_us]
    gaps = sorted(after - before for before, after in pairwise(calm))
    return gaps[int(0.99 * len(gaps))] / 1000 if gaps else 0.0


def _reordered(rows: Sequence[dict[str, Any]], parts: int) -> int:
    """Records that came behind a later one of their partition; with state, counts of a key that do not go up by one."""
    wrong, newest = 0, dict[int, int]()
    if rows and "n" in rows[0]:
        for row in sorted(rows, key=lambda row: (row["at_us"], row["n"])):
            wrong += row["n"] != newest.get(row["key"], 0) + 1
            newest[row["key"]] = row["n"]
        return wrong
    for row in sorted(rows, key=lambda row: (row["at_us"], row["number"])):
        partition = row["number"] % parts
        wrong += row["number"] < newest.get(partition, -1)
        newest[partition] = max(row["number"], newest.get(partition, -1))
    return wrong


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def _told(scene: Exchanged) -> str:
    wrong = f"missing {scene.missing}, duplicated {scene.duplicated}, reordered {scene.reordered}"
    if scene.name == SIMPLE:
        return f"disturbed for {scene.disturbed_s:.1f} s, {wrong}"
    return (
        f"{scene.switches} exchanges: pause p50 {ms(_middle(scene.pause_ms))}, max "
        f"{ms(max(scene.pause_ms, default=0.0))} ms, dip {_middle(scene.dip_percent):.2f} %, moved {scene.moved}, "
        f"{wrong}"
    )
