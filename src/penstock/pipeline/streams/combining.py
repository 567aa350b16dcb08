"""Verbs that bring streams and tables together, or one stream apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.checks import OneOf
from penstock.errors import InvalidGraph, PenstockError, TypeMismatch, naming
from penstock.expr import Column, call, col
from penstock.operators import MAIN, REST, How, Join, JoinHow, Lookup, LookupTable, Project, Split, join, join_asof
from penstock.pipeline.steps import make_step
from penstock.pipeline.streams.base import Builder, declared_time
from penstock.pipeline.streams.conditions import Sides, settle
from penstock.types import Schema, quoted

if TYPE_CHECKING:
    from penstock.pipeline.streams.stream import Stream


class _Branches(dict[str, "Stream"]):
    def __missing__(self, name: str) -> Stream:
        raise InvalidGraph(f"there is no branch '{name}'.", operation="split", hint=f"Branches: {', '.join(self)}.")


def _times(sides: Sides, *named: str | None) -> dict[str, str | None]:
    """The time columns of a join: as they are given, or as the streams have declared them."""
    time, left, right = named
    if named == (None, None, None) and not sides.is_timed:
        left, right = (declared_time(side._from, side.schema) for side in (sides.left, sides.right))
        if left == right:
            time, left, right = left, None, None
    return {"time": time, "left_time": left, "right_time": right}


class CombiningVerbs(Builder):
    """What a stream can do with other streams and with tables."""

    def lookup(
        self, table: LookupTable, *, on: str, how: str = "inner", name: str | None = None, on_error: str = "fail"
    ) -> Stream:
        """Add the columns of a table, found by key; ``how="left"`` keeps records without a match."""
        if not isinstance(table, LookupTable):
            raise TypeMismatch(
                what=f"{table!r} is not a table.",
                operation=name or "lookup",
                hint="Make one with ps.table(rows, schema=…, key=…).",
            )
        kind = OneOf(How).read("how", how, operation=name or "lookup")
        lookup = Lookup(table, on, kind)
        with naming(name or "lookup"):
            joined = table.joined(lookup, self.schema)
        return self._then(joined or lookup, name, on_error)

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
        return _Branches({port: self._stream(step, port, self.schema) for port in (*branches, REST)})

    def merge(self, *others: Stream, name: str | None = None) -> Stream:
        """Join streams of the same columns into one; each keeps its own order. What may be null in one is so in all."""
        for other in others:
            if [(each.name, each.type) for each in other.schema] != [(each.name, each.type) for each in self.schema]:
                raise TypeMismatch(
                    what=f"({other.schema.ddl}) cannot be merged with ({self.schema.ddl}).",
                    operation=name or "merge",
                    hint="Use select() first.",
                )
        sides = (self, *others)
        loose = {field.name for side in sides for field in side.schema if field.nullable}
        inputs = [side._loosened(loose)._edge for side in sides]
        step = make_step(None, tuple(inputs), name, "merge")
        schema = Schema(tuple(replace(each, nullable=each.name in loose) for each in self.schema))
        return self._stream(step, MAIN, schema)

    def _loosened(self, names: Collection[str]) -> Builder:
        """The stream with columns that may be null."""
        if all(field.nullable for field in self.schema if field.name in names):
            return self
        columns = {name: col(quoted(name)) for name in self.schema.names}
        made = (call("nvl", each, each).alias(name) if name in names else each for name, each in columns.items())
        return self._then(Project(tuple(made)), None)

    def join(
        self,
        other: Stream,
        on: str | Column | Sequence[str | Column],
        how: str = "inner",
        *,
        within: str | float | Column | None = None,
        time: str | None = None,
        left_time: str | None = None,
        right_time: str | None = None,
        lateness: str | float = 0,
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
        on : str or list of str, or Column
            The key: columns that both sides have. Or a condition, as text or as an expression: equal columns, which
            are the key, and bounds on the times, such as ``"ad = shown AND clicked BETWEEN viewed AND viewed +
            INTERVAL 10 MINUTES"``. Columns of equal names are there once in a pair, others both. An inner join takes
            any other condition too.
        within : str, number or Column
            Time to live: how far apart the times of a pair may be, such as ``"10s"``; or a condition on a time of
            either side, such as ``"clicked BETWEEN viewed AND viewed + INTERVAL 10 MINUTES"``, as text or as an
            expression. A condition names the time columns, so ``time`` and its like are left out.
        time : str
            The timestamp column of both sides; pairs have it once, with the later of the two times. Where no time is
            given, each side's is the one that :meth:`with_watermark` has declared.
        left_time, right_time : str
            The timestamp columns where their names differ, instead of ``time``; pairs have both.
        lateness : str or number
            How far behind the newest record of its own partition a record may be, where the stream does not say that
            itself (:meth:`with_watermark`). One that is further behind is late: counted, not joined. Windows and joins
            over the pairs' times wait as long as this join may take, and need no lateness of their own.
        how : {"inner", "left", "right", "full"}
            With ``"left"``, a record of this stream that finds no partner is sent on with nulls, once that is certain:
            when the watermark has passed the last time that a partner may have. With ``"right"`` it is one of the other
            stream, with ``"full"`` it is either.
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
        if not isinstance(other, Builder):
            raise TypeMismatch(what=f"{other!r} is not a stream.", operation=label, hint="Use lookup() for a table.")
        try:
            sides = settle(self._unkeyed, other._unkeyed, on, within, JoinHow.read(how))
            times: dict[str, Any] = _times(sides, time, left_time, right_time)
            schemas = sides.left.schema, sides.right.schema
            more = {"within": sides.within, "lateness": lateness, "how": how, "match": match, **times}
            operation = join(sides.keys, *schemas, **more)
        except PenstockError as error:
            raise error.at(label) from None
        made = sides.left._joined(sides.right, operation, name, label, on_error)
        made = made.drop(*sides.made) if sides.made else made
        return made if sides.rest is None else made.filter(sides.rest)

    def join_asof(
        self,
        other: Stream,
        on: str | Sequence[str],
        *,
        time: str | None = None,
        left_time: str | None = None,
        right_time: str | None = None,
        tolerance: str | float | None = None,
        lateness: str | float = 0,
        how: str = "left",
        name: str | None = None,
        on_error: str = "fail",
    ) -> Stream:
        """Add to each record what another stream last said about its key, at the record's own time.

        The other stream is a table that changes: exchange rates, prices, settings. A record meets the latest record of
        its key whose time is not after its own, whenever either of them comes. That is known once event time has
        passed the record, so it is sent on then, in the order of time. Of each key one record of the other stream is
        kept, and those that are ahead of the watermark.

        Parameters
        ----------
        other : Stream
            The table; a column that both have, other than the key, has to be renamed before.
        on : str or list of str
            The key: columns that both sides have. A null key equals nothing.
        time : str
            The timestamp column of both sides; results have it once, with this stream's time. Where no time is given,
            each side's is the one that :meth:`with_watermark` has declared.
        left_time, right_time : str
            The timestamp columns where their names differ, instead of ``time``; results have both.
        tolerance : str or number, optional
            How old what the other stream said may be, such as ``"1h"``; keys are forgotten after that. Without it, it
            may be any age, and every key is kept for as long as the job runs.
        lateness : str or number
            As for :meth:`join`.
        how : {"left", "inner"}
            With ``"inner"``, records for whose key nothing is known are dropped; else they have nulls.

        Examples
        --------
        >>> import penstock as ps
        >>> sales = ps.stream("sales", ps.records([("EUR", 3, 20)], schema="currency string, n int, at timestamp"))
        >>> rates = ps.stream(
        ...     "rates",
        ...     ps.records([("EUR", 2, 10), ("EUR", 5, 30)], schema="currency string, rate int, at timestamp"),
        ... )
        >>> sales.join_asof(rates, on="currency", time="at").drop("at").take()
        [{'currency': 'EUR', 'n': 3, 'rate': 2}]
        """
        label = name or "join_asof"
        if not isinstance(other, Builder):
            raise TypeMismatch(what=f"{other!r} is not a stream.", operation=label, hint="Use lookup() for a table.")
        times = _times(Sides(self._unkeyed, other._unkeyed, (), 0), time, left_time, right_time)
        try:
            operation = join_asof(on, tolerance=tolerance, lateness=lateness, how=how, **times)
        except PenstockError as error:
            raise error.at(label) from None
        return self._joined(other, operation, name, label, on_error)

    def _joined(self, other: Stream, operation: Join, name: str | None, label: str, on_error: str) -> Stream:
        try:
            schema = operation.bind(self.schema, other.schema)
        except PenstockError as error:
            raise error.at(label) from None
        step = make_step(operation, (self._unkeyed._edge, other._unkeyed._edge), name, label, on_error)
        return self._stream(step, MAIN, schema)
