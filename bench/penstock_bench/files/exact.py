"""The exact result of a workload file, computed from its input with plain Python, and the comparison with an output.

None of Penstock's operations are used: what is shared with `build` is the file, its layout and the numbers of `chance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from penstock.types import Record
from penstock_bench.files.layout import Place
from penstock_bench.files.load import Description
from penstock_bench.files.model import AnyTransformation, Filter, Join, Merge, Modify, Split
from penstock_bench.files.program import specification
from penstock_bench.foreign.programs.graph import Graph
from penstock_bench.foreign.programs.messages import END_US, Message
from penstock_bench.workloads.base import Comparison, Row, time_us


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
    results: Counter[Result] = Counter()
    origins: dict[Result, int] = {}

    def out(sink: str, message: Message) -> None:
        result = (sink, message.key, message.value, message.time_us, message.id)
        results[result] += 1
        origins[result] = message.origin

    graph = Graph(specification(description, loads=False), out)
    messages = (Message(r.key, r.value, r.time, r.id, r.id) for r in records)
    for message in sorted(messages, key=attrgetter("time_us")):
        graph.put(message)
    graph.advance(END_US)
    layout = description.layout
    orders = {Place(name): Order.SOURCE for name in description.sources}
    for name in layout.order:
        transformation = description.transformations[name]
        order = _order(transformation, [orders[place] for place in layout.inputs[name]])
        outputs = transformation.params.n if isinstance(transformation, Split) else 1
        orders |= {Place(name, i): order for i in range(outputs)}
    sinks = {sink: orders[place] for sink, place in layout.sinks.items()}
    return Expected(results, origins, sinks, len(description.sources))


def _order(transformation: AnyTransformation, read: list[Order]) -> Order:
    match transformation:
        case Filter() | Split() | Modify():
            return read[0]
        case Merge():
            return Order.SOURCE if set(read) == {Order.SOURCE} else Order.NONE
        case Join():
            return Order.NONE
    return Order.KEY


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
