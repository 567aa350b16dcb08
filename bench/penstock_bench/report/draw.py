"""Draws figures with Matplotlib: as SVG for the page, whose colours follow the page's, and as PNG on white."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.demo import picture
from penstock.demo.burst import BURST_COLOUR
from penstock_bench.report import theme
from penstock_bench.report.chart import Bars, Cells, Figure, Groups, Line, Lines, Panel, Stack
from penstock_bench.report.words import number

DPI = 130
PANEL_INCHES = (4.3, 3.1)
BAR_INCHES = 0.34
FEW_BARS = 3
"""A panel has room for at least so many bars: one alone would fill it."""
FEW_DECADES = 50.0
LABELS_APART = 1.12
"""A bar's number stands this far behind it on a logarithmic axis."""


def render(figure: Figure, png: Path) -> str:
    """Draw a figure into a PNG file, and return it as SVG to be put into a page."""
    import matplotlib as mpl

    with mpl.rc_context(theme.RC):
        drawn = _draw(figure)
        drawn.savefig(png, dpi=DPI, facecolor=theme.PAPER)
        text = io.StringIO()
        drawn.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(text.getvalue(), figure)


def _inline(svg: str, figure: Figure) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Names must be unique in the page; those that nothing refers to are dropped, the others made this figure's own.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'id="([^"]+)"', rf'id="{figure.slug}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{figure.slug}-", svg)
    svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1) if 'viewBox="' in svg else svg
    return theme.with_variables(svg.replace("<svg", '<svg role="img"', 1))


def _draw(figure: Figure) -> Any:
    from matplotlib.figure import Figure as Canvas

    if figure.burst is not None:
        return picture.figure(figure.burst.scene, figure.burst.courses)
    count = len(figure.panels)
    columns = min(figure.columns, count)
    rows = -(-count // columns)
    wide = PANEL_INCHES[0] * columns if columns > 1 else 6.4
    tall = max(_inches(panel) for panel in figure.panels)
    canvas: Any = Canvas(figsize=(wide, tall * rows + 0.35), layout="constrained")
    grid = canvas.subplots(rows, columns, squeeze=False)
    spare = [axes for line in grid for axes in line]
    for axes, panel in zip(spare, figure.panels, strict=False):
        axes.set_title(panel.title)
        _PAINTERS[type(panel)](axes, panel)
    for axes in spare[count:]:
        axes.set_visible(False)
    _legend(canvas, spare[:count])
    return canvas


def _inches(panel: Panel) -> float:
    if isinstance(panel, Bars):
        return max(1.5, BAR_INCHES * len(panel.bars) + 0.9)
    if isinstance(panel, Stack):
        return max(1.5, BAR_INCHES * len(panel.wholes) + 0.9)
    if isinstance(panel, Cells):
        return max(1.8, 0.42 * len(panel.rows) + 1.0)
    return PANEL_INCHES[1]


def _legend(canvas: Any, axes: Sequence[Any]) -> None:
    """One legend for all panels, where a colour means the same in each; else one for every panel."""
    handles: dict[str, Any] = {}
    for each in axes:
        handles |= {label: handle for handle, label in zip(*each.get_legend_handles_labels(), strict=True)}
    if all(set(handles) > set(each.get_legend_handles_labels()[1]) for each in axes):
        for each in axes:
            if each.get_legend_handles_labels()[1]:
                each.legend(loc="best")
    elif len(handles) > 1:
        canvas.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=min(6, len(handles)))


def _format(axis: Any, log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    if log:
        low, high = axis.get_view_interval()
        # Within about a decade, powers of ten alone may leave no label at all.
        subs = (1.0, 2.0, 5.0) if low > 0 and high / low < FEW_DECADES else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=10))
        axis.set_minor_formatter(NullFormatter())


def _lines(axes: Any, panel: Lines) -> None:
    from matplotlib.ticker import MaxNLocator

    for band in panel.bands:
        axes.axvspan(band.low, band.high, color=BURST_COLOUR, zorder=0, linewidth=0)
    for line in panel.lines:
        _line(axes, line)
    if panel.x_log:
        axes.set_xscale("log")
    if panel.y_log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0, top=panel.y_max)
    _format(axes.yaxis, panel.y_log)
    _format(axes.xaxis, panel.x_log)
    if not panel.x_log and all(float(x).is_integer() for line in panel.lines for x in line.x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.x_ticks:
        axes.set_xticks(panel.x_ticks, [number(each) for each in panel.x_ticks])
        axes.minorticks_off()
    for mark in panel.marks:
        style = {"xytext": (3, 0), "textcoords": "offset points", "color": theme.MUTED, "fontsize": 8, "va": "top"}
        line, at, frame = axes.axvline, (mark.at, 0.98), ("data", "axes fraction")
        if mark.horizontal:
            line, at, frame = axes.axhline, (0.99, mark.at), ("axes fraction", "data")
            style |= {"xytext": (0, 2), "ha": "right", "va": "baseline"}
        line(mark.at, color=theme.MUTED, linestyle=(0, (3, 3)), linewidth=1)
        axes.annotate(mark.label, at, xycoords=frame, **style)
    axes.grid(axis="y")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)


def _line(axes: Any, line: Line) -> None:
    colour = theme.colour(line.key)
    style = {"linestyle": "--" if line.dashed else "-", "drawstyle": "steps-post" if line.steps else "default"}
    axes.plot(line.x, line.y, color=colour, label=line.label, **style)
    if line.low and line.high:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
    if line.markers:
        hollow = list(line.hollow) or [False] * len(line.x)
        for kept in (True, False):
            at = [i for i, each in enumerate(hollow) if each is not kept]
            axes.scatter(
                [line.x[i] for i in at],
                [line.y[i] for i in at],
                s=24,
                facecolor=colour if kept else theme.PAPER,
                edgecolor=colour,
                linewidth=1.3,
                zorder=3,
            )


def _bars(axes: Any, panel: Bars) -> None:
    for y, bar in enumerate(panel.bars):
        axes.barh(y, bar.value, height=0.68, color=theme.colour(bar.key))
        if bar.low is not None and bar.high is not None and bar.high > bar.low:
            spread = [[bar.value - bar.low], [bar.high - bar.value]]
            axes.errorbar(bar.value, y, xerr=spread, color=theme.INK, capsize=3, linewidth=1.1)
    highest = max((bar.high or bar.value for bar in panel.bars), default=1.0)
    if panel.log:
        axes.set_xscale("log")
        axes.set_xlim(right=highest * 4)
    else:
        axes.set_xlim(0, highest * (1.42 if any(bar.runs > 1 for bar in panel.bars) else 1.2) or 1.0)
    for y, bar in enumerate(panel.bars):
        end = max(bar.value, bar.high or 0.0)
        shift = end * (LABELS_APART - 1) if panel.log else highest * 0.02
        runs = f"  ({bar.runs} runs)" if bar.runs > 1 else ""
        axes.text(end + shift, y, f"{number(bar.value)}{runs}", va="center", fontsize=8.5)
    _from_the_top(axes, [bar.label for bar in panel.bars], panel.x_label, panel.log)


def _from_the_top(axes: Any, labels: Sequence[str], x_label: str, log: bool = False) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0, labelcolor=theme.INK)
    axes.set_ylim(max(len(labels), FEW_BARS) - 0.5, -0.5)
    _format(axes.xaxis, log)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(x_label)


def _groups(axes: Any, panel: Groups) -> None:
    width = 0.8 / max(1, len(panel.values))
    for i, (key, values) in enumerate(panel.values.items()):
        at = [g - 0.4 + width * (i + 0.5) for g, value in enumerate(values) if value is not None]
        known = [value for value in values if value is not None]
        axes.bar(at, known, width=width * 0.92, color=theme.colour(key), label=key)
    if panel.log:
        axes.set_yscale("log")
    _format(axes.yaxis, panel.log)
    axes.set_xticks(range(len(panel.groups)), panel.groups, rotation=30, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")
    axes.set_ylabel(panel.y_label)


def _stack(axes: Any, panel: Stack) -> None:
    totals = [0.0] * len(panel.wholes)
    for key, values in panel.parts.items():
        axes.barh(range(len(values)), values, left=totals, height=0.68, color=theme.colour(key), label=key)
        totals = [total + value for total, value in zip(totals, values, strict=True)]
    highest = max(totals, default=0.0) or 1.0
    for y, total in enumerate(totals):
        axes.text(total + highest * 0.02, y, number(total), va="center", fontsize=8.5)
    axes.set_xlim(0, highest * 1.2)
    _from_the_top(axes, panel.wholes, panel.x_label)


def _cells(axes: Any, panel: Cells) -> None:
    from matplotlib.patches import Rectangle

    shades = {True: theme.CELL_GOOD, False: theme.CELL_BAD, None: theme.CELL_PLAIN}
    inks = {True: theme.INK, False: theme.BAD, None: theme.MUTED}
    for y, row in enumerate(panel.cells):
        for x, cell in enumerate(row):
            axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=shades[cell.good], linewidth=0))
            axes.text(x, y, cell.text, ha="center", va="center", fontsize=8.5, color=inks[cell.good])
    axes.set_xlim(-0.5, len(panel.columns) - 0.5)
    axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    axes.set_xticks(range(len(panel.columns)), panel.columns)
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)


_PAINTERS: dict[type, Any] = {Lines: _lines, Bars: _bars, Groups: _groups, Stack: _stack, Cells: _cells}
