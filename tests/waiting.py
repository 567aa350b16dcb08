"""How tests wait: for a condition, with a bound that no busy machine reaches."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic

WAIT_S = 150.0
"""Only what never comes about takes so long: somebody else's processes may have the machine for a while."""


def wait_for(condition: Callable[[], object], what: str = "the condition comes true", every_s: float = 0.02) -> None:
    """Ask again and again, until the answer is yes."""
    deadline = monotonic() + WAIT_S
    while not condition():
        assert monotonic() < deadline, f"waited in vain until {what}"
        threading.Event().wait(every_s)


def kill_one(pids: Callable[[], Sequence[int]]) -> int:
    """Kill a process, the first one that is still there: of slots some end by themselves while others come."""
    killed: list[int] = []

    def kill() -> bool:
        for pid in pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                break
        return bool(killed)

    wait_for(kill, "there is somebody to kill")
    return killed[0]
