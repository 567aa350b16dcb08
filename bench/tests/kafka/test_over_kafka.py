"""Engines over Kafka: what the outside reader makes of results, when an engine is up, and a whole run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.testing.kafka_broker import missing
from penstock_bench.engines.feeder import Lines
from penstock_bench.engines.inputs import prepare
from penstock_bench.engines.launch import Launch
from penstock_bench.kafka import engines
from penstock_bench.kafka.engines import ENGINES, open_kafka_engine
from penstock_bench.kafka.feeder import Topic
from penstock_bench.kafka.run import PARTITIONS, OverKafka, Place
from penstock_bench.kafka.watcher import Progress, reads
from penstock_bench.meter.engine import RunOptions
from penstock_bench.meter.errors import UnknownEngine, UnknownWorkload
from penstock_bench.meter.rows import Results
from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD

START_US = 1_700_000_000_000_000
COLUMNS = ("campaign_id", "window_start", "count")


def test_results_are_read_whichever_way_an_engine_writes_them() -> None:
    read = reads(COLUMNS)
    row = ["c", START_US, 7]
    assert read(b'["c",1700000000000000,7]') == row
    assert read(b'{"count":7,"campaign_id":"c","window_start":1700000000000000,"more":1}') == row
    assert read(b'{"campaign_id":"c","window_start":"2023-11-14T22:13:20.000000Z","window_end":0,"count":7}') == row


def test_an_engine_is_up_when_every_probe_is_through_and_done_when_all_is_out() -> None:
    _, groups = OverKafka("yahoo").probes(START_US)
    progress = Progress(COLUMNS, COLUMNS[:2], groups, 5)
    for group in groups[:-1]:
        assert not progress.take([*group, 1])
        assert not progress.is_up
    assert not progress.take([*groups[-1], 1])
    assert progress.is_up
    for row, done in (
        (["c", START_US, 2], False),
        (["c", START_US, 2], False),  # once more
        (["d", START_US, 1], False),
        (["c", START_US, 1], False),  # an older one
        (["c", START_US, 4], True),
    ):
        assert progress.take(row)
        assert progress.is_done is done


def test_probes_are_views_of_different_campaigns_long_before_the_events() -> None:
    lines, groups = OverKafka("yahoo").probes(START_US)
    assert len(lines) == len({campaign for campaign, _ in groups}) == PARTITIONS
    for line, (campaign, window_start) in zip(lines, groups, strict=True):
        event = json.loads(line)
        assert (event["event_type"], CAMPAIGN_OF_AD[event["ad_id"]]) == ("view", campaign)
        assert event["event_time"] * 1000 == window_start < START_US - 3_600_000_000 + 1


def test_lines_go_to_one_partition_after_the_other(tmp_path: Path) -> None:
    subject = OverKafka("yahoo")
    given = subject.input(1_000.0, 3.0)
    prepare(subject, given, START_US, tmp_path, partitions=1)
    sent: list[tuple[bytes, int]] = []

    class Written:
        def produce(self, topic: str, value: bytes, partition: int) -> None:
            sent.append((value, partition))

        def poll(self, seconds: float) -> None:
            assert seconds == 0

    lines = Lines(tmp_path, 0)
    lines.send(Topic(Written(), "events", PARTITIONS, lines.data).lines, None, most=700)  # type: ignore[arg-type]
    assert [value for value, _ in sent] == [subject.line(each) for each in given.replay(START_US)]
    assert [partition for _, partition in sent] == [at // 700 % PARTITIONS for at in range(3_000)]


def test_what_is_expected_is_the_sum_of_all_counts() -> None:
    subject = OverKafka("yahoo")
    given = subject.input(1_000.0, 2.0)
    views = sum(json.loads(each.value)["event_type"] == "view" for each in given.replay(START_US))
    assert subject.results(given, START_US) == views


def test_unknown_names_are_refused_before_a_broker_is_started() -> None:
    with pytest.raises(UnknownWorkload):
        OverKafka("grep")
    place = Place()
    with pytest.raises(UnknownEngine):
        open_kafka_engine("storm", place)
    with pytest.raises(UnknownEngine):
        open_kafka_engine("flink:storm", place)
    for name, each in ENGINES.items():
        assert [open_kafka_engine(f"{name}:{variant}", place).label for variant in each.variants]
    assert "broker" not in vars(place)
    for arguments in (["grep", "-e", "plain"], ["yahoo", "-e", "storm"], ["yahoo", "-e", "plain", "--set", "x=1"]):
        done = CliRunner().invoke(app, ["bench", "compare", *arguments, "--source", "kafka"])
        assert done.exit_code == 2, done.output


def test_a_loop_between_two_topics_is_measured_from_outside(tmp_path: Path) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    out = tmp_path / "results.json"
    arguments = ["bench", "run", "yahoo", "--source", "kafka", "--engine", "plain", "--rate", "1000", "--for", "1s"]
    done = CliRunner().invoke(app, [*arguments, "--warm-up", "0s", "--no-floor", "--json", str(out)])
    assert done.exit_code == 0, done.output
    results = msgspec.json.decode(out.read_bytes(), type=Results)
    (row,) = results.rows
    assert (row.workload, row.engine, row.events, row.lost, row.duplicated) == ("yahoo, Kafka", "plain", 1_000, 0, 0)
    assert (row.wrong, row.reordered) == (0, 0)
    assert row.p50_ms is not None
    assert {"broker", "generator", "reader", "plain:loop"} <= {each.name for each in row.processes}
    assert [check.name for check in results.checks] == ["limit of the generator"]


def test_launches_tell_what_is_not_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(engine: str, **options: Any) -> Launch:
        return open_kafka_engine(engine, Place()).launch(OverKafka("yahoo"), 1_000.0, 1.0, RunOptions(**options))

    found = launch("penstock:exactly-once", settings={"epoch": "200ms"})
    assert found.settings["epoch"] == "200ms"
    assert found.specification["options"] == {"epoch": "200ms", "forms": "adaptive"}
    assert found.specification["delivery"] == "exactly-once"
    assert launch("bytewax:single").settings == {"workers": 1, "linger.ms": 1}
    assert len(launch("quix", parallelism=3).commands) == 3
    assert launch("plain").settings == {"linger.ms": 1}
    assert {name: open_kafka_engine(name, Place()).form for name in ("penstock", "spark", "spark-realtime")} == {
        "penstock": "adaptive",
        "spark": "batch",
        "spark-realtime": "record",
    }
    monkeypatch.setattr(engines, "fetch", lambda *_: Path("streams"))
    monkeypatch.setattr(engines, "fetch_broker", lambda: Path("broker"))
    streams = launch("kafka-streams:exactly-once", parallelism=3)
    assert {"num.stream.threads": "3", "processing.guarantee": "exactly_once_v2"}.items() <= streams.settings.items()
    assert streams.specification["settings"] == streams.settings
    (command,) = streams.commands
    assert Path(command[-1]).is_file()
    assert "broker/lib/*" in command[command.index("-cp") + 1]
