"""Metrics of a real job in a real Prometheus and InfluxDB, those of Debian; the dashboards' queries have answers."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any

import msgspec
import pytest

import penstock as ps
from metric_servers import INFLUXD, PROMETHEUS, Influx, Prometheus, direct, get, needs_influx, needs_prometheus
from penstock.runtime.metrics_out import exporter
from penstock.runtime.metrics_out import influx as influx_module
from penstock.runtime.metrics_out.files import Line
from penstock.runtime.metrics_out.samples import OutletFigures
from penstock.runtime.report import Report
from penstock.testing.servers import free_port
from penstock_bench.workloads import WORKLOADS
from waiting import WAIT_S, wait_for

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "benchmarks" / "grafana"
YAHOO = WORKLOADS["yahoo-updates"]


@dataclass
class Ran:
    """A job that went through a switch and back, and what it left behind."""

    report: Report
    run: str
    first_s: float
    last_s: float
    lines: list[Line]
    metrics: list[OutletFigures]
    prometheus: Prometheus | None = None
    influx: Influx | None = None
    exposed: bytes = field(default=b"", repr=False)


def doubled(record: Any) -> Any:
    return (2 * record.n,)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, spark: None) -> Iterator[Ran]:
    directory = tmp_path_factory.mktemp("metrics")
    path, port = directory / "run.jsonl", free_port()
    places = [f"file:{path}", f"prometheus:{port}"]
    prometheus = Prometheus(directory / "prometheus", port) if PROMETHEUS else None
    influx = Influx(directory / "influx") if INFLUXD else None
    if influx is not None:
        influx.do("CREATE DATABASE mydb")
        places.append(str(influx.outlet))
    patch = pytest.MonkeyPatch()
    patch.setattr(influx_module, "ANSWER_S_MAX", WAIT_S)
    patch.setattr(exporter, "CLOSE_S_MAX", WAIT_S)
    try:
        first_s = time()
        pipeline = YAHOO.pipeline(5_000.0, ps.files(directory / "out"))
        numbers = ps.stream("numbers", ps.generator({"n": ps.fields.sequence()}, rate=10.0, format="columns"))
        scored = numbers.map(doubled, schema="n bigint", name="scored", replicas=(1, 2)).to(ps.memory(), name="kept")
        options = {"parallelism": 2, "workers": 1, "forms": "record", "epoch": "200ms"}
        with ps.start(pipeline, scored, name="measured", metrics=places, **options) as job:
            wait_for(lambda: job.status().epoch >= 1)
            wait_for(lambda: prometheus is None or prometheus.samples("penstock_job_moves_total") >= 1)
            job.scale(2)
            wait_for(lambda: len(job.moves()) == 1)
            job.switch("filter", "select", to="batch")
            wait_for(lambda: len(job.adaptation().switches) == 1 and job.status().overhead is not None)
            begun, scraped = job.metrics[0].sent, 'penstock_operation_records_in_total{operation="filter"%s}'
            wait_for(lambda: job.metrics[0].sent > begun + 6)
            wait_for(lambda: prometheus is None or prometheus.samples(scraped % ',form="batch"') >= 3)
            job.switch("filter", "select", to="record")
            wait_for(lambda: len(job.adaptation().switches) == 2)
            begun, seen = job.metrics[0].sent, 0 if prometheus is None else prometheus.samples(scraped % "")
            wait_for(lambda: job.metrics[0].sent > begun + 2)
            wait_for(lambda: prometheus is None or prometheus.samples(scraped % "") >= seen + 3)
            with direct.open(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S) as answer:
                exposed = answer.read()
            job.drain()
            report = job.wait()
            assert report is not None
        patch.undo()
        lines = [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]
        yield Ran(report, job.run_id, first_s, time(), lines, job.metrics, prometheus, influx, exposed)
    finally:
        patch.undo()
        for server in filter(None, (prometheus, influx)):
            server.close()


def dashboard(name: str) -> dict:
    return json.loads((GRAFANA / f"{name}.json").read_text())


def queries(name: str, key: str) -> list[tuple[str, str]]:
    """Every query of a dashboard, with its panel's title."""
    board = dashboard(name)
    found = [(panel["title"], target[key]) for panel in board["panels"] for target in panel["targets"]]
    return found + [(each["name"], each[key]) for each in board["annotations"]["list"]]


def of(line: Line, measurement: str, **tags: str) -> list[dict[str, float]]:
    return [p.fields for p in line.points if p.measurement == measurement and tags.items() <= p.tags.items()]


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_file_has_the_whole_run(ran: Ran) -> None:
    assert {(line.job, line.run, line.engine) for line in ran.lines} == {("measured", ran.run, "penstock")}
    times = [line.at_us for line in ran.lines]
    assert times == sorted(set(times))
    (last,) = of(ran.lines[-1], "job")
    assert last["records_in_total"] == ran.report.events_in
    assert last["records_out_total"] == ran.report.results_out
    assert last["switches_total"] == 2
    assert of(ran.lines[-1], "phase", phase="ended")
    assert [each.operations for line in ran.lines for each in line.switches] == [["filter", "select"]] * 2
    moves = [each for line in ran.lines for each in line.moves]
    assert moves == ran.report.moves
    assert (last["moves_total"], last["move_bytes_total"]) == (1, moves[0].loaded_bytes)
    assert last["move_pause_seconds"] == moves[0].pause_ms / 1e3
    moved = str(moves[0].column)
    owners = [each["worker"] for line in ran.lines for each in of(line, "instance", operation="filter", number=moved)]
    assert set(owners) == {0.0, 1.0}, "it began on the only worker, and moved"
    assert owners == sorted(owners)
    assert ran.report.placement[moves[0].column] == 1
    assert sorted(ran.report.placement) == [0, 1]
    scored = [
        of(line, "operation", operation="scored")[0] for line in ran.lines if of(line, "operation", operation="scored")
    ]
    assert (scored[-1]["replicas"], scored[-1]["replicas_most"]) == (0, 2)
    forms = [line.points for line in ran.lines if of(line, "operation", operation="filter", form="batch")]
    assert forms
    assert any(of(line, "process", process="slots")[0]["resident_bytes"] > 0 for line in ran.lines)
    for process in ("worker-0", "worker-1", "driver", "jvm"):
        used = [each["cpu_seconds_total"] for line in ran.lines for each in of(line, "process", process=process)]
        assert used == sorted(used), process
        assert used[-1] > 0, process
    assert [(each.failed, each.dropped) for each in ran.metrics if not each.outlet.startswith("prometheus")] == [
        (0, 0)
    ] * (len(ran.metrics) - 1)
    assert ran.metrics[0].sent == len(ran.lines)


# --- Prometheus -------------------------------------------------------------------------------------------------------


@needs_prometheus
def test_the_exposition_is_what_promtool_wants(ran: Ran) -> None:
    checked = subprocess.run(
        [str(shutil.which("promtool")), "check", "metrics"], input=ran.exposed, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


@needs_prometheus
def test_prometheus_has_every_tag(ran: Ran) -> None:
    assert ran.prometheus is not None
    (found,) = [
        each["metric"]
        for each in ran.prometheus.series(
            'penstock_operation_records_in_total{operation="filter",form="batch"}', ran.first_s, ran.last_s
        )
    ]
    assert found.pop("version")
    assert found == {
        "__name__": "penstock_operation_records_in_total",
        "job": "measured",
        "run": ran.run,
        "engine": "penstock",
        "operation": "filter",
        "unit": "events",
        "form": "batch",
        "instance": found["instance"],
    }


@needs_prometheus
def test_every_query_of_the_prometheus_dashboard_has_an_answer(ran: Ran) -> None:
    assert ran.prometheus is not None
    silent = []
    for title, expression in queries("prometheus", "expr"):
        filled = expression.replace("$run", ran.run).replace("$__rate_interval", "2m")
        assert "$" not in filled, filled
        found = ran.prometheus.series(filled, ran.first_s, ran.last_s)
        if not any(value not in ("NaN", "+Inf") for each in found for _, value in each["values"]):
            silent.append((title, expression))
    assert silent == []


@needs_prometheus
def test_the_prometheus_dashboard_finds_the_run(ran: Ran) -> None:
    assert ran.prometheus is not None
    (variable,) = [each for each in dashboard("prometheus")["templating"]["list"] if each["name"] == "run"]
    assert variable["query"]["query"] == "label_values(penstock_job_uptime_seconds, run)"
    found = get(
        f"{ran.prometheus.url}/api/v1/label/run/values",
        **{"match[]": "penstock_job_uptime_seconds", "start": ran.first_s, "end": ran.last_s},
    )
    assert found["data"] == [ran.run]


@needs_prometheus
def test_a_percentile_of_prometheus_is_that_of_the_report(ran: Ran) -> None:
    assert ran.prometheus is not None
    expression = f'max(max_over_time(penstock_job_latency_max_seconds{{run="{ran.run}"}}[10m]))'
    (found,) = ran.prometheus.series(expression, ran.last_s, ran.last_s)
    assert 0 < float(found["values"][0][1]) <= ran.report.latency_ms.max / 1e3 * 1.04


# --- InfluxDB ---------------------------------------------------------------------------------------------------------


@needs_influx
def test_influx_has_every_sample_with_every_tag(ran: Ran) -> None:
    assert ran.influx is not None
    (counted,) = ran.influx.series('SELECT count("uptime_seconds") FROM "penstock_job"')
    assert counted["values"][0][1] == len(ran.lines)
    (keys,) = ran.influx.series('SHOW TAG KEYS FROM "penstock_operation"')
    tags = {"job", "run", "engine", "version", "operation", "unit", "form"}
    assert {each[0] for each in keys["values"]} == tags
    (last,) = ran.influx.series('SELECT last("records_in_total") FROM "penstock_job"')
    assert last["values"][0][1] == ran.report.events_in


@needs_influx
def test_every_query_of_the_influx_dashboard_has_an_answer(ran: Ran) -> None:
    assert ran.influx is not None
    silent = []
    for title, query in queries("influxdb", "query"):
        filled = query.replace("/^$run$/", f"/^{ran.run}$/").replace("$__interval", "1s")
        filled = filled.replace(
            "$timeFilter", f"time >= {int(ran.first_s * 1e3)}ms AND time <= {int(ran.last_s * 1e3)}ms"
        )
        found = ran.influx.series(filled)
        if not any(value is not None for each in found for row in each["values"] for value in row[1:]):
            silent.append((title, query))
    assert silent == []


@needs_influx
def test_the_influx_dashboard_finds_the_run_and_the_switches(ran: Ran) -> None:
    assert ran.influx is not None
    (variable,) = [each for each in dashboard("influxdb")["templating"]["list"] if each["name"] == "run"]
    (found,) = ran.influx.series(variable["query"])
    assert found["values"] == [["run", ran.run]]
    (switches,) = ran.influx.series('SELECT "operations", "to", "carried_records" FROM "penstock_switch"')
    told = [(each.to, float(each.carried_records)) for each in ran.report.switches]
    assert [(row[2], row[3]) for row in switches["values"]] == told
    assert [row[1] for row in switches["values"]] == ["filter, select"] * 2
    query = 'SELECT "number", "old", "new", "pause_seconds", "loaded_bytes", "reason" FROM "penstock_move"'
    (moves,) = ran.influx.series(query)
    assert [row[1:] for row in moves["values"]] == [
        [each.column, each.old, each.new, each.pause_ms / 1e3, each.loaded_bytes, each.reason]
        for each in ran.report.moves
    ]
