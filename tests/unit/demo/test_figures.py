"""Pictures of a burst: every run and every switch is in them, and a page needs nothing from elsewhere."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from penstock.control.changes import ChangeReport
from penstock.demo import burst, page, picture
from penstock.demo.series import BurstFigures, Course, Sample, Scene

SCENE = Scene.of(100.0, 1_000.0, 12.0)
TO_BATCH = ChangeReport(
    at_s=4.5,
    operations=["events", "score"],
    to="batch",
    pause_ms=20.0,
    total_ms=500.0,
    carried_records=7,
    reason="queue 9 > L_up <8>",
    inputs={"V": 1000.0, "K": 0.5},
)
TO_RECORD = ChangeReport(
    at_s=8.0,
    operations=["events", "score"],
    to="record",
    pause_ms=1.0,
    total_ms=0.0,
    carried_records=7,
    reason="backlog 0 < L_down 5",
    inputs={},
)


def course(forms: str, *switches: ChangeReport, seconds: int = 12) -> Course:
    operations = dict.fromkeys(("events", "score", "sink"), "record")
    samples = [
        Sample(at_s, 100.0, 90.0 * at_s, 10 * at_s, 0, 1.0, 0.0 if at_s == 3 else 5.0 * at_s, operations, {})
        for at_s in range(1, seconds + 1)
    ]
    return Course(
        BurstFigures(forms, 1.0, 2.0, 3.0, 4.0, None, 100, 1.5, None, len(switches), 20.0), samples, [*switches]
    )


COURSES = [course("adaptive", TO_BATCH, TO_RECORD), course("record", seconds=20), course("batch")]


def test_forms_over_time_follow_the_switches() -> None:
    events, score, sink = burst.stretches(COURSES[0])
    assert [(each.form, each.from_s, each.to_s) for each in events] == [
        ("record", 0.0, 5.0),
        ("batch", 5.0, 8.0),
        ("record", 8.0, 12.0),
    ]
    assert [each.form for each in score] == ["record", "batch", "record"]
    assert [(each.form, each.to_s) for each in sink] == [("record", 12.0)]


def test_a_run_that_begins_in_batch_form_has_no_record_form_before_it() -> None:
    pinned = ChangeReport(
        at_s=-0.1,
        operations=["events", "score", "sink"],
        to="batch",
        pause_ms=0.0,
        total_ms=50.0,
        carried_records=0,
        reason="pinned",
        inputs={},
    )
    assert [[each.form for each in lane] for lane in burst.stretches(course("batch", pinned))] == [["batch"]] * 3


def test_the_svg_holds_every_run_and_switch() -> None:
    root = ET.fromstring(picture.svg(SCENE, COURSES))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    for expected in ("Rate", "Backlog", "adaptive", "record only", "batch only", "to batch", "to record", "score"):
        assert expected in texts
    lines = [each for each in root.iter("{http://www.w3.org/2000/svg}path") if each.get("fill") == "none"]
    curves = [(each.get("stroke"), each.get("stroke-opacity")) for each in lines if each.get("stroke-width") != "1"]
    strong, faint = ([(colour, opacity) for colour in burst.COLOURS.values()] for opacity in (None, "0.55"))
    assert curves[:6] == strong * 2
    assert sorted(curves[6:], key=str) == sorted(strong + faint, key=str), "latency has its median too"


def test_matplotlib_draws_the_same_words_in_the_same_places() -> None:
    root = ET.fromstring(picture.svg(SCENE, COURSES))
    written = [(each.text or "", float(each.get("x") or 0)) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    (axes,) = picture.figure(SCENE, COURSES).axes
    assert [(each.get_text(), round(each.get_position()[0], 1)) for each in axes.texts] == written
    assert len(axes.lines) == sum(each.get("fill") == "none" for each in root.iter("{http://www.w3.org/2000/svg}path"))


def test_everything_lies_within_the_picture() -> None:
    root = ET.fromstring(picture.svg(SCENE, COURSES))
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path.get("d") or ""):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


@pytest.mark.parametrize("courses", [[], [Course(COURSES[0].figures, [], [])], [course("adaptive", seconds=1)]])
def test_a_run_without_samples_is_drawn_too(courses: list[Course], tmp_path: Path) -> None:
    ET.fromstring(picture.svg(SCENE, courses))
    picture.png(SCENE, courses, tmp_path / "burst.png")


def test_the_page_needs_nothing_from_elsewhere_and_escapes_reasons() -> None:
    text = page.page(SCENE, COURSES, "A <burst>")
    assert "A &lt;burst&gt;" in text
    assert "queue 9 &gt; L_up &lt;8&gt;" in text
    assert "V = 1,000" in text
    assert not re.search(r"(?:src|href)=|url\(", text)


def test_the_picture_is_written_where_matplotlib_is(tmp_path: Path) -> None:
    written = page.write(tmp_path, SCENE, COURSES, "A burst")
    assert [path.name for path in written] == ["burst.html", "burst.png"]
    assert written[1].read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_page_is_written_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert [path.name for path in page.write(tmp_path, SCENE, COURSES, "A burst")] == ["burst.html"]
