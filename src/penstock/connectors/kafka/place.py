"""A topic as users name it: ``ps.kafka(…)``, to be read or to be written to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.checks import Flag, OneOf
from penstock.connectors.base import End
from penstock.connectors.formats.base import Format
from penstock.connectors.kafka.access import Access, check_topic
from penstock.connectors.kafka.columns import DEFAULT, Columns
from penstock.connectors.kafka.encoding import Layout
from penstock.connectors.kafka.sink import Delivery, KafkaSink
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.kafka.starts import COMMITTED, EARLIEST, LATEST, check_where
from penstock.connectors.kafka.tokens import TOKENS
from penstock.errors import InvalidOption

_GROUP = re.compile(r"[^\s/]{1,200}")


class Kafka(End):
    """A topic; build it with :func:`kafka`."""

    def __init__(self, access: Access, topic: str, reading: dict[str, Any], writing: dict[str, Any]) -> None:
        self._access = access
        self._topic = topic
        self._reading = reading
        self._writing = writing

    def __repr__(self) -> str:
        return f"kafka({self._access!r}, {self._topic!r})"

    def source(self) -> KafkaSource:
        return KafkaSource(self._access, self._topic, **self._reading)

    def sink(self) -> KafkaSink:
        return KafkaSink(self._access, self._topic, **self._writing)


def kafka(
    servers: str,
    topic: str,
    *,
    start: str | datetime | Mapping[int, int] = EARLIEST,
    stop: str | datetime | Mapping[int, int] | None = None,
    group: str | None = None,
    columns: Sequence[str] = DEFAULT,
    uncommitted: bool = False,
    text: bool = False,
    key: str | None = None,
    value: str | None = None,
    format: Format | None = None,
    headers: str | None = None,
    partition: str | None = None,
    delivery: str = "exactly-once",
    tokens: str = TOKENS,
    options: Mapping[str, Any] | None = None,
) -> Kafka:
    """Read a topic of Kafka, or write to one.

    Parameters
    ----------
    servers : str
        Brokers, such as ``"host:9092"``, with commas between several.
    topic : str
        The topic; it must be there.
    start : {"earliest", "latest", "committed"}, datetime, str or dict
        Reading: where a job begins that has no checkpoint to go on from. A time is that of the records (ISO-8601 text
        will do), ``{partition: offset}`` names offsets, ``"committed"`` is where ``group`` was left.
    stop : {"latest"}, datetime, str or dict, optional
        Reading: where the source ends; otherwise it goes on for ever. It is looked up when the job starts.
    group : str, optional
        Reading: the consumer group that the offsets of every committed epoch are written back to, for those who watch
        it. The job itself goes on from its checkpoint.
    columns : sequence of str
        Reading: of ``key``, ``value`` (binary), ``timestamp``, ``partition``, ``offset``, and ``headers``
        (``array<struct<key: string, value: binary>>``, null where a record has none).
    uncommitted : bool
        Reading: also what transactions have written that are still open, or were aborted.
    text : bool
        Reading: ``key`` and ``value`` are text (UTF-8) instead of binary; bytes that are no text become ``\ufffd``.
    key : str, optional
        Writing: the column of the records' key. Records of one key go to one partition, the same as Java's clients
        choose.
    value : str, optional
        Writing: the column of the value, text or binary; without it all columns, as a JSON object or by ``format``.
    format : ps.avro(…), ps.protobuf(…) or ps.json(…), optional
        Writing: how the value is written, where it is not JSON that no registry knows.
    headers : str, optional
        Writing: the column of the headers, of the type that they are read with, or JSON text
        (``[["key", "value"], …]``).
    partition : str, optional
        Writing: the column with the number of the partition.
    delivery : {"exactly-once", "immediate"}
        Writing: ``"exactly-once"`` makes each epoch visible by one transaction, for readers of committed records
        (``isolation.level=read_committed``). ``"immediate"`` sends every record at once; after a failure some come
        again, and the header ``penstock`` tells which.
    tokens : str
        Writing exactly once: the compacted topic that says which epochs are there; made where it is missing. Jobs share
        it.
    options : dict, optional
        Settings of the client (librdkafka), such as ``{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
        "sasl.username": …, "sasl.password": …}``. Nothing secret of them is ever shown.

    Examples
    --------
    >>> import penstock as ps
    >>> ads = ps.stream("ads", ps.kafka("localhost:9092", "ads")).parse_json("ad_id string, price double")
    >>> pipeline = ads.key_by("ad_id").count().to(ps.kafka("localhost:9092", "counts", key="ad_id"))
    """
    if group is not None and (not isinstance(group, str) or not _GROUP.fullmatch(group)):
        raise InvalidOption(option="group", given=group, allowed="a name without spaces")
    begin = check_where("start", start, (EARLIEST, LATEST, COMMITTED))
    if begin == COMMITTED and group is None:
        raise InvalidOption(option="start", given=start, allowed="with group=, whose offsets they are")
    reading = {
        "columns": Columns(columns, text=Flag().read("text", text)),
        "start": begin,
        "stop": None if stop is None else check_where("stop", stop, (LATEST,)),
        "group": group,
        "isolation": "read_uncommitted" if Flag().read("uncommitted", uncommitted) else "read_committed",
    }
    for option, column in (("key", key), ("value", value), ("headers", headers), ("partition", partition)):
        if column is not None and not isinstance(column, str):
            raise InvalidOption(option=option, given=column, allowed="the name of a column")
    if format is not None and (not isinstance(format, Format) or value is not None):
        allowed = "ps.avro(…), ps.protobuf(…) or ps.json(…), without value="
        raise InvalidOption(option="format", given=format, allowed=allowed)
    writing = {
        "layout": Layout(key, value, headers, partition, format),
        "delivery": OneOf(Delivery).read("delivery", delivery),
        "tokens": check_topic(tokens, "tokens"),
    }
    return Kafka(Access.of(servers, options), check_topic(topic), reading, writing)
