"""What tests on real Spark share: one embedded Spark, and the process that they run in."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.compiled import VARIABLE, use_sources

if os.environ.get(VARIABLE) != "1":
    # Tests exchange methods of the engine, which compiled classes do not allow. Workers on Spark, and programs that
    # tests start, are other processes: they run what was compiled.
    use_sources()

PROGRAMS = ("test_cli.py", "test_cluster.py", "test_network.py", "test_sessions.py")
"""Tests on real Spark that start programs, each with a Spark of its own."""
SERVED = ("postgres", "redis", "served")
"""Files of contracts that share servers."""
FIRST = ("spark", "more spark", "programs", "tests/simulation/test_seeds.py", "kafka", "servers", "tests/simulation/")
FIRST += ("tests/contract/", "tests/property/", "bench/tests/studies/test_figures.py")
"""What takes longest begins first. Lanes that wait much begin together, beside one that computes."""


ARCHIVE = Path(sys.prefix) / "spark.jsa"
"""Classes that Spark loads, kept by ``make test`` for the JVMs that tests start."""


def pytest_configure() -> None:
    """Have JVMs start quickly, those of programs that tests start too."""
    if ARCHIVE.exists():
        os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:disable")
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def lane(nodeid: str) -> str:
    """What a test runs in one process with: its file; or all that share servers, or one of two embedded Sparks."""
    path, _, name = nodeid.partition("::")
    if "kafka" in path or "_a_topic_is_" in name:
        return "kafka"
    if path.startswith("tests/contract/"):
        many = nodeid.partition("[")[0] if "[" in name else path  # a function with many cases is a lane of its own
        return "servers" if any(each in path for each in SERVED) else many
    if "/integration/" not in path:
        return path
    if path.endswith(PROGRAMS):
        return "programs"
    return "spark" if path < "tests/integration/test_n" and path.startswith("tests/") else "more spark"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give lanes to the processes, the next one to whichever is done with its own."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # xdist's own groups by mark do nothing with pytest 9
        def _split_scope(self, nodeid: str) -> str:
            return lane(nodeid)

    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put lanes into the order in which several processes take them."""

    def rank(item: pytest.Item) -> int:
        found = lane(item.nodeid)
        return next((at for at, name in enumerate(FIRST) if found.startswith(name)), len(FIRST))

    if hasattr(config, "workerinput"):
        items.sort(key=rank)


@pytest.fixture(scope="session")
def spark() -> Iterator[None]:
    """Start the JVM once; each job brings its own workers."""
    from penstock.runtime.spark import close_session, open_session

    open_session("local", 4, "tests")
    yield
    close_session()


@pytest.fixture(autouse=True)
def _shared(request: pytest.FixtureRequest) -> None:
    """Share it among all tests that are marked to need one, but those of programs."""
    if request.node.get_closest_marker("spark") is not None and request.path.name not in PROGRAMS:
        request.getfixturevalue("spark")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Any]:
    """A Redis for the whole run; its tests use keys of their own."""
    from services import redis

    yield from _serving(redis.missing(), redis.Redis)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A PostgreSQL for the whole run; its tests use tables of their own."""
    from services import postgres

    yield from _serving(postgres.missing(), postgres.Postgres)


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[Any]:
    """A Kafka for the whole run; its tests use topics of their own."""
    from services import kafka

    yield from _serving(kafka.missing(), kafka.Kafka)


def _serving(reason: str | None, start: Callable[[], Any]) -> Iterator[Any]:
    if reason is not None:
        pytest.skip(reason)
    server = start()
    yield server
    server.close()
