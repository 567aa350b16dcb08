"""Verbs that call functions of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.checks import Whole
from penstock.durations import parse_us
from penstock.errors import PenstockError, TypeMismatch
from penstock.operators import Apply, Function, MapAsync, Retry, Transform, as_function
from penstock.operators.errors import ATTEMPTS_MAX
from penstock.operators.stateless.calls import CAPACITY_MAX, is_coroutine
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
        replicas: int | tuple[int, int] | None = None,
    ) -> Stream:
        """Call a function for each record; it returns a dict, a tuple or a record of ``schema``.

        Columns that a dict leaves out are null. For a schema of one column the bare value will do. A function whose
        parameter is annotated with a dataclass or a ``msgspec.Struct`` is given instances of it, with ``datetime`` and
        ``date`` where the members say so; one that is annotated to return such a class needs no ``schema``.

        Parameters
        ----------
        replicas : int or (int, int)
            How many processes compute it side by side: a number, or the least and the most, between which the job
            chooses. 1: the worker itself, always. Results keep their order. See docs/replicas.md. A function that waits
            for a service is better called by :meth:`map_async`.

        Examples
        --------
        >>> from dataclasses import dataclass
        >>> from datetime import datetime
        >>> import penstock as ps
        >>> @dataclass
        ... class Click:
        ...     user: str
        ...     at: datetime
        >>> def day(click: Click):
        ...     return click.user, click.at.strftime("%A")
        >>> clicks = ps.stream("clicks", ps.records([("ann", 0)], schema="user string, at timestamp"))
        >>> clicks.map(day, schema="user string, day string").take()
        [{'user': 'ann', 'day': 'Thursday'}]
        >>> images.map(classify, schema="id bigint, label string", replicas=4)         # doctest: +SKIP
        """
        return self._apply(function, schema, name, on_error, replicas, flat=False)

    def flat_map(
        self,
        function: Function | Any,
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
        on_error: str = "fail",
        replicas: int | tuple[int, int] | None = None,
    ) -> Stream:
        """Call a function for each record; it returns any number of records of ``schema``.

        ``replicas`` is how many processes compute it side by side, as for :meth:`map`.
        """
        return self._apply(function, schema, name, on_error, replicas, flat=True)

    def map_async(
        self,
        function: Function | Any,
        *,
        schema: str | Schema | None = None,
        capacity: int = 64,
        timeout: str | float | None = None,
        retry: Retry | int | None = None,
        ordered: bool = True,
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Call a function that waits for others, such as a service, for many records at once.

        Parameters
        ----------
        function : coroutine function, or plain function
            Takes a record, returns a dict, a tuple or a record of ``schema``. Coroutines share one event loop in each
            worker; a plain function that blocks runs in up to ``capacity`` threads. ``@fn.many`` on a function made
            with ``@ps.op`` adds a form for a list of records, ``@fn.batch`` one for Arrow columns: what waits while
            ``capacity`` is used up then goes in one call.
        capacity : int
            Calls under way at once, in each worker; beyond that records wait, and back-pressure reaches the source.
        timeout : str or number
            A call that takes longer is cancelled and has failed with ``TimeoutError``.
        retry : int or ps.retry(…)
            How often a call that has failed is made again, 100 ms later and twice as long each time. What fails for
            the last time follows ``on_error``.
        ordered : bool
            Whether results keep the order of their records. If not, they leave as they come, in order only by the
            columns of :meth:`key_by` where that is right before.

        Notes
        -----
        A record whose results are not committed when a process is lost is called for again: the service sees it at
        least once, the sinks exactly once.

        Examples
        --------
        >>> async def rate(record):                                                    # doctest: +SKIP
        ...     answer = await client.get(f"http://rates/{record.currency}")
        ...     return {"id": record.id, "rate": answer.json()["rate"]}
        >>> orders.map_async(rate, schema="id bigint, rate double", timeout="2s", retry=3)  # doctest: +SKIP
        """
        label = name or getattr(function, "__name__", "map_async").replace("<lambda>", "map_async")
        try:
            Whole(1, CAPACITY_MAX).read("capacity", capacity)
            if on_error == "retry":  # which everywhere means: three times, and then fail
                retry, on_error = ATTEMPTS_MAX if retry is None else retry, "fail"
            tries = Retry.of(retry)
            timeout_us = None if timeout is None else parse_us(timeout, option="timeout")
        except PenstockError as error:
            raise error.at(label) from None
        called = as_function(function, schema, label, self.schema)
        kinds = {is_coroutine(each) for each in (called.record_form, called.many_form, called.batch_form) if each}
        if len(kinds) > 1:
            raise TypeMismatch(
                what="some of its forms are coroutines, others are not.",
                operation=label,
                hint="Make all of them async.",
            )
        stream = self._then(MapAsync(called, capacity, timeout_us, tries, bool(ordered), self._keys), name, on_error)
        return stream if name else stream._renamed(label)

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
        self,
        function: Any,
        schema: str | Schema | None,
        name: str | None,
        on_error: str,
        replicas: int | tuple[int, int] | None,
        *,
        flat: bool,
    ) -> Stream:
        label = name or getattr(function, "__name__", "map").replace("<lambda>", "flat_map" if flat else "map")
        step_function = as_function(function, schema, label, self.schema, flat=flat)
        if is_coroutine(step_function.record_form):
            hint = "Use map_async()."
            raise TypeMismatch(what=f"'{step_function.__name__}' gives a coroutine.", operation=label, hint=hint)
        stream = self._then(Apply(step_function, flat), name, on_error, replicas)
        return stream if name else stream._renamed(label)
