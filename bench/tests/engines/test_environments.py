"""Environments of engines: made once, in the cache, and what fails is told with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock_bench.engines.environments import READY, EngineEnvironment, cache_directory
from penstock_bench.meter.errors import EnvironmentFailed


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_ENGINES", str(tmp_path / "engines"))
    return tmp_path / "engines"


def test_the_cache_is_the_users_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_ENGINES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory() == Path("/somewhere/penstock/engines")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "penstock" / "engines"


def test_other_requirements_are_another_environment(cache: Path) -> None:
    one, other = EngineEnvironment("x", ("x==1",)), EngineEnvironment("x", ("x==2",))
    assert one.path != other.path
    assert one.path.parent == other.path.parent == cache


def test_one_that_is_there_is_not_made_again(cache: Path) -> None:
    environment = EngineEnvironment("x", ("no-such-package",))
    environment.path.mkdir(parents=True)
    (environment.path / READY).write_text(json.dumps({"x": "1.2"}))
    told: list[str] = []
    environment.make(told.append)
    assert told == []
    assert environment.versions() == {"x": "1.2"}


def test_what_cannot_be_installed_is_told_and_leaves_no_ready_environment(cache: Path) -> None:
    environment = EngineEnvironment("x", (str(cache / "no-such-package.whl"),))
    told: list[str] = []
    with pytest.raises(EnvironmentFailed) as caught:
        environment.make(told.append)
    assert "of engine 'x' could not be made: pip install failed" in str(caught.value)
    assert "PENSTOCK_ENGINES" in str(caught.value)
    assert str(environment.path) in str(caught.value)
    assert len(told) == 1
    assert not environment.ready


def test_a_place_that_cannot_be_written_is_told(cache: Path) -> None:
    cache.write_text("a file where the directory should be")
    with pytest.raises(EnvironmentFailed, match="preparing the directory failed"):
        EngineEnvironment("x", ("x",)).make()
