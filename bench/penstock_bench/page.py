"""Puts the report together: one HTML page that needs nothing but itself, and the figures as PNG files beside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.errors import InvalidOption, PenstockError
from penstock_bench.meter.rows import Results
from penstock_bench.report import tables, theme
from penstock_bench.report.chart import Figure
from penstock_bench.report.draw import render
from penstock_bench.report.general import figures as general_figures
from penstock_bench.report.losses import losses
from penstock_bench.studies import STUDIES
from penstock_bench.studies.base import Study

FILES_MAX = 200
SKIPPED_SHOWN_MAX = 10
MAKE_SOME = "`penstock bench run`, `search` and `compare` write some with --json DIR/NAME.json, so does every study."


class NothingToReport(PenstockError):
    """There are no results where some were looked for."""

    code = "NOTHING_TO_REPORT"


class Loaded(NamedTuple):
    """A file of results; ``slug`` is its name in file names and anchors."""

    slug: str
    path: Path
    results: Results

    @property
    def study(self) -> Study | None:
        """The study that measured it, where that is known here."""
        return STUDIES.get(self.results.study.name) if self.results.study is not None else None

    @property
    def title(self) -> str:
        """What it is about."""
        return f"Benchmarks: {self.slug}" if self.results.study is None else self.results.study.title


def load(directory: Path) -> tuple[list[Loaded], list[str]]:
    """Read every file of results in a directory and below it; also tells which JSON files were something else."""
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise NothingToReport(f"'{directory}' {what}.", hint=f"Give the directory that holds results. {MAKE_SOME}")
    found, skipped = list[Loaded](), list[str]()
    for path in sorted(directory.rglob("*.json"))[:FILES_MAX]:
        try:
            found.append(Loaded(path.stem, path, msgspec.json.decode(path.read_bytes(), type=Results)))
        except msgspec.DecodeError as error:
            skipped.append(f"{path.relative_to(directory)}: {error}")
    if not found:
        why = "".join(f"\n  {each}" for each in skipped[:SKIPPED_SHOWN_MAX])
        raise NothingToReport(
            f"'{directory}' has no results: {'none of its JSON files is one' if skipped else 'no JSON file'}.{why}",
            hint="" if skipped else MAKE_SOME,
        )
    return found, skipped


HTML_NAME = "report.html"
FIGURES_NAME = "figures"
_STYLE = f"""
{theme.css_variables()}
body {{ font: 15px/1.55 system-ui, sans-serif; color: {theme.css(theme.INK)}; background: {theme.css(theme.PAPER)};
  max-width: 1080px; margin: 2em auto; padding: 0 1.2em; }}
h1 {{ font-size: 1.7em; margin-bottom: .2em; }} h2 {{ margin-top: 2.4em; padding-top: .6em;
  border-top: 1px solid {theme.css(theme.GRID)}; }} h3 {{ margin: 1.6em 0 .4em; font-size: 1.05em; }}
a {{ color: inherit; }} nav a {{ margin-right: 1em; }} figure {{ margin: 1.4em 0; }}
figcaption, .muted, summary {{ color: {theme.css(theme.MUTED)}; font-size: 13px; }}
svg {{ width: 100%; height: auto; }} .small svg {{ max-width: 680px; }} .mid svg {{ max-width: 860px; }}
.wide {{ overflow-x: auto; }} table {{ border-collapse: collapse; margin: .8em 0; font-size: 13.5px;
  font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3em .8em .3em 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid {theme.css(theme.GRID)}; }}
th {{ font-weight: 600; }} th.n, td.n {{ text-align: right; padding: .3em .5em; white-space: nowrap; }}
.good {{ color: {theme.css(theme.GOOD)}; }} .bad {{ color: {theme.css(theme.BAD)}; font-weight: 600; }}
.flag {{ border-left: 3px solid {theme.css(theme.BAD)}; padding: .1em .8em; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .1em 1.2em; font-size: 13.5px; }}
dt {{ font-weight: 600; }} dd {{ margin: 0; overflow-wrap: anywhere; }} details {{ margin: .6em 0; }}
"""


def make_directory(path: Path, given: Path) -> Path:
    """Make a directory in the one that ``--out`` names, or that one."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption(option="--out", given=str(given), allowed=f"a directory ({error.strerror})") from None
    return path


def write(directory: Path, out: Path) -> tuple[Path, list[Path], list[str]]:
    """Report on the results in a directory; returns the page, the figures, and files that were left out."""
    loaded, skipped = load(directory)
    loaded.sort(key=lambda each: (list(STUDIES).index(each.study.name) if each.study is not None else -1, each.slug))
    drawn = make_directory(out / FIGURES_NAME, out)
    written, parts = list[Path](), list[str]()
    for each in loaded:
        try:
            found, told = figures_of(each), _study_tables(each)
        except msgspec.ValidationError as error:
            skipped.append(f"{each.path.name}: its study is of another version, only its rows are shown ({error})")
            found, told = general_figures(each.results, each.slug), ""
        pngs = [drawn / f"{figure.slug}.png" for figure in found]
        shown = [_figure(figure, render(figure, png)) for figure, png in zip(found, pngs, strict=True)]
        written += pngs
        parts.append(_section(each, "".join(shown), told))
    page = out / HTML_NAME
    page.write_text(_page(loaded, parts, skipped), encoding="utf-8")
    return page, written, skipped


def figures_of(loaded: Loaded) -> list[Figure]:
    """The figures of a file: those of its study, or what its rows are enough for."""
    study = loaded.study
    return study.figures(loaded.results) if study is not None else general_figures(loaded.results, loaded.slug)


def _study_tables(loaded: Loaded) -> str:
    return "".join(
        f"<h3>{escape(title)}</h3>{tables.table(heads, ([escape(cell) for cell in line] for line in lines))}"
        for title, heads, lines in (loaded.study.tables(loaded.results) if loaded.study is not None else ())
    )


def _page(loaded: Sequence[Loaded], parts: Sequence[str], skipped: Sequence[str]) -> str:
    header = loaded[0].results.header
    found = [loss for each in loaded for loss in losses(each.results)]
    links = "".join(f'<a href="#{escape(each.slug)}">{escape(each.title)}</a>' for each in loaded)
    left_out = f"<h3>Left out</h3><ul>{tables.items(skipped)}</ul>" if skipped else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock: measurements</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f"<style>{_STYLE}</style></head><body><h1>Penstock: measurements</h1>"
        f'<p class="muted">{escape(header.machine)}, {header.cores} cores, {header.memory_gb:g} GB; Penstock '
        f"{escape(header.penstock)}, Spark {escape(header.spark)}, Python {escape(header.python)}. Latency counts from "
        "the time at which an event was due. Ratios inside one run mean more than figures across machines.</p>"
        f'<nav>{links}<a href="#losses">Where we lose</a></nav>{"".join(parts)}'
        f'<h2 id="losses">Where we lose</h2>{tables.losses(found)}{left_out}</body></html>\n'
    )


def _section(loaded: Loaded, figures: str, told: str) -> str:
    results, study = loaded.results, loaded.results.study
    parts = [f'<h2 id="{escape(loaded.slug)}">{escape(loaded.title)}</h2>']
    if study is not None:
        parts.append(f"<p>{escape(study.method)}</p>")
        if study.quick:
            parts.append('<p class="flag">A trial of a few seconds: the figures mean nothing.</p>')
        if not study.complete:
            parts.append('<p class="flag">Interrupted: this is what there was.</p>')
        parts.append(tables.claims(study.claims))
    parts.append(figures)
    if components := tables.components(results.rows):
        opened = " open" if study is None or study.name == "components" else ""
        parts.append(f"<details{opened}><summary>Components of latency</summary>{components}</details>")
    parts.append(told)
    if results.checks:
        parts.append(f"<h3>Figures with a target</h3>{tables.checks(results.checks)}")
    if results.rows:
        parts.append(
            f"<details><summary>Every measurement ({len(results.rows)} runs)</summary>"
            f"{tables.measurements(results.rows)}<ul class=muted>{tables.notes(results.rows)}</ul></details>"
        )
    header = tables.header(results.header, results.rows)
    return "".join([*parts, f"<details><summary>Machine, versions, settings</summary>{header}</details>"])


def _figure(figure: Figure, svg: str) -> str:
    count = min(len(figure.panels), figure.columns)
    size = "" if figure.burst is not None or count > 2 else "small" if count < 2 else "mid"
    return (
        f'<figure class="{size}"><h3>{escape(figure.title)}</h3>{svg}'
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )
