"""Figures as data: panels of lines, bars, stacks and cells. Studies describe them, `draw` draws them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.demo.series import Course, Scene


@dataclass(frozen=True)
class Line:
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


@dataclass(frozen=True)
class Mark:
    """A line across a panel, with a word on it."""

    at: float
    label: str
    horizontal: bool = False


@dataclass(frozen=True)
class Band:
    """A stretch of the x axis that is set apart."""

    low: float
    high: float


@dataclass(frozen=True)
class Lines:
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


@dataclass(frozen=True)
class Bar:
    """A value with its spread; ``runs`` are the repetitions it is the median of."""

    label: str
    key: str
    value: float
    low: float | None = None
    high: float | None = None
    runs: int = 1


@dataclass(frozen=True)
class Bars:
    """Values side by side, lying, each with its number."""

    title: str
    x_label: str
    bars: Sequence[Bar]
    log: bool = False


@dataclass(frozen=True)
class Groups:
    """Values by group and key: standing bars next to each other."""

    title: str
    y_label: str
    groups: Sequence[str]
    values: Mapping[str, Sequence[float | None]]
    """By key: a value for each group."""
    log: bool = False


@dataclass(frozen=True)
class Stack:
    """What a whole is made of, for several wholes."""

    title: str
    x_label: str
    wholes: Sequence[str]
    parts: Mapping[str, Sequence[float]]
    """By key: a value for each whole."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table of cases: what it says, and whether that is good; None: it does not count."""

    text: str
    good: bool | None


@dataclass(frozen=True)
class Cells:
    """A table of cases."""

    title: str
    x_label: str
    y_label: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Burst:
    """Runs through a burst over time: rate, backlog, latency, forms."""

    scene: Scene
    courses: Sequence[Course]


Panel = Lines | Bars | Groups | Stack | Cells


@dataclass(frozen=True)
class Figure:
    """A figure: panels side by side, or a burst."""

    slug: str
    """Name of its file, without the ending."""
    title: str
    caption: str
    panels: Sequence[Panel] = field(default_factory=tuple)
    burst: Burst | None = None
    columns: int = 3


def figure(slug: str, title: str, caption: str, panels: Iterable[Panel], columns: int = 3) -> list[Figure]:
    """Make a figure of the panels that show something; none if there is none."""
    shown = [panel for panel in map(_known, panels) if panel is not None]
    return [Figure(slug, title, caption, shown, columns=columns)] if shown else []


def _known(panel: Panel) -> Panel | None:
    if isinstance(panel, Lines):
        lines = [line for line in panel.lines if line.x]
        return replace(panel, lines=lines) if lines else None
    return None if isinstance(panel, Bars) and not panel.bars else panel
