"""Queries that call something for every line, a model or a server; what they import not every environment has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any


def scores(
    hidden_weights: list[list[int]], output_weights: list[int], scale: int
) -> Callable[[bytes], Iterable[bytes]]:
    """Score the features of a line with a network of one hidden layer; weights are in units of 1 / ``scale``."""
    import numpy as np

    w1, w2 = np.array(hidden_weights) / scale, np.array(output_weights) / scale

    def rows(line: bytes) -> Iterable[bytes]:
        number, *features = line.split(b",")
        hidden = np.maximum(np.array(list(map(int, features))) / scale @ w1, 0.0)
        score = float(1.0 / (1.0 + np.exp(-(hidden @ w2))))
        return (b"[%b,%b]" % (number, repr(score).encode()),)

    return rows


def lookups(address: str) -> Callable[[bytes], Iterable[bytes]]:
    """Ask Redis for the segment of a line's user, with a round trip for each."""
    import redis

    host, _, port = address.rpartition(":")
    client: Any = redis.Redis(host=host, port=int(port))  # Connects when it is first asked.

    def rows(line: bytes) -> Iterable[bytes]:
        number, _, user = line.partition(b",")
        found = client.get(b"user:%b" % user)
        return (b"[%b,%b]" % (number, json.dumps(found and found.decode()).encode()),)

    return rows
