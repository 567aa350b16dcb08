"""The scripts of ``benchmarks``: help says what they measure; what they do not know is refused before they begin."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [each for each in sorted(BENCHMARKS.glob("*.py")) if '__name__ == "__main__"' in each.read_text()]
script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("it begins to measure")

    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr("penstock.start", refuse)
    monkeypatch.setattr("penstock.runtime.job.Job.__init__", refuse)
    monkeypatch.setattr("penstock.testing.kafka_broker.KafkaBroker.__init__", refuse)
    monkeypatch.setattr("penstock_bench.engines.redis_server.serving", refuse)
    monkeypatch.setattr("penstock.operators.Project.build", refuse)
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", refuse)


def ended(monkeypatch: pytest.MonkeyPatch, path: Path, *given: str) -> object:
    monkeypatch.setattr(sys, "argv", [str(path), *given])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    return end.value.code


@script
def test_help_says_what_is_measured(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, path, "--help") == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: {path.name}")
    assert f"python benchmarks/{path.name}" in told


@script
@pytest.mark.parametrize("given", ["--nonsense", "-x"])
def test_an_unknown_option_is_refused(
    path: Path, given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, path, given) == 2
    assert f"unrecognized arguments: {given}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["activation", "keyed", "kafka_kills", "lookups", "moves", "rescales", "spark"])
def test_a_word_that_nobody_knows_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, BENCHMARKS / f"{name}.py", "nonsense") == 2
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "chosen", "seconds"),
    [
        ([], ["a", "b"], 30),
        (["5"], ["a", "b"], 5),
        (["b", "5"], ["b"], 5),
        (["5", "c", "a"], ["c", "a"], 5),
        (["c"], ["c"], 30),
    ],
)
def test_words_and_a_number_in_any_order(
    given: list[str], chosen: list[str], seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["script.py", *given])
    from asking import words

    assert words("", ["a", "b", "c"], 30, usual=["a", "b"]) == (chosen, seconds)


def test_numbers_may_be_left_out_from_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["script.py", "7"])
    from asking import numbers

    assert numbers("", times=50, seconds=20.0) == [7, 20.0]
