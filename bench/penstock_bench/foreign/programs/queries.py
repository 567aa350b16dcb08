"""The workloads in plain Python, for engines that call Python functions: keys of a line, and the row of a count."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .graph import Graph
from .messages import END_US, parse, row

try:
    from orjson import loads  # type: ignore[import-not-found]
except ImportError:
    from json import loads

WINDOW_MS = 10_000
Rows = Callable[[bytes], Iterable[bytes]]


def specification() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text())
    return told


@dataclass(frozen=True)
class Counting:
    """A query that counts: each line has keys, each key a running count, each count a row."""

    keys: Callable[[bytes], Iterable[str]]
    row: Callable[[str, int], bytes]


@dataclass(frozen=True)
class Stateless:
    """A query that turns a line into rows; one that keeps state in itself has more rows at the end."""

    rows: Rows
    end: Callable[[], Iterable[bytes]] = tuple


Query = Counting | Stateless


def counting(spec: dict[str, Any]) -> Counting:
    wanted = query(spec)
    assert isinstance(wanted, Counting)
    return wanted


def query(spec: dict[str, Any]) -> Query:
    match spec:
        case {"workload": "yahoo", "ads": ads}:
            return Counting(_views(ads), _window_row)
        case {"workload": "wordcount"}:
            return Counting(lambda line: line.decode().split(" "), lambda word, n: b'["%b",%d]' % (word.encode(), n))
        case {"workload": "grep", "needle": needle}:
            return Stateless(_matches(needle))
        case {"workload": "scoring", "hidden": hidden, "output": output, "scale": scale}:
            return Stateless(_scores(hidden, output, scale))
        case {"workload": "lookup", "redis": address}:
            return Stateless(_lookups(address))
        case {"workload": "file"}:
            return _graph(spec)
    raise ValueError(f"there is no query for workload {spec['workload']!r}")


def _graph(spec: dict[str, Any]) -> Stateless:
    found: list[bytes] = []
    graph = Graph(spec, lambda sink, message: found.append(row(sink, message)))

    def rows(line: bytes) -> Iterable[bytes]:
        found.clear()
        graph.put(parse(line))
        return found

    def end() -> Iterable[bytes]:
        found.clear()
        graph.advance(END_US)
        return found

    return Stateless(rows, end)


def _views(ads: dict[str, str]) -> Callable[[bytes], Iterable[str]]:
    def keys(line: bytes) -> Iterable[str]:
        event = loads(line)
        if event["event_type"] != "view":
            return ()
        campaign = ads.get(event["ad_id"])
        return () if campaign is None else (f"{campaign}\t{event['event_time'] // WINDOW_MS * WINDOW_MS}",)

    return keys


def _window_row(key: str, count: int) -> bytes:
    campaign, _, start_ms = key.partition("\t")
    return b'["%b",%b000,%d]' % (campaign.encode(), start_ms.encode(), count)


def _matches(needle: str) -> Rows:
    word = needle.encode()

    def rows(line: bytes) -> Iterable[bytes]:
        number, _, text = line.partition(b"\t")
        # The search by substring is quick; the words are looked at in the few lines that it finds.
        if word not in text or word not in text.split(b" "):
            return ()
        return (b"[%b,%b]" % (number, json.dumps(text.decode()).encode()),)

    return rows


def _scores(hidden_weights: list[list[int]], output_weights: list[int], scale: int) -> Rows:
    """Score the features of a line with a network of one hidden layer; weights are in units of 1 / ``scale``."""
    import numpy as np

    w1, w2 = np.array(hidden_weights) / scale, np.array(output_weights) / scale

    def rows(line: bytes) -> Iterable[bytes]:
        number, *features = line.split(b",")
        hidden = np.maximum(np.array(list(map(int, features))) / scale @ w1, 0.0)
        score = float(1.0 / (1.0 + np.exp(-(hidden @ w2))))
        return (b"[%b,%b]" % (number, repr(score).encode()),)

    return rows


def _lookups(address: str) -> Rows:
    """Ask Redis for the segment of a line's user, with a round trip for each."""
    import redis

    host, _, port = address.rpartition(":")
    client: Any = redis.Redis(host=host, port=int(port))  # Connects when it is first asked.

    def rows(line: bytes) -> Iterable[bytes]:
        number, _, user = line.partition(b",")
        found = client.get(b"user:%b" % user)
        return (b"[%b,%b]" % (number, json.dumps(found and found.decode()).encode()),)

    return rows
