"""Verbs that call functions of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.operators import Apply, Function, as_function
from penstock.pipeline.streams.base import Builder
from penstock.types import Schema

if TYPE_CHECKING:
    from penstock.pipeline.streams.stream import Stream


class FunctionVerbs(Builder):
    """What a stream can do with Python functions."""

    def map(
        self,
        function: Function | Any,
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Call a function for each record; it returns a dict, a tuple or a record of ``schema``.

        Columns that a dict leaves out are null. For a schema of one column the bare value will do.
        """
        return self._apply(function, schema, name, on_error, flat=False)

    def flat_map(
        self,
        function: Function | Any,
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Call a function for each record; it returns any number of records of ``schema``."""
        return self._apply(function, schema, name, on_error, flat=True)

    def _apply(
        self, function: Any, schema: str | Schema | None, name: str | None, on_error: str, *, flat: bool
    ) -> Stream:
        label = name or getattr(function, "__name__", "map").replace("<lambda>", "flat_map" if flat else "map")
        step_function = as_function(function, schema, label)
        stream = self._then(Apply(step_function, flat), name, on_error)
        return stream if name else stream._renamed(label)
