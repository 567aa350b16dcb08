"""Workload files at work: the output of a whole job is exactly what plain Python computes from the same input."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.testing import Harness
from penstock_bench.files import FileWorkload, Own, file_workload
from penstock_bench.workloads import Comparison, replay

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "benchmarks" / "workloads").glob("*.json"))
SECONDS = 7.0
SOURCE: dict[str, Any] = {
    "key_dist": "zipf",
    "key_dist_params": {"num_keys": 8, "exponent": 1.1},
    "msg_dist": "uniform",
    "msg_dist_params": {"lower": 0, "upper": 40},
    "rate_dist": "constant",
    "rate_dist_params": {"rate": 150},
}
FULL = {
    "seed": 5,
    "sources": {
        "s1": SOURCE,
        "s2": {**SOURCE, "rate_dist": "uniform", "rate_dist_params": {"lower": 20, "upper": 90}},
    },
    "transformations": {
        "thin": {"operator": "filter", "input": "s1", "params": {"p": 0.3, "cpu_load": 0.01, "mem_load": 0.01}},
        "copies": {"operator": "split", "input": "thin", "params": {"n": 3, "ratio": 0.7, "disk_load": 0.01}},
        "more": {"operator": "modify", "input": "copies__1", "params": {"rate_ratio": 2.4, "size_ratio": 1.3}},
        "less": {"operator": "modify", "input": "copies__2", "params": {"rate_ratio": 0.2}},
        "all": {"operator": "merge", "inputs": ["more", "less", "s2"], "params": {"cpu_load": 0.01}},
        "again": {"operator": "filter", "input": "all", "params": {"p": 0.5}},
        "tumbling": {"operator": "window", "input": "again", "params": {"duration": "700ms"}},
        "sliding": {"operator": "sliding_window", "input": "all", "params": {"duration": "2s", "slide": "750ms"}},
        "sessions": {"operator": "window", "input": "again", "params": {"type": "session", "duration": "40ms"}},
        "per-session": {"operator": "tumbling_window", "input": "sessions", "params": {"duration": "1s"}},
        "pairs": {"operator": "join", "inputs": ["less", "sliding"], "params": {"ttl": "300ms"}},
        "pairs-of-pairs": {"operator": "join", "inputs": ["pairs", "s2"], "params": {"ttl": "50ms"}},
        "all-pairs": {"operator": "join", "inputs": ["again", "s2"], "params": {"ttl": "50ms", "match": "all"}},
        "once-of-all": {"operator": "join", "inputs": ["s2", "all-pairs"], "params": {"ttl": "80ms"}},
        "per-pair": {"operator": "tumbling_window", "input": "pairs", "params": {"duration": "1s"}},
        "per-all": {"operator": "tumbling_window", "input": "once-of-all", "params": {"duration": "1s"}},
        "late-filter": {"operator": "filter", "input": "per-pair", "params": {"p": 0.1}},
    },
    "sinks": [
        *("again", "tumbling", "sliding", "copies__3", "pairs", "pairs-of-pairs", "all-pairs"),
        *("once-of-all", "per-all", "late-filter", "s2", "sessions", "per-session"),
    ],
}


def run(workload: FileWorkload, rate: float | Own, parallelism: int) -> tuple[Any, list[dict[str, Any]]]:
    harness = Harness(workload.pipeline(rate, ps.memory(), seconds=SECONDS), parallelism=parallelism)
    harness.run()
    exact = workload.expected(replay(workload.source(rate, seconds=SECONDS), harness.start_us))
    return exact, harness.rows()


@pytest.fixture
def full(tmp_path: Path) -> FileWorkload:
    path = tmp_path / "full.json"
    path.write_text(json.dumps(FULL))
    return file_workload(path)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_published_workloads_are_exact(path: Path, parallelism: int) -> None:
    workload = file_workload(path)
    exact, rows = run(workload, 120, parallelism)
    assert len(rows) == exact.results.total() > 50
    assert workload.compare(exact, rows, parallelism) == Comparison()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_all_transformations_together_are_exact(full: FileWorkload, parallelism: int) -> None:
    exact, rows = run(full, Own.FILE, parallelism)
    assert set(Counter(row["sink"] for row in rows)) == set(full.description.layout.sinks)
    assert full.compare(exact, rows, parallelism) == Comparison()


PAUSING = {
    **SOURCE,
    "rate_dist": "steps",
    "rate_dist_params": {"steps": [{"duration": d, "rate": rate} for d, rate in (("1s", 40), ("5s", 0), ("1s", 40))]},
}
SHAPES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a source that is the result": ({}, ["s1"]),
    "a stream joined with itself": (
        {"j": {"operator": "join", "inputs": ["s1", "s1"], "params": {"ttl": "50ms"}}},
        ["j"],
    ),
    "all pairs of a stream joined with itself": (
        {"j": {"operator": "join", "inputs": ["s1", "s1"], "params": {"ttl": "50ms", "match": "all"}}},
        ["j"],
    ),
    "a stream merged with itself": ({"m": {"operator": "merge", "inputs": ["s1", "s1"]}}, ["m"]),
    "names like those of the parts": (
        {
            "sinks": {"operator": "filter", "input": "s1", "params": {"cpu_load": 0.01}},
            "to_memory": {"operator": "split", "input": "sinks", "params": {"n": 1}, "outputs": ["load"]},
        },
        ["load", "sinks"],
    ),
    "a window over one source that pauses": (
        {
            "m": {"operator": "merge", "inputs": ["s1", "s2"]},
            "w": {"operator": "window", "input": "m", "params": {"duration": "200ms"}},
            "of windows": {"operator": "window", "input": "w", "params": {"duration": "1s"}},
        },
        ["w", "of windows"],
    ),
    "a join with a source that pauses": (
        {"j": {"operator": "join", "inputs": ["s1", "s2"], "params": {"ttl": "200ms"}}},
        ["j"],
    ),
    "all pairs of a join with a source that pauses": (
        {"j": {"operator": "join", "inputs": ["s1", "s2"], "params": {"ttl": "200ms", "match": "all"}}},
        ["j"],
    ),
    "joins of messages that come at the same time": (
        {
            "more": {"operator": "modify", "input": "s1", "params": {"rate_ratio": 2.5}},
            "j": {"operator": "join", "inputs": ["more", "s1"], "params": {"ttl": "100ms"}},
            "w": {"operator": "window", "input": "j", "params": {"duration": "200ms"}},
            "jj": {"operator": "join", "inputs": ["j", "more"], "params": {"ttl": "100ms"}},
        },
        ["j", "w", "jj"],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_that_are_easily_wrong_are_exact(tmp_path: Path, shape: str) -> None:
    transformations, sinks = SHAPES[shape]
    path = tmp_path / "shape.json"
    sources = {"s1": SOURCE, "s2": PAUSING}
    path.write_text(json.dumps({"sources": sources, "transformations": transformations, "sinks": sinks}))
    workload = file_workload(path)
    exact, rows = run(workload, Own.FILE, 2)
    assert rows
    assert workload.compare(exact, rows, 2) == Comparison()


def test_filters_drop_by_their_own_chance(tmp_path: Path) -> None:
    """Two filters of a half leave a quarter, in any order: their draws have nothing to do with each other."""
    path = tmp_path / "filters.json"
    steps = {
        f"f{i}": {"operator": "filter", "input": f"f{i - 1}" if i else "s1", "params": {"p": 0.5}} for i in range(4)
    }
    path.write_text(json.dumps({"sources": {"s1": SOURCE}, "transformations": steps, "sinks": [*steps]}))
    workload = file_workload(path)
    total = 40_000
    exact = workload.expected(replay(workload.source(total=total), 0))
    for i in range(4):
        kept = sum(count for (sink, *_), count in exact.results.items() if sink == f"f{i}")
        assert kept / total == pytest.approx(0.5 ** (i + 1), rel=0.05)


def test_the_exact_pairs_of_messages_that_are_used_up(tmp_path: Path) -> None:
    """By hand: left and right in the order of time, left first, then by value and id."""
    path = tmp_path / "join.json"
    step = {"operator": "join", "inputs": ["s1", "s2"], "params": {"ttl": "10us"}}
    path.write_text(
        json.dumps({"sources": {"s1": SOURCE, "s2": SOURCE}, "transformations": {"j": step}, "sinks": ["j"]})
    )
    workload = file_workload(path)
    message = workload.source().schema.record_type
    # Even ids are of s1, the left side.
    rows = [(0, "c", 5), (2, "b", 5), (4, "d", 40), (6, "x", 60), (1, "q", 5), (3, "p", 4), (5, "r", 51), (7, "s", 52)]
    rows += [(9, "y", 50), (11, "y", 50)]
    exact = workload.expected(message("key0", value, time_us, id) for id, value, time_us in rows)
    pairs = sorted((time_us, value) for _, _, value, time_us, _ in exact.results)
    assert pairs == [(5, "bp"), (5, "cq"), (50, "dy"), (60, "xy")]


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("finch-stateless", lambda rows: rows.pop(7), Comparison(lost=1)),
        ("finch-stateless", lambda rows: rows.append(rows[-1]), Comparison(duplicated=1)),
        ("finch-stateless", lambda rows: rows.insert(3, rows.pop(2)), Comparison(reordered=1)),
        ("finch-stateless", lambda rows: rows[4].update(value="x"), Comparison(lost=1, wrong=1)),
        ("finch-window", lambda rows: rows[4].update(value="99999"), Comparison(lost=1, wrong=1)),
        ("finch-window", lambda rows: rows.append(rows.pop(0)), Comparison(reordered=1)),
        ("finch-pipeline", lambda rows: rows.pop(), Comparison(lost=1)),
        ("finch-pipeline", lambda rows: rows.append(rows[0]), Comparison(duplicated=1)),
    ],
)
def test_the_comparison_finds_what_is_wrong(name: str, change: Any, found: Comparison) -> None:
    workload = file_workload(ROOT / "benchmarks" / "workloads" / f"{name}.json")
    exact, rows = run(workload, 120, 1)
    change(rows)
    assert workload.compare(exact, rows, 1) == found


def test_times_of_the_files_sink_are_understood() -> None:
    workload = file_workload(ROOT / "benchmarks" / "workloads" / "listing-4.1.json")
    exact = workload.expected(replay(workload.source(100, total=20), 1_700_000_000_000_000))
    rows = [
        {"key": key, "value": value, "time": f"2023-11-14T22:13:{20 + us % 10**9 / 1e6:09.6f}Z", "id": id}
        for _, key, value, us, id in exact.results
    ]
    assert rows
    assert workload.compare(exact, rows, 1) == Comparison()


def test_a_pipeline_can_be_sent_to_workers(full: FileWorkload) -> None:
    for node in full.pipeline(Own.FILE, ps.memory()).nodes():
        assert cloudpickle.loads(cloudpickle.dumps(node.body)) is not None or node.body is None


def test_a_workload_of_one_source_is_built_on_any_stream_of_messages() -> None:
    workload = file_workload(ROOT / "benchmarks" / "workloads" / "listing-4.1.json")
    rows = [{"key": "key1", "value": "abcdefgh", "time": 5, "id": id} for id in range(40)]
    messages = ps.stream("given", ps.records(rows, schema=workload.source().schema))
    kept = ps.testing.collect(workload.build(messages))
    assert 10 < len(kept) < 30
    assert {(row["key"], row["value"]) for row in kept} == {("key1", "abcd")}
