"""Colours of figures and page: one for each form, engine and component, in light and in dark; what draws asks here."""

from __future__ import annotations

from typing import Any

from penstock.demo import burst
from penstock.demo.burst import BURST_COLOUR, COLOURS, FORM_COLOURS, OFFERED_COLOUR

INK, MUTED, GRID = burst.INK, burst.MUTED, burst.GRID
PAPER = "#ffffff"
GOOD = "#1a7f37"
BAD = "#cf222e"
PLAIN = "#6e7781"

_KEYS = {
    **COLOURS,
    "spark": "#8250df",
    "spark-realtime": "#b87bff",
    "flink": "#bf3989",
    "bytewax": "#9a6700",
    "plain": PLAIN,
    "switching": "#1b7c83",
    # Components of latency, in the order in which a record meets them.
    "out": "#cf222e",
    "wait": "#e0a008",
    "schedule": "#8250df",
    "process": "#0b8457",
    "transmit": "#2f6fb5",
}
_DARK = {
    INK: "#e6edf3",
    MUTED: "#9da7b1",
    GRID: "#30363d",
    PAPER: "#0d1117",
    GOOD: "#4ac26b",
    BAD: "#ff7b72",
    PLAIN: "#9aa4af",
    BURST_COLOUR: "#332c17",
    OFFERED_COLOUR: "#6e7681",
    FORM_COLOURS["record"]: "#2d5578",
    FORM_COLOURS["batch"]: "#c65cb2",
    COLOURS["adaptive"]: "#3fb98a",
    COLOURS["record"]: "#6cb0f0",
    COLOURS["batch"]: "#f0a050",
    "#8250df": "#b392f0",
    "#b87bff": "#d2b6ff",
    "#bf3989": "#f778ba",
    "#9a6700": "#d6a02c",
    "#1b7c83": "#39c5cf",
    "#e0a008": "#f2cc60",
    "#e3f2ea": "#12351f",
    "#fbe4e4": "#4a1a1c",
    "#eef1f4": "#1c232b",
}
CELL_GOOD, CELL_BAD, CELL_PLAIN = "#e3f2ea", "#fbe4e4", "#eef1f4"
_SPARE = ("#1b7c83", "#9a6700", "#bf3989", "#8250df")

RC: Any = {
    "font.size": 9.5,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "lines.linewidth": 1.9,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "penstock",
}
"""Matplotlib's settings; text stays text in SVG."""


def colour(key: str) -> str:
    """Return the colour of a form, an engine (with or without its variant) or a component; always the same one."""
    name = key.partition(":")[0]
    return _KEYS[name] if name in _KEYS else _SPARE[sum(name.encode()) % len(_SPARE)]


def _variable(light: str) -> str:
    return f"--c{light[1:]}"


def css_variables() -> str:
    """The colours as CSS variables, light, and dark for readers who prefer that."""
    light = "".join(f"{_variable(each)}:{each};" for each in _DARK)
    dark = "".join(f"{_variable(each)}:{other};" for each, other in _DARK.items())
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def with_variables(svg: str) -> str:
    """Let a picture's colours follow the page's."""
    for light in _DARK:
        svg = svg.replace(light, f"var({_variable(light)})")
    return svg


def css(light: str) -> str:
    """A colour as CSS takes it on the page."""
    return f"var({_variable(light)})"
