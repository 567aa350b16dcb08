"""The builder users write pipelines with: every call returns a new Stream and adds one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.checks import OneOf
from penstock.connectors.base import End, Sink, Source
from penstock.durations import parse_us
from penstock.errors import InvalidGraph, InvalidOption, PenstockError, TypeMismatch
from penstock.expr import Column
from penstock.operators import (
    LATE,
    MAIN,
    REST,
    Aggregation,
    Apply,
    DropDuplicates,
    Emit,
    Filter,
    Function,
    How,
    Lookup,
    LookupTable,
    Operation,
    ParseJson,
    Project,
    Split,
    TimeUnit,
    Watermark,
    Window,
    as_function,
    check_keys,
    join,
    sliding,
    tumbling,
)
from penstock.operators.keyed import aggregates as agg
from penstock.operators.keyed.aggregates import Aggregate
from penstock.pipeline.graph import Input
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.steps import Step, make_step, named_columns
from penstock.types import Schema


class _Branches(dict[str, "Stream"]):
    def __missing__(self, name: str) -> Stream:
        raise InvalidGraph(f"there is no branch '{name}'.", operation="split", hint=f"Branches: {', '.join(self)}.")


def stream(name: str, source: Source | End) -> Stream:
    """Begin a pipeline at a source.

    Parameters
    ----------
    name : str
        Name of the source operation.
    source : Source
        Such as ``ps.generator(…)`` or ``ps.json_files(…)``.
    """
    source = source.source() if isinstance(source, End) else source
    if not isinstance(source, Source):
        raise TypeMismatch(
            what=f"{source!r} is not a source.",
            operation=name,
            hint="Use ps.generator(…), ps.records(…) or ps.json_files(…).",
        )
    return Stream(make_step(source, (), name, name), MAIN, source.schema)


class Stream:
    """Records of one schema, flowing. Immutable: every method returns a new stream."""

    def __init__(self, step: Step, port: str, schema: Schema, keys: tuple[str, ...] = ()) -> None:
        self._from = step
        self._port = port
        self._keys = keys
        self.schema = schema

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._from.node.name}: {self.schema.ddl})"

    @property
    def _edge(self) -> tuple[Step, Input]:
        return self._from, Input(self._from.node.name, self._port, self._keys)

    @property
    def _unkeyed(self) -> Stream:
        return Stream(self._from, self._port, self.schema)

    def _then(self, operation: Operation, name: str | None, on_error: str = "fail") -> Stream:
        step = make_step(operation, (self._edge,), name, operation.kind, on_error)
        try:
            return Stream(step, MAIN, operation.bind(self.schema))
        except PenstockError as error:
            raise error.at(step.node.name) from None

    def filter(self, condition: Column, *, name: str | None = None, on_error: str = "fail") -> Stream:
        """Keep the records for which a condition is true."""
        if not isinstance(condition, Column):
            raise TypeMismatch(
                what=f"{condition!r} is not a column expression.",
                operation=name or "filter",
                hint='Write ps.col("x") == 1, or use map().',
            )
        return self._then(Filter(condition), name, on_error)

    def select(
        self, *columns: str | Column, name: str | None = None, on_error: str = "fail", **named: Column
    ) -> Stream:
        """Keep or compute columns, in this order; ``total=ps.col("a") + 1`` names a computed one."""
        return self._then(Project(named_columns(columns, named, name or "select")), name, on_error)

    def with_columns(
        self, *columns: Column, name: str | None = None, on_error: str = "fail", **named: Column
    ) -> Stream:
        """Add computed columns, or replace those of the same name."""
        return self._then(Project(named_columns(columns, named, name or "with_columns"), keep=True), name, on_error)

    def parse_json(
        self,
        schema: str | Schema,
        *,
        column: str = "value",
        timestamp_unit: str = "ms",
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Decode a column that holds one JSON object per record.

        Members that the schema does not name are ignored, missing ones are null. A member of the wrong type
        makes the record bad, which follows ``on_error``. Timestamps are ISO-8601 text or numbers in ``timestamp_unit``.
        """
        unit = OneOf(TimeUnit).read("timestamp_unit", timestamp_unit, operation=name or "parse_json")
        return self._then(ParseJson(Schema.parse(schema), column, unit), name, on_error)

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

    def _renamed(self, label: str) -> Stream:
        step = replace(self._from, node=replace(self._from.node, name=label))
        return Stream(step, self._port, self.schema, self._keys)

    def lookup(
        self, table: LookupTable, *, on: str, how: str = "inner", name: str | None = None, on_error: str = "fail"
    ) -> Stream:
        """Add the columns of a static table, found by key; ``how="left"`` keeps records without a match."""
        if not isinstance(table, LookupTable):
            raise TypeMismatch(
                what=f"{table!r} is not a table.",
                operation=name or "lookup",
                hint="Make one with ps.table(rows, schema=…, key=…).",
            )
        kind = OneOf(How).read("how", how, operation=name or "lookup")
        return self._then(Lookup(table, on, kind), name, on_error)

    def split(self, *, name: str | None = None, on_error: str = "fail", **branches: Column) -> Mapping[str, Stream]:
        """Send each record to the branch of the first condition that is true, else to ``rest``.

        Every named branch has to lead to a sink; what goes to ``rest`` is dropped if nobody takes it.

        Examples
        --------
        >>> parts = events.split(views=col("kind") == "view")   # doctest: +SKIP
        >>> parts["views"], parts["rest"]                       # doctest: +SKIP
        """
        operation = Split(tuple(branches.items()))
        step = self._then(operation, name, on_error)._from
        return _Branches({port: Stream(step, port, self.schema) for port in (*branches, REST)})

    def merge(self, *others: Stream, name: str | None = None) -> Stream:
        """Join streams of the same schema into one; each keeps its own order."""
        inputs = tuple(each._edge for each in (self, *others))
        step = make_step(None, inputs, name, "merge")
        for other in others:
            if other.schema != self.schema:
                raise TypeMismatch(
                    what=f"({other.schema.ddl}) cannot be merged with ({self.schema.ddl}).",
                    operation=step.node.name,
                    hint="Use select() first.",
                )
        return Stream(step, MAIN, self.schema)

    def join(
        self,
        other: Stream,
        *,
        on: str | Sequence[str],
        within: str | float,
        time: str | None = None,
        left_time: str | None = None,
        right_time: str | None = None,
        lateness: str | float = 0,
        how: str = "inner",
        match: str = "all",
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Pair the records of two streams that have the same key and whose times are close together.

        A pair has the columns of this stream and those that the other one adds. A null key equals nothing. Only event
        time counts: what is paired depends neither on the clock nor on which side comes first. Records are held until
        no partner can come any more, so a side that stands still without being idle makes the other one's records
        pile up.

        Parameters
        ----------
        other : Stream
            The right side; a column that both have, other than the key, has to be renamed before.
        on : str or list of str
            The key: columns that both sides have.
        within : str or number
            Time to live: how far apart the times of a pair may be, such as ``"10s"``.
        time : str
            The timestamp column of both sides; pairs have it once, with the later of the two times.
        left_time, right_time : str
            The timestamp columns where their names differ, instead of ``time``; pairs have both.
        lateness : str or number
            How far behind the newest record of its own partition a record may be, where the stream does not say that
            itself (:meth:`with_watermark`). One that is further behind is late: counted, not joined. Windows and joins
            over the pairs' times wait as long as this join may take, and need no lateness of their own.
        how : {"inner", "left"}
            With ``"left"``, a record of this stream that finds no partner is sent on with nulls, once that is certain.
        match : {"all", "once"}
            With ``"all"`` every pair is made, and sent on when the second of its records comes. With ``"once"`` a
            record is in one pair at most, which uses it up. Records are then taken in the order of time (at equal
            times this stream's first, then by their other columns, nulls first), each with the first record of the
            other side in that order that still waits and is at most ``within`` older. That order is known once event
            time has passed a record, by ``lateness``: it is sent on then, and not before.

        Examples
        --------
        >>> clicks.join(views, on="ad", within="10s", left_time="clicked", right_time="viewed")  # doctest: +SKIP
        """
        label = name or "join"
        if not isinstance(other, Stream):
            raise TypeMismatch(what=f"{other!r} is not a stream.", operation=label, hint="Use lookup() for a table.")
        times = {"time": time, "left_time": left_time, "right_time": right_time}
        try:
            operation = join(on, within=within, lateness=lateness, how=how, match=match, **times)
            schema = operation.bind(self.schema, other.schema)
        except PenstockError as error:
            raise error.at(label) from None
        step = make_step(operation, (self._unkeyed._edge, other._unkeyed._edge), name, operation.kind, on_error)
        return Stream(step, MAIN, schema)

    def with_watermark(self, column: str, delay: str | float, *, name: str | None = None) -> Stream:
        """Declare event time: which column holds it, and how far out of order its records may be.

        The watermark of a source partition trails the largest time that the partition has shown by ``delay``. Windows
        and joins over this column, anywhere behind, wait for records until the watermarks of all partitions have
        passed, and need no lateness of their own. A record is late only if it is behind the watermark of its own
        partition. A partition that has nothing to read for ``idle`` is not waited for.

        Examples
        --------
        >>> events.with_watermark("at", "1s").key_by("ad").window("10s", on="at").count()  # doctest: +SKIP
        """
        operation = Watermark(column, parse_us(delay, option="delay", allow_zero=True))
        return self._unkeyed._then(operation, name)

    def drop_duplicates(
        self,
        *columns: str,
        on: str | None = None,
        within: str | float | None = None,
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Let the first record of each key pass, and drop those that come after it with the same key.

        Parameters
        ----------
        *columns : str
            The key; all columns where none is named.
        on, within : str, str or number
            The timestamp column, and how far from a record that has passed another one with its key is still a
            duplicate. Keys are forgotten when the watermark has passed them by that; records behind the watermark of
            their own partition are late: counted and dropped. Without these, every key is held for as long as the job
            runs.

        Examples
        --------
        >>> events.with_watermark("at", "5s").drop_duplicates("id", on="at", within="10m")  # doctest: +SKIP
        """
        if (on is None) != (within is None):
            raise InvalidOption(
                option="within", given=within, allowed="together with on, the timestamp column", operation=name
            )
        within_us = 0 if within is None else parse_us(within, option="within", allow_zero=True)
        operation = DropDuplicates(columns or tuple(self.schema.names), on, within_us)
        return self._unkeyed._then(operation, name, on_error)

    def key_by(self, *columns: str) -> KeyedStream:
        """Deal records out by key, so that all records of a key meet in one place, in order."""
        try:
            return KeyedStream(self._from, self._port, self.schema, check_keys(self.schema, columns))
        except PenstockError as error:
            raise error.at("key_by") from None

    def window(
        self,
        window: Window | str | float,
        *,
        on: str | None = None,
        slide: str | float | None = None,
        lateness: str | float = 0,
        allowed_lateness: str | float = 0,
        emit: str = "close",
    ) -> Grouped:
        """Cut each key's records, or the whole stream where there is no :meth:`key_by` before, into windows.

        ``window("10s", on="time")`` is ``window(ps.tumbling("10s", on="time"))``; with ``slide="2s"`` a window of
        10 seconds begins every 2 seconds, and each record is in five of them. See :func:`penstock.tumbling`.
        """
        if isinstance(window, str | int | float):
            if on is None:
                raise InvalidOption(option="on", given=on, allowed="the timestamp column", operation="window")
            options: dict[str, Any] = {"on": on, "lateness": lateness, "emit": emit}
            options["allowed_lateness"] = allowed_lateness
            window = tumbling(window, **options) if slide is None else sliding(window, slide=slide, **options)
        elif (on, slide, lateness, allowed_lateness, emit) != (None, None, 0, 0, "close"):
            raise InvalidOption(
                option="window", given=window, allowed="a size, where on, slide, lateness or emit is given"
            )
        return Grouped(self._unkeyed, self._keys, window)

    def aggregate(
        self, *, name: str | None = None, on_error: str = "fail", emit: str = "change", **aggregates: Aggregate
    ) -> Aggregated:
        """Aggregate each key, or the whole stream, without windows: the value so far is sent on.

        With ``emit="change"`` that is when it has changed, at most once for each key and block of records: how often
        depends on how records happen to come together, the last value of each key does not. With ``emit="every"`` it is
        for every record, so that each value comes once (a running count comes by 1, 2, 3 …), which costs more.
        """
        running = Emit.read(emit)
        if running is Emit.CLOSE:
            allowed = "change or every: without a window nothing closes"
            raise InvalidOption(option="emit", given=emit, allowed=allowed, operation=name or "aggregate")
        return Grouped(self._unkeyed, self._keys, None, running).aggregate(name=name, on_error=on_error, **aggregates)

    def to(self, sink: Sink | End, *, name: str | None = None, dead_letters: Sink | End | None = None) -> Pipeline:
        """End the stream in a sink; ``dead_letters`` takes the bad records of operations with that policy."""
        sink = sink.sink() if isinstance(sink, End) else sink
        dead_letters = dead_letters.sink() if isinstance(dead_letters, End) else dead_letters
        if not isinstance(sink, Sink):
            raise TypeMismatch(
                what=f"{sink!r} is not a sink.",
                operation=name or "sink",
                hint="Use ps.files(…), ps.console() or ps.memory().",
            )
        return Pipeline((make_step(sink, (self._edge,), name, f"to_{sink.kind}"),), dead_letters)


class KeyedStream(Stream):
    """A stream dealt out by key."""

    def with_watermark(self, column: str, delay: str | float, *, name: str | None = None) -> KeyedStream:
        """Declare event time, as :meth:`Stream.with_watermark` does."""
        made = super().with_watermark(column, delay, name=name)
        return KeyedStream(made._from, MAIN, made.schema, self._keys)

    def count(self, *, name: str | None = None, on_error: str = "fail", emit: str = "change") -> Aggregated:
        """Running count of each key; ``emit`` as in :meth:`Stream.aggregate`."""
        made = self.aggregate(name=name, on_error=on_error, emit=emit, count=agg.count())
        return made if name else made._named("count")


class Grouped:
    """Records grouped by key and window, waiting for their aggregates."""

    def __init__(
        self, stream: Stream, keys: tuple[str, ...], window: Window | None, running: Emit = Emit.CHANGE
    ) -> None:
        if window is not None and not isinstance(window, Window):
            raise TypeMismatch(
                what=f"{window!r} is not a window.",
                operation="window",
                hint='Give a size, window("10s", on="…"), or ps.tumbling("10s", on="…").',
            )
        self._stream = stream
        self._keys = keys
        self._window = window
        self._running = running

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
        operation = Aggregation(self._keys, tuple(aggregates.items()), self._window, self._running)
        made = self._stream._then(operation, name, on_error)
        return Aggregated(made._from, MAIN, made.schema, late_schema=self._stream.schema if self._window else None)

    def _one(self, word: str, aggregate: Aggregate, on_error: str) -> Aggregated:
        return self._aggregate(None, on_error, {word: aggregate})._named(word)

    def count(self, *, on_error: str = "fail") -> Aggregated:
        """Number of records."""
        return self._one("count", agg.count(), on_error)

    def sum(self, column: str, *, on_error: str = "fail") -> Aggregated:
        """Sum of a column."""
        return self._one("sum", agg.sum(column), on_error)

    def min(self, column: str, *, on_error: str = "fail") -> Aggregated:
        """Smallest value of a column."""
        return self._one("min", agg.min(column), on_error)

    def max(self, column: str, *, on_error: str = "fail") -> Aggregated:
        """Largest value of a column."""
        return self._one("max", agg.max(column), on_error)

    def mean(self, column: str, *, on_error: str = "fail") -> Aggregated:
        """Mean of a column."""
        return self._one("mean", agg.mean(column), on_error)

    def first(self, column: str, *, on_error: str = "fail") -> Aggregated:
        """First value of a column to arrive."""
        return self._one("first", agg.first(column), on_error)

    def last(self, column: str, *, on_error: str = "fail") -> Aggregated:
        """Last value of a column to arrive."""
        return self._one("last", agg.last(column), on_error)


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
