"""A job's table that is drawn anew while the job runs: in a cell of a notebook, or as lines on a terminal.

`Job.watch` draws until the job ends. A job that is shown in a notebook draws itself, from a thread, while other cells
run. IPython is used where it is loaded already, and is no dependency.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from importlib import import_module
from time import monotonic
from typing import Any

from penstock.runtime.progress import Progress

WATCH_S = 0.5
"""How often a table is drawn anew."""
TABLES_MAX = 4
"""Cells of a notebook in which a job draws itself; in those before it stays as it was."""


def notebook() -> Callable[..., Any] | None:
    """What shows an object in a cell of a notebook; None where there is none, as in a terminal."""
    if "IPython" not in sys.modules:
        return None
    shell = import_module("IPython").get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    display: Callable[..., Any] = import_module("IPython.display").display
    return display


def screen() -> Callable[[Progress], None]:
    """Where progress is drawn again and again: a cell of a notebook, or the terminal, a line for each change."""
    seen: list[Any] = []
    display = notebook()
    if display is not None:

        def draw(progress: Progress) -> None:
            if seen:
                seen[0].update(progress)
            else:
                seen.append(display(progress, display_id=True))

        return draw

    def line(progress: Progress) -> None:
        if seen != [progress.headline]:
            seen[:] = [progress.headline]
            sys.stderr.write(f"{progress.headline}\n")

    return line


def watch(read: Callable[[], Progress], ended: threading.Event, seconds: float | None) -> None:
    """Draw until the job ends, for ``seconds`` at most, or until an interrupt."""
    until = None if seconds is None else monotonic() + seconds
    draw = screen()
    try:
        while True:
            draw(read())
            left_s = WATCH_S if until is None else min(WATCH_S, until - monotonic())
            if left_s <= 0 or ended.wait(left_s):
                break
    except KeyboardInterrupt:
        pass
    draw(read())


class Tables:
    """The tables of one job in a notebook, and the thread that draws them until the job has ended.

    ========= ======================= ==========================================
    state     event                   what happens
    ========= ======================= ==========================================
    resting   shown                   the table is there, the thread begins
    drawing   shown                   one table more; the oldest one is let go
    drawing   time has passed         all tables are drawn anew
    drawing   the job has ended       drawn for the last time, then resting
    resting   shown, job has ended    the table is there, and stays as it is
    ========= ======================= ==========================================
    """

    def __init__(self, read: Callable[[], Progress], wait: Callable[[float], bool]) -> None:
        self._read = read
        self._wait = wait
        """Waits for the end of the job, so many seconds at most, and says whether it has come."""
        self._handles: deque[Any] = deque(maxlen=TABLES_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def show(self, display: Callable[..., Any]) -> None:
        """Show one more table, in the cell that runs."""
        handle = display(self._read(), display_id=True)
        with self._lock:
            self._handles.append(handle)
            if self._thread is None and not self._wait(0):
                self._thread = threading.Thread(target=self._draw, name="penstock-table", daemon=True)
                self._thread.start()

    def join(self) -> None:
        """Wait until the tables have been drawn for the last time."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _draw(self) -> None:
        over = False
        while not over:
            over = self._wait(WATCH_S)
            with self._lock:
                handles = list(self._handles)
            progress = self._read()
            for handle in handles:
                try:
                    handle.update(progress)
                except Exception:  # the notebook is being closed, or its cell is gone: the job goes on
                    over = True
        self._thread = None
