"""Latency under a burst (DO, figures 8 and 11): calm, a burst that records cannot carry, calm again, by form."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.demo.series import Course, Scene
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.report import general
from penstock_bench.report.chart import Burst, Figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import ADAPTIVE, BATCH, FORMS, RECORD, Desk, Study, two_digits
from penstock_bench.studies.findings import Findings, at_most
from penstock_bench.workloads import WORKLOADS

BASE_EPS = 8_000.0
CALM_S, BURST_S, REST_S = 6.0, 5.0, 8.0
QUICK_SCENE = Scene(2_000, 20_000, 1.5, 1.0, 1.5)
SHORT_SCENE = Scene(10_000, 500_000, 6.0, 5.0, 6.0)
PEAKS = (1.5, 3.0)
"""The two bursts, as in the paper a low and a high one: so many times what the record form carries."""
WORKLOAD = "scoring"
BURST_P99_MS_MAX = 1_000.0
CALM_P99_MS, CALM_S_MAX = 10.0, 2.0
"""After the burst p99 is under this again, and within so long a time in adaptive form."""


class Through(msgspec.Struct):
    scene: Scene
    courses: list[Course]

    def of(self, form: str) -> Course | None:
        return next((each for each in self.courses if each.forms == form), None)


class BurstStudy(Study):
    """A model called per event; 8,000 events/s, then a burst of 1.5 times, in a second run 3 times what the record form
    was measured to carry, then 8,000 again. All forms have the same events at the same times, and every output is
    compared with the exact one. Two bursts in two runs, so that one's queue is not the other's.
    """

    name = "burst"
    title = "Latency through a burst"
    after = "DO, figures 8 and 11"

    def run(self, desk: Desk) -> None:
        scenes = desk.choose([], [SHORT_SCENE], [QUICK_SCENE])
        if not scenes:
            carried_eps, burst_s = desk.record_eps(WORKLOAD), desk.seconds(BURST_S)
            peaks = [max(two_digits(factor * carried_eps), 2 * BASE_EPS) for factor in PEAKS]
            scenes = [Scene(BASE_EPS, peak, CALM_S, burst_s, REST_S) for peak in peaks]
        kept: list[Through] = []
        for scene in scenes:
            kept.append(Through(scene, []))
            for form in (ADAPTIVE, RECORD) if desk.options.short else FORMS:
                heights = f"{scene.base_eps:,.0f} to {scene.peak_eps:,.0f}/s"
                desk.tell(f"{heights}, {form}")
                row, report, sampler = desk.through(WORKLOADS[WORKLOAD], scene, form)
                row.rate, row.note = scene.peak_eps, f"burst {heights} for {scene.burst_s:g} s, the whole run"
                found = sampler.figures(form, report)
                found.lost, found.duplicated, found.reordered = row.lost or 0, row.duplicated or 0, row.reordered or 0
                kept[-1].courses.append(Course(found, sampler.samples, report.switches))
                desk.add(row)
                desk.put("bursts", kept)

    def findings(self, results: Results) -> Findings:
        known = bursts(results)
        for each in known:
            scene = each.scene
            height = f" to {number(scene.peak_eps)}/s" if len(known) > 1 else ""
            yield from _checks(f"{WORKLOAD}, burst{height}", each)
            course, slow, batches = (each.of(form) for form in (ADAPTIVE, RECORD, BATCH))
            if not (course and slow and batches):
                continue
            adaptive, record, batch = course.figures, slow.figures, batches.figures
            first = next((switch for switch in course.switches if switch.at_s > 0), None)
            when = f"switched {number(first.at_s - scene.calm_s)} s into the burst" if first else "did not switch"
            yield Claim(
                f"DO, figure 11: a burst of {number(scene.peak_eps)} events/s",
                "latency of record engines grows as long as the burst lasts; DO's peaks at the switch and returns to "
                "a low level soon (6 machines; no numbers are given)",
                f"p99 of the burst's events: adaptive {ms(adaptive.burst_p99_ms)} ms, record "
                f"{ms(record.burst_p99_ms)} ms, batch {ms(batch.burst_p99_ms)} ms; adaptive {when}, its queue was gone "
                f"{_after(adaptive.drained_s)}, that of records {_after(record.drained_s)}; while calm p99 "
                f"{ms(adaptive.calm_p99_ms)} ms adaptive, {ms(batch.calm_p99_ms)} ms batch; {results.machine}",
                bool(first) and (adaptive.burst_p99_ms or 9e9) < (record.burst_p99_ms or 9e9),
            )
            wrong = adaptive.lost + adaptive.duplicated + adaptive.reordered + adaptive.wrong
            yield Claim(
                "DO, figure 8: the dataset below both forms",
                "a drawing: records are kept until they are confirmed, so that a switch loses nothing",
                f"{adaptive.switches} switches, {sum(switch.carried_records for switch in course.switches):,} records "
                f"carried over, longest pause {ms(adaptive.pause_ms_max)} ms; lost, duplicated, reordered or wrong: "
                f"{wrong}",
                not wrong if adaptive.switches else None,
            )
            value = adaptive.burst_p99_ms if adaptive.burst_p99_ms is not None else adaptive.p99_ms
            name = f"burst of {number(scene.peak_eps)} events/s, adaptive: p99 of its events"
            yield at_most(name, value, "ms", BURST_P99_MS_MAX, digits=1)

    def figures(self, results: Results) -> list[Figure]:
        return [*burst_figures(results, "burst"), *general.distributions(results.rows, "burst-distribution")]


def _checks(burst: str, found: Through) -> Iterator[Check]:
    """The worst moment of a burst, and how soon it is calm again; the targets are those of the adaptive form."""
    end_s = found.scene.burst_end_s
    for course in found.courses:
        name, free = f"{burst}, {course.forms}", course.forms != ADAPTIVE
        during = (each.p99_ms for each in course.samples if found.scene.calm_s <= each.at_s < end_s + 1)
        worst = max(during, default=0.0)
        target = f"under {BURST_P99_MS_MAX:,.0f} in adaptive form"
        met = free or worst < BURST_P99_MS_MAX
        yield Check(f"{name}: worst p99 of half a second", round(worst, 1), "ms", target, met)
        after = [each for each in course.samples if each.at_s >= end_s]
        hot = [i for i, each in enumerate(after, 1) if each.p99_ms >= CALM_P99_MS]
        calm = after[hot[-1] if hot else 0 :]
        calm_s = calm[0].at_s - end_s if calm else -1.0
        unit, target = "s after the burst (-1: not seen)", f"{CALM_S_MAX:g} in adaptive form"
        met = free or 0 <= calm_s <= CALM_S_MAX
        yield Check(f"{name}: p99 under {CALM_P99_MS:g} ms again", round(calm_s, 2), unit, target, met)


def burst_figures(results: Results, slug: str) -> list[Figure]:
    """The runs over time, a figure for each burst."""
    found = []
    for i, each in enumerate(bursts(results), 1):
        caption = (
            f"{number(each.scene.base_eps)} events/s, {number(each.scene.peak_eps)} in the burst (shaded), grey: what "
            "was offered. Backlog: due and not at the end yet. Dashed: switches of the adaptive run."
        )
        found.append(Figure(f"{slug}-{i}", f"Burst {i}", caption, burst=Burst(each.scene, each.courses)))
    return found


def _after(drained_s: float | None) -> str:
    return "not before the end" if drained_s is None else f"{number(drained_s)} s after the burst"


def bursts(results: Results) -> list[Through]:
    return [each for each in results.data("bursts", list[Through]) if each.courses]
