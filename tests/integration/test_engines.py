"""Engines on the real thing: Penstock and Structured Streaming, fed, metered and checked by the runner."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.bench.engines import RunOptions, open_engine, subject
from penstock.bench.engines.evaluate import evaluate
from penstock.bench.rows import Results
from penstock.bench.runner import measure
from penstock.cli import app

PIPELINE = Path(__file__).parents[2] / "benchmarks" / "workloads" / "finch-pipeline-wide.json"
OPTIONS = RunOptions(warm_up_s=0.0)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("label", "workload"), [("penstock:record", "yahoo"), ("spark:sql", str(PIPELINE))], ids=["penstock", "spark"]
)
def test_an_engine_gives_the_exact_results_and_its_figures(label: str, workload: str) -> None:
    row, found = measure(open_engine(label), subject(workload), 500.0, 2.0, OPTIONS, "test")
    assert found.found.exact
    assert (row.events, row.lost, row.duplicated, row.wrong, row.reordered) == (1_000, 0, 0, 0, 0)
    assert row.p50_ms is not None
    assert row.max_ms is not None
    assert 0 < row.p50_ms <= row.max_ms
    assert {"java"} < {each.name for each in row.processes}
    assert (row.rss_mb or 0) > 100


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
