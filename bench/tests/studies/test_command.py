"""`penstock bench study` and `bench report`: what they refuse before anything starts, and what they write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.cli.outcome import Exit, JsonOut
from penstock_bench.cli import _console
from penstock_bench.meter.rows import Results
from penstock_bench.report.presentation import rows_table
from penstock_bench.studies import STUDIES

runner = CliRunner()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["study", "rate"], ["STUDY", "'rate'", "rates"]),
        (["study", "rates", "--parallelism", "0"], ["--parallelism", "1 to 64"]),
        (["study", "rates", "--for", "soon"], ["--for", "soon"]),
        (["report", "nowhere"], ["DIR", "nowhere"]),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    done = runner.invoke(app, ["bench", *arguments, "--out", str(tmp_path / "out")])
    assert done.exit_code == Exit.REFUSED
    for word in words:
        assert word in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", STUDIES)
def test_the_help_names_every_study(name: str) -> None:
    shown = runner.invoke(app, ["bench", "study", "--help"]).output
    assert name in shown


def test_a_directory_without_loads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TRACES", str(tmp_path))
    done = runner.invoke(app, ["bench", "study", "dynamism", "--out", str(tmp_path / "out")])
    assert done.exit_code == Exit.REFUSED
    for word in ("PENSTOCK_TRACES", str(tmp_path), "twitter.csv"):
        assert word in done.output.replace("\n", "")
    assert not (tmp_path / "out").exists()


def test_a_report_says_where_it_is_and_what_it_left_out(made: Callable[[str], Results], tmp_path: Path) -> None:
    (tmp_path / "scale.json").write_bytes(msgspec.json.encode(made("scale")))
    (tmp_path / "else.json").write_text("[]")
    done = runner.invoke(app, ["bench", "report", str(tmp_path)])
    assert done.exit_code == 0
    assert f"{tmp_path / 'report' / 'report.html'} and 1 figure\n" in done.output
    assert "left out: else.json" in done.output
    assert (tmp_path / "report" / "figures" / "scale.png").exists()


def test_the_table_of_a_study_is_whole_where_there_is_no_terminal(made: Callable[[str], Results]) -> None:
    console = _console(JsonOut(None))
    with console.capture() as shown:
        console.print(rows_table(made("short").rows))
    assert "sustained/s" in shown.get()
    assert "…" not in shown.get()
