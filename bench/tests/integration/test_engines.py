"""Engines on the real thing: Penstock and Structured Streaming, fed, metered and checked by the runner."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock_bench.engines import RunOptions, open_engine, subject
from penstock_bench.meter.evaluate import evaluate
from penstock_bench.meter.rows import Results
from penstock_bench.meter.runner import measure

FILES = Path(__file__).parents[3] / "benchmarks" / "workloads"
PIPELINE, STATELESS = FILES / "finch-pipeline-wide.json", FILES / "finch-stateless.json"
OPTIONS = RunOptions(warm_up_s=0.0)


@pytest.fixture
def every_pair(tmp_path: Path) -> str:
    path = tmp_path / "every-pair.json"
    path.write_text(PIPELINE.read_text().replace('"5s"', '"5s", "match": "all"'))
    return str(path)


@pytest.fixture
def costly(tmp_path: Path) -> str:
    path = tmp_path / "costly.json"
    path.write_text(STATELESS.read_text().replace('"p": 0.5', '"p": 0.5, "cpu_load": 0.1, "mem_load": 0.01'))
    return str(path)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("label", "workload"), [("penstock:record", "yahoo"), ("spark:sql", "every_pair"), ("spark:python", "costly")]
)
def test_an_engine_gives_the_exact_results_and_its_figures(
    label: str, workload: str, request: pytest.FixtureRequest
) -> None:
    workload = workload if workload == "yahoo" else request.getfixturevalue(workload)
    row, found = measure(open_engine(label), subject(workload), 500.0, 2.0, OPTIONS, "test")
    assert found.found.exact
    assert (row.events, row.lost, row.duplicated, row.wrong, row.reordered) == (1_000, 0, 0, 0, 0)
    assert row.p50_ms is not None
    assert row.max_ms is not None
    assert 0 < row.p50_ms <= row.max_ms
    assert {"java"} < {each.name for each in row.processes}
    assert (row.memory_mb or 0) > 100


@pytest.mark.parametrize("name", ["finch-window", "finch-pipeline", "finch-pipeline-wide"])
def test_windows_and_joins_without_an_engine(name: str) -> None:
    row, found = measure(open_engine("plain"), subject(str(FILES / f"{name}.json")), 500.0, 2.0, OPTIONS, "test")
    assert found.found.exact
    assert row.results


def test_the_command_runs_measures_and_writes(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    arguments = ["bench", "run", "grep", "--engine", "plain", "--rate", "2000", "--for", "1s", "--warm-up", "0s"]
    done = CliRunner().invoke(app, [*arguments, "--json", str(out)])
    assert done.exit_code == 0, done.output
    results = msgspec.json.decode(out.read_bytes(), type=Results)
    (row,) = results.rows
    assert (row.engine, row.variant, row.events, row.lost) == ("plain", "loop", 2_000, 0)
    assert {check.name for check in results.checks} == {"limit of the generator", "floor of the meter"}
    assert "exact: nothing lost" in done.output


def test_an_engine_that_is_too_slow_is_seen_to_be() -> None:
    engine, wanted, rate, seconds = open_engine("plain"), subject("wordcount"), 300_000.0, 0.2
    options = RunOptions(warm_up_s=0.0)
    found = evaluate(wanted, engine.run(wanted, rate, seconds, options), rate, seconds, options)
    assert found.found.exact
    assert not found.sustained
    assert found.throughput_eps < 0.9 * rate
