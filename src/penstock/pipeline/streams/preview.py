"""A look at a stream from a REPL: `take` and `show`, on a small run in this process that ends by itself.

Whoever can run a pipeline says how (`use`); the builder knows no runner, and only where one is found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.checks import Whole
from penstock.connectors.plain import is_converted, plain_value, value_of
from penstock.errors import PenstockError
from penstock.pipeline.streams.base import Builder

if TYPE_CHECKING:
    from penstock.pipeline.streams.stream import Stream

ROWS_MAX = 10_000
_WIDTH = 40
_runners: list[Callable[[Stream, int], list[dict[str, object]]]] = []


def use(run: Callable[[Stream, int], list[dict[str, object]]]) -> None:
    """Say how a stream is run for its first records."""
    _runners[:] = [run]


class PreviewVerbs(Builder):
    """What a stream can show of itself."""

    def take(self, n: int = 10) -> list[dict[str, object]]:
        """Run the stream in this process, without Spark, and return its first ``n`` records as dicts.

        Timestamps are ``datetime`` in UTC, dates are ``date``, structs are dicts. The sources are read from their
        beginning, in made-up time: a source that waits, such as a generator with a rate, costs no time. What has not
        come after ten minutes of it is not waited for.
        """
        kinds = [(field.name, field.type) for field in self.schema if is_converted(field.type)]
        rows = self._first(n)
        for row in rows:
            row |= {name: value_of(row[name], kind) for name, kind in kinds}
        return rows

    def _first(self, n: int) -> list[dict[str, object]]:
        """The first records, with values as records hold them."""
        count = Whole(1, ROWS_MAX).read("n", n)
        if not _runners:
            import_module("penstock.testing")  # where the runner is, which says so itself
        try:
            return _runners[0](self._unkeyed, count)
        except PenstockError as error:
            raise error.with_traceback(None) from None

    def show(self, n: int = 10, truncate: bool | int = True) -> None:
        """Print the first ``n`` records as a table; see :meth:`take`.

        Cells are cut after 40 characters, after as many as ``truncate`` says, or not at all where it is False.
        """
        width_max = _WIDTH if truncate is True else Whole(0).read("truncate", truncate or 0)
        rows = self._first(n)
        kinds = {field.name: field.type for field in self.schema}
        texts = [[_text(plain_value(row[name], kind), width_max) for name, kind in kinds.items()] for row in rows]
        widths = [max(map(len, column)) for column in zip([*kinds], *texts, strict=True)]
        lines = [
            " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts
        ]
        head = " | ".join(name.ljust(width) for name, width in zip(kinds, widths, strict=True)).rstrip()
        rule = "-+-".join("-" * width for width in widths)
        sys.stdout.write("\n".join([head, rule, *lines]) + "\n")


def _text(value: object, width_max: int) -> str:
    text = "null" if value is None else str(value)
    return text if not width_max or len(text) <= width_max else text[: width_max - 1] + "…"
