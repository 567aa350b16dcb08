"""Draws pipelines over one stream of events; where the results of two ways to run them are to be compared."""

from __future__ import annotations

from random import Random
from typing import Any

import penstock as ps

SCHEMA = "k string, g int, v bigint, d double, at timestamp, s string"
SECOND = 1_000_000


class Joined(ps.agg.Mergeable):
    """Values in their order."""

    def init(self) -> list[int]:
        return []

    def add(self, state: list[int], record: Any) -> list[int]:
        return [*state, record.v]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def result(self, state: list[int]) -> str:
        return ",".join(map(str, state))


@ps.op(schema=SCHEMA, pure=True)
def doubled(r: Any) -> Any:
    return r.k, r.g, r.v * 2, r.d, r.at, r.s


def picky(r: Any) -> Any:
    if r.v == 3:
        raise ValueError("three")
    return {"k": r.k, "g": r.g, "v": r.v, "d": r.d, "at": r.at, "s": r.s}


class Bursts(ps.Process):
    """Records of a key up to a pause of three seconds: how many, and how much."""

    count = ps.state.value(int, default=0)
    total = ps.state.value(int, default=0)
    ends = ps.state.value(int, default=0)

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.count += 1
        self.total += record.v
        if self.count > 1:
            ctx.cancel_timer(self.ends)
        self.ends = record.at + 3 * SECOND
        ctx.set_timer(self.ends)
        if record.v == 7:
            ctx.output("sevens", {"k": record.k, "at": record.at})

    def on_timer(self, at: int, ctx: Any) -> Any:
        yield {"k": ctx.key, "count": self.count, "total": self.total, "ended": at}
        ctx.forget()


async def asked(r: Any) -> Any:
    if r.v == 3:
        raise ValueError("three")
    return {"k": r.k, "g": r.g, "v": r.v + 1, "d": r.d, "at": r.at, "s": r.s}


def random_rows(random: Random, count: int) -> list[dict[str, Any]]:
    """Records in the order of their times, which differ: then the order of arrival is that of time."""
    times = sorted(random.sample(range(-20_000, 60_000), count))
    return [
        {
            "k": random.choice(["a", "b", "c", None]),
            "g": random.randrange(3),
            "v": random.randrange(-5, 20),
            "d": random.choice([0.5, -1.5, 2.0, float("nan"), None]),
            "at": time * 1000,
            "s": random.choice(["x", "Y y", "", None]),
        }
        for time in times
    ]


class Pipelines:
    """Draws pipelines over the source ``events``."""

    def __init__(self, random: Random, *, ordered: bool = True) -> None:
        self._random = random
        self._number = 0
        self._begins_ordered = self._ordered = ordered
        """Whether records come in the order of their times, as they do until branches are merged."""

    def drawn(self, events: ps.Stream, name: str) -> ps.Pipeline:
        stream, self._ordered = events, self._begins_ordered
        for _ in range(self._random.randrange(3)):
            stream = self._stateless(stream)
        return self._last(stream, events).to(ps.memory(), name=name)

    def _stateless(self, stream: ps.Stream) -> ps.Stream:
        col, random = ps.col, self._random
        table = ps.table([("a", 1), ("c", 2)], schema="k string, z int", key="k")

        def branches() -> ps.Stream:
            self._ordered = False
            parts = stream.split(low=col("v") < 4, high=col("d") > 0.0)
            return parts["low"].merge(parts["high"])

        return random.choice(
            [
                lambda: stream.filter((col("v") % 4 != 1) | col("d").is_null()),
                lambda: stream.filter(col("d") >= -1.5),
                lambda: stream.with_columns(v=col("v") * 3 - col("g"), s=ps.coalesce(col("s").upper(), "none")),
                lambda: stream.with_columns(s=col("d").cast("string")),
                lambda: stream.lookup(table, on="k", how=random.choice(["inner", "left"])).select(
                    "k", "g", "v", "d", "at", "s"
                ),
                lambda: stream.map(doubled),
                lambda: stream.map(picky, schema=SCHEMA, on_error=random.choice(["skip", "dead_letter"])),
                lambda: stream.flat_map(lambda r: [(r.k, r.g, r.v, r.d, r.at, r.s)] * (r.v % 3), schema=SCHEMA),
                branches,
                lambda: stream.map_async(asked, schema=SCHEMA, on_error=random.choice(["skip", "dead_letter"])),
                lambda: stream.alternatives(
                    self._name(), one=lambda s: s.map(doubled), two=lambda s: s.filter(col("v") > 2)
                ),
                lambda: stream.with_watermark("at", "1s"),
            ]
        )()

    def _last(self, stream: ps.Stream, events: ps.Stream) -> ps.Stream:
        agg, random = ps.agg, self._random
        keys = random.choice([("k",), ("k", "g"), ("g",)])
        kinds: list[dict[str, Any]] = [
            {"n": agg.count(), "t": agg.sum("v"), "m": agg.mean("v"), "c": agg.count("d")},
            {"low": agg.min("d"), "high": agg.max("d"), "word": agg.max("s")},
        ]
        by_order: list[dict[str, Any]] = [
            {"one": agg.custom(Joined(), type="string")},
            {"f": agg.first("s"), "l": agg.last("v")},
        ]
        aggregates = random.choice(kinds + by_order * self._ordered)
        size, slide = random.choice([("10s", None), ("10s", "4s"), ("3s", "3s")])
        keyed = stream.key_by(*keys) if random.random() < 0.8 else stream
        other = events.filter(ps.col("v") > 5).select("k", "g", at=ps.col("at"), w=ps.col("v"))
        ends = [
            lambda: keyed.window(size, slide=slide, on="at").aggregate(**aggregates),
            lambda: keyed.window(ps.session("2s", on="at")).aggregate(**aggregates),
            lambda: self._twice(stream.key_by(*keys), keys),
            lambda: stream.join(
                other.select("k", "at", "w"),
                on="k",
                within=random.choice(["0s", "2s", "30s"]),
                time="at",
                how=random.choice(["inner", "left", "right", "full"]),
                match=random.choice(["all", "once"]),
            ),
            lambda: stream.join(
                other.select("k", "w", seen="at"),
                on="k",
                within="seen BETWEEN at - INTERVAL 3 SECONDS AND at - INTERVAL 1 SECOND",
                how=random.choice(["inner", "left", "right", "full"]),
            ),
            lambda: stream.join_asof(
                other.select("k", "at", "w"), on="k", time="at", tolerance=random.choice([None, "5s"])
            ),
            lambda: stream.drop_duplicates(*keys).select(*keys),
            lambda: stream.key_by(*keys).alternatives(
                self._name(),
                exact=lambda s: s.window(size, on="at").aggregate(n=agg.count()),
                other=lambda s: s.window(size, on="at").aggregate(n=agg.sum("g")),
            ),
            lambda: self._bursts(stream),
            lambda: stream,
        ]
        if self._ordered:
            ends += [
                lambda: keyed.window(size, slide=slide, on="at", emit="every").aggregate(**aggregates),
                lambda: keyed.aggregate(emit="every", **aggregates),
                lambda: stream.drop_duplicates(*keys, on="at", within="3s"),
            ]
        return random.choice(ends)()

    def _name(self) -> str:
        self._number += 1
        return f"choice{self._number}"

    def _bursts(self, stream: ps.Stream) -> ps.Stream:
        made = stream.key_by("k").process(
            Bursts,
            schema="k string, count int, total bigint, ended timestamp",
            outputs={"sevens": "k string, at timestamp"},
            time="at",
            order="time",
        )
        return made.output("sevens") if self._random.random() < 0.3 else made

    @staticmethod
    def _twice(keyed: ps.Stream, keys: tuple[str, ...]) -> ps.Stream:
        counted = keyed.window("10s", on="at").count().select(*keys, "count", ended="window_end")
        return counted.key_by(keys[0]).window("20s", on="ended").aggregate(total=ps.agg.sum("count"))
