"""Draws runs through a burst: rate, backlog and latency over time, and the form of each operation below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.demo import burst
from penstock.demo.series import Course, Scene
from penstock_bench.report import theme
from penstock_bench.report.chart import Burst
from penstock_bench.report.words import number

WIDTH_INCHES = 9.6
PANELS_INCHES = 5.6
LANE_INCHES = 0.145
_TITLES = {"Latency, p99 of the last half second": "Latency: p99 of the last half second (strong), p50 (faint)"}


def draw_burst(shown: Burst) -> Any:
    """Draw the figure."""
    from matplotlib.figure import Figure as Canvas

    lanes = [(course, own) for course in shown.courses if (own := burst.stretches(course))]
    lanes_inches = LANE_INCHES * sum(len(own) + 1 for _, own in lanes) + 0.4
    canvas: Any = Canvas(figsize=(WIDTH_INCHES, PANELS_INCHES + lanes_inches), layout="constrained")
    heights = [PANELS_INCHES * panel.share for panel in burst.PANELS]
    grid = canvas.subplots(
        len(burst.PANELS) + 1, 1, sharex=True, gridspec_kw={"height_ratios": [*heights, lanes_inches]}
    )
    for panel, axes in zip(burst.PANELS, grid, strict=False):
        _prepare(axes, _TITLES.get(panel.title, panel.title), shown.scene)
        if panel is burst.PANELS[0]:
            at_s, offered_eps = zip(*burst.offered(shown.scene), strict=True)
            axes.fill_between(at_s, offered_eps, color=burst.OFFERED_COLOUR, alpha=0.45, linewidth=0, label="offered")
        for course in shown.courses:
            x = [each.at_s for each in course.samples]
            y = [panel.value(each) for each in course.samples]
            axes.plot(x, y, color=theme.colour(course.forms), label=burst.TITLES[course.forms])
            if panel.logarithmic:
                faint = [max(each.p50_ms, burst.LATENCY_MS_MIN) for each in course.samples]
                axes.plot(x, faint, color=theme.colour(course.forms), linewidth=1.0, alpha=0.55)
        if panel.logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: number(value))
        axes.set_ylabel(panel.unit)
        axes.grid(axis="y")
        _mark_switches(axes, shown.courses)
    canvas.legend(*grid[0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
    _draw_lanes(grid[-1], lanes, shown.scene)
    grid[-1].set_xlim(0, burst.end_s(shown.scene, shown.courses))
    return canvas


def _prepare(axes: Any, title: str, scene: Scene) -> None:
    axes.set_title(title)
    axes.axvspan(scene.calm_s, scene.burst_end_s, color=burst.BURST_COLOUR, zorder=0, linewidth=0)


def _mark_switches(axes: Any, courses: Sequence[Course]) -> None:
    for course in courses:
        for switch in course.switches if course.forms == "adaptive" else ():
            if switch.at_s >= 0:
                axes.axvline(switch.at_s, color=theme.colour("adaptive"), linestyle=(0, (3, 3)), linewidth=0.9)


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
