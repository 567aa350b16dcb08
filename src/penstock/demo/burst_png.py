"""The picture of a burst as PNG, drawn by Matplotlib where it is installed (the extra `report`)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.dashboard.numbers import human
from penstock.demo import burst
from penstock.demo.burst import PANELS
from penstock.demo.series import Course, Scene

INCHES = (11.0, 9.5)
DPI = 130


def is_available() -> bool:
    """Whether Matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(scene: Scene, courses: Sequence[Course], path: Path) -> None:
    """Draw rate, backlog, latency and forms of some runs over time into a file."""
    from matplotlib.figure import Figure

    lanes = [(course, burst.stretches(course)) for course in courses]
    rows = sum(len(each) for _, each in lanes)
    figure: Any = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    heights = [panel.share for panel in PANELS]
    grid = figure.subplots(
        len(PANELS) + 1, 1, sharex=True, gridspec_kw={"height_ratios": [*heights, 0.03 * max(rows, 3)]}
    )
    for panel, axes in zip(PANELS, grid, strict=False):
        _prepare(axes, panel.title, scene)
        if panel is PANELS[0]:
            at_s, rates_eps = zip(*burst.offered(scene), strict=True)
            axes.fill_between(at_s, rates_eps, color=burst.OFFERED_COLOUR, alpha=0.45, linewidth=0, label="offered")
        for course in courses:
            axes.plot(
                [each.at_s for each in course.samples],
                [panel.value(each) for each in course.samples],
                color=burst.COLOURS[course.forms],
                label=burst.TITLES[course.forms],
                linewidth=1.8,
            )
        if panel.logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value < 1 else human(value))
        axes.set_ylabel(panel.unit)
        axes.grid(axis="y", color="#dddddd")
        _mark_switches(axes, courses, named=panel is PANELS[0])
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    _draw_lanes(grid[-1], lanes, scene)
    grid[-1].set_xlim(0, burst.end_s(scene, courses))
    figure.savefig(path)


def _prepare(axes: Any, title: str, scene: Scene) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.axvspan(scene.calm_s, scene.burst_end_s, color=burst.BURST_COLOUR, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _mark_switches(axes: Any, courses: Sequence[Course], *, named: bool) -> None:
    colour = burst.COLOURS["adaptive"]
    for switch in [each for course in courses if course.forms == "adaptive" for each in course.switches]:
        if switch.at_s < 0:
            continue
        axes.axvline(switch.at_s, color=colour, linestyle="--", linewidth=1)
        if named:
            at = (switch.at_s, 0.97)
            axes.annotate(
                f" to {switch.to}", at, xycoords=("data", "axes fraction"), color=colour, fontsize=8, va="top"
            )


def _draw_lanes(axes: Any, lanes: Sequence[tuple[Course, list[list[burst.Stretch]]]], scene: Scene) -> None:
    _prepare(axes, "Form of each operation", scene)
    ticks, labels, y = [], [], 0.0
    for course, own in lanes:
        for lane in own:
            for each in lane:
                axes.barh(y, each.to_s - each.from_s, left=each.from_s, height=0.8, color=burst.FORM_COLOURS[each.form])
            ticks.append(y)
            labels.append(f"{burst.TITLES[course.forms]}: {lane[0].operation}")
            y += 1
        y += 0.4
    axes.set_yticks(ticks, labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    for form, colour in burst.FORM_COLOURS.items():
        axes.barh(0, 0, color=colour, label=f"{form} form")
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, 1.25), ncols=2, frameon=False, fontsize=8)
