"""Verbs that call functions of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import TypeMismatch
from penstock.operators import Apply, Function, Transform, as_function
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

    def transform(self, function: Callable[[Any], Any], *, schema: str | Schema, name: str | None = None) -> Stream:
        """Apply a function from DataFrame to DataFrame to micro-batches, as Spark SQL jobs.

        Any DataFrame function, Spark ML model, pandas UDF or large table will do. The rows go straight from the workers
        to Spark's tasks and back; several jobs are under way at a time, and results keep their place in the stream. It
        has a batch form only: every micro-batch is a job of some tenths of a second. Within a micro-batch the order of
        the rows is Spark's.

        Parameters
        ----------
        function : callable
            Takes a DataFrame with the columns of this stream and returns one with the columns of ``schema``. It is
            called in the driver, for every micro-batch and once for an empty one before the job begins.
        schema : str
            Columns of the result in Spark's DDL.

        Examples
        --------
        >>> orders.transform(lambda df: df.join(customers, "id"), schema="id bigint, name string")  # doctest: +SKIP
        """
        if not callable(function):
            raise TypeMismatch(what=f"{function!r} is not a function.", operation=name or "transform")
        return self._then(Transform(function, Schema.parse(schema)), name)

    def _apply(
        self, function: Any, schema: str | Schema | None, name: str | None, on_error: str, *, flat: bool
    ) -> Stream:
        label = name or getattr(function, "__name__", "map").replace("<lambda>", "flat_map" if flat else "map")
        step_function = as_function(function, schema, label)
        stream = self._then(Apply(step_function, flat), name, on_error)
        return stream if name else stream._renamed(label)
