"""Workload files on engines: the input of all sources in order, and the graph in plain Python, judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock_bench.engines import open_engine, subject
from penstock_bench.engines.file_subject import FileSubject
from penstock_bench.engines.spark_queries import SparkFile
from penstock_bench.files.model import Loads
from penstock_bench.files.program import costs
from penstock_bench.foreign.programs.flink_sql import FlinkFile
from penstock_bench.foreign.programs.queries import Counting, query
from penstock_bench.meter.engine import cannot
from penstock_bench.meter.subject import Came

FILES = Path(__file__).parents[3] / "benchmarks" / "workloads"
START_US, EVENT_START_US = 90_000_000, 1_700_000_000_000_000
TWO = {
    "sources": {
        "a": {"key_dist": "uniform", "key_dist_params": {"num_keys": 5}, "rate_dist": "constant"},
        "b": {"key_dist": "zipf", "key_dist_params": {"num_keys": 7, "exponent": 1.1}, "rate_dist": "constant"},
    },
    "transformations": {
        "both": {"operator": "merge", "inputs": ["a", "b"]},
        "more": {"operator": "modify", "input": "both", "params": {"size_ratio": 1.7, "rate_ratio": 2.3}},
        "slid": {"operator": "sliding_window", "input": "more", "params": {"duration": "600ms", "slide": "200ms"}},
        "pairs": {"operator": "join", "inputs": ["a", "slid"], "params": {"ttl": "20ms"}},
        "again": {"operator": "tumbling_window", "input": "pairs", "params": {"duration": "1s"}},
    },
    "sinks": ["again", "slid", "more"],
}
for _name, _rate in (("a", 300), ("b", 170)):
    TWO["sources"][_name] |= {  # type: ignore[index]
        "msg_dist": "uniform",
        "msg_dist_params": {"lower": 3, "upper": 12},
        "rate_dist_params": {"rate": _rate},
    }


def run(path: Path, seconds: float, rate: float | None = None) -> Any:
    """Run a file through the graph in Python, every message at its time, and judge the output."""
    wanted = subject(str(path))
    given = wanted.input(rate, seconds)
    found = query(json.loads(json.dumps(wanted.specification())))
    assert not isinstance(found, Counting)
    rows = []
    for record, time_us in zip(given.replay(EVENT_START_US), given.times_us.tolist(), strict=True):
        rows += [(START_US + time_us, json.loads(row)) for row in found.rows(wanted.line(record))]
    rows += [(START_US + round(seconds * 1e6), json.loads(row)) for row in found.end()]
    assert rows
    return wanted.judge(given, Came(rows, START_US, EVENT_START_US))


@pytest.mark.parametrize("name", ["listing-4.1", "finch-stateless", "finch-window", "finch-pipeline-wide"])
def test_the_files_of_the_repository_are_exact_in_plain_python(name: str) -> None:
    timeline, found = run(FILES / f"{name}.json", 2.0, 1_000.0)
    assert found.exact
    if name in ("listing-4.1", "finch-stateless"):
        assert (timeline.seen_us == timeline.due_us).all()


def test_several_sources_sinks_windows_and_joins(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(TWO))
    _, found = run(path, 3.0)
    assert found.exact


def test_sessions_are_exact_and_refused_by_engines_that_have_others(tmp_path: Path) -> None:
    file = {
        "sources": TWO["sources"],
        "transformations": {
            "both": {"operator": "merge", "inputs": ["a", "b"]},
            "sessions": {"operator": "window", "input": "both", "params": {"type": "session", "duration": "12ms"}},
            "again": {"operator": "tumbling_window", "input": "sessions", "params": {"duration": "1s"}},
        },
        "sinks": ["sessions", "again"],
    }
    path = tmp_path / "sessions.json"
    path.write_text(json.dumps(file))
    _, found = run(path, 3.0)
    assert found.exact
    sessions = subject(str(path))
    assert sessions.stateful == ("session", "window")
    assert cannot(sessions, ("window", "session", "join")) is None
    assert cannot(sessions, ("window", "join")) == "its session of workload files is not built for this engine"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("match", ["all", "once"])
def test_joins_one_behind_another_are_those_of_the_exact_result(tmp_path: Path, seed: int, match: str) -> None:
    file = {
        "seed": seed,
        "sources": TWO["sources"],
        "transformations": {
            "one": {"operator": "join", "inputs": ["a", "b"], "params": {"ttl": "40ms", "match": match}},
            "both": {"operator": "merge", "inputs": ["b", "one"]},
            "two": {"operator": "join", "inputs": ["both", "one"], "params": {"ttl": "25ms", "match": match}},
            "three": {"operator": "join", "inputs": ["both", "a"], "params": {"ttl": "15ms", "match": "all"}},
            "count": {"operator": "sliding_window", "input": "two", "params": {"duration": "90ms", "slide": "30ms"}},
        },
        "sinks": ["one", "two", "three", "count"],
    }
    path = tmp_path / "joins.json"
    path.write_text(json.dumps(file))
    _, found = run(path, 1.0)
    assert found.exact


def test_a_load_costs_the_same_as_in_penstock(tmp_path: Path) -> None:
    path = tmp_path / "costly.json"
    loads = '"p": 0.5, "cpu_load": 0.1, "mem_load": 0.01, "disk_load": 0.5'
    path.write_text((FILES / "finch-stateless.json").read_text().replace('"p": 0.5', loads))
    costly, free = FileSubject(str(path)).specification()["steps"]
    assert "load" not in free
    assert costly["load"] == costs(Loads(cpu_load=0.1, mem_load=0.01, disk_load=0.5), 10_000.0)
    assert costly["load"]["message_s"] == pytest.approx(0.1 / 10_000)
    assert costly["load"]["written_bytes"] == 8 << 10


def test_the_input_of_several_sources_is_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(TWO))
    given = subject(str(path)).input(None, 2.0)
    assert given.total == 940
    assert (given.times_us[1:] >= given.times_us[:-1]).all()
    records = list(given.replay(EVENT_START_US))
    assert [record.time - EVENT_START_US for record in records] == given.times_us.tolist()
    assert given.records(100, 50, EVENT_START_US) == records[100:150]
    assert len({record.id for record in records}) == 940


def test_a_result_that_is_missing_is_lost_and_never_seen() -> None:
    wanted = subject(str(FILES / "finch-stateless.json"))
    timeline, found = wanted.judge(wanted.input(100.0, 1.0), Came([], START_US, EVENT_START_US))
    assert found.lost == len(timeline.due_us) > 20
    assert not len(timeline.latency_us.counts)


def test_engines_say_what_they_cannot_run(tmp_path: Path) -> None:
    window = subject(str(FILES / "finch-window.json"))
    assert open_engine("penstock:record").supports(window) is None
    assert open_engine("plain").supports(window) is None
    for label in ("bytewax", "flink:thread", "flink:process", "flink:sql", "spark:sql"):
        assert open_engine(label).supports(window) is None
    assert "its window of workload files is not built" in str(open_engine("spark:python").supports(window))
    costly = tmp_path / "costly.json"
    costly.write_text((FILES / "finch-stateless.json").read_text().replace('"p": 0.5', '"p": 0.5, "cpu_load": 0.1'))
    for label in ("plain", "bytewax", "flink:thread", "flink:process", "spark:python"):
        assert open_engine(label).supports(subject(str(costly))) is None
    for label in ("flink:sql", "spark:sql", "spark-realtime"):
        assert "cpu_load, mem_load and disk_load (filter1)" in str(open_engine(label).supports(subject(str(costly))))


def test_the_shape_of_a_file_tells_what_an_engine_needs(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(TWO))
    two, wide = FileSubject(str(path)), FileSubject(str(FILES / "finch-pipeline-wide.json"))
    assert (two.stateful, two.nested, two.branches) == (("window", "join"), "pairs", True)
    assert (wide.stateful, wide.nested, wide.branches) == (("join",), "", True)
    assert not FileSubject(str(FILES / "finch-stateless.json")).branches
    every = tmp_path / "every.json"
    every.write_text((FILES / "finch-pipeline-wide.json").read_text().replace('"5s"', '"5s", "match": "all"'))
    assert wide.not_in_sql == "'join1' pairs every message once, which no join of SQL does"
    assert FileSubject(str(every)).not_in_sql is None
    for label in ("spark:sql", "flink:sql"):
        assert "'pairs' has state behind state" in str(open_engine(label).supports(two))
        assert "'join1' pairs every message once" in str(open_engine(label).supports(wide))
        assert open_engine(label).supports(FileSubject(str(every))) is None
    for label in ("plain", "flink:thread", "flink:process", "bytewax"):
        assert [open_engine(label).supports(each) for each in (two, wide)] == [None, None]
    assert "branches" in str(open_engine("spark-realtime").supports(wide))


def test_the_line_that_closes_windows_belongs_to_no_message() -> None:
    wide = FileSubject(str(FILES / "finch-pipeline-wide.json"))
    assert wide.closing(1_000_000) == b"-1\t86401000000\t\t"
    assert FileSubject(str(FILES / "finch-stateless.json")).closing(0) is None


def test_views_in_sql_follow_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(TWO))
    spec = subject(str(path)).specification() | {"end_us": 1}
    flink, spark = FlinkFile(spec), SparkFile(spec, watermark=True)
    views, sinks = flink.views()
    assert [name for name, _ in views] == [f"stream{i}" for i in range(7)]
    assert views[2][1].count("UNION ALL") == 1
    # rate_ratio 2.3: two copies of every message, and a third one of some.
    assert views[3][1].count("UNION ALL") == 2
    assert views[3][1].count("WHERE") == 1
    assert "HOP(TABLE stream3" in views[4][1]
    assert "FROM stream0 l JOIN stream4 r" in views[5][1]
    assert "TUMBLE(TABLE stream5" in views[6][1]
    assert [part.split()[-1] for part in flink.result(sinks).split(" UNION ALL ")] == ["stream6", "stream4", "stream3"]
    theirs, same = spark.views()
    assert same == sinks
    assert "explode(slice(array(" in theirs[3][1]
    assert "window(rt, '600000 microseconds', '200000 microseconds')" in theirs[4][1]
    assert theirs[5][1].replace(spark.interval(21_000), flink.interval(21_000)) == views[5][1]
