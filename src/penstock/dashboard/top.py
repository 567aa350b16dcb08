"""`penstock top`: follows a running job's status file on the terminal until it ends or the user leaves."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live

from penstock.control.monitor import Status
from penstock.dashboard.history import History
from penstock.dashboard.view import Frame, can_be_done
from penstock.runtime.clock import now_us
from penstock.runtime.status import read_status

REFRESH_S = 0.5
LEAVE_KEYS = (b"q", b"Q", b"\x03", b"\x04")


def show_once(path: Path, console: Console) -> bool:
    """Print one frame; False if the job has gone meanwhile."""
    status = read_status(path)
    if status is None:
        return False
    console.print(Frame(status, note=can_be_done(status), age_s=_age_s(status)))
    return True


def follow(path: Path, console: Console) -> bool:
    """Show frames until the job ends (False) or the user leaves (True)."""
    with _keys() as key_pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        history = History()
        while (status := read_status(path)) is not None:
            history.add(status)
            note = f"q leaves; the job goes on\n{can_be_done(status)}"
            shown = Frame(status, note=note, age_s=_age_s(status), history=history)
            live.update(shown, refresh=True)
            if key_pressed(REFRESH_S) in LEAVE_KEYS:
                return True
    return False


def _age_s(status: Status) -> float:
    return max(0.0, (now_us() - status.at_us) / 1e6)


@contextmanager
def _keys() -> Iterator[Callable[[float], bytes]]:
    """Yield a function that waits so many seconds for a key; without a terminal it only waits."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield lambda seconds: os.read(terminal, 1) if select.select([terminal], [], [], seconds)[0] else b""
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> bytes:
    time.sleep(seconds)
    return b""
