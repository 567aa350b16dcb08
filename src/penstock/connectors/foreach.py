"""The callback sink: calls a user's function with every record, on the worker."""

from __future__ import annotations

from collections.abc import Callable

from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.errors import InvalidOption, SinkFailed
from penstock.types import Record, Schema

Callback = Callable[[Record], object]


class Foreach(Sink):
    """A sink that calls a function; build it with :func:`foreach`."""

    is_movable = False  # several tasks that called the function at once would change the order of a key's records

    def __init__(self, function: Callback) -> None:
        self._function = function

    @property
    def kind(self) -> str:
        return "foreach"

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        del schema
        return _ForeachWriter(self._function, context.operation)


class _ForeachWriter(SinkWriter):
    def __init__(self, function: Callback, operation: str) -> None:
        self._function = function
        self._operation = operation

    def write(self, rows: list[Record]) -> None:
        function = self._function
        for row in rows:
            try:
                function(row)
            except Exception as error:
                name = getattr(function, "__name__", type(function).__name__)
                raise SinkFailed(
                    sink=f"foreach({name})",
                    cause=f"{type(error).__name__}: {error}, on {row!r}",
                    operation=self._operation,
                ) from error


def foreach(function: Callback) -> Foreach:
    """Call a function with every record, on the worker, as soon as the record is there.

    It does not wait for the commit, so after a failure records come again: at least once. Make the function
    idempotent where that matters. The records of a key that was shuffled by are handled by one worker, one after the
    other and in order, whatever form the operations before it have: a store where the last write wins ends right.

    Parameters
    ----------
    function : callable
        Takes one record; what it returns is ignored.
    """
    if not callable(function):
        raise InvalidOption(option="function", given=function, allowed="a function of one record")
    return Foreach(function)
