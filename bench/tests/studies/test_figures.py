"""Every study's figures are drawn, and its page holds claims, figures and tables; nothing comes from a network."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from penstock_bench.meter.rows import Results
from penstock_bench.page import HTML_NAME, write
from penstock_bench.studies import STUDIES

Made = Callable[[str], Results]
RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
PNG = b"\x89PNG\r\n\x1a\n"


def test_one_page_holds_all_studies_in_their_order(made: Made, tmp_path: Path) -> None:
    for name in reversed(STUDIES):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(made(name)))
    page, figures, skipped = write(tmp_path, tmp_path / "out")
    text = page.read_text()
    assert page.name == HTML_NAME
    assert not skipped
    assert {path.parent.name for path in figures} == {"figures"}
    assert len(set(figures)) == len(figures)
    assert all(path.read_bytes().startswith(PNG) for path in figures)
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        ElementTree.fromstring(svg)
        assert "var(--c24292f)" in svg
        assert not re.search(r"#(24292f|57606a|d8dee4)", svg), "a colour that does not follow the page"
    places = [text.index(f'<h2 id="{name}">') for name in STUDIES]
    assert places == sorted(places)
    assert text.count("<svg") == len(figures)
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for used in re.findall(r'(?:href="|url\()#([^")]+)', text):
        assert used in ids
    assert not re.search(r'(src|href)="(https?:)?//', text.replace("http://www.w3.org", ""))
    assert "prefers-color-scheme:dark" in text


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_figures_of_its_own(name: str, made: Made) -> None:
    figures = STUDIES[name].figures(made(name))
    assert figures
    assert len({figure.slug for figure in figures}) == len(figures)


def test_a_study_of_another_version_is_shown_by_its_rows(made: Made, tmp_path: Path) -> None:
    results = made("scale")
    assert results.study is not None
    results.study.name, results.study.data = "failure", {"outcomes": {"windowed": {"workers": 4}}}
    (tmp_path / "old.json").write_bytes(msgspec.json.encode(results))
    page, figures, skipped = write(tmp_path, tmp_path / "out")
    assert figures
    assert skipped[0].startswith("old.json: its study is of another version")
    assert "Every measurement" in page.read_text()


def test_a_trial_and_an_interrupted_study_are_marked(made: Made, tmp_path: Path) -> None:
    results = made("scale")
    assert results.study is not None
    results.study.quick, results.study.complete = True, False
    (tmp_path / "scale.json").write_bytes(msgspec.json.encode(results))
    text = write(tmp_path, tmp_path / "out")[0].read_text()
    assert "the figures mean nothing" in text
    assert "Interrupted" in text


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: path.stem)
def test_results_in_the_repository_fit_their_study(path: Path) -> None:
    results = msgspec.json.decode(path.read_bytes(), type=Results)
    if results.study is not None:
        assert results.study.complete
        assert not results.study.quick
        assert STUDIES[results.study.name].figures(results)
