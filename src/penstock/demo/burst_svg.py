"""The picture of a burst as SVG, drawn without any library; `page` puts it into an HTML page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from penstock.dashboard.numbers import human
from penstock.demo import burst
from penstock.demo.burst import PANELS, Panel
from penstock.demo.series import Course, Scene

WIDTH = 1000
PANELS_HEIGHT = 620
LEFT, RIGHT, TOP, GAP = 150, 30, 60, 46
LANE = 13
TICKS = 4
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class _Axes:
    """Where a panel lies, and its scales."""

    top: float
    height: float
    end_s: float
    low: float
    high: float
    logarithmic: bool

    def x(self, at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at_s / self.end_s

    def y(self, value: float) -> float:
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.top + self.height * (1 - (value - low) / (high - low))

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return "M" + " L".join(f"{self.x(at_s):.1f},{self.y(value):.1f}" for at_s, value in points)


def draw(scene: Scene, courses: Sequence[Course]) -> str:
    """Draw rate, backlog, latency and forms of some runs over time."""
    end_s = burst.end_s(scene, courses)
    parts: list[str] = []
    top = float(TOP)
    for panel in PANELS:
        axes = _axes(panel, scene, courses, top, end_s)
        parts += _frame(panel.title, panel.unit, axes, scene, _ticks(axes))
        if panel is PANELS[0]:
            shown = axes.path(burst.offered(scene))
            parts.append(f'<path d="{shown}" fill="{burst.OFFERED_COLOUR}" fill-opacity="0.45"/>')
        parts += _switch_lines(axes, courses, named=panel is PANELS[0])
        for course in courses:
            points = [(each.at_s, panel.value(each)) for each in course.samples]
            if points:
                colour = burst.COLOURS[course.forms]
                parts.append(f'<path d="{axes.path(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        top += axes.height + GAP
    lanes, bottom = _lanes(scene, courses, top, end_s)
    parts += [*lanes, *_legend(courses)]
    height = bottom + 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(parts)}</svg>"
    )


def _axes(panel: Panel, scene: Scene, courses: Sequence[Course], top: float, end_s: float) -> _Axes:
    values = [panel.value(each) for course in courses for each in course.samples]
    height = PANELS_HEIGHT * panel.share
    if panel.logarithmic:
        values = values or [1.0, 10.0]
        low = 10.0 ** math.floor(math.log10(min(values)))
        high = max(low * 10, 10.0 ** math.ceil(math.log10(max(values))))
        return _Axes(top, height, end_s, low, high, True)
    highest = max([*values, scene.peak_eps if panel is PANELS[0] else 1.0])
    step = _step(highest)
    return _Axes(top, height, end_s, 0.0, math.ceil(highest / step) * step, False)


def _step(highest: float) -> float:
    """A round distance between ticks."""
    rough = highest / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * each for each in _STEPS if power * each >= rough)


def _ticks(axes: _Axes) -> list[float]:
    if axes.logarithmic:
        first, last = round(math.log10(axes.low)), round(math.log10(axes.high))
        return [10.0**power for power in range(first, last + 1)]
    step = _step(axes.high)
    return [step * i for i in range(int(axes.high / step + 0.5) + 1)]


def _frame(title: str, unit: str, axes: _Axes, scene: Scene, ticks: Sequence[float]) -> list[str]:
    left, right, bottom = axes.x(0), axes.x(axes.end_s), axes.top + axes.height
    start, end = axes.x(scene.calm_s), axes.x(scene.burst_end_s)
    parts = [
        f'<rect x="{start:.1f}" y="{axes.top:.1f}" width="{end - start:.1f}" height="{axes.height:.1f}" '
        f'fill="{burst.BURST_COLOUR}"/>',
        _text(left, axes.top - 8, title, weight=600),
        _text(right, axes.top - 8, unit, anchor="end", colour="#666"),
    ]
    for each in ticks:
        y = axes.y(each)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(left - 8, y + 4, f"{each:g}" if each < 1 else human(each), anchor="end", colour="#444"))
    return [*parts, *_seconds(axes, bottom)]


def _seconds(axes: _Axes, bottom: float) -> list[str]:
    step = max(1, round(_step(axes.end_s * TICKS / 10)))
    return [
        _text(axes.x(at_s), bottom + 15, f"{at_s} s", anchor="middle", colour="#666")
        for at_s in range(0, int(axes.end_s) + 1, step)
    ]


def _switch_lines(axes: _Axes, courses: Sequence[Course], *, named: bool) -> list[str]:
    """When the adaptive run changed forms."""
    parts = []
    for switch in [each for course in courses if course.forms == "adaptive" for each in course.switches]:
        if not 0 <= switch.at_s <= axes.end_s:
            continue
        x, bottom = axes.x(switch.at_s), axes.top + axes.height
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{axes.top:.1f}" y2="{bottom:.1f}" '
            f'stroke="{burst.COLOURS["adaptive"]}" stroke-dasharray="4 3"/>'
        )
        if named:
            parts.append(_text(x + 4, axes.top + 13, f"to {switch.to}", colour=burst.COLOURS["adaptive"]))
    return parts


def _lanes(scene: Scene, courses: Sequence[Course], top: float, end_s: float) -> tuple[list[str], float]:
    rows = [(course, lanes) for course in courses if (lanes := burst.stretches(course))]
    height = sum(LANE * len(lanes) + 8 for _, lanes in rows)
    axes = _Axes(top, max(height, LANE), end_s, 0.0, 1.0, False)
    parts = _frame("Form of each operation", "", axes, scene, [])
    y = top + 4
    for course, lanes in rows:
        middle = y + LANE * len(lanes) / 2 + 4
        title = burst.TITLES[course.forms]
        parts.append(_text(LEFT - 62, middle, title, anchor="end", colour=burst.COLOURS[course.forms], weight=600))
        for lane in lanes:
            parts.append(_text(LEFT - 6, y + LANE - 4, lane[0].operation, anchor="end", colour="#666", size=10))
            parts += [
                f'<rect x="{axes.x(each.from_s):.1f}" y="{y + 1:.1f}" height="{LANE - 2}" '
                f'width="{axes.x(each.to_s) - axes.x(each.from_s):.1f}" fill="{burst.FORM_COLOURS[each.form]}"/>'
                for each in lane
            ]
            y += LANE
        y += 8
    return parts, y


def _legend(courses: Sequence[Course]) -> list[str]:
    entries = [(burst.COLOURS[each.forms], burst.TITLES[each.forms]) for each in courses]
    entries.append((burst.OFFERED_COLOUR, "offered"))
    entries += [(colour, f"{form} form") for form, colour in burst.FORM_COLOURS.items()]
    parts, x = [], float(LEFT)
    for colour, title in entries:
        parts.append(f'<rect x="{x:.0f}" y="12" width="14" height="10" rx="2" fill="{colour}"/>')
        parts.append(_text(x + 19, 21, title))
        x += 40 + 6.6 * len(title)
    return parts


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#222", weight: int = 400, size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
