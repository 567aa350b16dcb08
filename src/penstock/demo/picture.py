"""The picture of a burst: one list of shapes, written as SVG without any library, or drawn by Matplotlib.

`page` puts the first into an HTML page and writes the second as PNG; any report takes it as a figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.dashboard.numbers import human
from penstock.demo import burst
from penstock.demo.burst import GRID, INK, MUTED, PANELS, Panel
from penstock.demo.series import Course, Scene

WIDTH = 1000
PANELS_HEIGHT = 620
LEFT, RIGHT, TOP, GAP = 150, 30, 60, 46
LANE = 13
TICKS = 4
DPI = 130
_STEPS = (1, 2, 2.5, 5, 10)
_FONT_PIXELS = 12
_INCH_PIXELS = 100
"""Of Matplotlib's picture: so many of ours are an inch."""


@dataclass(frozen=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    colour: str

    def svg(self) -> str:
        """As an element."""
        return (
            f'<rect x="{self.x:.1f}" y="{self.y:.1f}" width="{self.width:.1f}" height="{self.height:.1f}" '
            f'fill="{self.colour}"/>'
        )

    def paint(self, axes: Any) -> None:
        """Onto Matplotlib's axes."""
        from matplotlib.patches import Rectangle

        axes.add_patch(Rectangle((self.x, self.y), self.width, self.height, color=self.colour, linewidth=0))


@dataclass(frozen=True)
class Stroke:
    """A line through some points, or the area that it encloses."""

    points: Sequence[tuple[float, float]]
    colour: str
    width: float = 1.0
    opacity: float = 1.0
    dashed: bool = False
    filled: bool = False

    def svg(self) -> str:
        """As an element."""
        shown = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in self.points)
        if self.filled:
            return f'<path d="{shown}" fill="{self.colour}" fill-opacity="{self.opacity:g}"/>'
        style = f' stroke-opacity="{self.opacity:g}"' if self.opacity < 1 else ""
        style += ' stroke-dasharray="4 3"' if self.dashed else ""
        return f'<path d="{shown}" fill="none" stroke="{self.colour}" stroke-width="{self.width:g}"{style}/>'

    def paint(self, axes: Any) -> None:
        """Onto Matplotlib's axes."""
        x, y = zip(*self.points, strict=True)
        if self.filled:
            axes.fill(x, y, color=self.colour, alpha=self.opacity, linewidth=0)
        else:
            points = self.width * 72 / _INCH_PIXELS
            style = (0, (4, 3)) if self.dashed else "-"
            axes.plot(x, y, color=self.colour, alpha=self.opacity, linewidth=points, linestyle=style)


@dataclass(frozen=True)
class Text:
    """Some words; ``anchor`` is where they stand: start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    colour: str = INK
    weight: int = 400
    size: int = _FONT_PIXELS

    def svg(self) -> str:
        """As an element."""
        return (
            f'<text x="{self.x:.1f}" y="{self.y:.1f}" text-anchor="{self.anchor}" fill="{self.colour}" '
            f'font-weight="{self.weight}" font-size="{self.size}">{escape(self.text)}</text>'
        )

    def paint(self, axes: Any) -> None:
        """Onto Matplotlib's axes."""
        side = {"start": "left", "middle": "center", "end": "right"}[self.anchor]
        weight, points = "bold" if self.weight > 400 else "normal", self.size * 72 / _INCH_PIXELS
        axes.text(self.x, self.y, self.text, ha=side, color=self.colour, fontsize=points, fontweight=weight)


Shape = Box | Stroke | Text


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

    def path(self, points: Sequence[tuple[float, float]], colour: str, **style: Any) -> Stroke:
        return Stroke([(self.x(at_s), self.y(value)) for at_s, value in points], colour, **style)

    def upright(self, at_s: float, colour: str) -> Stroke:
        x = self.x(at_s)
        return Stroke([(x, self.top), (x, self.top + self.height)], colour, dashed=True)


def svg(scene: Scene, courses: Sequence[Course]) -> str:
    """Draw rate, backlog, latency and forms of some runs over time."""
    shapes, height = _picture(scene, courses)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="{_FONT_PIXELS}">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(each.svg() for each in shapes)}</svg>'
    )


def figure(scene: Scene, courses: Sequence[Course]) -> Any:
    """The same as a figure of Matplotlib's."""
    from matplotlib.figure import Figure

    shapes, height = _picture(scene, courses)
    canvas: Any = Figure(figsize=(WIDTH / _INCH_PIXELS, height / _INCH_PIXELS))
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    for each in shapes:
        each.paint(axes)
    return canvas


def has_matplotlib() -> bool:
    """Whether Matplotlib is installed."""
    return find_spec("matplotlib") is not None


def png(scene: Scene, courses: Sequence[Course], path: Path) -> None:
    """Draw the picture into a file."""
    figure(scene, courses).savefig(path, dpi=DPI)


def _picture(scene: Scene, courses: Sequence[Course]) -> tuple[list[Shape], float]:
    """All shapes, and how high they stand together."""
    end_s = burst.end_s(scene, courses)
    parts: list[Shape] = []
    top = float(TOP)
    for panel in PANELS:
        axes = _axes(panel, scene, courses, top, end_s)
        parts += _frame(panel.title, panel.unit, axes, scene, _ticks(axes))
        if panel is PANELS[0]:
            parts.append(axes.path(burst.offered(scene), burst.OFFERED_COLOUR, filled=True, opacity=0.45))
        parts += _switch_lines(axes, courses, named=panel is PANELS[0])
        for course in courses:
            parts += _curves(panel, axes, course)
        top += axes.height + GAP
    lanes, bottom = _lanes(scene, courses, top, end_s)
    return [*parts, *lanes, *_legend(courses)], bottom + 40


def _curves(panel: Panel, axes: _Axes, course: Course) -> list[Stroke]:
    if not course.samples:
        return []
    shown = [(panel.value, 2.0, 1.0), (panel.faint, 1.2, 0.55)]
    return [
        axes.path(
            [(each.at_s, value(each)) for each in course.samples],
            burst.COLOURS[course.forms],
            width=width,
            opacity=opacity,
        )
        for value, width, opacity in shown
        if value is not None
    ]


def _axes(panel: Panel, scene: Scene, courses: Sequence[Course], top: float, end_s: float) -> _Axes:
    shown = [each for each in (panel.value, panel.faint) if each is not None]
    values = [value(each) for value in shown for course in courses for each in course.samples]
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


def _frame(title: str, unit: str, axes: _Axes, scene: Scene, ticks: Sequence[float]) -> list[Shape]:
    left, right = axes.x(0), axes.x(axes.end_s)
    start, end = axes.x(scene.calm_s), axes.x(scene.burst_end_s)
    parts: list[Shape] = [
        Box(start, axes.top, end - start, axes.height, burst.BURST_COLOUR),
        Text(left, axes.top - 8, title, weight=600),
        Text(right, axes.top - 8, unit, anchor="end", colour=MUTED),
    ]
    for each in ticks:
        y, text = axes.y(each), f"{each:g}" if each < 1 else human(each)
        parts += [Stroke([(left, y), (right, y)], GRID), Text(left - 8, y + 4, text, anchor="end", colour=MUTED)]
    step, y = max(1, round(_step(axes.end_s * TICKS / 10))), axes.top + axes.height + 15
    seconds = range(0, int(axes.end_s) + 1, step)
    return [*parts, *(Text(axes.x(at_s), y, f"{at_s} s", anchor="middle", colour=MUTED) for at_s in seconds)]


def _switch_lines(axes: _Axes, courses: Sequence[Course], *, named: bool) -> list[Shape]:
    """When the adaptive run changed forms."""
    parts: list[Shape] = []
    colour = burst.COLOURS["adaptive"]
    for switch in [each for course in courses if course.forms == "adaptive" for each in course.switches]:
        if 0 <= switch.at_s <= axes.end_s:
            parts.append(axes.upright(switch.at_s, colour))
            if named:
                parts.append(Text(axes.x(switch.at_s) + 4, axes.top + 13, f"to {switch.to}", colour=colour))
    return parts


def _lanes(scene: Scene, courses: Sequence[Course], top: float, end_s: float) -> tuple[list[Shape], float]:
    rows = [(course, lanes) for course in courses if (lanes := burst.stretches(course))]
    height = sum(LANE * len(lanes) + 8 for _, lanes in rows)
    axes = _Axes(top, max(height, LANE), end_s, 0.0, 1.0, False)
    parts = _frame("Form of each operation", "", axes, scene, [])
    y = top + 4
    for course, lanes in rows:
        middle, colour = y + LANE * len(lanes) / 2 + 4, burst.COLOURS[course.forms]
        parts.append(Text(LEFT - 62, middle, burst.TITLES[course.forms], anchor="end", colour=colour, weight=600))
        for lane in lanes:
            parts.append(Text(LEFT - 6, y + LANE - 4, lane[0].operation, anchor="end", colour=MUTED, size=10))
            for each in lane:
                width = axes.x(each.to_s) - axes.x(each.from_s)
                parts.append(Box(axes.x(each.from_s), y + 1, width, LANE - 2, burst.FORM_COLOURS[each.form]))
            y += LANE
        y += 8
    return parts, y


def _legend(courses: Sequence[Course]) -> list[Shape]:
    entries = [(burst.COLOURS[each.forms], burst.TITLES[each.forms]) for each in courses]
    entries.append((burst.OFFERED_COLOUR, "offered"))
    entries += [(colour, f"{form} form") for form, colour in burst.FORM_COLOURS.items()]
    parts: list[Shape] = []
    x = float(LEFT)
    for colour, title in entries:
        parts += [Box(x, 12, 14, 10, colour), Text(x + 19, 21, title)]
        x += 40 + 6.6 * len(title)
    return parts
