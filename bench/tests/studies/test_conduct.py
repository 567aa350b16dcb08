"""A study keeps what it has: as it comes, when it is interrupted, and when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.errors import PenstockError
from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Figure
from penstock_bench.studies.base import Desk, Study, StudyOptions, conduct


def row(rate: float) -> ResultRow:
    return ResultRow(workload="yahoo", engine="penstock", form="record", rate=rate, seconds=1.0, events=1, p50_ms=1.0)


class Scripted(Study):
    """Does what it is told, instead of measuring."""

    name, title, after, method = "scripted", "Scripted", "nothing", "none"

    def __init__(self, *steps: Callable[[Desk], object]) -> None:
        self._steps = steps

    def run(self, desk: Desk) -> None:
        for each in self._steps:
            each(desk)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        count = len(results.rows)
        yield Check("rows", count, "rows", "at least 1", count > 0)
        yield Claim("DO", "much", f"{count} rows", True)

    def figures(self, results: Results) -> list[Figure]:
        return []


def interrupt(desk: Desk) -> None:
    raise KeyboardInterrupt


def fail(desk: Desk) -> None:
    raise PenstockError("no more.")


def read(path: Path) -> Results:
    return msgspec.json.decode(path.read_bytes(), type=Results)


def test_everything_is_in_the_file_as_soon_as_it_is_known(tmp_path: Path) -> None:
    path, seen = tmp_path / "new" / "s.json", []
    study = Scripted(
        lambda desk: desk.add(row(1)),
        lambda desk: seen.append(read(path)),
        lambda desk: desk.put("cells", [row(2)]),
        lambda desk: seen.append(read(path)),
    )
    results, complete = conduct(study, StudyOptions(), path, lambda text: None)
    assert complete
    first, second = seen
    assert [each.rate for each in first.rows] == [1]
    assert not first.study.complete
    assert second.study.data["cells"][0]["rate"] == 2
    assert read(path) == msgspec.convert(msgspec.to_builtins(results), Results)
    assert read(path).study.complete


def test_an_interrupted_study_is_judged_by_what_it_has(tmp_path: Path) -> None:
    said: list[str] = []
    study = Scripted(lambda desk: desk.add(row(1)), interrupt, lambda desk: desk.add(row(2)))
    results, complete = conduct(study, StudyOptions(), tmp_path / "s.json", said.append)
    assert not complete
    kept = read(tmp_path / "s.json")
    assert [each.rate for each in kept.rows] == [1]
    assert kept.study.claims[0].measured == "1 rows"
    assert kept.checks[0].met
    assert not kept.study.complete
    assert "interrupted: what was measured is kept" in said
    assert results.study is not None


def test_a_failure_is_raised_and_what_was_there_is_kept(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="no more"):
        conduct(Scripted(lambda desk: desk.add(row(1)), fail), StudyOptions(), tmp_path / "s.json", lambda text: None)
    assert [each.rate for each in read(tmp_path / "s.json").rows] == [1]


def test_a_trial_bears_no_claim_out(tmp_path: Path) -> None:
    study = Scripted(lambda desk: desk.add(row(1)))
    results, _ = conduct(study, StudyOptions(quick=True), tmp_path / "s.json", lambda text: None)
    assert results.study is not None
    assert [claim.holds for claim in results.study.claims] == [None]


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran: list[Desk] = []
    with pytest.raises(PenstockError, match="cannot be written"):
        conduct(Scripted(ran.append), StudyOptions(), tmp_path / "file" / "s.json", lambda text: None)
    assert ran == []


def test_how_long_a_measurement_lasts() -> None:
    def desk(options: StudyOptions) -> Desk:
        return Desk(options, None, lambda results: None, lambda text: None)  # type: ignore[arg-type]

    assert desk(StudyOptions()).seconds(6.0, 1.0) == 6.0
    assert desk(StudyOptions(seconds=3.0)).seconds(6.0, 1.0) == 3.0
    assert desk(StudyOptions(seconds=3.0, quick=True)).seconds(6.0, 1.0) == 1.0
