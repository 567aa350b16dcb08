"""Alternatives exchanged while data flows (QE, section 5): how long nothing comes out, and whether anything is wrong.

Every record is stamped when it leaves the operation. From the stamps alone follows how long nothing came, how many
records came in each tenth of a second, what is missing, what came twice and what came out of its order.
"""

from __future__ import annotations

import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.runtime.report import Report
from penstock_bench.foreign.programs.loads import spin, spins_per_second
from penstock_bench.meter.job import Run, read_rows, running
from penstock_bench.meter.rows import Claim, Results
from penstock_bench.report.chart import Figure, Lines, figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import Desk, Study
from penstock_bench.studies.findings import Findings, Table, at_most, fields, table
from penstock_bench.studies.hand_overs import change, pauses

SAME, DOWN, UP, STATE, SIMPLE = "same speed", "slow to fast", "fast to slow", "100K keys", "simple approach"
RATES_EPS = (1_000.0, 20_000.0)
PAUSE_MS_MAX = {SAME: 20.0, DOWN: 30.0, UP: 50.0, STATE: 50.0}
SAID = {
    (SAME, RATES_EPS[0]): ("60 ms, throughput from 1,000 down to 950 items/s", 60.0),
    (DOWN, RATES_EPS[0]): ("106 ms, 2,889 items moved in 820 ms", 106.0),
    (STATE, RATES_EPS[1]): ("30 s of warm-up; handing state over is future work", 30_000.0),
}
"""What the paper says of a scenario at a rate, and how long its pause was."""
SWITCHES, SHORT_SWITCHES, QUICK_SWITCHES = 100, 20, 4
SLOW_S = 0.03
"""Of an item in the slow alternative; 1,000 of them a second are more than it carries."""
WORK_US = 10.0
SIMPLE_WORK_S = 0.0015
KEYS = 100_000
SETTLE_S, BETWEEN_S = 2.0, 0.25
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

    @property
    def case(self) -> str:
        return f"{self.name}, {number(self.rate_eps)}/s"

    @property
    def median_ms(self) -> float:
        return _middle(self.pause_ms)

    @property
    def longest_ms(self) -> float:
        return max(self.pause_ms, default=0.0)

    @property
    def dip(self) -> float:
        """The median dip, in per cent."""
        return _middle(self.dip_percent)

    @property
    def told(self) -> str:
        wrong = f"missing {self.missing}, duplicated {self.duplicated}, reordered {self.reordered}"
        if self.name == SIMPLE:
            return f"disturbed for {self.disturbed_s:.1f} s, {wrong}"
        pauses = f"pause p50 {ms(self.median_ms)}, max {ms(self.longest_ms)} ms"
        return f"{self.switches} exchanges: {pauses}, dip {self.dip:.2f} %, moved {self.moved}, {wrong}"


class Alternatives(Study):
    """Two alternatives of one operation, exchanged 100 times at 1,000 and at 20,000 items/s: of the same speed (10 µs),
    from slow (30 ms an item, which falls behind) to fast and back, and with a running count of 100,000 keys that is
    handed over. Records are stamped behind the operation; everything is found from the stamps. The simple approach
    routes records to another branch at once, while the first one still has a backlog; it is there to be compared with.
    """

    name = "alternatives"
    title = "Algorithms exchanged while data flows"
    after = "QE, section 5: figures of the simple and the advanced approach at 1,000 items/s"

    def run(self, desk: Desk) -> None:
        quick, parallelism = desk.options.quick, desk.options.parallelism
        times = desk.choose(SWITCHES, SHORT_SWITCHES, QUICK_SWITCHES)
        few = max(2, times // 10)
        low_eps, high_eps = RATES_EPS
        turns = [("two", BETWEEN_S), ("one", BETWEEN_S)] * (times // 2)

        def keep(*scenes: Exchanged) -> None:
            for scene in scenes:
                desk.append("scenes", scene, scene.told)

        for rate in (low_eps,) if quick else RATES_EPS:
            desk.tell(f"{SAME}, {number(rate)}/s, {times} exchanges")
            keep(scene_of(SAME, rate, *exchange(_same_speed(rate), parallelism, turns)))
        desk.tell(f"{DOWN} and {UP}, {number(low_eps)}/s, {few} of each")
        # The slow one falls behind, the fast one catches up.
        rows, report = exchange(_slow_fast(low_eps), 1, [("slow", 3 * BETWEEN_S), ("fast", 4 * BETWEEN_S)] * few)
        keep(*(scene_of(name, low_eps, rows, report, to=to) for name, to in ((UP, "slow"), (DOWN, "fast"))))
        desk.tell(f"{STATE}, {number(high_eps)}/s, {times} exchanges")
        settle_s = SETTLE_S if quick else 4 * SETTLE_S
        keep(scene_of(STATE, high_eps, *exchange(_with_state(high_eps), parallelism, turns, settle_s), settle_s))
        desk.tell(f"{SIMPLE}, {number(low_eps)}/s")
        keep(simple(low_eps, 2.0 if quick else 6.0))

    def findings(self, results: Results) -> Findings:
        scenes = results.data("scenes", list[Exchanged])
        for each in scenes:
            if each.name == SIMPLE:
                yield Claim(
                    "QE, section 5: simple approach",
                    "15 s of disturbance, 1,427 items out of order",
                    f"{each.disturbed_s:.1f} s in which both gave results, {each.reordered:,} out of order, "
                    f"backlog {each.backlog:,}; {results.machine}",
                    each.reordered > 0,
                )
                continue
            detail = {"median_ms": each.median_ms, "exchanges": each.switches}
            yield at_most(f"{each.case}: longest pause", each.longest_ms, "ms", PAUSE_MS_MAX[each.name], detail)
            wrong = each.missing + each.duplicated + each.reordered
            yield at_most(f"{each.case}: missing, duplicated, reordered", wrong, "records", 0)
            if each.name == SAME:
                yield at_most(f"{each.case}: throughput dip", each.dip, "%", 1.0)
            if each.name == DOWN:
                yield at_most(f"{each.case}: moved", each.moved, "records", 0)
            if each.name == STATE:
                yield at_most(f"{each.case}: warm-up", each.warm_ms, "ms", 0)
        for each in scenes:
            if (each.name, each.rate_eps) in SAID:
                claimed, paper_ms = SAID[each.name, each.rate_eps]
                yield Claim(
                    f"QE, section 5: {each.name}",
                    claimed,
                    f"{each.switches} exchanges: median pause {ms(each.median_ms)} ms, longest {ms(each.longest_ms)} "
                    f"ms; rate {each.dip:.2f} % lower behind one; {each.moved} moved; warm-up {ms(each.warm_ms)} ms; "
                    f"missing, duplicated, reordered: {each.missing}, {each.duplicated}, {each.reordered}; "
                    f"{results.machine}",
                    each.longest_ms <= paper_ms,
                )

    def tables(self, results: Results) -> list[Table]:
        return table(
            "Exchanges",
            results.data("scenes", list[Exchanged]),
            *fields(str, case="scenario", switches="exchanges"),
            *fields(ms, median_ms="pause p50 ms", longest_ms="pause max ms"),
            ("gap p50 ms", lambda each: ms(_middle(each.gap_ms))),
            ("gap without ms", lambda each: ms(each.usual_gap_ms)),
            *fields("{:.2f}".format, dip="dip %"),
            *fields(str, missing="missing", duplicated="duplicated", reordered="reordered", moved="moved"),
            *fields("{:.1f}".format, disturbed_s="disturbed s"),
        )

    def figures(self, results: Results) -> list[Figure]:
        scenes = [each for each in results.data("scenes", list[Exchanged]) if len(each.pause_ms) > 1]
        lines = [pauses(each.case, each.name, each.pause_ms) for each in scenes]
        panel = Lines("Pauses", "ms", "% of exchanges up to", lines, x_log=True)
        return figure("alternatives", "How long an exchange is felt", "From the stamps of records.", [panel])


# --- jobs -------------------------------------------------------------------------------------------------------------


def _numbers(rate: float, total: int | None = None, **fields: Any) -> ps.Stream:
    fields = {"number": ps.fields.sequence(), **fields}
    parts = None if total is None else 1
    return ps.stream("events", ps.generator(fields, rate=rate, format="columns", seed=1, total=total, partitions=parts))


def _by(word: str, work: Callable[[], object]) -> Callable[[ps.Stream], ps.Stream]:
    """An operation that works, and stamps each record with the moment and its own name."""

    def stamped(r: Any) -> tuple[int, str, int]:
        work()
        return r.number, word, time.time_ns() // 1000

    return lambda stream: stream.map(stamped, schema=SCHEMA, name=word)


def _same_speed(rate: float) -> ps.Stream:
    work = partial(spin, round(WORK_US * spins_per_second() / 1e6))
    return _numbers(rate).alternatives("score", one=_by("one", work), two=_by("two", work))


def _slow_fast(rate: float) -> ps.Stream:
    slow = _by("slow", partial(time.sleep, SLOW_S))
    return _numbers(rate).alternatives("score", fast=_by("fast", int), slow=slow)


def _with_state(rate: float) -> ps.Stream:
    """A running count by key, which each result tells: that of a key goes 1, 2, 3, whoever counts."""

    def counted(word: str) -> Callable[[ps.Stream], ps.Stream]:
        return lambda s: s.aggregate(n=ps.agg.count(), number=ps.agg.last("number"), emit="every").map(
            lambda r: (r.number, word, time.time_ns() // 1000, r.key, r.n), schema=f"{SCHEMA}, key bigint, n bigint"
        )

    keys = ps.fields.integers(0, KEYS - 1)
    return _numbers(rate, key=keys).key_by("key").alternatives("score", one=counted("one"), two=counted("two"))


@contextmanager
def _written(stream: ps.Stream, parallelism: int) -> Iterator[tuple[Run, Path]]:
    """A job whose rows go to files."""
    with tempfile.TemporaryDirectory(prefix="penstock-alternatives-") as directory:
        pipeline = stream.to(ps.files(Path(directory)))
        with running(pipeline, parallelism=parallelism, forms="record", memory=False) as run:
            yield run, Path(directory)


def exchange(
    stream: ps.Stream, parallelism: int, orders: Iterable[tuple[str, float]], settle_s: float = SETTLE_S
) -> tuple[list[dict[str, Any]], Report]:
    """Use one alternative after the other, each for a while; returns the rows that came, and the job's report."""
    with _written(stream, parallelism) as (run, out):
        run.until(lambda: run.job.status().epoch >= 2, WAIT_S)
        time.sleep(settle_s)
        for name, rest_s in orders:
            change(run, partial(run.job.use, "score", name), rest_s)
        report = run.end(drain=True)
        return read_rows(out), report


def simple(rate: float, seconds: float) -> Exchanged:
    """Route records to another branch at once, while the first one has a backlog: the baseline."""
    total = round(rate * seconds)
    branches = _numbers(rate, total).split(first=ps.col("number") < round(rate * seconds / 2))
    slow = _by("slow", partial(time.sleep, SIMPLE_WORK_S))(branches["first"].key_by("number"))
    fast = _by("fast", int)(branches["rest"].key_by("number"))
    with _written(slow.merge(fast), 1) as (run, out):
        report = run.job.wait(WAIT_S + seconds)
        assert report is not None
        rows = sorted(read_rows(out), key=lambda row: row["at_us"])
    first_us = min((row["at_us"] for row in rows if row["by"] == "fast"), default=inf)
    overtaken = [row["at_us"] for row in rows if row["by"] == "slow" and row["at_us"] > first_us]
    scene = scene_of(SIMPLE, rate, rows, report)
    scene.disturbed_s = round((overtaken[-1] - first_us) / 1e6, 3) if overtaken else 0.0
    scene.backlog, scene.switches = len(overtaken), 1
    return scene


# --- what the stamps say ----------------------------------------------------------------------------------------------


def scene_of(
    name: str, rate: float, rows: Sequence[dict[str, Any]], report: Any, skip_s: float = 0.0, to: str = ""
) -> Exchanged:
    """Work a scene out from what came and what was to come; of all exchanges, or of those to an alternative. Pure."""
    switches = [each for each in report.switches if to in ("", each.to)]
    offsets = report.offsets["events"]
    parts = len(offsets)
    given = {number_of for at, read in enumerate(offsets) for number_of in range(at, at + parts * read, parts)}
    counts = Counter(row["number"] for row in rows)
    stamps = sorted(row["at_us"] for row in rows)
    places = [report.began_us + round(1e6 * each.at_s + 1000 * each.total_ms) for each in switches]
    around_us = round(1e6 * AROUND_S)
    gaps, dips = [], []
    for place in places:
        near = stamps[bisect_left(stamps, place - around_us) : bisect_left(stamps, place + around_us)]
        gaps.append(round(max((after - before for before, after in pairwise(near)), default=0) / 1000, 3))
        before = bisect_left(near, place)
        dips.append(round(100.0 * max(0, before - (len(near) - before)) / before, 3) if before else 0.0)
    return Exchanged(
        name,
        rate,
        len(switches),
        [round(each.pause_ms, 3) for each in switches],
        gaps,
        round(_usual_gap_ms(stamps, places, around_us, round(1e6 * skip_s)), 3),
        # A slow one does not carry the rate; what comes behind it catches up.
        [] if to else dips,
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
    counted = bool(rows) and "n" in rows[0]
    for row in sorted(rows, key=lambda row: (row["at_us"], row["n" if counted else "number"])):
        if counted:
            wrong += row["n"] != newest.get(row["key"], 0) + 1
            newest[row["key"]] = row["n"]
        else:
            last = newest.get(row["number"] % parts, -1)
            wrong += row["number"] < last
            newest[row["number"] % parts] = max(row["number"], last)
    return wrong


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0
