"""The exact result of a workload file, computed from its input with plain Python, and the comparison with an output.

None of Penstock's operations are used: what is shared with `build` is the file, its layout and the numbers of `chance`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from math import ceil, floor
from typing import NamedTuple

from penstock.operators import Pairing
from penstock.types import Record
from penstock_bench.files.chance import Chance, Combined, Relabel, limit
from penstock_bench.files.layout import Place
from penstock_bench.files.load import Description
from penstock_bench.files.model import AnyTransformation, Filter, Join, Merge, Modify, Split
from penstock_bench.files.timing import WindowTiming
from penstock_bench.workloads.base import Comparison, Row, time_us


class Message(NamedTuple):
    """A message, and the id of the generated one that it came from."""

    key: str
    value: str
    time_us: int
    id: int
    origin: int


class Order(Enum):
    """What order the messages of a stream are promised to be in."""

    SOURCE = "source"
    """As their source's partition gave them out."""
    KEY = "key"
    """By time, for each key."""
    NONE = "none"


Result = tuple[str, str, str, int, int]
"""Sink, key, value, time in microseconds and id."""


@dataclass(frozen=True)
class Expected:
    """What must come out: how often each result, where its message came from, and in what order they are."""

    results: Counter[Result]
    origins: dict[Result, int]
    orders: dict[str, Order]
    sources: int


def expected(description: Description, records: Iterable[Record]) -> Expected:
    """Compute the exact result for the messages of all sources; their ids tell which is whose."""
    layout, count = description.layout, len(description.sources)
    made: dict[Place, list[Message]] = {Place(name): [] for name in description.sources}
    streams = list(made.values())
    for r in records:
        streams[r.id % count].append(Message(r.key, r.value, r.time, r.id, r.id))
    orders = {Place(name): Order.SOURCE for name in description.sources}
    for name in layout.order:
        transformation = description.transformations[name]
        read = [made[place] for place in layout.inputs[name]]
        outputs = _apply(description.seed, name, transformation, read, layout.timing.get(name))
        order = _order(transformation, [orders[place] for place in layout.inputs[name]])
        for i, output in enumerate(outputs):
            made[Place(name, i)] = output
            orders[Place(name, i)] = order
    results: Counter[Result] = Counter()
    origins: dict[Result, int] = {}
    for sink, place in layout.sinks.items():
        for message in made[place]:
            result = (sink, *message[:4])
            results[result] += 1
            origins[result] = message.origin
    return Expected(results, origins, {sink: orders[place] for sink, place in layout.sinks.items()}, count)


def _order(transformation: AnyTransformation, read: list[Order]) -> Order:
    match transformation:
        case Filter() | Split() | Modify():
            return read[0]
        case Merge():
            return Order.SOURCE if set(read) == {Order.SOURCE} else Order.NONE
        case Join():
            return Order.NONE
    return Order.KEY


def _apply(
    seed: int,
    name: str,
    transformation: AnyTransformation,
    read: list[list[Message]],
    timing: WindowTiming | int | None,
) -> list[list[Message]]:
    match transformation:
        case Filter(params=params):
            chance, dropped = Chance.of(seed, name), limit(params.p)
            return [[each for each in read[0] if chance.draw(each.id) >= dropped]]
        case Split(params=params):
            copies = [Relabel.of(seed, name, i) for i in range(params.n)]
            return [[_copy(each, params.ratio, relabel) for each in read[0]] for relabel in copies]
        case Modify(params=params):
            return [_modify(seed, name, params.size_ratio, params.rate_ratio, read[0])]
        case Merge():
            return [[each for stream in read for each in stream]]
        case Join(params=params):
            assert isinstance(timing, int)
            pairs = _pairs_once if params.match is Pairing.ONCE else _all_pairs
            combined = Combined.of(seed, name)
            return [[_pair(combined, x, y) for x, y in pairs(read[0], read[1], timing)]]
    assert isinstance(timing, WindowTiming)
    return [_count(Combined.of(seed, name), read[0], timing)]


def _copy(message: Message, ratio: float, relabel: Relabel) -> Message:
    value = message.value
    size = floor(len(value) * ratio)
    return message._replace(value=(value * ceil(ratio))[:size], id=relabel.id(message.id))


def _modify(seed: int, name: str, size_ratio: float, rate_ratio: float, read: list[Message]) -> list[Message]:
    chance, whole = Chance.of(seed, name), floor(rate_ratio)
    more = limit(rate_ratio - whole)
    relabels = [Relabel.of(seed, name, i) for i in range(whole + 1)]
    return [
        _copy(each, size_ratio, relabel)
        for each in read
        for relabel in relabels[: whole + (chance.draw(each.id) < more)]
    ]


def _pair(combined: Combined, x: Message, y: Message) -> Message:
    return Message(x.key, x.value + y.value, max(x.time_us, y.time_us), combined.id(x.id, y.id), x.origin)


def _pairs_once(left: list[Message], right: list[Message], ttl_us: int) -> Iterator[tuple[Message, Message]]:
    """Go through the messages of both sides by time, left before right, value and id; each takes the first that waits.

    Of a key, messages of one side only can wait for those that come: the others have found them too old.
    """
    waiting: defaultdict[str, deque[tuple[int, Message]]] = defaultdict(deque)
    sides = [(0, message) for message in left] + [(1, message) for message in right]
    for side, message in sorted(sides, key=lambda each: (each[1].time_us, each[0], each[1].value, each[1].id)):
        queue = waiting[message.key]
        while queue and queue[0][1].time_us < message.time_us - ttl_us:
            queue.popleft()
        if queue and queue[0][0] != side:
            partner = queue.popleft()[1]
            yield (message, partner) if side == 0 else (partner, message)
        else:
            queue.append((side, message))


def _all_pairs(left: list[Message], right: list[Message], ttl_us: int) -> Iterator[tuple[Message, Message]]:
    by_key: defaultdict[str, list[Message]] = defaultdict(list)
    for message in sorted(right, key=lambda each: each.time_us):
        by_key[message.key].append(message)
    times_us = {key: [message.time_us for message in messages] for key, messages in by_key.items()}
    for x in left:
        if x.key in times_us:
            times = times_us[x.key]
            near = slice(bisect_left(times, x.time_us - ttl_us), bisect_right(times, x.time_us + ttl_us))
            yield from ((x, y) for y in by_key[x.key][near])


def _count(combined: Combined, read: list[Message], timing: WindowTiming) -> list[Message]:
    counts: Counter[tuple[int, str]] = Counter()
    first_ids: dict[tuple[int, str], int] = {}
    for message in read:
        for start_us in timing.starts_us(message.time_us):
            group = start_us, message.key
            counts[group] += 1
            first_ids[group] = min(message.id, first_ids.get(group, message.id))
    return [
        Message(
            key,
            str(count),
            start_us + timing.size_us - 1,
            combined.id(first_ids[start_us, key], start_us // timing.slide_us),
            first_ids[start_us, key],
        )
        for (start_us, key), count in counts.items()
    ]


def compare(exact: Expected, rows: Iterable[Row], partitions: int) -> Comparison:
    """Compare an output with the exact result; with one sink its rows need not name it.

    Lost and duplicated are results here, not input messages: a window that is not there counts once.
    """
    seen: Counter[Result] = Counter()
    newest: dict[object, int] = {}
    wrong = reordered = 0
    only = next(iter(exact.orders))
    for row in rows:
        sink = row.get("sink", only)
        at_us = time_us(row["time"])
        result = (sink, row["key"], row["value"], at_us, row["id"])
        if result not in exact.results:
            wrong += 1
            continue
        seen[result] += 1
        match exact.orders[sink]:
            case Order.SOURCE:
                number = exact.origins[result]
                offset = number // exact.sources
                place: object = sink, number % exact.sources, offset % partitions
            case Order.KEY:
                number, place = at_us, (sink, row["key"])
            case Order.NONE:
                continue
        reordered += number < newest.get(place, number)
        newest[place] = max(number, newest.get(place, number))
    return Comparison(
        lost=(exact.results - seen).total(),
        duplicated=(seen - exact.results).total(),
        wrong=wrong,
        reordered=reordered,
    )
