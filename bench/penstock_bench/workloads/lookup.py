"""Lookup: every event is enriched from Redis, with a round trip for each event, or with one for a micro-batch.

The server is not started here: `penstock_bench.engines.redis_server` does, and says in the environment where it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.errors import PenstockError
from penstock.operators import Function
from penstock.types import Record
from penstock_bench.workloads.base import Workload, by_number

ADDRESS = "PENSTOCK_REDIS"  # the environment variable that names the server, as host:port
USERS = 10_000
UNKNOWN_EVERY = 10  # every so manieth user is not in the table; its events come out with null
KEY = b"user:%d"
MGET_KEYS = 1_000  # keys of one command: Redis serves nobody else while it answers one

_random = Random(11)
_COUNTRIES, _STATES = ("at", "br", "ca", "de", "in", "jp", "ke", "us"), ("new", "paying", "gone")
SEGMENT_OF_USER = {
    user: f"{_random.choice(_COUNTRIES)}-{_random.choice(_STATES)}" for user in range(USERS) if user % UNKNOWN_EVERY
}
TABLE = {KEY % user: segment.encode() for user, segment in SEGMENT_OF_USER.items()}  # what is in Redis before a run


class RedisNotRunning(PenstockError):
    """The workload is built without a server to ask."""

    code = "REDIS_NOT_RUNNING"

    def __init__(self) -> None:
        super().__init__(
            "workload 'lookup' has no Redis to ask.",
            hint="Use `penstock bench run lookup`, or build it inside `with redis_server.serving(TABLE):`.",
        )


def address() -> str:
    found = os.environ.get(ADDRESS)
    if not found:
        raise RedisNotRunning
    return found


@cache
def client(where: str) -> Any:
    """Return this process's own client of a server, which connects when it is first used."""
    import redis

    host, _, port = where.rpartition(":")
    return redis.Redis(host=host, port=int(port))


def segments(where: str, users: Iterable[int]) -> list[bytes | None]:
    """Ask for many users in one round trip, each as often as it is named."""
    keys = [KEY % user for user in users]
    with client(where).pipeline(transaction=False) as pipeline:
        for first in range(0, len(keys), MGET_KEYS):
            pipeline.mget(keys[first : first + MGET_KEYS])
        return [segment for answer in pipeline.execute() for segment in answer]


def enrich(where: str) -> Function:
    """Make the operation that asks the server at an address."""

    @ps.op(schema="number bigint not null, segment string")
    def segment(r: Any) -> tuple[int, str | None]:
        found = client(where).get(KEY % r.user)
        return r.number, None if found is None else found.decode()

    @segment.batch
    def _segment_batch(events: pa.RecordBatch) -> pa.RecordBatch:
        found = pa.array(segments(where, events.column("user").to_pylist()), pa.binary()).cast(pa.string())
        return pa.RecordBatch.from_arrays([events.column("number"), found], names=["number", "segment"])

    return segment


def expected(records: Iterable[Record]) -> dict[int, str | None]:
    return {record.number: SEGMENT_OF_USER.get(record.user) for record in records}


LOOKUP = Workload(
    name="lookup",
    title="a user's segment from Redis, one round trip for every event or every micro-batch",
    fields={"number": ps.fields.sequence(), "user": ps.fields.integers(0, USERS - 1)},
    format="columns",
    build=lambda events: events.map(enrich(address())),
    expected=expected,
    compare=by_number("segment"),
    columns=("number", "segment"),
    line=lambda record: b"%d,%d" % (record.number, record.user),
    program=lambda: {"redis": address()},
    not_in_sql="Redis is asked by a function in Python, which SQL does not call",
)
