"""How tests on real Spark wait."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import fsspec
import pytest

SUPPORT = str(Path(__file__).parents[1] / "support")
"""What worker processes need too, found by its path; set before any of them is started."""
sys.path.insert(0, SUPPORT)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SUPPORT, os.environ.get("PYTHONPATH")]))
fsspec.register_implementation("slow", "penstock_test_store.SlowStore", clobber=True)

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
