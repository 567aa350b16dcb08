"""A page about a burst that needs nothing but itself: picture, table, and every switch with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from penstock.control.changes import ChangeReport
from penstock.dashboard.numbers import human, measure
from penstock.demo import picture
from penstock.demo.burst import TITLES
from penstock.demo.series import Course, Scene
from penstock.demo.table import cells

HTML_NAME, PNG_NAME = "burst.html", "burst.png"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1000px; margin: 2em auto; padding: 0 1em; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .9em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.best { font-weight: 600; color: #0b8457; }
dt { font-weight: 600; margin-top: .8em; } dd { margin: 0 0 0 1.2em; } .inputs { color: #666; font-size: 13px; }
"""


def write(directory: Path, scene: Scene, courses: Sequence[Course], title: str) -> list[Path]:
    """Write the page, and the picture as PNG where Matplotlib is there; return the files, the picture last."""
    html = directory / HTML_NAME
    html.write_text(page(scene, courses, title), encoding="utf-8")
    if not picture.has_matplotlib():
        return [html]
    png = directory / PNG_NAME
    picture.png(scene, courses, png)
    return [html, png]


def page(scene: Scene, courses: Sequence[Course], title: str) -> str:
    """Put the page together."""
    story = (
        f"{human(scene.base_eps)} events/s for {scene.calm_s:g} s, {human(scene.peak_eps)} events/s for "
        f"{scene.burst_s:g} s (shaded), {human(scene.base_eps)} events/s for {scene.rest_s:g} s. "
        "Every run has the same events at the same times. Latency counts from the time an event was due, and tells of "
        "events that were handled: a run that cannot follow is ended some time after its input."
    )
    listed = "".join(_switches(each) for each in courses)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1><p>{escape(story)}</p>{picture.svg(scene, courses)}"
        f"{_table(courses)}<h2>Switches</h2>{listed or '<p>None.</p>'}</body></html>\n"
    )


def _table(courses: Sequence[Course]) -> str:
    heads = "".join(f"<th>{TITLES[each.forms]}</th>" for each in courses)
    rows = "".join(
        f"<tr><td>{escape(title)}</td>"
        + "".join(
            f'<td class="best">{escape(value)}</td>' if at == best else f"<td>{escape(value)}</td>"
            for at, value in enumerate(values)
        )
        + "</tr>"
        for title, values, best in cells([each.figures for each in courses])
    )
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _switches(course: Course) -> str:
    if not course.switches:
        return ""
    return f"<h3>{TITLES[course.forms]}</h3><dl>{''.join(map(_switch, course.switches))}</dl>"


def _switch(switch: ChangeReport) -> str:
    inputs = " · ".join(f"{name} = {value:,.10g}" for name, value in switch.inputs.items())
    cost = (
        f"pause {measure(switch.pause_ms)} ms, {measure(switch.total_ms)} ms in all, "
        f"{switch.carried_records:,} records carried over"
    )
    return (
        f"<dt>{switch.at_s:.2f} s: {escape(', '.join(switch.operations))} to {escape(switch.to)}</dt>"
        f'<dd>{escape(switch.reason)}<br>{cost}<br><span class="inputs">{escape(inputs)}</span></dd>'
    )
