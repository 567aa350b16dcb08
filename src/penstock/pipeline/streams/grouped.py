"""Streams dealt out by key, groups that wait for their aggregates, and the results of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from penstock.errors import PenstockError, TypeMismatch
from penstock.operators import LATE, MAIN, Aggregation, Emit, Window
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.aggregates import Aggregate
from penstock.operators.keyed.calls import fitting
from penstock.operators.keyed.counting import CountWindow
from penstock.operators.keyed.expiring import TimeToLive
from penstock.pipeline.steps import Step
from penstock.pipeline.streams.hints import missing
from penstock.pipeline.streams.processing import ProcessVerbs
from penstock.pipeline.streams.stream import Stream
from penstock.types import Schema


class KeyedStream(ProcessVerbs, Stream):
    """A stream dealt out by key."""

    def with_watermark(self, column: str, delay: str | float, *, name: str | None = None) -> KeyedStream:
        """Declare event time, as :meth:`Stream.with_watermark` does."""
        made = super().with_watermark(column, delay, name=name)
        return KeyedStream(made._from, MAIN, made.schema, self._keys)

    def count(
        self,
        *,
        name: str | None = None,
        on_error: str = "fail",
        emit: str = "change",
        ttl: str | float | None = None,
        on: str | None = None,
    ) -> Aggregated:
        """Running count of each key; ``emit``, ``ttl`` and ``on`` as in :meth:`Stream.aggregate`."""
        made = self.aggregate(name=name, on_error=on_error, emit=emit, ttl=ttl, on=on, count=agg.count())
        return made if name else made._named("count")


class Grouped:
    """Records grouped by key and window, waiting for their aggregates."""

    def __init__(
        self,
        stream: Stream,
        keys: tuple[str, ...],
        window: Window | CountWindow | None,
        running: Emit = Emit.CHANGE,
        ttl: TimeToLive | None = None,
    ) -> None:
        if window is not None and not isinstance(window, Window | CountWindow):
            raise TypeMismatch(
                what=f"{window!r} is not a window.",
                operation="window",
                hint='Give a size, window("10s", on="…"), or ps.tumbling("10s", on="…").',
            )
        self._stream = stream
        self._keys = keys
        self._window = None if isinstance(window, CountWindow) else window
        self._counts = window if isinstance(window, CountWindow) else None
        self._running = running
        self._ttl = ttl

    def __repr__(self) -> str:
        by = ", ".join(self._keys) or "all"
        return f"{type(self).__name__}({by}, {self._window or self._counts or 'no window'}, of {self._stream!r})"

    def aggregate(self, *, name: str | None = None, on_error: str = "fail", **aggregates: Aggregate) -> Aggregated:
        """Compute several aggregates: ``aggregate(n=ps.agg.count(), total=ps.agg.sum("price"))``."""
        return self._aggregate(name, on_error, aggregates)

    def _aggregate(self, name: str | None, on_error: str, aggregates: Mapping[str, Aggregate]) -> Aggregated:
        for label, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise TypeMismatch(
                    what=f"{label}={aggregate!r} is not an aggregate.",
                    operation=name or "aggregate",
                    hint="Use ps.agg.sum(…) and the like.",
                )
        try:
            made_of = tuple((label, fitting(each, self._stream.schema)) for label, each in aggregates.items())
        except PenstockError as error:
            raise error.at(name or "aggregate") from None
        operation = Aggregation(self._keys, made_of, self._window, self._running, self._ttl, self._counts)
        made = self._stream._then(operation, name, on_error)
        return Aggregated(made._from, MAIN, made.schema, late_schema=self._stream.schema if self._window else None)

    def _one(self, word: str, aggregate: Aggregate, name: str | None, on_error: str) -> Aggregated:
        made = self._aggregate(name, on_error, {word: aggregate})
        return made if name else made._named(word)

    def count(self, *, name: str | None = None, on_error: str = "fail") -> Aggregated:
        """Number of records."""
        return self._one("count", agg.count(), name, on_error)

    def sum(self, column: str, *, name: str | None = None, on_error: str = "fail") -> Aggregated:
        """Sum of a column."""
        return self._one("sum", agg.sum(column), name, on_error)

    def min(self, column: str, *, name: str | None = None, on_error: str = "fail") -> Aggregated:
        """Smallest value of a column."""
        return self._one("min", agg.min(column), name, on_error)

    def max(self, column: str, *, name: str | None = None, on_error: str = "fail") -> Aggregated:
        """Largest value of a column."""
        return self._one("max", agg.max(column), name, on_error)

    def mean(self, column: str, *, name: str | None = None, on_error: str = "fail") -> Aggregated:
        """Mean of a column."""
        return self._one("mean", agg.mean(column), name, on_error)

    def first(self, column: str, *, name: str | None = None, on_error: str = "fail") -> Aggregated:
        """First value of a column to arrive."""
        return self._one("first", agg.first(column), name, on_error)

    def last(self, column: str, *, name: str | None = None, on_error: str = "fail") -> Aggregated:
        """Last value of a column to arrive."""
        return self._one("last", agg.last(column), name, on_error)

    if not TYPE_CHECKING:  # to which any name would be there

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(self, name)


class Aggregated(Stream):
    """Results of an aggregation, with the records that came too late beside them."""

    def __init__(
        self,
        step: Step,
        port: str,
        schema: Schema,
        keys: tuple[str, ...] = (),
        *,
        late_schema: Schema | None = None,
    ) -> None:
        super().__init__(step, port, schema, keys)
        self._late_schema = late_schema

    def _named(self, label: str) -> Aggregated:
        renamed = self._renamed(label)
        return Aggregated(renamed._from, self._port, self.schema, late_schema=self._late_schema)

    @property
    def late(self) -> Stream:
        """The records that came after their window had closed, whole."""
        if self._late_schema is None:
            raise TypeMismatch(what="only windows have late records.", operation=self._from.node.name)
        return Stream(self._from, LATE, self._late_schema)
