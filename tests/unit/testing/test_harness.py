"""The harness as users meet it: it needs nothing of the real sources and sinks, and refuses names it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import InvalidGraph, InvalidOption
from penstock.testing import At, Harness

EVENT = "k string, at timestamp"


def test_neither_the_input_nor_the_output_of_the_real_pipeline_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-00000001-0000.jsonl").write_text("{}\n")
    pipeline = (
        ps.stream("in", ps.json_files(tmp_path / "missing"))
        .parse_json("k string", on_error="dead_letter")
        .to(ps.files(tmp_path / "out"), dead_letters=ps.files(tmp_path / "out"))
    )
    harness = Harness(pipeline, inputs={"in": [b'{"k": "a"}', b"bad"]})
    harness.run()
    assert harness.rows() == [{"k": "a"}]
    assert [row["operation"] for row in harness.dead_letters()] == ["parse_json"]
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["part-00000001-0000.jsonl"]


def test_late_records_come_after_an_at() -> None:
    counts = ps.stream("in", ps.records(schema=EVENT)).key_by("k").window(ps.tumbling("10s", on="at")).count()
    pipeline = counts.to(ps.memory(), name="counts") + counts.late.to(ps.memory(), name="late")
    harness = Harness(pipeline, inputs={"in": [("a", 1), ("a", 10_000_000), At("1s"), ("a", 2)]})
    harness.run()
    assert [row["count"] for row in harness.rows("counts")] == [1, 1]
    assert harness.rows("late") == [{"k": "a", "at": 2}]
    assert harness.count("count", "late") == 1


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    harness = Harness(ps.stream("in", ps.records([("a", 1)], schema=EVENT)).to(ps.memory(), name="out"))
    harness.run()
    with pytest.raises(InvalidGraph, match=r"no sink 'ouch'.*Sinks: out"):
        harness.rows("ouch")
    with pytest.raises(InvalidGraph, match=r"no operation 'inn'.*Operations: in, out"):
        harness.count("inn", "late")
    with pytest.raises(InvalidOption, match="records_in"):
        harness.count("in", "lates")
    with pytest.raises(InvalidGraph, match="Sources: in"):
        Harness(ps.stream("in", ps.records(schema=EVENT)).to(ps.memory()), inputs={"inn": []})
