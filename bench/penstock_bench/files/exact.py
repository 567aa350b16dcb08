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
from penstock_bench.files.load import Description
from penstock_bench.files.program import specification
from penstock_bench.foreign.programs.graph import Graph
from penstock_bench.foreign.programs.messages import END_US, Message
from penstock_bench.workloads.base import Comparison, Row, time_us


class Order(Enum):
    """What order the messages of a stream are promised to be in."""

    SOURCE = "source"  # as their source's partition gave them out
    KEY = "key"  # by time, for each key
    NONE = "none"


Result = tuple[str, str, str, int, int]  # sink, key, value, time in microseconds and id


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

    told = specification(description, loads=False)
    graph = Graph(told, out)
    messages = (Message(r.key, r.value, r.time, r.id, r.id) for r in records)
    for message in sorted(messages, key=attrgetter("time_us")):
        graph.put(message)
    graph.advance(END_US)
    orders = dict.fromkeys(told["sources"], Order.SOURCE)
    for step in told["steps"]:
        orders[step["name"]] = _order(step["do"], [orders[node] for node, _ in step["inputs"]])
    sinks = {sink: orders[node] for sink, (node, _) in told["sinks"].items()}
    return Expected(results, origins, sinks, len(description.sources))


def _order(does: str, read: list[Order]) -> Order:
    match does:
        case "filter" | "split" | "modify":
            return read[0]
        case "merge":
            return Order.SOURCE if set(read) == {Order.SOURCE} else Order.NONE
        case "join":
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
    return Comparison((exact.results - seen).total(), (seen - exact.results).total(), wrong, reordered)
