"""How tests wait: for a condition, with a bound that no busy machine reaches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

WAIT_S = 150.0
"""Only what never comes about takes so long: somebody else's processes may have the machine for a while."""


def wait_for(condition: Callable[[], object], what: str = "the condition comes true", every_s: float = 0.02) -> None:
    """Ask again and again, until the answer is yes."""
    deadline = monotonic() + WAIT_S
    while not condition():
        assert monotonic() < deadline, f"waited in vain until {what}"
        threading.Event().wait(every_s)
