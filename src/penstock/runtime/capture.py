"""Reading a file for its pipelines: while `capturing`, `run` and `start` hand over what they got and start nothing.

The command line reads users' files this way; `penstock.runtime.job` consults it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from penstock.connectors.base import Sink
from penstock.pipeline.pipeline import Pipeline


class Captured(BaseException):
    """Leaves a file at its first `run` or `start`; no error, so that the file's own handlers do not take it for one."""

    def __init__(
        self,
        pipelines: tuple[Pipeline, ...],
        dead_letters: Sink | None,
        duration: str | float | None,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        self.pipelines = pipelines
        self.dead_letters = dead_letters
        self.duration = duration
        self.options = options


_capturing: ContextVar[bool] = ContextVar("penstock_capturing", default=False)


@contextmanager
def capturing() -> Iterator[None]:
    """Make `run` and `start` raise `Captured` in this context."""
    token = _capturing.set(True)
    try:
        yield
    finally:
        _capturing.reset(token)


def capture(
    pipelines: tuple[Pipeline, ...], dead_letters: Sink | None, duration: str | float | None, options: dict[str, Any]
) -> None:
    """Raise `Captured` with these if a file is only being read; else do nothing."""
    if _capturing.get():
        raise Captured(pipelines, dead_letters, duration, options)
