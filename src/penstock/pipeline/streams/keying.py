"""Verbs of event time, keys and windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.durations import parse_us
from penstock.errors import InvalidOption, PenstockError
from penstock.expr import Column
from penstock.operators import DropDuplicates, Emit, Watermark, Window, check_keys, sliding, tumbling
from penstock.operators.keyed.aggregates import Aggregate
from penstock.operators.keyed.counting import CountWindow
from penstock.operators.keyed.expiring import TimeToLive
from penstock.pipeline.streams.base import Builder, declared_time, plain_names

if TYPE_CHECKING:
    from penstock.pipeline.streams.aggregating import GroupedStream
    from penstock.pipeline.streams.grouped import Aggregated, Grouped, KeyedStream
    from penstock.pipeline.streams.stream import Stream


class KeyingVerbs(Builder):
    """What a stream can do by key and by time."""

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
        *columns: str | Column | Sequence[str],
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
            their own partition are late: counted and dropped. Left out, ``on`` is the column that
            :meth:`with_watermark` has declared. Without ``within``, every key is held for as long as the job runs.

        Examples
        --------
        >>> events.with_watermark("at", "5s").drop_duplicates("id", within="10m")  # doctest: +SKIP
        """
        if on is None and within is not None:
            on = declared_time(self._from, self.schema)
        if (on is None) != (within is None):
            allowed = "together with on, the timestamp column, or behind with_watermark(…)"
            raise InvalidOption(option="within", given=within, allowed=allowed, operation=name or "drop_duplicates")
        within_us = 0 if within is None else parse_us(within, option="within", allow_zero=True)
        operation = DropDuplicates(plain_names(columns) or tuple(self.schema.names), on, within_us)
        return self._unkeyed._then(operation, name, on_error)

    def key_by(self, *columns: str | Column) -> KeyedStream:
        """Deal records out by key, so that all records of a key meet in one place, in order."""
        from penstock.pipeline.streams.grouped import KeyedStream

        try:
            return KeyedStream(self._from, self._port, self.schema, check_keys(self.schema, plain_names(columns)))
        except PenstockError as error:
            raise error.at("key_by") from None

    def window(
        self,
        window: Window | CountWindow | str | float,
        *,
        on: str | None = None,
        slide: str | float | None = None,
        lateness: str | float = 0,
        allowed_lateness: str | float = 0,
        emit: str = "close",
        early: str | float | None = None,
    ) -> Grouped:
        """Cut each key's records, or the whole stream where there is no :meth:`key_by` before, into windows.

        ``window("10s", on="time")`` is ``window(ps.tumbling("10s", on="time"))``; with ``slide="2s"`` a window of
        10 seconds begins every 2 seconds, and each record is in five of them. Left out, ``on`` is the column that
        :meth:`with_watermark` has declared. See :func:`penstock.tumbling`.
        """
        from penstock.pipeline.streams.grouped import Grouped

        if isinstance(window, str | int | float):
            on = declared_time(self._from, self.schema) if on is None else on
            if on is None:
                allowed = "the timestamp column; behind with_watermark(…) it is the one declared there"
                raise InvalidOption(option="on", given=on, allowed=allowed, operation="window")
            options: dict[str, Any] = {"on": on, "lateness": lateness, "emit": emit, "early": early}
            options["allowed_lateness"] = allowed_lateness
            window = tumbling(window, **options) if slide is None else sliding(window, slide=slide, **options)
        elif (on, slide, lateness, allowed_lateness, emit, early) != (None, None, 0, 0, "close", None):
            raise InvalidOption(
                option="window", given=window, allowed="a size, where on, slide, lateness or emit is given"
            )
        return Grouped(self._unkeyed, self._keys, window)

    def group_by(self, *keys: str | Column) -> GroupedStream:
        """Group records by columns and expressions, and by ``F.window(…)``; ``agg`` follows.

        Examples
        --------
        >>> ads.group_by("ad", F.window("at", "10 seconds")).agg(F.sum("price").alias("total"))  # doctest: +SKIP
        """
        from penstock.pipeline.streams.aggregating import GroupedStream

        return GroupedStream(self._unkeyed, keys)

    def agg(self, *aggregates: Column | str | Mapping[str, str], on_error: str = "fail", **options: Any) -> Stream:
        """Compute aggregates over all records, as ``group_by().agg(…)`` does."""
        return self.group_by().agg(*aggregates, on_error=on_error, **options)

    def aggregate(
        self,
        *,
        name: str | None = None,
        on_error: str = "fail",
        emit: str = "change",
        ttl: str | float | None = None,
        on: str | None = None,
        **aggregates: Aggregate,
    ) -> Aggregated:
        """Aggregate each key, or the whole stream, without windows: the value so far is sent on.

        With ``emit="change"`` that is when it has changed, at most once for each key and block of records: how often
        depends on how records happen to come together, the last value of each key does not. With ``emit="every"`` it is
        for every record, so that each value comes once (a running count comes by 1, 2, 3 …), which costs more.

        Parameters
        ----------
        ttl, on : str or number, str
            How long a key is kept of which nothing comes, such as ``"1h"``, and the timestamp column that tells. A
            record that is more than ``ttl`` after the newest one of its key begins the aggregate anew. Keys are
            forgotten when the watermark has passed them by that; records behind the watermark of their own partition
            are late: counted and dropped. Without these, every key is held for as long as the job runs.

        Examples
        --------
        >>> clicks.with_watermark("at", "5s").key_by("user").aggregate(  # doctest: +SKIP
        ...     n=ps.agg.count(), ttl="1h", on="at"
        ... )
        """
        from penstock.pipeline.streams.grouped import Grouped

        running = Emit.read(emit)
        if running is Emit.CLOSE:
            allowed = "change or every: without a window nothing closes"
            raise InvalidOption(option="emit", given=emit, allowed=allowed, operation=name or "aggregate")
        kept = _time_to_live(ttl, on, name or "aggregate")
        grouped = Grouped(self._unkeyed, self._keys, None, running, kept)
        return grouped.aggregate(name=name, on_error=on_error, **aggregates)


def _time_to_live(ttl: str | float | None, on: str | None, operation: str) -> TimeToLive | None:
    if (ttl is None) != (on is None):
        allowed = "together with on, the timestamp column" if on is None else "given with on, such as '1h'"
        raise InvalidOption(option="ttl", given=ttl, allowed=allowed, operation=operation)
    if ttl is None or on is None:
        return None
    try:
        return TimeToLive(on, parse_us(ttl, option="ttl"))
    except PenstockError as error:
        raise error.at(operation) from None
