"""Redis at the end of a pipeline, as a stream at its beginning, and as a table to look things up in."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.checks import OneOf, Whole
from penstock.connectors.base import End
from penstock.connectors.patience import RETRY, retry_s
from penstock.connectors.redis.link import Place, driver
from penstock.connectors.redis.sink import Layout, RedisSink
from penstock.connectors.redis.stream import RedisStream
from penstock.connectors.redis.table import RedisTable, Values
from penstock.durations import parse_us
from penstock.errors import InvalidOption, SourceFailed
from penstock.types import Schema

__all__ = ["Redis", "redis", "redis_table"]


class Redis(End):
    """Keys of a Redis server; build it with :func:`redis`."""

    def __init__(
        self,
        place: Place,
        *,
        layout: Layout,
        key: tuple[str, ...],
        name: str,
        delete: str | None,
        maxlen: int | None,
        schema: Schema | None,
    ) -> None:
        self._place = place
        self._layout = layout
        self._key = key
        self._name = name
        self._delete = delete
        self._maxlen = maxlen
        self._schema = schema

    def __repr__(self) -> str:
        return self._place.shown

    def source(self) -> RedisStream:
        if self._layout is not Layout.STREAM:
            raise InvalidOption(
                option="layout", given=self._layout.value, allowed="stream, to read: redis(url, stream=…)"
            )
        if self._schema is None:
            raise InvalidOption(option="schema", given=None, allowed="the fields of the stream's entries, to read it")
        return RedisStream(self._place, self._name, self._schema)

    def sink(self) -> RedisSink:
        return RedisSink(self._place, self._layout, self._key, self._name, self._delete, self._maxlen)


def redis(
    url: str,
    *,
    key: str | Sequence[str] = (),
    prefix: str = "",
    layout: str = "hash",
    delete: str | None = None,
    stream: str | None = None,
    maxlen: int | None = None,
    schema: str | Schema | None = None,
    retry: str | float = RETRY,
) -> Redis:
    """Keys of a Redis server: rows go into hashes, strings or a stream; a stream can be read.

    Rows are written when their epoch is committed, each epoch once: a token beside them says which one was last, and is
    written with them. That holds as long as the server keeps what it was given. One server; not a cluster of them.

    Parameters
    ----------
    url : str
        ``"redis://:password@host:6379/0"``, also ``rediss://`` and ``unix://``. Errors and pages never show it.
    key : str or sequence of str
        The columns that name a row; a later row of the same key replaces the earlier one.
    prefix : str
        What the names begin with: ``"ad"`` makes ``ad:17`` of the key 17, and ``ad:17:shoes`` of a key of two columns,
        in whose values ``:`` becomes ``\\:``.
    layout : str
        ``"hash"``: a hash with a field for each column that is not null. ``"json"``: a string with a JSON object.
        ``"yahoo"``: as the Yahoo streaming benchmark keeps the counts of its windows; the key is campaign and time.
    delete : str
        A boolean column; where it is true the row of that key is deleted. It is not stored itself.
    stream : str
        The name of a stream: rows are appended to it, or read from it.
    maxlen : int
        Keep about so many entries of the stream.
    schema : str or Schema
        To read a stream: its fields, as columns.
    retry : str or number
        How long a server that is away is asked again, with growing pauses, before the job fails. What is to be written
        waits meanwhile, within bounds: then the job waits too.

    Examples
    --------
    >>> counts.to(ps.redis(url, key="campaign", prefix="count"))                      # doctest: +SKIP
    >>> ps.stream("clicks", ps.redis(url, stream="clicks", schema="ad string, at timestamp"))   # doctest: +SKIP
    """
    driver()
    names = (key,) if isinstance(key, str) else tuple(key)
    if stream is not None:
        if names or prefix or layout != "hash" or delete is not None:
            raise InvalidOption(option="stream", given=stream, allowed="without key, prefix, layout and delete")
        chosen, what, name = Layout.STREAM, f"stream '{stream}'", stream
    else:
        chosen, name = OneOf(Layout).read("layout", layout), prefix
        if chosen is Layout.STREAM:
            raise InvalidOption(
                option="layout", given=layout, allowed="hash, json, yahoo; a stream is named by stream="
            )
        if not names:
            raise InvalidOption(option="key", given=key, allowed="at least one column, or the name of a stream=")
        what = f"{chosen.value} '{prefix}'"
    if delete is not None and (delete in names or chosen is Layout.YAHOO):
        raise InvalidOption(option="delete", given=delete, allowed="another column than those of the key")
    return Redis(
        Place(url, what, retry_s(retry)),
        layout=chosen,
        key=names,
        name=name,
        delete=delete,
        maxlen=None if maxlen is None else Whole(1).read("maxlen", maxlen),
        schema=None if schema is None else Schema.parse(schema),
    )


def redis_table(
    url: str,
    *,
    schema: str | Schema,
    key: str,
    prefix: str = "",
    layout: str = "hash",
    cache: int = 0,
    ttl: str | float = "1s",
    retry: str | float = RETRY,
) -> RedisTable:
    """A table in Redis for :meth:`Stream.lookup`; nothing of it is copied.

    In record form all records that have come cost one round trip, in batch form each batch does. A key that Redis does
    not have, or a null one, finds nothing; so does a hash that has none of the columns. Records see what Redis has when
    they are handled, so a replay may see something newer.

    Parameters
    ----------
    url : str
        As for :func:`redis`.
    schema : str or Schema
        The key and the other columns, in Spark's DDL.
    key : str
        The column that is looked up: the name in Redis is ``prefix:key``, or the key alone.
    layout : str
        ``"hash"``: a field for each column. ``"json"``: a string with a JSON object. ``"string"``: one value.
    cache : int
        Keep so many answers in each process, absent keys too; 0 for none.
    ttl : str or number
        How old an answer of the cache may be.
    retry : str or number
        How long a server that is away is asked again, with growing pauses, before the record's error policy has it. The
        records behind it wait.

    Examples
    --------
    >>> ads = ps.redis_table(url, schema="ad string, campaign string", key="ad", layout="string")  # doctest: +SKIP
    >>> events.lookup(ads, on="ad")                                                                # doctest: +SKIP
    """
    place = Place(url, f"table '{prefix}'", retry_s(retry))
    start = f"{prefix}:" if prefix else ""
    kept = OneOf(Values).read("layout", layout)
    rows_max, ttl_us = Whole(0).read("cache", cache), parse_us(ttl, option="ttl")
    table = RedisTable(place, Schema.parse(schema), key, start, kept, rows_max, ttl_us)
    place.check(SourceFailed).close()
    return table
