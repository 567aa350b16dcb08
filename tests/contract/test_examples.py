"""Every example and every workload gives its exact result, whatever the parallelism."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.generator import Generator
from penstock.control.scheduler import START_DELAY_US
from penstock.testing import Harness
from penstock_bench.workloads import WORKLOADS, Comparison, replay

_EXAMPLES = Path(__file__).parents[2] / "examples"
_START_US = 1_700_000_005_000_000
_SECOND_US = 1_000_000
_SERVED = {"cdc_to_redis", "kafka_to_kafka"}
"""Those that start servers; `test_kafka.py` and `test_served_examples.py` run them."""


def _load(name: str) -> ModuleType:
    spec = spec_from_file_location(f"example_{name}", _EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _source(pipeline: ps.Pipeline) -> tuple[str, Generator]:
    (node,) = (node for node in pipeline.graph().nodes if isinstance(node.body, Generator))
    assert isinstance(node.body, Generator)
    return node.name, node.body


def _run(pipeline: ps.Pipeline, total: int, parallelism: int) -> tuple[list[Any], Harness]:
    """Run an example on the first records of its own source, which has no end."""
    name, source = _source(pipeline)
    assert source.total is None
    rows = source.records(0, total, _START_US)
    script = ps.records(rows, schema=source.schema, partitions=parallelism)
    harness = Harness(pipeline, inputs={name: script}, parallelism=parallelism)
    harness.run()
    return rows, harness


def _multiset(rows: Iterable[dict[str, object]]) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def test_every_example_is_tested() -> None:
    assert {path.stem for path in _EXAMPLES.glob("*.py")} - _SERVED == {
        "attribution",
        "fraud",
        "grep",
        "live_page",
        "rates",
        "scoring",
        "wordcount",
        "yahoo_ads",
    }


@pytest.mark.parametrize("name", [path.stem for path in sorted(_EXAMPLES.glob("*.py")) if path.stem not in _SERVED])
def test_example_has_a_pipeline_to_run_and_10_to_60_lines(name: str) -> None:
    pipelines = [value for value in vars(_load(name)).values() if isinstance(value, ps.Pipeline)]
    assert len(pipelines) == 1
    lines = (_EXAMPLES / f"{name}.py").read_text().splitlines()
    assert 10 <= len(lines) <= 60
    assert lines[-2] == 'if __name__ == "__main__":'
    assert lines[-1].startswith("    ps.run(")


def test_live_page() -> None:
    rows, harness = _run(_load("live_page").shown, 300, 1)
    counts = Counter((row.page, row.at // (5 * _SECOND_US)) for row in rows)
    shown = {(row["page"], row["window_start"] // (5 * _SECOND_US)): row["count"] for row in harness.rows()}
    assert shown == counts


@pytest.mark.parametrize("parallelism", [1, 2])
def test_wordcount(parallelism: int) -> None:
    rows, harness = _run(_load("wordcount").counts, 300, parallelism)
    expected = Counter(word for row in rows for word in row.value.split())
    counts: dict[object, list[int]] = {}
    for row in harness.rows():
        counts.setdefault(row["word"], []).append(row["count"])  # type: ignore[arg-type]
    assert {word: seen[-1] for word, seen in counts.items()} == expected
    assert all(seen == sorted(set(seen)) for seen in counts.values())


@pytest.mark.parametrize("parallelism", [1, 2])
def test_grep(parallelism: int) -> None:
    rows, harness = _run(_load("grep").errors, 20_000, parallelism)
    expected = [
        (row.number, row.level, row.service, row.message)
        for row in rows
        if row.level == "ERROR" and {"timeout", "refused"} & set(row.message.split())
    ]
    assert 0 < len(expected) < 40
    got = harness.rows()
    assert _multiset(got) == Counter(expected)
    for partition in range(parallelism):
        numbers = [row["number"] for row in got if row["number"] % parallelism == partition]  # type: ignore[operator]
        assert numbers == sorted(numbers)


def _views(example: ModuleType, rows: list[Any]) -> Counter[tuple[object, ...]]:
    """Recompute the rows of the Yahoo example: campaign, window, count."""
    counts: Counter[tuple[str, int]] = Counter()
    for row in rows:
        event = json.loads(row.value)
        if event["event_type"] == "view":
            window_us = event["event_time"] // 10_000 * 10 * _SECOND_US
            counts[example.CAMPAIGN_OF_AD[event["ad_id"]], window_us] += 1
    return Counter(
        (campaign, window_us, window_us + 10 * _SECOND_US, count) for (campaign, window_us), count in counts.items()
    )


@pytest.mark.parametrize("parallelism", [1, 2])
def test_yahoo_ads(parallelism: int) -> None:
    example = _load("yahoo_ads")
    # Eleven seconds, which begin amid a window; the harness reads them all at once.
    rows, harness = _run(example.views, 44_000, parallelism)
    expected = _views(example, rows)
    assert len({window_us for _, window_us, _, _ in expected}) == 2
    assert _multiset(harness.rows()) == expected
    assert harness.count("count", "late") == 0


@pytest.mark.parametrize("parallelism", [1, 2])
def test_scoring(parallelism: int) -> None:
    example = _load("scoring")
    rows, harness = _run(example.pipeline, 2_000, parallelism)
    fraud: dict[int, float] = {}
    passed: dict[int, list[float]] = {}
    for row in rows:
        logit = 0.004 * row.amount + 0.8 * row.attempts + 0.002 * row.distance_km - 6.0
        if logit >= 0:
            fraud[row.payment] = 1 / (1 + math.exp(-logit))
        else:
            passed.setdefault(row.time // _SECOND_US * _SECOND_US, []).append(row.amount)
    assert 50 < len(fraud) < 1_950
    got = harness.rows("fraud")
    assert Counter(row["payment"] for row in got) == Counter(fraud.keys())
    by_payment = {row.payment: row for row in rows}
    for row in got:
        source = by_payment[row["payment"]]
        assert (row["time"], row["amount"]) == (source.time, source.amount)
        assert row["fraud"] == pytest.approx(fraud[source.payment], rel=1e-12)
    sums = harness.rows("passed")
    assert Counter((row["window_start"], row["payments"]) for row in sums) == Counter(
        (start_us, len(amounts)) for start_us, amounts in passed.items()
    )
    for row in sums:
        assert row["window_end"] == row["window_start"] + _SECOND_US  # type: ignore[operator]
        assert row["turnover"] == pytest.approx(math.fsum(passed[row["window_start"]]), rel=1e-12)  # type: ignore[index]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_attribution(parallelism: int) -> None:
    example = _load("attribution")
    rows = {
        "views": example.views.records(0, 8_000, _START_US),
        "clicks": example.clicks.records(0, 800, _START_US),
    }
    inputs = {
        name: ps.records(each, schema=getattr(example, name).schema, partitions=parallelism)
        for name, each in rows.items()
    }
    harness = Harness(example.attributed, inputs=inputs, parallelism=parallelism)
    harness.run()
    counts: Counter[tuple[str, int]] = Counter()
    for click in rows["clicks"]:
        pairs = sum(
            (view.user, view.ad) == (click.user, click.ad) and 0 <= click.clicked - view.viewed <= 5 * _SECOND_US
            for view in rows["views"]
        )
        newest_us = click.clicked // (2 * _SECOND_US) * 2 * _SECOND_US
        if pairs:
            for start_us in range(newest_us - 8 * _SECOND_US, newest_us + 1, 2 * _SECOND_US):
                counts[click.ad, start_us] += pairs
    assert sum(counts.values()) > 5 * 800
    assert _multiset(harness.rows()) == Counter(
        (ad, start_us, start_us + 10 * _SECOND_US, count) for (ad, start_us), count in counts.items()
    )
    assert harness.count("join", "late") == harness.count("count", "late") == 0


def test_scoring_batch_form_agrees() -> None:
    example = _load("scoring")
    rows = example.payments.records(0, 500, _START_US)
    batch = example.score_batch(example.payments.schema.to_batch(rows))
    assert batch.schema.names == list(example.score.schema.names)
    got = example.score.schema.to_rows(batch)
    for row, scored in zip(rows, got, strict=True):
        payment, time_us, amount, fraud = example.score(row)
        assert (scored.payment, scored.time, scored.amount) == (payment, time_us, amount)
        assert scored.fraud == pytest.approx(fraud, rel=1e-12)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_endless_example_ends_when_drained(parallelism: int) -> None:
    """As `penstock run --for` or Ctrl-C end it: what was read is what is counted."""
    example = _load("yahoo_ads")
    harness = Harness(example.views, parallelism=parallelism)
    start_us = harness.now_us + START_DELAY_US
    harness.advance("2s")
    assert not harness.ended
    harness.drain()
    assert harness.ended
    read = harness.count("ad-events", "records_out")
    assert read == example.events.schedule.due(2 * _SECOND_US - START_DELAY_US)
    assert _multiset(harness.rows()) == _views(example, example.events.records(0, read, start_us))


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("name", WORKLOADS)
def test_workload(name: str, parallelism: int) -> None:
    workload = WORKLOADS[name]
    harness = Harness(workload.pipeline(200, ps.memory(), seconds=12, partitions=parallelism), parallelism=parallelism)
    start_us = harness.now_us + START_DELAY_US
    harness.run()
    expected = workload.expected(replay(workload.source(200, total=2_400), start_us))
    assert expected
    assert workload.compare(expected, harness.rows(), parallelism) == Comparison()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_fraud(parallelism: int) -> None:
    rows, harness = _run(_load("fraud").pipeline, 400, parallelism)
    silent, alerts = [], []
    held: dict[str, tuple[int, float, int]] = {}
    for row in sorted(rows, key=lambda each: (each.at, each.card, each.amount)):
        for card, (count, total, last) in sorted(held.items(), key=lambda each: each[1][2]):
            if last + 5 * _SECOND_US <= row.at:
                silent.append((card, count, total))
                del held[card]
        count, total, _ = held.get(row.card, (0, 0.0, 0))
        if count >= 3 and row.amount > 3 * total / count:
            alerts.append((row.card, row.amount, total / count))
        held[row.card] = count + 1, total + row.amount, row.at
    silent += [(card, count, total) for card, (count, total, _) in held.items()]
    assert _multiset(harness.rows("silent")) == Counter(silent)
    assert _multiset(harness.rows("alerts")) == Counter(alerts)
    assert alerts


def test_rates() -> None:
    example = _load("rates")
    rows, harness = _run(example.pipeline, 200, 1)
    expected = [(row.id, row.currency, row.amount * example.RATES[row.currency]) for row in rows]
    assert [tuple(row.values()) for row in harness.rows()] == expected
