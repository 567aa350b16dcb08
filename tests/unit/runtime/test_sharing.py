"""Relative paths on the machines of a cluster: they mean the driver's directory, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import PathNotShared
from penstock.pipeline.plan import Plan
from penstock.runtime.job import plan_of
from penstock.runtime.sharing import inside, own_directory


def planned(sink: object) -> Plan:
    return plan_of(ps.stream("numbers", ps.records([(1,)], schema="n bigint")).to(sink, name="out"), parallelism=1)  # type: ignore[arg-type]


def test_a_worker_that_sees_the_directory_works_in_it_and_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (there := tmp_path / "driver").mkdir()
    (here := tmp_path / "executor").mkdir()
    monkeypatch.chdir(there)
    directory, plan = own_directory(), planned(ps.files("out"))
    monkeypatch.chdir(here)
    with inside(directory, plan):
        assert Path.cwd() == there
    assert Path.cwd() == here


@pytest.mark.parametrize("known", ["gone", "another"])
def test_where_it_is_not_seen_a_relative_path_is_refused_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = (str(tmp_path / known), 7)
    if known == "another":
        (tmp_path / known).mkdir()  # of the same name, on another machine
    with (
        pytest.raises(PathNotShared, match="'out': its path 'results' begins in"),
        inside(directory, planned(ps.files("results"))),
    ):
        pass
    with inside(directory, planned(ps.files(tmp_path / "absolute"))), inside(directory, planned(ps.memory())):
        assert Path.cwd() == tmp_path


def test_on_one_machine_nothing_is_looked_for() -> None:
    before = Path.cwd()
    with inside(("", 0), planned(ps.files("results"))):
        assert Path.cwd() == before
