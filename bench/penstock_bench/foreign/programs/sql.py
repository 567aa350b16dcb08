"""Workload files in SQL, written once for Flink and Spark: a view for every stream, up to the query of the result.

A message has the columns k (key), v (value), t (time in microseconds), id, and rt, its time as the engine knows it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import ceil
from typing import Any

from .chance import PRIME

MESSAGE = "k, v, t, id, rt"


def modulo(value: str) -> str:
    """The remainder, without an overflow."""
    return f"MOD({value}, CAST({PRIME} AS BIGINT))"


class Dialect(ABC):
    """A specification in the words of one engine, over the view ``lines``."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec

    def views(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return names and queries of the views, and the sinks with the view that each has its messages from."""
        views: list[tuple[str, str]] = []
        names: dict[tuple[str, int], str] = {}

        def add(place: tuple[str, int], query: str) -> None:
            names[place] = f"stream{len(names)}"
            views.append((names[place], query))

        for i, name in enumerate(self.spec["sources"]):
            add((name, 0), f"SELECT {MESSAGE} FROM lines WHERE {self.mine(i)}")
        for step in self.spec["steps"]:
            read = [names[node, output] for node, output in step["inputs"]]
            for i, query in enumerate(self._queries(step, read)):
                add((step["name"], i), query)
        return views, [(sink, names[node, output]) for sink, (node, output) in self.spec["sinks"].items()]

    def mine(self, source: int) -> str:
        return f"MOD(id, {len(self.spec['sources'])}) = {source}"

    @abstractmethod
    def interval(self, time_us: int) -> str:
        """A length of time."""

    @abstractmethod
    def modify(self, step: dict[str, Any], read: str) -> str:
        """Copies of every message, one more of some."""

    @abstractmethod
    def windows(self, step: dict[str, Any], read: str) -> str:
        """The columns k, n, least (id), start_us and rt of every window."""

    def draw(self, step: dict[str, Any]) -> str:
        a, b, c = step["draw"]
        return modulo(f"{modulo(f'{a} * id + {b}')} * id + {c}")

    def relabel(self, numbers: list[int]) -> str:
        return modulo(f"{numbers[0]} * id + {numbers[1]}")

    def resized(self, ratio: float) -> str:
        size = f"CAST(FLOOR(CHAR_LENGTH(v) * CAST({ratio} AS DOUBLE)) AS INT)"
        return "v" if ratio == 1 else f"SUBSTRING(REPEAT(v, {ceil(ratio)}) FROM 1 FOR {size})"

    def copy(self, step: dict[str, Any], numbers: list[int], read: str) -> str:
        return f"SELECT k, {self.resized(step['ratio'])} AS v, t, {self.relabel(numbers)} AS id, rt FROM {read}"

    def _queries(self, step: dict[str, Any], read: list[str]) -> list[str]:
        match step["do"]:
            case "filter":
                return [f"SELECT {MESSAGE} FROM {read[0]} WHERE {self.draw(step)} >= {step['below']}"]
            case "split":
                return [self.copy(step, numbers, read[0]) for numbers in step["relabels"]]
            case "modify":
                return [self.modify(step, read[0])]
            case "merge":
                return [" UNION ALL ".join(f"SELECT {MESSAGE} FROM {each}" for each in read)]
            case "join":
                return [self._join(step, *read)]
        id_ = self._combined(step, "least", f"start_us / {step['slide_us']}")
        return [
            f"SELECT k, CAST(n AS STRING) AS v, start_us + {step['size_us'] - 1} AS t, {id_} AS id, rt "
            f"FROM ({self.windows(step, read[0])})"
        ]

    def _combined(self, step: dict[str, Any], left: str, right: str) -> str:
        a, b, c = step["combine"]
        right = modulo(f"CAST({right} AS BIGINT)")
        return modulo(f"{modulo(f'{a} * {left}')} + {b} * {right} + {c}")

    def _join(self, step: dict[str, Any], left: str, right: str) -> str:
        # The engine's own times may be in milliseconds: they bound the state a little wider, the microseconds decide.
        near = self.interval(step["ttl_us"] + 1_000)
        return (
            "SELECT l.k AS k, l.v || r.v AS v, CASE WHEN l.t > r.t THEN l.t ELSE r.t END AS t, "
            f"{self._combined(step, 'l.id', 'r.id')} AS id, l.rt AS rt FROM {left} l JOIN {right} r "
            f"ON l.k = r.k AND l.rt BETWEEN r.rt - {near} AND r.rt + {near} AND ABS(l.t - r.t) <= {step['ttl_us']}"
        )
