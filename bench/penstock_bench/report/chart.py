"""Figures as data: panels of lines, bars, stacks and cells. Studies describe them, `draw` draws them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.demo.series import Course, Scene


class Line(Struct, frozen=True):
    """A curve; ``key`` names the form or engine that gives it its colour."""

    label: str
    key: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    """Spread of the repetitions, where there are some."""
    hollow: Sequence[bool] = ()
    """Points that do not count as kept up."""
    dashed: bool = False
    markers: bool = True
    steps: bool = False

    @staticmethod
    def of(label: str, key: str, points: Iterable[tuple[float, float | None]], **style: Any) -> Line:
        """Draw a curve through those points that are known."""
        known = [(x, y) for x, y in points if y is not None]
        return Line(label, key, [x for x, _ in known], [y for _, y in known], **style)


class Mark(Struct, frozen=True):
    """A line across a panel, with a word on it."""

    at: float
    label: str
    horizontal: bool = False


class Band(Struct, frozen=True):
    """A stretch of the x axis that is set apart."""

    low: float
    high: float


class Lines(Struct, frozen=True):
    """Curves on common axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_log: bool = False
    y_log: bool = False
    marks: Sequence[Mark] = ()
    bands: Sequence[Band] = ()
    x_ticks: Sequence[float] = ()
    y_max: float | None = None


class Bar(Struct, frozen=True):
    """A value with its spread; ``runs`` are the repetitions it is the median of."""

    label: str
    key: str
    value: float
    low: float | None = None
    high: float | None = None
    runs: int = 1


class Bars(Struct, frozen=True):
    """Values side by side, lying, each with its number."""

    title: str
    x_label: str
    bars: Sequence[Bar]
    log: bool = False


class Groups(Struct, frozen=True):
    """Values by group and key: standing bars next to each other; by key a value for each group."""

    title: str
    y_label: str
    groups: Sequence[str]
    values: Mapping[str, Sequence[float | None]]
    log: bool = False


class Stack(Struct, frozen=True):
    """What a whole is made of, for several wholes; by key a value for each whole."""

    title: str
    x_label: str
    wholes: Sequence[str]
    parts: Mapping[str, Sequence[float]]


class Cell(Struct, frozen=True):
    """A cell of a table of cases: what it says, and whether that is good; None: it does not count."""

    text: str
    good: bool | None


class Cells(Struct, frozen=True):
    """A table of cases."""

    title: str
    x_label: str
    y_label: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Sequence[Cell]]


class Burst(Struct, frozen=True):
    """Runs through a burst over time: rate, backlog, latency, forms."""

    scene: Scene
    courses: Sequence[Course]


Panel = Lines | Bars | Groups | Stack | Cells


class Figure(Struct, frozen=True):
    """A figure: panels side by side, or a burst; ``slug`` names its file, without the ending."""

    slug: str
    title: str
    caption: str
    panels: Sequence[Panel] = ()
    burst: Burst | None = None
    columns: int = 3


def figure(slug: str, title: str, caption: str, panels: Iterable[Panel], columns: int = 3) -> list[Figure]:
    """Make a figure of the panels that show something; none if there is none."""
    known = [
        replace(panel, lines=[line for line in panel.lines if line.x]) if isinstance(panel, Lines) else panel
        for panel in panels
    ]
    shown = [each for each in known if getattr(each, "lines", True) and getattr(each, "bars", True)]
    return [Figure(slug, title, caption, shown, columns=columns)] if shown else []
