"""Metrics out: samples from a status, and the formats in which they leave."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock.control.changes import Advice, ChangeReport
from penstock.control.monitor import OperationFigures, Status, WorkerFigures
from penstock.control.replicas import ReplicasView
from penstock.control.rescaling import MoveReport
from penstock.control.shifting import ShiftReport
from penstock.control.staffing import StaffingView
from penstock.metrics import Histogram
from penstock.runtime.metrics_out.catalogue import LATENCY, METRICS, NAMES
from penstock.runtime.metrics_out.files import Line, line_of
from penstock.runtime.metrics_out.influx import lines_of
from penstock.runtime.metrics_out.prometheus import Collected
from penstock.runtime.metrics_out.samples import Layout, OutletFigures, ProcessFigures, Sampler, Snapshot, Tags
from waiting import wait_for

ROOT = Path(__file__).parents[3]
SECRET = "not-for-logs-4711"


def operation(name: str = "score", **changes: object) -> OperationFigures:
    given = {"form": "record", "instances": 2, "in_eps": 1000.0, "out_eps": 500.0, "selectivity": 0.5}
    given |= {"queue_records": 7, "service_us": 20.0, "p50_ms": 1.5, "p99_ms": 9.0, "records_in": 100}
    given |= {"records_out": 50, "late": 1, "skipped": 2, "retried": 3, "dead_letters": 4, "total_p50_ms": 1.0}
    given |= {"total_p99_ms": 2.0, "total_max_ms": 3.0, "transmit_us": 250.0, "process_us": 20.0}
    return OperationFigures(name=name, kind="map", **{**given, **changes})


def status(**changes: object) -> Status:
    given = {"job": "ads", "phase": "running", "pid": 1, "at_us": 1_700_000_000_000_001, "uptime_s": 12.5, "epoch": 9}
    given |= {"epoch_ms": 4.0, "operations": [operation("events", reads=True), operation(), operation("out")]}
    given |= {
        "components_ms": {"out": 0.25, "process": 1.0},
        "workers": [WorkerFigures(0, 42, 0.5, 120.0, 3.25, 100.0)],
        "start_us": 1_600_000_000_000_000,
        "began_us": 1_700_000_000_000_000,
    }
    return Status(**{**given, **changes})


def sampler() -> Sampler:
    layout = Layout({"events": "events", "score": "events", "out": "sinks"}, frozenset({"out"}))
    return Sampler(Tags("ads", "ads-1", "9.9"), layout)


def move(column: int) -> MoveReport:
    return MoveReport(2.5 + column, column, 0, 1, 28.0, 400.0, 1_000 + column, "more workers")


def shift(groups: int) -> ShiftReport:
    return ShiftReport(9.0, "count", 0, 1, groups, 90.0, 500.0, 50, 'hot "a"')


def transfers(moves: int, shifts: int) -> dict[str, Any]:
    """What a status has of moves and shifts, when there have been so many; it has the last two moves."""
    staffing = StaffingView(present=2, wanted=2, least=1, most=2, shifts=[shift(i + 1) for i in range(shifts)])
    moved = [move(i) for i in range(moves)]
    return {"moves": moved[-2:], "moves_total": moves, "staffing": staffing}


def histogram(*values_us: int) -> Histogram:
    found = Histogram()
    for each in values_us:
        found.record(each)
    return found


def snapshot(**changes: object) -> Snapshot:
    return sampler().take(status(**changes), histogram(1_000, 2_000))


def fields(taken: Snapshot, measurement: str, **tags: str) -> dict[str, float]:
    (found,) = [p for p in taken.points if p.measurement == measurement and tags.items() <= p.tags.items()]
    return found.fields


def eventually(condition: Callable[[], object]) -> None:
    wait_for(condition, every_s=0.005)


# --- samples ----------------------------------------------------------------------------------------------------------


def test_samples_hold_the_figures_in_base_units() -> None:
    taken = sampler().take(
        status(overhead=0.07, group_size=20, slots=[5, 6]),
        histogram(1_000, 2_000),
        [ProcessFigures("driver", 1.5, 2e6)],
        [OutletFigures("file:x", 3, 2, 1)],
    )
    job = fields(taken, "job")
    assert (job["in_records_per_second"], job["out_records_per_second"]) == (1000.0, 1000.0)
    assert (job["records_in_total"], job["records_out_total"], job["queue_records"]) == (100.0, 100.0, 21.0)
    assert (job["latency_max_seconds"], job["epoch_seconds"], job["epochs_total"]) == (0.002, 0.004, 9.0)
    assert (job["scheduling_overhead_ratio"], job["group_micro_batches"], job["slots"]) == (0.07, 20.0, 2.0)
    score = fields(taken, "operation", operation="score")
    assert (score["latency_p99_seconds"], score["service_seconds"], score["batch_form"]) == (0.009, 20e-6, 0.0)
    assert fields(taken, "component", operation="score", component="transmit") == {"mean_seconds": 250e-6}
    assert fields(taken, "job_component", component="process") == {"mean_seconds": 0.001}
    assert fields(taken, "process") == {"cpu_seconds_total": 1.5, "resident_bytes": 2e6}
    assert fields(taken, "outlet") == {"sent_total": 3.0, "failed_total": 2.0, "dropped_total": 1.0}
    assert fields(taken, "phase", phase="running") == {"current": 1.0}


def test_every_sample_of_an_operation_has_operation_unit_and_form() -> None:
    taken = snapshot(operations=[operation(form="batch")])
    of_operations = [point for point in taken.points if point.measurement in ("operation", "component")]
    assert len(of_operations) == 6
    for point in of_operations:
        assert (point.tags["operation"], point.tags["unit"], point.tags["form"]) == ("score", "events", "batch")


def test_only_metrics_of_the_catalogue_are_there_and_all_can_be() -> None:
    switch = ChangeReport(
        at_s=1.0,
        operations=["score"],
        to="batch",
        pause_ms=4.0,
        total_ms=90.0,
        carried_records=12,
        reason="queue",
        inputs={},
    )
    one = sampler()
    processes, outlets = [ProcessFigures("driver", 1.0, 1.0)], [OutletFigures("file:x")]
    replicas = [ReplicasView(["score"], 2, 2, 1, 4, [0, 1], activations=3)]
    now = status(overhead=0.1, switches=[switch], switches_total=1, replicas=replicas, saved=0.5, **transfers(1, 1))
    now.placement = [0, 1]
    real = one.take(now, histogram(5), processes, outlets)
    assert fields(real, "operation", operation="score")["replica_activations_total"] == 3.0
    advised = snapshot(advise=True)
    told = {(p.measurement, name) for taken in (real, advised) for p in taken.points for name in p.fields}
    assert told == NAMES
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_counters_never_fall_when_a_worker_counts_from_zero_again() -> None:
    one = sampler()
    told = []
    for records_in in (100, 40, 70):
        taken = one.take(status(operations=[operation(records_in=records_in, reads=True)]), Histogram())
        told.append((fields(taken, "operation")["records_in_total"], fields(taken, "job")["records_in_total"]))
    assert told == [(100.0, 100.0), (100.0, 100.0), (130.0, 130.0)]


def test_percentiles_are_of_what_came_since_the_last_sample() -> None:
    one = sampler()
    first = one.take(status(), histogram(1_000))
    second = one.take(status(), histogram(1_000, 50_000))
    nothing = one.take(status(), histogram(1_000, 50_000))
    cut = one.take(status(), histogram(3_000))
    after = one.take(status(), histogram(3_000, 3_000))
    assert fields(first, "job")["latency_p50_seconds"] == 0.001
    assert fields(second, "job")["latency_p50_seconds"] == pytest.approx(0.05, rel=0.032)
    assert "latency_p50_seconds" not in fields(nothing, "job")
    assert "latency_p50_seconds" not in fields(cut, "job")
    assert fields(after, "job")["latency_max_seconds"] == pytest.approx(0.003, rel=0.032)
    assert [each.latency.total for each in (first, second, nothing, cut, after)] == [1, 2, 2, 2, 3]


def test_an_operation_that_got_nothing_has_no_latency_rather_than_none_at_all() -> None:
    taken = snapshot(operations=[operation(p50_ms=0.0, p99_ms=0.0)])
    assert "latency_p99_seconds" not in fields(taken, "operation")
    assert not [point for point in taken.points if point.measurement == "component"]


def test_switches_are_told_once() -> None:
    switches = [
        ChangeReport(
            at_s=float(i),
            operations=["score"],
            to="batch",
            pause_ms=4.0,
            total_ms=90.0,
            carried_records=12,
            reason="queue",
            inputs={},
        )
        for i in range(3)
    ]
    one = sampler()
    told = [
        one.take(status(switches=switches[max(0, n - 2) : n], switches_total=n), Histogram()).switches
        for n in (0, 1, 1, 3)
    ]
    assert told == [[], switches[:1], [], switches[1:]]


def test_moves_and_shifts_are_told_once_and_summed() -> None:
    one = sampler()
    seen = [one.take(status(**transfers(*each)), Histogram()) for each in ((0, 0), (2, 1), (2, 1), (4, 3))]
    assert [[each.column for each in taken.moves] for taken in seen] == [[], [0, 1], [], [2, 3]]
    assert [[each.groups for each in taken.shifts] for taken in seen] == [[], [1], [], [2, 3]]
    assert "move_pause_seconds" not in fields(seen[0], "job")
    job = fields(seen[-1], "job")
    assert (job["moves_total"], job["move_bytes_total"]) == (4.0, 4_006.0)
    assert (job["move_pause_seconds"], job["move_seconds"]) == (0.028, 0.4)
    assert (job["shifts_total"], job["shift_groups_total"], job["shift_bytes_total"]) == (3.0, 6.0, 150.0)
    assert (job["shift_pause_seconds"], job["shift_seconds"]) == (0.09, 0.5)


def test_owners_replicas_and_what_they_save() -> None:
    view = ReplicasView(["score"], 2, 3, 1, 4, [0, 5], activations=3)
    taken = snapshot(
        placement=[1, 0, 1], replicas=[view], replica_pids=[7, 8, 9], saved=0.58, replica_s=12.5,
        operations=[operation(timed_out=6, over_bound=7)],
    )  # fmt: skip
    owners = [(p.tags["number"], p.fields["worker"]) for p in taken.points if p.measurement == "instance"]
    assert owners == [("0", 1.0), ("1", 0.0)], "it has two instances, of the three that others have"
    score = fields(taken, "operation", operation="score")
    assert [score[f"replicas{each}"] for each in ("", "_wanted", "_least", "_most")] == [2.0, 3.0, 1.0, 4.0]
    assert (score["timed_out_total"], score["over_bound_total"]) == (6.0, 7.0)
    job = fields(taken, "job")
    assert (job["replicas"], job["replicas_active"]) == (3.0, 2.0)
    assert (job["replicas_saved_ratio"], job["replica_seconds_total"]) == (0.58, 12.5)
    assert "replicas_saved_ratio" not in fields(snapshot(), "job"), "without a pool there is nothing to save"


def test_advice_is_told_as_advice_and_has_no_pause() -> None:
    advice = Advice(at_s=2.5, operations=["score"], to="batch", reason="queue", inputs={})
    taken = snapshot(advise=True, advice=[advice], switches_total=1)
    assert (taken.switches, taken.advice) == ([], [advice])
    assert msgspec.json.decode(line_of(taken), type=Line).advice == [advice]
    (line,) = [each for each in lines_of(taken).decode().splitlines() if each.startswith("penstock_switch,")]
    assert line.startswith("penstock_switch,advised=true,")
    assert "pause_seconds" not in line


def test_values_that_are_no_numbers_are_left_out() -> None:
    taken = snapshot(operations=[operation(in_eps=float("inf"), selectivity=float("nan"))])
    assert not {"in_records_per_second", "selectivity_ratio"} & set(fields(taken, "operation"))


# --- formats ----------------------------------------------------------------------------------------------------------


def test_a_line_of_the_file_is_one_object_with_all_tags() -> None:
    line = line_of(snapshot())
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    read = msgspec.json.decode(line, type=Line)
    assert (read.job, read.run, read.engine, read.version) == ("ads", "ads-1", "penstock", "9.9")
    assert read.points == snapshot().points


def test_the_published_schema_is_that_of_the_lines() -> None:
    published = json.loads((ROOT / "benchmarks" / "metrics.schema.json").read_text())
    assert without_indents(published) == without_indents(msgspec.json.schema(Line))


def without_indents(schema: Any) -> Any:
    """Descriptions as every version of Python has them: from 3.13 on, docstrings have lost their indents."""
    if isinstance(schema, dict):
        return {
            name: inspect.cleandoc(each) if name == "description" and isinstance(each, str) else without_indents(each)
            for name, each in schema.items()
        }
    return [without_indents(each) for each in schema] if isinstance(schema, list) else schema


def test_every_metric_is_documented_with_its_unit() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    for metric in METRICS:
        assert f"| `{metric.name}` | {metric.unit} | {metric.kind.value} |" in text, metric.name
    assert LATENCY in text


def exposition(taken: Snapshot) -> bytes:
    collected = Collected()
    collected.snapshot = taken
    return generate_latest(collected)


def test_exposition_escapes_labels_and_keeps_metrics_together() -> None:
    nasty = 'a"b\\c\nd'
    text = exposition(snapshot(operations=[operation(nasty), operation("b")])).decode()
    assert 'operation="a\\"b\\\\c\\nd"' in text
    lines = text.splitlines()
    names = [line.split("{")[0] for line in lines if not line.startswith("#")]
    runs = [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    assert len(runs) == len(set(runs))
    assert f'{LATENCY}_bucket{{engine="penstock",job="ads",le="+Inf",run="ads-1",version="9.9"}} 2.0' in lines
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_every_sample_is_exposed_under_its_name_with_its_kind() -> None:
    taken = snapshot()
    families = {each.name: each for each in text_string_to_metric_families(exposition(taken).decode())}
    common = {"job": "ads", "run": "ads-1", "engine": "penstock", "version": "9.9"}
    for metric in METRICS:
        points = [p for p in taken.points if p.measurement == metric.measurement and metric.field in p.fields]
        family = families.pop(metric.name.removesuffix("_total"), None)
        assert (family is None) == (not points), metric.name
        if family is not None:
            assert (family.type, family.documentation) == (metric.kind.value, metric.help)
            told = [(each.name, each.labels, each.value) for each in family.samples]
            assert told == [(metric.name, {**common, **p.tags}, p.fields[metric.field]) for p in points]
    histogram = families.pop(LATENCY)
    buckets = [each.value for each in histogram.samples if each.name == f"{LATENCY}_bucket"]
    assert buckets == [*taken.latency.counts, taken.latency.total]
    assert {each.name: each.value for each in histogram.samples}[f"{LATENCY}_sum"] == taken.latency.sum_s
    assert families == {}


def test_buckets_are_cumulative() -> None:
    counts = sampler().take(status(), histogram(90, 150, 15_000, 10**9)).latency
    assert counts.counts[:4] == [1, 2, 2, 2]
    assert counts.counts[-1] == 3
    assert counts.total == 4
    assert counts.counts == sorted(counts.counts)


def test_line_protocol_escapes_tags_and_texts() -> None:
    switch = ChangeReport(
        at_s=2.5,
        operations=["a", "b"],
        to="batch",
        pause_ms=4.0,
        total_ms=90.0,
        carried_records=12,
        reason='say "x" \\ now',
        inputs={},
    )
    text = lines_of(snapshot(operations=[operation("a b,c=d")], switches=[switch], switches_total=1)).decode()
    assert "operation=a\\ b\\,c\\=d," in text
    (line,) = [each for each in text.splitlines() if each.startswith("penstock_switch,")]
    assert line.startswith("penstock_switch,advised=false,engine=penstock,job=ads,run=ads-1,to=batch,version=9.9 ")
    assert 'pause_seconds=0.004,total_seconds=0.09,carried_records=12.0,operations="a, b"' in line
    assert 'reason="say \\"x\\" \\\\ now"' in line
    assert line.endswith(f" {1_700_000_000_000_000 + 2_500_000}")


def test_moves_and_shifts_are_lines_at_their_own_time() -> None:
    taken = snapshot(**transfers(1, 1))
    lines = {each.split(",")[0]: each for each in lines_of(taken).decode().splitlines()}
    cost = "old=0.0,new=1.0,pause_seconds=0.028,total_seconds=0.4,loaded_bytes=1000.0"
    assert lines["penstock_move"].endswith(
        f' number=0.0,{cost},reason="more workers" {1_700_000_000_000_000 + 2_500_000}'
    )
    assert ",operation=count,run=ads-1," in lines["penstock_shift"]
    assert "groups=1.0,old=0.0,new=1.0,pause_seconds=0.09" in lines["penstock_shift"]
    assert 'reason="hot \\"a\\""' in lines["penstock_shift"]
    read = msgspec.json.decode(line_of(taken), type=Line)
    assert (read.moves, read.shifts) == ([move(0)], [shift(1)])
