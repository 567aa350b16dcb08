"""Latency under a burst (DO, figures 8 and 11): calm, a burst that records cannot carry, calm again, by form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.demo.series import Course, Sampler, Scene
from penstock_bench.meter.job import observe
from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report import general
from penstock_bench.report.chart import Burst, Figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import (
    ADAPTIVE,
    BATCH,
    FORMS,
    RECORD,
    Desk,
    Study,
    at_most,
    data_of,
    machine,
    two_digits,
)
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


class BurstStudy(Study):
    """See the module."""

    name = "burst"
    title = "Latency through a burst"
    after = "DO, figures 8 and 11"
    method = (
        "A model called per event; 8,000 events/s, then a burst of 1.5 times, in a second run 3 times what the record "
        "form was measured to carry, then 8,000 again. All forms have the same events at the same times, and every "
        "output is compared with the exact one. Two bursts in two runs, so that one's queue is not the other's."
    )

    def run(self, desk: Desk) -> None:
        scenes = desk.choose([], [SHORT_SCENE], [QUICK_SCENE])
        if not scenes:
            carried_eps, burst_s = desk.record_eps(WORKLOAD), desk.seconds(BURST_S)
            peaks = [max(two_digits(factor * carried_eps), 2 * BASE_EPS) for factor in PEAKS]
            scenes = [Scene(BASE_EPS, peak, CALM_S, burst_s, REST_S) for peak in peaks]
        kept: list[dict[str, Any]] = []
        for scene in scenes:
            courses: list[Course] = []
            kept.append({"scene": scene, "courses": courses})
            for form in (ADAPTIVE, RECORD) if desk.options.short else FORMS:
                desk.tell(f"{number(scene.base_eps)} to {number(scene.peak_eps)} events/s, {form}")
                row, course = through_burst(scene, desk.options.parallelism, form)
                courses.append(course)
                desk.add(row)
                desk.put("bursts", kept)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        known = bursts(results)
        for scene, courses in known:
            height = f" to {number(scene.peak_eps)}/s" if len(known) > 1 else ""
            yield from _checks(f"{WORKLOAD}, burst{height}", scene, courses)
            own = {course.forms: course.figures for course in courses}
            if set(own) != set(FORMS):
                continue
            adaptive, record, batch = own[ADAPTIVE], own[RECORD], own[BATCH]
            first = next((s for c in courses if c.forms == ADAPTIVE for s in c.switches if s.at_s > 0), None)
            when = f"switched {number(first.at_s - scene.calm_s)} s into the burst" if first else "did not switch"
            yield Claim(
                f"DO, figure 11: a burst of {number(scene.peak_eps)} events/s",
                "latency of record engines grows as long as the burst lasts; DO's peaks at the switch and returns to "
                "a low level soon (6 machines; no numbers are given)",
                f"p99 of the burst's events: adaptive {ms(adaptive.burst_p99_ms)} ms, record "
                f"{ms(record.burst_p99_ms)} ms, batch {ms(batch.burst_p99_ms)} ms; adaptive {when}, its queue was gone "
                f"{_after(adaptive.drained_s)}, that of records {_after(record.drained_s)}; while calm p99 "
                f"{ms(adaptive.calm_p99_ms)} ms adaptive, {ms(batch.calm_p99_ms)} ms batch; {machine(results)}",
                bool(first) and (adaptive.burst_p99_ms or 9e9) < (record.burst_p99_ms or 9e9),
            )
            wrong = adaptive.lost + adaptive.duplicated + adaptive.reordered + adaptive.wrong
            carried = sum(s.carried_records for c in courses if c.forms == ADAPTIVE for s in c.switches)
            yield Claim(
                "DO, figure 8: the dataset below both forms",
                "a drawing: records are kept until they are confirmed, so that a switch loses nothing",
                f"{adaptive.switches} switches, {carried:,} records carried over, longest pause "
                f"{ms(adaptive.pause_ms_max)} ms; lost, duplicated, reordered or wrong: {wrong}",
                not wrong if adaptive.switches else None,
            )
            value = adaptive.burst_p99_ms if adaptive.burst_p99_ms is not None else adaptive.p99_ms
            name = f"burst of {number(scene.peak_eps)} events/s, adaptive: p99 of its events"
            yield at_most(name, value, "ms", BURST_P99_MS_MAX, digits=1)

    def figures(self, results: Results) -> list[Figure]:
        return [*burst_figures(results, "burst"), *general.distributions(results.rows, "burst-distribution")]


def _checks(burst: str, scene: Scene, courses: list[Course]) -> Iterator[Check]:
    """The worst moment of a burst, and how soon it is calm again; the targets are those of the adaptive form."""
    for course in courses:
        end_s, free = scene.burst_end_s, course.forms != ADAPTIVE
        during = [each.p99_ms for each in course.samples if scene.calm_s <= each.at_s < end_s + 1]
        after = [each for each in course.samples if each.at_s >= end_s]
        hot = [i for i, each in enumerate(after) if each.p99_ms >= CALM_P99_MS]
        calm = after[hot[-1] + 1 if hot else 0 :]
        calm_s = calm[0].at_s - end_s if calm else -1.0
        name, worst = f"{burst}, {course.forms}", max(during, default=0.0)
        target = f"under {BURST_P99_MS_MAX:,.0f} in adaptive form"
        met = free or worst < BURST_P99_MS_MAX
        yield Check(f"{name}: worst p99 of half a second", round(worst, 1), "ms", target, met)
        unit, target = "s after the burst (-1: not seen)", f"{CALM_S_MAX:g} in adaptive form"
        met = free or 0 <= calm_s <= CALM_S_MAX
        yield Check(f"{name}: p99 under {CALM_P99_MS:g} ms again", round(calm_s, 2), unit, target, met)


def through_burst(scene: Scene, parallelism: int, forms: str) -> tuple[ResultRow, Course]:
    """Run through a burst, sampled some times a second; every result is compared with the exact one."""
    sampler, workload = Sampler(scene), WORKLOADS[WORKLOAD]
    row, report = observe(
        workload, scene.schedule, scene.seconds, parallelism, forms, warm_up_s=0.0, watchers=[sampler]
    )
    row.rate = scene.peak_eps
    row.note = f"burst {scene.base_eps:,.0f} to {scene.peak_eps:,.0f}/s for {scene.burst_s:g} s, the whole run"
    figures = sampler.figures(forms, report)
    figures.lost, figures.duplicated, figures.reordered = row.lost or 0, row.duplicated or 0, row.reordered or 0
    return row, Course(figures, sampler.samples, report.switches)


def burst_figures(results: Results, slug: str) -> list[Figure]:
    """The runs over time, a figure for each burst."""
    found = []
    for i, (scene, courses) in enumerate(bursts(results), 1):
        caption = (
            f"{number(scene.base_eps)} events/s, {number(scene.peak_eps)} in the burst (shaded), grey: what was "
            "offered. Backlog: due and not at the end yet. Dashed: switches of the adaptive run."
        )
        found.append(Figure(f"{slug}-{i}", f"Burst {i}", caption, burst=Burst(scene, courses)))
    return found


def _after(drained_s: float | None) -> str:
    return "not before the end" if drained_s is None else f"{number(drained_s)} s after the burst"


def bursts(results: Results) -> list[tuple[Scene, list[Course]]]:
    """The runs of a file, by scene."""
    return [
        (msgspec.convert(each["scene"], Scene), msgspec.convert(each["courses"], list[Course]))
        for each in data_of(results, "bursts", list[dict[str, Any]])
        if each.get("courses")
    ]
