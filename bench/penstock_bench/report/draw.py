"""Draws figures with Matplotlib: as SVG for the page, whose colours follow the page's, and as PNG on white."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

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
LEGEND_INCHES = (0.75, 0.072)
"""Width of an entry of the legend, without its words and for each of their letters."""
POINTS_MARKED = 12
"""Curves with more points have a marker at so many of them."""
FEW_DECADES = 50.0
NEXT_TO: Any = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}


def render(figure: Figure, png: Path) -> str:
    """Draw a figure into a PNG file, and return it as SVG to be put into a page."""
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
    if figure.burst is not None:
        return picture.figure(figure.burst.scene, figure.burst.courses)
    count = len(figure.panels)
    columns = min(figure.columns, count)
    rows = -(-count // columns)
    wide = PANEL_INCHES[0] * columns if columns > 1 else 6.4
    canvas: Any = Canvas(figsize=(wide, max(map(_inches, figure.panels)) * rows + 0.35), layout="constrained")
    places, looks = canvas.subplots(rows, columns, squeeze=False).flatten().tolist(), theme.Looks()
    for axes, panel in zip(places, figure.panels, strict=False):
        axes.set_title(panel.title)
        _PAINTERS[type(panel)](axes, panel, looks)
    for axes in places[count:]:
        axes.set_visible(False)
    _legend(canvas, places[:count], wide)
    return canvas


def _inches(panel: Panel) -> float:
    if isinstance(panel, Bars | Stack):
        return max(1.5, BAR_INCHES * len(panel.bars if isinstance(panel, Bars) else panel.wholes) + 0.9)
    return max(1.8, 0.42 * len(panel.rows) + 1.0) if isinstance(panel, Cells) else PANEL_INCHES[1]


def _legend(canvas: Any, places: Sequence[Any], wide: float) -> None:
    """One legend for all panels, where a colour means the same in each; else one for every panel."""
    own = [dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)) for axes in places]
    handles = {label: handle for each in own for label, handle in each.items()}
    if all(set(handles) > set(each) for each in own):
        for axes in (axes for axes, each in zip(places, own, strict=True) if each):
            axes.legend(loc="best")
    elif len(handles) > 1:
        columns = max(1, int(wide / (LEGEND_INCHES[0] + LEGEND_INCHES[1] * max(map(len, handles)))))
        canvas.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=min(columns, len(handles)))


def _format(axis: Any, log: bool) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    if log:
        low, high = axis.get_view_interval()
        # Within about a decade, powers of ten alone may leave no label at all.
        subs = (1.0, 2.0, 5.0) if low > 0 and high / low < FEW_DECADES else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=10))
        axis.set_minor_formatter(NullFormatter())


def _lines(axes: Any, panel: Lines, looks: theme.Looks) -> None:
    for band in panel.bands:
        axes.axvspan(band.low, band.high, color=BURST_COLOUR, zorder=0, linewidth=0)
    for line in panel.lines:
        _line(axes, line, looks[line.key])
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, xscale="log" if panel.x_log else "linear")
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


def _line(axes: Any, line: Line, look: theme.Look) -> None:
    style: dict[str, Any] = {"color": look.colour, "linestyle": "--" if line.dashed else look.dash}
    style["drawstyle"] = "steps-post" if line.steps else "default"
    if line.markers:
        every = range(0, len(line.x), max(1, len(line.x) // POINTS_MARKED))
        style |= {"marker": look.marker, "markevery": [i for i in every if not (line.hollow and line.hollow[i])]}
    axes.plot(line.x, line.y, label=line.label, **style)
    if line.low and line.high:
        axes.fill_between(line.x, line.low, line.high, color=look.colour, alpha=0.18, linewidth=0)
    if hollow := [i for i, each in enumerate(line.hollow) if each]:
        x, y = [line.x[i] for i in hollow], [line.y[i] for i in hollow]
        axes.plot(x, y, look.marker, color=look.colour, markerfacecolor=theme.PAPER, zorder=3)


def _bars(axes: Any, panel: Bars, looks: theme.Looks) -> None:
    ends = [max(bar.value, bar.high or 0.0) for bar in panel.bars]
    highest, repeated = max((bar.high or bar.value for bar in panel.bars), default=1.0), False
    for y, (bar, end) in enumerate(zip(panel.bars, ends, strict=True)):
        axes.barh(y, bar.value, height=0.68, color=looks[bar.key].colour)
        if bar.low is not None and bar.high is not None and bar.high > bar.low:
            spread = [[bar.value - bar.low], [bar.high - bar.value]]
            axes.errorbar(bar.value, y, xerr=spread, color=theme.INK, capsize=3, linewidth=1.1)
        runs = f"  ({bar.runs} runs)" if bar.runs > 1 else ""
        repeated = repeated or bar.runs > 1
        axes.annotate(f"{number(bar.value)}{runs}", (end, y), (5, 0), **NEXT_TO)
    if panel.log:
        axes.set_xscale("log")
        axes.set_xlim(right=highest * 4)
    else:
        axes.set_xlim(0, highest * (1.42 if repeated else 1.2) or 1.0)
    _from_the_top(axes, [bar.label for bar in panel.bars], panel.x_label, panel.log)


def _from_the_top(axes: Any, labels: Sequence[str], x_label: str, log: bool = False) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0, labelcolor=theme.INK)
    axes.set(ylim=(max(len(labels), FEW_BARS) - 0.5, -0.5), xlabel=x_label)
    _format(axes.xaxis, log)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)


def _groups(axes: Any, panel: Groups, looks: theme.Looks) -> None:
    width = 0.8 / max(1, len(panel.values))
    for i, (key, values) in enumerate(panel.values.items()):
        known = {g - 0.4 + width * (i + 0.5): value for g, value in enumerate(values) if value is not None}
        axes.bar(known.keys(), known.values(), width=width * 0.92, color=looks[key].colour, label=key)
    axes.set(ylabel=panel.y_label, yscale="log" if panel.log else "linear")
    _format(axes.yaxis, panel.log)
    axes.set_xticks(range(len(panel.groups)), panel.groups, rotation=30, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")


def _stack(axes: Any, panel: Stack, looks: theme.Looks) -> None:
    totals = [0.0] * len(panel.wholes)
    for key, values in panel.parts.items():
        axes.barh(range(len(values)), values, left=totals, height=0.68, color=looks[key].colour, label=key)
        totals = [total + value for total, value in zip(totals, values, strict=True)]
    for y, total in enumerate(totals):
        axes.annotate(number(total), (total, y), (5, 0), **NEXT_TO)
    axes.set_xlim(0, 1.2 * (max(totals, default=0.0) or 1.0))
    _from_the_top(axes, panel.wholes, panel.x_label)


def _cells(axes: Any, panel: Cells, _: theme.Looks) -> None:
    shades = {True: theme.CELL_GOOD, False: theme.CELL_BAD, None: theme.CELL_PLAIN}
    inks = {True: theme.INK, False: theme.BAD, None: theme.MUTED}
    for y, row in enumerate(panel.cells):
        for x, cell in enumerate(row):
            axes.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=shades[cell.good], linewidth=0))
            axes.text(x, y, cell.text, ha="center", va="center", fontsize=8.5, color=inks[cell.good])
    axes.set(xlim=(-0.5, len(panel.columns) - 0.5), ylim=(len(panel.rows) - 0.5, -0.5))
    axes.set_xticks(range(len(panel.columns)), panel.columns)
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)


_PAINTERS: dict[type, Any] = {Lines: _lines, Bars: _bars, Groups: _groups, Stack: _stack, Cells: _cells}
