"""A Prometheus and an InfluxDB of a test's own, where they are installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from penstock.pipeline.outlets import InfluxOutlet
from penstock.testing.servers import free_port
from waiting import WAIT_S, wait_for

PROMETHEUS, INFLUXD = shutil.which("prometheus"), shutil.which("influxd")
needs_prometheus = pytest.mark.skipif(not PROMETHEUS, reason="no 'prometheus' here: apt-get install prometheus")
needs_influx = pytest.mark.skipif(not INFLUXD, reason="no 'influxd' here: apt-get install influxdb")
SECRET = "not-for-logs-4711"
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, **parameters: object) -> dict:
    """Ask a server's HTTP interface."""
    with direct.open(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=WAIT_S) as answer:
        return json.loads(answer.read())


def answers(url: str) -> bool:
    try:
        with direct.open(url, timeout=WAIT_S):
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
        with direct.open(f"{self.url}/query?{urllib.parse.urlencode(self.login)}", body, timeout=WAIT_S) as answer:
            assert "error" not in answer.read().decode()

    def series(self, query: str) -> list[dict]:
        """What a query gives."""
        (result,) = get(f"{self.url}/query", q=query, db="mydb", **self.login)["results"]
        assert "error" not in result, result
        return result.get("series", [])

    def close(self) -> None:
        self.stop()
        self._log.close()
