"""Engines are found by name, and what is misspelt is told with what there is."""

from __future__ import annotations

import json

import msgspec
import pytest

from penstock.connectors import rates
from penstock.connectors.rates import RateSchedule
from penstock.errors import InvalidOption
from penstock_bench.engines import Engine, RunOptions, engine_names, open_engine, subject
from penstock_bench.engines.native import Penstock
from penstock_bench.engines.registry import engine_class
from penstock_bench.engines.subjects import subject_names
from penstock_bench.meter.errors import NotSupported, UnknownEngine, UnknownWorkload
from penstock_bench.meter.runner import refuse

LABELS = {
    "bytewax:processes",
    "bytewax:single",
    "flink:thread",
    "flink:process",
    "flink:sql",
    "penstock:adaptive",
    "penstock:record",
    "penstock:batch",
    "plain:loop",
    "spark:sql",
    "spark:python",
    "spark-realtime:sql",
}
IN_SQL = {"flink:sql", "spark:sql", "spark-realtime:sql"}


def test_the_entry_points_name_these_engines() -> None:
    found = {f"{name}:{variant}" for name in engine_names() for variant in engine_class(name).variants}
    assert found >= LABELS
    assert {open_engine(label).label for label in LABELS} == LABELS


def test_without_a_variant_the_first_is_meant() -> None:
    assert open_engine("spark").label == "spark:sql"
    assert open_engine("penstock").form == "adaptive"
    assert open_engine("spark").form == "batch"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("flnk", "there is no engine 'flnk'. Available: bytewax, flink, penstock, plain, spark, spark-realtime. "),
        ("flink:threads", "there is no engine 'flink:threads'. Available: flink:thread, flink:process, "),
    ],
)
def test_an_unknown_engine_is_told_with_the_nearest(given: str, told: str) -> None:
    with pytest.raises(UnknownEngine) as caught:
        open_engine(given)
    assert told in str(caught.value)
    assert "Did you mean" in str(caught.value)


def test_an_unknown_workload_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownWorkload, match="Did you mean 'wordcount'"):
        subject("wordcont")


def test_an_option_that_the_engine_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Did you mean 'trigger'"):
        open_engine("spark").check({"triger": "1s"})
    with pytest.raises(InvalidOption, match="options of 'plain': none"):
        open_engine("plain").check({"trigger": "1s"})


@pytest.mark.parametrize("name", subject_names())
@pytest.mark.parametrize("label", sorted(LABELS - {"penstock:adaptive", "penstock:batch"}))
def test_every_engine_has_the_workloads_that_are_written_in_python(label: str, name: str) -> None:
    wanted = subject(name)
    # What the engine lacks is told before what the machine lacks, a server for example.
    reason = wanted.not_in_sql if label in IN_SQL and wanted.not_in_sql else wanted.missing()
    assert open_engine(label).supports(wanted) == reason


def test_workloads_with_a_line_have_programs() -> None:
    assert subject_names() == ["yahoo", "yahoo-updates", "wordcount", "grep", "scoring", "lookup"]


def test_what_calls_python_for_every_event_is_not_in_sql() -> None:
    assert [name for name in subject_names() if subject(name).not_in_sql] == ["scoring", "lookup"]


def test_a_server_that_is_not_installed_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotSupported, match=r"cannot run 'lookup': it needs redis-server.*apt-get install redis-server"):
        refuse(open_engine("plain"), subject("lookup"), RunOptions())


def test_an_engine_that_cannot_is_refused_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Penstock, "supports", lambda self, subject: "it is Tuesday.")
    engine: Engine = Penstock("record")
    with pytest.raises(NotSupported, match=r"engine 'penstock:record' cannot run 'grep': it is Tuesday\.$"):
        refuse(engine, subject("grep"), RunOptions())


def test_a_schedule_survives_the_way_into_another_process() -> None:
    schedule = rates.burst(base=10, peak=100, every="10s", length="2s", first="1s")
    for rate, wanted in ((schedule, schedule), (250.0, rates.constant(250)), (None, None)):
        told = Penstock("record").launch(subject("grep"), rate, 1.0, RunOptions()).specification["rate"]
        assert msgspec.convert(json.loads(json.dumps(told)), RateSchedule | None) == wanted
