"""What a picture of a burst shows, whatever draws it: colours, panels, and which form each operation had when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.demo import table as comparison
from penstock.demo.series import Course, Sample, Scene
from penstock.operators import Form

TITLES = comparison.TITLES
COLOURS = {"adaptive": "#0b8457", "record": "#2f6fb5", "batch": "#d9730d"}
FORM_COLOURS = {Form.RECORD.value: "#a9cbe8", Form.BATCH.value: "#b5339a"}
BURST_COLOUR = "#f4ead2"
OFFERED_COLOUR = "#b8b8b8"
INK, MUTED, GRID = "#24292f", "#57606a", "#d8dee4"
LATENCY_MS_MIN = 0.1


@dataclass(frozen=True)
class Panel:
    """One figure over time."""

    title: str
    unit: str
    value: Callable[[Sample], float]
    logarithmic: bool
    share: float
    """Height, as a part of all panels'."""
    faint: Callable[[Sample], float] | None = None
    """Drawn beside it, if it is not alone."""


def _shown_ms(took_ms: float) -> float:
    return max(took_ms, LATENCY_MS_MIN)


PANELS = (
    Panel("Rate", "events/s", lambda each: each.handled_eps, False, 0.28),
    Panel("Backlog", "events", lambda each: float(each.backlog_records), False, 0.32),
    Panel(
        "Latency, p99 of the last half second; faint: p50",
        "ms",
        lambda each: _shown_ms(each.p99_ms),
        True,
        0.40,
        lambda each: _shown_ms(each.p50_ms),
    ),
)


@dataclass(frozen=True)
class Stretch:
    """An operation had one form from here to there."""

    operation: str
    form: str
    from_s: float
    to_s: float


def end_s(scene: Scene, courses: Sequence[Course]) -> float:
    """Where the time axis ends."""
    return max([scene.seconds, *(each.samples[-1].at_s for each in courses if each.samples)])


def stretches(course: Course) -> list[list[Stretch]]:
    """By operation, in the order of the pipeline: its forms over time, from the switches."""
    if not course.samples:
        return []
    last_s = course.samples[-1].at_s
    found = []
    for operation in course.samples[0].forms:
        own: list[Stretch] = []
        form, since_s = Form.RECORD.value, 0.0
        for switch in course.switches:
            # A switch that ends before the first event is how the run begins.
            done_s = max(0.0, switch.at_s + switch.total_ms / 1000)
            if operation in switch.operations and done_s <= last_s:
                own.append(Stretch(operation, form, since_s, done_s))
                form, since_s = switch.to, done_s
        own.append(Stretch(operation, form, since_s, last_s))
        found.append([each for each in own if each.to_s > each.from_s])
    return found


def offered(scene: Scene) -> list[tuple[float, float]]:
    """The corners of the rate at which events are due."""
    rates = [(0.0, scene.base_eps), (scene.calm_s, scene.peak_eps), (scene.burst_end_s, scene.base_eps)]
    corners = [(0.0, 0.0)]
    for (at_s, rate_eps), until_s in zip(rates, (scene.calm_s, scene.burst_end_s, scene.seconds), strict=True):
        corners += [(at_s, rate_eps), (until_s, rate_eps)]
    return [*corners, (scene.seconds, 0.0)]
