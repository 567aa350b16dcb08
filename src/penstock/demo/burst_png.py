"""The picture of a burst drawn by Matplotlib, where it is installed: the demo's PNG, and a figure of any report."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.dashboard.numbers import human
from penstock.demo import burst
from penstock.demo.burst import PANELS
from penstock.demo.series import Course, Scene

WIDTH_INCHES = 9.6
PANELS_INCHES = 5.6
LANE_INCHES = 0.145
DPI = 130
_RC: Any = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "lines.linewidth": 1.9,
}


def is_available() -> bool:
    """Whether Matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(scene: Scene, courses: Sequence[Course], path: Path) -> None:
    """Draw the picture into a file."""
    import matplotlib as mpl

    with mpl.rc_context(_RC):
        figure(scene, courses).savefig(path, dpi=DPI)


def figure(scene: Scene, courses: Sequence[Course]) -> Any:
    """Draw rate, backlog, latency and forms of some runs over time, with the settings that Matplotlib has."""
    from matplotlib.figure import Figure

    lanes = [(course, own) for course in courses if (own := burst.stretches(course))]
    lanes_inches = LANE_INCHES * sum(len(own) + 1 for _, own in lanes) + 0.4
    canvas: Any = Figure(figsize=(WIDTH_INCHES, PANELS_INCHES + lanes_inches), layout="constrained")
    heights = [*(PANELS_INCHES * panel.share for panel in PANELS), lanes_inches]
    grid = canvas.subplots(len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights})
    for panel, axes in zip(PANELS, grid, strict=False):
        _prepare(axes, panel.title + (" (strong), p50 (faint)" if panel.logarithmic else ""), scene)
        if panel is PANELS[0]:
            at_s, rates_eps = zip(*burst.offered(scene), strict=True)
            axes.fill_between(at_s, rates_eps, color=burst.OFFERED_COLOUR, alpha=0.45, linewidth=0, label="offered")
        for course in courses:
            x, colour = [each.at_s for each in course.samples], burst.COLOURS[course.forms]
            axes.plot(x, [panel.value(each) for each in course.samples], color=colour, label=burst.TITLES[course.forms])
            if panel.logarithmic:
                faint = [max(each.p50_ms, burst.LATENCY_MS_MIN) for each in course.samples]
                axes.plot(x, faint, color=colour, linewidth=1.0, alpha=0.55)
        if panel.logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value < 1 else human(value))
        axes.set_ylabel(panel.unit)
        axes.grid(axis="y")
        _mark_switches(axes, courses, named=panel is PANELS[0])
    canvas.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
    _draw_lanes(grid[-1], lanes, scene)
    grid[-1].set_xlim(0, burst.end_s(scene, courses))
    return canvas


def _prepare(axes: Any, title: str, scene: Scene) -> None:
    axes.set_title(title)
    axes.axvspan(scene.calm_s, scene.burst_end_s, color=burst.BURST_COLOUR, zorder=0, linewidth=0)


def _mark_switches(axes: Any, courses: Sequence[Course], *, named: bool) -> None:
    colour = burst.COLOURS["adaptive"]
    for switch in [each for course in courses if course.forms == "adaptive" for each in course.switches]:
        if switch.at_s < 0:
            continue
        axes.axvline(switch.at_s, color=colour, linestyle=(0, (3, 3)), linewidth=0.9)
        if named:
            at, frame = (switch.at_s, 0.97), ("data", "axes fraction")
            axes.annotate(f" to {switch.to}", at, xycoords=frame, color=colour, fontsize=8, va="top")


def _draw_lanes(axes: Any, lanes: Sequence[tuple[Course, list[list[burst.Stretch]]]], scene: Scene) -> None:
    from matplotlib.patches import Patch

    _prepare(axes, "Form of each operation", scene)
    ticks, labels, y = [], [], 0.0
    for course, own in lanes:
        for lane in own:
            for each in lane:
                axes.barh(y, each.to_s - each.from_s, left=each.from_s, height=0.8, color=burst.FORM_COLOURS[each.form])
            ticks.append(y)
            labels.append(f"{burst.TITLES[course.forms]}: {lane[0].operation}" if lane else course.forms)
            y += 1
        y += 0.8
    axes.set_yticks(ticks, labels, fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    handles = [Patch(color=colour, label=f"{form} form") for form, colour in burst.FORM_COLOURS.items()]
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0.1)
