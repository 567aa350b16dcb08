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


def test_a_switch_is_the_drivers_and_takes_effect_at_once() -> None:
    columns = {"n": ps.fields.sequence()}
    numbers = ps.stream("in", ps.generator(columns, rate=1_000, total=3_000, format="columns", partitions=2))
    harness = Harness(numbers.filter(ps.col("n") >= 0).to(ps.memory()), parallelism=2)

    def forms() -> set[str]:
        harness.advance("100ms")
        return {each.form for worker in harness._cluster.workers for each in worker.figures()}

    harness.advance("500ms")
    assert forms() == {"record"}
    for form in ("batch", "record", "batch"):
        harness.switch(form)
        (view,) = harness._cluster._driver.loop.inspect().values()
        assert bool(view.range) is (form == "batch"), "all workers have been told"
        assert forms() == {form}
    harness.crash(1)
    harness.advance("500ms")
    assert forms() == {"batch"}, "an instance that is built anew hears of it"
    told = [each.to for each in harness._cluster.adaptation.switches]
    assert told == ["batch", "record", "batch"]
    harness.restart()
    assert forms() == {"batch"}
    harness.run()
    harness.assert_rows([{"n": n} for n in range(3_000)])


def test_a_switch_before_the_start_holds_for_the_first_record() -> None:
    rows = [(n,) for n in range(100)]
    harness = Harness(ps.stream("in", ps.records(rows, schema="n bigint")).filter("n >= 0").to(ps.memory()))
    harness.switch("batch")
    harness.run()
    figures = {each.operation: each.form for worker in harness._cluster.workers for each in worker.figures()}
    assert figures["filter"] == "batch"
    harness.assert_rows([{"n": n} for n in range(100)])
