"""Workloads: the input is what the benchmark's definition says, and the comparison finds every kind of error."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.connectors.base import Run
from penstock.demo import scoring as model
from penstock.errors import InvalidOption
from penstock.operators import Aggregation, Combine, Errors, Operation
from penstock.types import Record
from penstock_bench.workloads import SERVED, WORKLOADS, Comparison, Workload, lookup, replay, scoring, text, yahoo
from penstock_bench.workloads.base import time_us
from penstock_bench.workloads.text import GREP, NEEDLE

_START_US = 1_700_000_000_000_000
_TOTAL = 3_000
_WINDOW_US = 10_000_000
_ALL = {**WORKLOADS, **SERVED}


def _records(workload: Workload[Any], total: int = _TOTAL) -> list[Record]:
    return workload.source(200, total=total).records(0, total, _START_US)


def _rows(workload: Workload[Any]) -> list[dict[str, Any]]:
    """The right output, written down from the exact result."""
    exact = workload.expected(_records(workload))
    match workload.name:
        case "yahoo":
            return [_window(*group, count) for group, count in sorted(exact.items(), key=lambda item: item[0][1])]
        case "yahoo-updates":
            return [_window(*group, n) for group, count in exact.items() for n in range(1, count + 1)]
        case "wordcount":
            return [{"word": word, "count": n} for word, count in exact.items() for n in range(1, count + 1)]
        case "grep":
            return [{"number": number, "line": line} for number, line in exact.items()]
        case "scoring":
            return [{"number": number, "score": score} for number, score in exact.items()]
        case "lookup":
            return [{"number": number, "segment": segment} for number, segment in exact.items()]
        case _:
            return [{"number": number} for number in exact]


def _window(campaign: str, start_us: int, count: int) -> dict[str, Any]:
    return {
        "campaign_id": campaign,
        "window_start": start_us,
        "window_end": start_us + _WINDOW_US,
        "count": count,
    }


def _compare(workload: Workload[Any], change: Callable[[list[dict[str, Any]]], None]) -> Comparison:
    rows = _rows(workload)
    change(rows)
    return workload.compare(workload.expected(_records(workload)), rows, 1)


@pytest.mark.parametrize("workload", _ALL.values(), ids=_ALL)
def test_right_output_is_exact(workload: Workload[Any]) -> None:
    found = _compare(workload, lambda rows: None)
    assert found == Comparison(0, 0, 0, 0)
    assert found.exact


@pytest.mark.parametrize("workload", _ALL.values(), ids=_ALL)
def test_no_output_is_all_lost(workload: Workload[Any]) -> None:
    records = _records(workload)
    lost = {
        "yahoo": sum(json.loads(r.value)["event_type"] == "view" for r in records) if "yahoo" in workload.name else 0,
        "wordcount": 10 * _TOTAL,
        "grep": sum(NEEDLE in r.line for r in records) if workload is GREP else 0,
    }.get(workload.name.removesuffix("-updates"), _TOTAL)
    assert lost > 0
    assert _compare(workload, list.clear) == Comparison(lost=lost)


@pytest.mark.parametrize("name", ["grep", "scoring", "identity", "lookup"])
def test_numbered_rows(name: str) -> None:
    workload = _ALL[name]
    assert _compare(workload, lambda rows: rows.__delitem__(3)) == Comparison(lost=1)
    assert _compare(workload, lambda rows: rows.insert(4, rows[3])) == Comparison(duplicated=1)
    assert _compare(workload, lambda rows: rows.insert(5, rows.pop(6))) == Comparison(reordered=1)
    assert _compare(workload, lambda rows: rows.append({**rows[0], "number": _TOTAL})) == Comparison(wrong=1)


def test_order_is_kept_within_a_partition_only() -> None:
    workload = WORKLOADS["identity"]
    exact = workload.expected(_records(workload, 6))
    rows = [{"number": n} for n in (1, 3, 0, 2, 5, 4)]
    assert workload.compare(exact, rows, 2).exact
    assert workload.compare(exact, rows, 1) == Comparison(reordered=3)


def test_changed_value_is_wrong_and_its_record_lost() -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        rows[0].update(score=rows[0]["score"] + 1e-6)

    assert _compare(WORKLOADS["scoring"], change) == Comparison(lost=1, wrong=1)
    assert _compare(lookup.LOOKUP, lambda rows: rows[0].update(segment="??")) == Comparison(lost=1, wrong=1)


@pytest.mark.parametrize("by", [-2, 2])
def test_closed_windows_count_records(by: int) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        rows[0]["count"] += by

    assert _compare(yahoo.YAHOO, change) == Comparison(lost=max(-by, 0), duplicated=max(by, 0))


def test_window_that_closes_twice_or_late() -> None:
    first, last = _rows(yahoo.YAHOO)[0], _rows(yahoo.YAHOO)[-1]
    assert first["window_start"] < last["window_start"]
    assert _compare(yahoo.YAHOO, lambda rows: rows.insert(0, first)) == Comparison(duplicated=first["count"])
    assert _compare(yahoo.YAHOO, lambda rows: rows.append(rows.pop(0))) == Comparison(reordered=1)
    assert _compare(yahoo.YAHOO, lambda rows: rows[0].update(window_end=0)) == Comparison(wrong=1)
    stray = {**first, "campaign_id": "none"}
    assert _compare(yahoo.YAHOO, lambda rows: rows.append(stray)) == Comparison(wrong=1)


@pytest.mark.parametrize("workload", [yahoo.YAHOO_UPDATES, text.WORDCOUNT], ids=lambda w: w.name)
def test_running_counts(workload: Workload[Any]) -> None:
    exact = _rows(workload)
    ends = [i for i, row in enumerate(exact[1:]) if row["count"] == 1 and exact[i]["count"] > 2]
    last = ends[0]
    assert _compare(workload, lambda rows: rows.__delitem__(last)) == Comparison(lost=1)
    assert _compare(workload, lambda rows: rows.__delitem__(last - 1)).exact
    assert _compare(workload, lambda rows: rows.insert(last, rows[last])) == Comparison(wrong=1)
    assert _compare(workload, lambda rows: rows.insert(last - 1, rows.pop(last))) == Comparison(reordered=1)
    more = {**exact[last], "count": exact[last]["count"] + 3}
    assert _compare(workload, lambda rows: rows.append(more)) == Comparison(duplicated=3)


def test_windows_are_read_from_files_too() -> None:
    assert time_us("2023-11-14T22:13:20.000000Z") == time_us(_START_US) == _START_US


def test_yahoo_events_follow_the_definition() -> None:
    events = [json.loads(record.value) for record in _records(yahoo.YAHOO)]
    assert all(
        list(event) == ["user_id", "page_id", "ad_id", "ad_type", "event_type", "event_time", "ip_address"]
        for event in events
    )
    assert {event["ad_type"] for event in events} == {"banner", "modal", "sponsored-search", "mail", "mobile"}
    assert {event["event_type"] for event in events} == {"view", "click", "purchase"}
    assert [event["event_time"] for event in events] == [_START_US // 1000 + 5 * i for i in range(_TOTAL)]
    assert {event["ip_address"] for event in events} == {"1.2.3.4"}
    assert set(Counter(yahoo.CAMPAIGN_OF_AD.values()).values()) == {10}
    assert len(yahoo.CAMPAIGN_OF_AD) == 1000


def test_yahoo_result_in_plain_python() -> None:
    counts: Counter[tuple[str, int]] = Counter()
    for record in _records(yahoo.YAHOO):
        event = json.loads(record.value)
        if event["event_type"] == "view":
            window_us = event["event_time"] * 1000 // _WINDOW_US * _WINDOW_US
            counts[yahoo.CAMPAIGN_OF_AD[event["ad_id"]], window_us] += 1
    assert yahoo.expected(iter(_records(yahoo.YAHOO))) == counts


def test_sentences_have_ten_words_and_few_match() -> None:
    assert all(len(record.value.split(" ")) == 10 for record in _records(text.WORDCOUNT))
    assert 10 <= len(GREP.expected(_records(GREP))) <= 60


def test_scores_in_plain_python() -> None:
    exact = scoring.expected(_records(scoring.SCORING, 20))
    for record in _records(scoring.SCORING, 20):
        features = [getattr(record, f"f{i}") / 256 for i in range(8)]
        hidden = [max(sum(f * w for f, w in zip(features, column, strict=True)), 0) for column in model._W1.T]
        logit = sum(h * w for h, w in zip(hidden, model._W2, strict=True))
        assert exact[record.number] == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-12)
    scores = scoring.expected(_records(scoring.SCORING)).values()
    assert min(scores) < 0.1
    assert max(scores) > 0.9


@pytest.mark.parametrize(
    ("workload", "function", "flat"),
    [(scoring.SCORING, model.score, False), (text.WORDCOUNT, text.words, True)],
    ids=["scoring", "wordcount"],
)
def test_forms_of_functions_agree_to_the_bit(workload: Workload[Any], function: Any, flat: bool) -> None:
    records = _records(workload)
    results = [function(record) for record in records]
    made = [value for result in results for value in result] if flat else results
    batch = function.batch_form(workload.source(200).schema.to_batch(records))
    assert function.schema.to_rows(batch) == [function.schema.coerce(value) for value in made]


@pytest.mark.parametrize("workload", _ALL.values(), ids=_ALL)
def test_pipeline_can_be_sent_to_workers(workload: Workload[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lookup.ADDRESS, "127.0.0.1:1")
    graph = workload.pipeline(100, ps.memory(), seconds=1).graph()
    sent = cloudpickle.loads(cloudpickle.dumps(graph))
    assert [node.name for node in sent.nodes] == [node.name for node in graph.nodes]


def test_length_of_the_input() -> None:
    workload = WORKLOADS["identity"]
    assert workload.source(100, seconds=2.5).total == 250
    assert workload.source(ps.rates.steps([("1s", 10), ("1s", 100)]), seconds=2).total == 110
    assert workload.source(100).total is None
    with pytest.raises(InvalidOption, match="seconds"):
        workload.source(100, seconds=1, total=100)
    with pytest.raises(InvalidOption, match="seconds"):
        workload.source(None, seconds=1)


def test_replay_of_a_run_that_was_stopped() -> None:
    source = WORKLOADS["identity"].source(100)
    assert [record.number for record in replay(source, 0, [3, 1, 0])] == [0, 1, 3, 6]
    assert list(replay(source, 0, [0, 0])) == []
    assert [record.number for record in replay(WORKLOADS["identity"].source(1, total=20_000), 0)] == list(range(20_000))
    with pytest.raises(InvalidOption, match="read"):
        list(replay(source, 0))


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_batches_go_through_the_vectorised_forms_and_give_the_same_records(workload: Workload[Any]) -> None:
    source = workload.source(200, total=_TOTAL)
    reader, schema = source.reader(0, 1, _START_US), source.schema
    rows = source.records(0, _TOTAL, _START_US)
    batch = reader.read(Run(0, _TOTAL)).columns
    assert schema.to_rows(batch) == rows
    for node in workload.build(ps.stream("events", source)).to(ps.memory()).graph().nodes:
        if not isinstance(node.body, Operation):
            continue
        operation = Combine(node.body) if isinstance(node.body, Aggregation) else node.body
        operator = operation.build(schema, Errors(node.name))
        done = operator.process_batch(batch)
        assert not done.fallbacks, operation.kind
        rows, batch = operator.process(rows).rows, done.columns
        schema = operation.bind(schema)
        if operation.kind == "map":
            assert [row.score for row in schema.to_rows(batch)] == pytest.approx([row.score for row in rows], rel=1e-12)
        else:
            assert schema.to_rows(batch) == rows
    assert rows
