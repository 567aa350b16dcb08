"""How tests on real Spark wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

import pytest

WAIT_S = 60.0


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Wait for a condition, with a bound."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = monotonic() + WAIT_S
        while not condition():
            assert monotonic() < deadline, "the condition did not come true in time"
            threading.Event().wait(0.02)

    return wait
