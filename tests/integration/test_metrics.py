"""Metrics of a real job in a real Prometheus and InfluxDB, those of Debian; the dashboards' queries have answers."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.errors import InvalidOption
from penstock.pipeline.outlets import InfluxOutlet
from penstock.runtime.metrics_out import exporter
from penstock.runtime.metrics_out import influx as influx_module
from penstock.runtime.metrics_out.feeder import Feeder
from penstock.runtime.metrics_out.files import Line
from penstock.runtime.metrics_out.influx import InfluxWriter
from penstock.runtime.metrics_out.samples import Buckets, OutletFigures, Point, Snapshot, Tags
from penstock.runtime.report import Report
from penstock.testing.servers import free_port
from penstock_bench.workloads import WORKLOADS
from waiting import WAIT_S, wait_for

pytestmark = pytest.mark.spark

Eventually = Callable[[Callable[[], object]], None]
ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "benchmarks" / "grafana"
PROMETHEUS, INFLUXD = shutil.which("prometheus"), shutil.which("influxd")
needs_prometheus = pytest.mark.skipif(not PROMETHEUS, reason="no 'prometheus' here: apt-get install prometheus")
needs_influx = pytest.mark.skipif(not INFLUXD, reason="no 'influxd' here: apt-get install influxdb")
YAHOO = WORKLOADS["yahoo-updates"]
SECRET = "not-for-logs-4711"
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, **parameters: object) -> dict:
    """Ask a server's HTTP interface."""
    with _direct.open(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=WAIT_S) as answer:
        return json.loads(answer.read())


def answers(url: str) -> bool:
    try:
        with _direct.open(url, timeout=WAIT_S):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


class Prometheus:
    """A Prometheus that scrapes one port."""

    def __init__(self, directory: Path, target: int) -> None:
        directory.mkdir()
        config = directory / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
            "scrape_configs:\n"
            "  - job_name: penstock\n"
            "    honor_labels: true\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
        )
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = (directory / "log").open("w")
        self._process = subprocess.Popen(
            [
                str(PROMETHEUS),
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        wait_for(lambda: answers(f"{self.url}/-/ready"))

    def series(self, expression: str, first_s: float, last_s: float) -> list[dict]:
        """What an expression gives over a time."""
        found = get(f"{self.url}/api/v1/query_range", query=expression, start=first_s, end=last_s, step="0.5")
        assert found["status"] == "success", found
        return found["data"]["result"]

    def samples(self, expression: str) -> int:
        """How many samples of the last minutes it has."""
        found = get(f"{self.url}/api/v1/query", query=f"count_over_time({expression}[10m])")["data"]["result"]
        return sum(int(each["value"][1]) for each in found)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


class Influx:
    """An InfluxDB with one database, ``mydb``."""

    def __init__(self, directory: Path, *, authenticate: bool = False) -> None:
        directory.mkdir()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.outlet = InfluxOutlet(False, "127.0.0.1", self.port, "", "mydb")
        self._config = directory / "influxdb.conf"
        self._config.write_text(
            f"""
            reporting-disabled = true
            bind-address = "127.0.0.1:0"
            [meta]
            dir = "{directory / "meta"}"
            [data]
            dir = "{directory / "data"}"
            wal-dir = "{directory / "wal"}"
            [http]
            bind-address = "127.0.0.1:{self.port}"
            auth-enabled = {str(authenticate).lower()}
            """
        )
        self._log = (directory / "log").open("w")
        self.login: dict[str, str] = {}
        self.start()
        if authenticate:
            self.do(f"CREATE USER me WITH PASSWORD '{SECRET}' WITH ALL PRIVILEGES")
            self.login = {"u": "me", "p": SECRET}

    def start(self) -> None:
        self._process = subprocess.Popen(
            [str(INFLUXD), "-config", str(self._config)], stdout=self._log, stderr=self._log
        )
        wait_for(lambda: answers(f"{self.url}/ping"))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def do(self, statement: str) -> None:
        body = urllib.parse.urlencode({"q": statement}).encode()
        with _direct.open(f"{self.url}/query?{urllib.parse.urlencode(self.login)}", body, timeout=WAIT_S) as answer:
            assert "error" not in answer.read().decode()

    def series(self, query: str) -> list[dict]:
        """What a query gives."""
        (result,) = get(f"{self.url}/query", q=query, db="mydb", **self.login)["results"]
        assert "error" not in result, result
        return result.get("series", [])

    def close(self) -> None:
        self.stop()
        self._log.close()


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
            with _direct.open(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S) as answer:
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


def snapshot(at_us: int, operation: str = "x") -> Snapshot:
    point = Point("operation", {"operation": operation}, {"queue_records": float(at_us)})
    return Snapshot(at_us, Tags("ads", "ads-1", "9.9"), [point], [], [], 0, False, Buckets([], 0, 0.0))


@pytest.fixture
def influx(tmp_path: Path) -> Iterator[Callable[..., Influx]]:
    opened: list[Influx] = []

    def open_one(**options: bool) -> Influx:
        opened.append(Influx(tmp_path / f"influx-{len(opened)}", **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@needs_influx
def test_any_name_comes_back_from_influx_as_it_was(influx: Callable[..., Influx]) -> None:
    server = influx()
    server.do("CREATE DATABASE mydb")
    writer = InfluxWriter(server.outlet, {})
    names = ["a b", "a,b", "a=b", 'a"b', "a\\b", "a\\,b", "größe", "'", "a\\ b"]
    for at_us, name in enumerate(names, 1):
        writer.write(snapshot(at_us, name))
    writer.close()
    found = server.series('SELECT "queue_records" FROM "penstock_operation" GROUP BY "operation"')
    assert sorted(each["tags"]["operation"] for each in found) == sorted(names)


@needs_influx
def test_samples_wait_while_influx_is_away_and_arrive_when_it_is_back(influx: Callable[..., Influx]) -> None:
    server = influx()
    server.do("CREATE DATABASE mydb")
    feeder = Feeder("influx", InfluxWriter(server.outlet, {}))
    feeder.offer(snapshot(1))
    wait_for(lambda: feeder.figures.sent == 1)
    server.stop()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # for what other tests have left behind
        for at_us in range(2, 12):
            feeder.offer(snapshot(at_us))
        wait_for(lambda: feeder.figures.failed >= 2)
    assert ["The job goes on" in str(each.message) for each in caught] == [True]
    server.start()
    wait_for(lambda: feeder.figures.sent == 11)
    feeder.close(monotonic() + WAIT_S)
    (found,) = server.series('SELECT "queue_records" FROM "penstock_operation"')
    assert [row[1] for row in found["values"]] == list(range(1, 12))
    assert feeder.figures.dropped == 0


@needs_influx
def test_credentials_open_influx_and_are_told_to_nobody_else(influx: Callable[..., Influx]) -> None:
    server = influx(authenticate=True)
    server.do("CREATE DATABASE mydb")
    wrong = {"PENSTOCK_INFLUX_USER": "me", "PENSTOCK_INFLUX_PASSWORD": f"{SECRET}-wrong"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # for what other tests have left behind
        refused = Feeder("influx", InfluxWriter(server.outlet, wrong))
        refused.offer(snapshot(1))
        wait_for(lambda: refused.figures.dropped == 1)
        refused.close(monotonic() + WAIT_S)
    (told,) = [str(each.message) for each in caught]
    assert "HTTP 401" in told
    assert SECRET not in told
    right = {"PENSTOCK_INFLUX_USER": "me", "PENSTOCK_INFLUX_PASSWORD": SECRET}
    taken = Feeder("influx", InfluxWriter(server.outlet, right))
    taken.offer(snapshot(2))
    taken.close(monotonic() + WAIT_S)
    assert taken.figures == OutletFigures("influx", sent=1)
    (found,) = server.series('SELECT "queue_records" FROM "penstock_operation"')
    assert [row[1] for row in found["values"]] == [2]


# --- places that are gone ---------------------------------------------------------------------------------------------


def test_a_job_does_not_mind_a_server_that_is_not_there(tmp_path: Path) -> None:
    kept = ps.memory()
    numbers = ps.stream("numbers", ps.records([(n,) for n in range(1000)], schema="n bigint"))
    with warnings.catch_warnings(record=True) as caught, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        places = [f"influx:http://127.0.0.1:{taken.getsockname()[1]}/mydb", f"file:{tmp_path / 'run.jsonl'}"]
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # for what other tests have left behind
        with ps.start(numbers.to(kept), name="alone", parallelism=1, metrics=places) as job:
            report = job.wait()
    assert report is not None
    assert sorted(record.n for record in kept.rows) == list(range(1000))
    gone, written = job.metrics
    assert gone.sent == 0 < gone.failed
    assert gone.dropped == written.sent == len((tmp_path / "run.jsonl").read_text().splitlines())
    assert len([each for each in caught if "metrics to influx" in str(each.message)]) == 1


def test_a_file_that_cannot_be_written_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    numbers = ps.stream("numbers", ps.records([(1,)], schema="n bigint"))
    with pytest.raises(InvalidOption, match="No such file or directory"):
        ps.start(numbers.to(ps.memory()), metrics=f"file:{tmp_path / 'missing' / 'run.jsonl'}")
