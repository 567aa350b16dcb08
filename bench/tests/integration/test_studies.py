"""A study from the command line on real Spark, in seconds: it measures, compares, judges, draws, keeps its results."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock_bench.meter.rows import Results
from penstock_bench.studies.keyed import Held
from penstock_bench.studies.traces import made_up
from waiting import WAIT_S

pytestmark = pytest.mark.spark


def test_a_trial_of_the_study_of_workers(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "study", "scale", "--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    results = msgspec.json.decode((tmp_path / "scale.json").read_bytes(), type=Results)
    assert results.study is not None
    assert results.study.complete
    assert results.study.quick
    overload, calm = results.rows
    assert overload.capacity_eps is not None
    assert overload.capacity_eps > 0
    assert (calm.lost, calm.duplicated, calm.reordered) == (0, 0, 0)
    assert calm.events == calm.rate * 3
    assert [share for share, _ in calm.cdf] == sorted(share for share, _ in calm.cdf)
    assert calm.operations[0].name == "events"
    assert sum(calm.components_ms.values()) == pytest.approx(calm.mean_ms, rel=0.1)
    assert (tmp_path / "figures" / "scale.png").exists()


@pytest.mark.parametrize(
    ("name", "rows", "figures"),
    [
        ("state", 2, ["state.png"]),
        ("isolation", 3, ["isolation.png"]),
        ("dynamism", 3, ["dynamism-made-up.png"]),
    ],
)
def test_a_trial_of_what_the_thesis_only_asks(
    name: str, rows: int, figures: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_bench.studies.dynamism.find_traces", lambda at: [made_up()])
    monkeypatch.setattr("penstock_bench.studies.keyed.RESTORED_S_MAX", WAIT_S)
    done = CliRunner().invoke(app, ["bench", "study", name, "--quick", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    results = msgspec.json.decode((tmp_path / f"{name}.json").read_bytes(), type=Results)
    assert results.study is not None
    assert results.study.complete
    assert len(results.rows) == rows
    compared = [row for row in results.rows if row.lost is not None]
    assert compared
    for row in compared:
        assert (row.lost, row.duplicated, row.reordered) == (0, 0, 0), row
        assert row.p99_ms
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(figures)
    if name == "state":
        (held,) = msgspec.convert(results.study.data["held"], list[Held])
        assert held.loss is not None, "a worker was killed"
        assert held.restored_s is not None
        assert held.restored_s > 0
