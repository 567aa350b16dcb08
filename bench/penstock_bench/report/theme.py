"""Colours of figures and page, in light and in dark, and how a figure's keys look; what draws asks here."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from penstock.demo import burst
from penstock.demo.burst import BURST_COLOUR, COLOURS, FORM_COLOURS, OFFERED_COLOUR

INK, MUTED, GRID = burst.INK, burst.MUTED, burst.GRID
PAPER, GOOD, BAD = "#ffffff", "#1a7f37", "#cf222e"
CELL_GOOD, CELL_BAD, CELL_PLAIN = "#e3f2ea", "#fbe4e4", "#eef1f4"


class Look(NamedTuple):
    """How a form, an engine in one of its variants, or a component looks."""

    colour: str
    marker: str = "o"
    dash: str = "-"


# Name, colour on white, colour on black, marker. Forms and engines differ for colour-blind readers too.
_TABLE = f"""
    adaptive       {COLOURS["adaptive"]} #3fb98a o
    record         {COLOURS["record"]} #6cb0f0 s
    batch          {COLOURS["batch"]} #f0a050 ^
    penstock       {COLOURS["adaptive"]} #3fb98a o
    spark          #ee3377 #ff7fa8 D
    spark-realtime #882255 #d4689f v
    flink          #33bbee #7fd6f7 P
    bytewax        #e69f00 #f2c14e X
    quix           #661100 #c4756a p
    kafka-streams  #004488 #5d8fd6 h
    plain          #b4b9be #9aa4af d
    switching      #aa4499 #d68ac8 *
    out            {BAD} #ff7b72 o
    wait           #e0a008 #f2cc60 o
    schedule       #8250df #b392f0 o
    process        {COLOURS["adaptive"]} #3fb98a o
    transmit       {COLOURS["record"]} #6cb0f0 o
    spare          #ddcc77 #e6da9c <
    spare          #332288 #8f84e0 >
    spare          #44aa99 #6ccbbb s
    spare          #cc3311 #f0805f D
    spare          #999933 #c2c266 v
    spare          #771155 #c46ba6 P
    spare          #111111 #f0f6fc X
"""
_ROWS = [line.split() for line in _TABLE.strip().splitlines()]
_LOOKS = {name: Look(colour, marker) for name, colour, _, marker in _ROWS}
_SPARE = [Look(colour, marker) for name, colour, _, marker in _ROWS if name == "spare"]
_DASHES = {"exactly-once": "--", "process": ":", "python": "--", "single": "--", "thread": "--"}
"""Of an engine's variants; all others are drawn through."""
_DARK = {light: dark for _, light, dark, _ in _ROWS} | {INK: "#e6edf3", MUTED: "#9da7b1", GRID: "#30363d"}
_DARK |= {PAPER: "#0d1117", GOOD: "#4ac26b", CELL_GOOD: "#12351f", CELL_BAD: "#4a1a1c", CELL_PLAIN: "#1c232b"}
_DARK |= {BURST_COLOUR: "#332c17", OFFERED_COLOUR: "#6e7681"}
_DARK |= {FORM_COLOURS["record"]: "#2d5578", FORM_COLOURS["batch"]: "#c65cb2"}

RC: Any = {"font.size": 9.5, "text.color": INK, "grid.color": GRID, "grid.linewidth": 0.7}
RC |= {"axes.edgecolor": GRID, "axes.labelcolor": MUTED, "axes.labelsize": 9, "axes.axisbelow": True}
RC |= {"axes.titlecolor": INK, "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left"}
RC |= {"axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.9, "lines.markersize": 5}
RC |= {"legend.frameon": False, "legend.fontsize": 9, "legend.handlelength": 3.2}
RC |= {"xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5}
RC |= {"svg.fonttype": "none", "svg.hashsalt": "penstock"}
"""Matplotlib's settings; text stays text in SVG."""


class Looks(dict[str, Look]):
    """The looks of a figure's keys: always the same for what has a name here, a spare one of its own for all else."""

    def __missing__(self, key: str) -> Look:
        name, _, variant = key.lower().partition(":")
        look = _LOOKS.get(name)
        if look is None:
            first = zlib.crc32(name.encode()) % len(_SPARE)
            spare = [*_SPARE[first:], *_SPARE[:first]]
            look = next((each for each in spare if each not in self.values()), spare[0])
        self[key] = look._replace(dash=_DASHES.get(variant, "-"))
        return self[key]


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
        svg = svg.replace(light, css(light))
    return svg


def css(light: str) -> str:
    """A colour as CSS takes it on the page."""
    return f"var({_variable(light)})"
