"""One embedded Spark for all integration tests; each job brings its own workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

from penstock.runtime.spark import close_session, open_session

WAIT_S = 60.0


@pytest.fixture(scope="session", autouse=True)
def spark() -> Iterator[None]:
    """Start the JVM once."""
    open_session("local", 4, "tests")
    yield
    close_session()


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Wait for a condition, with a bound."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = monotonic() + WAIT_S
        while not condition():
            assert monotonic() < deadline, "the condition did not come true in time"
            threading.Event().wait(0.02)

    return wait
