"""A connector in a package of its own, as `penstock new connector` begins one; nothing of ours knows it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.pipeline.explain import explain_plan
from penstock.runtime.job import plan_of
from penstock.testing import CRASH, PAUSE, Harness, simulate
from penstock.testing.cluster import Cluster

pytest_plugins = ["pytester"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(app, ["new", "connector", "their-journal"])
    assert made.exit_code == 0, made.output
    monkeypatch.syspath_prepend(tmp_path / "their-journal" / "src")
    return tmp_path / "their-journal"


@pytest.fixture(autouse=True)
def _forgotten() -> object:
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "their_journal"]:
        del sys.modules[name]


def test_the_template_passes_its_own_tests(package: Path, pytester: pytest.Pytester) -> None:
    options = ("-p", "no:cacheprovider", "--rootdir", package, "--import-mode=importlib")
    pytester.runpytest_inprocess(*options, package / "tests").assert_outcomes(passed=4)


def test_it_is_a_source_a_table_and_a_sink_of_any_pipeline(package: Path, tmp_path: Path) -> None:
    theirs = importlib.import_module("their_journal")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.journal").write_text("".join(f"ad-{n % 3}\n" for n in range(30)))
    (tmp_path / "ads.json").write_text(json.dumps([{"ad": "ad-0", "name": "shoes"}, {"ad": "ad-1", "name": "hats"}]))
    table = theirs.TheirJournalTable(tmp_path / "ads.json", "ad string, name string", "ad")
    lines = ps.stream("lines", theirs.TheirJournalSource(tmp_path / "in"))
    named = lines.select(ps.col("line").alias("ad")).lookup(table, on="ad")
    pipeline = named.to(theirs.TheirJournalSink(tmp_path / "out"), name="out")
    plan = plan_of(pipeline, parallelism=2, epoch="100ms")
    assert "their_journal" in explain_plan(plan, 100)
    cluster = Cluster(plan)
    cluster.run_until(1 << 62, steps=5)
    cluster.crash(0)
    cluster.run_until(1 << 62)
    rows = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(row["name"] for row in rows) == ["hats"] * 10 + ["shoes"] * 10
    script = ["ad-0", PAUSE, CRASH, "ad-1"]
    with Harness(pipeline, inputs={"lines": script}) as harness:
        harness.run()
        harness.assert_rows([("ad-0", "shoes"), ("ad-1", "hats")])
    simulate(pipeline, {"lines": ["ad-0", "ad-1", "ad-2"]}, seeds=1)


def test_what_cannot_be_begun_is_refused(package: Path) -> None:
    for name, what in (("their-journal", "no file or directory here yet"), ("No", "small letters")):
        made = CliRunner().invoke(app, ["new", "connector", name])
        assert made.exit_code == 2
        assert what in made.output
    assert CliRunner().invoke(app, ["new", "sink", "mine"]).exit_code == 2
