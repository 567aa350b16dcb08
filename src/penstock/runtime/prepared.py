"""Queries of `transform` that are planned once and run for many micro-batches; the query service keeps them.

To plan a query, and to broadcast the table of its join, is work that every micro-batch would repeat. So a query
does not say which micro-batch it is for: its tasks find that in a property of the job. It is run again where that must
give what a new query would:

======================================  =============================================================================
in the plan                             why a new one is made for each micro-batch
======================================  =============================================================================
an exchange that is no broadcast        Spark keeps what was shuffled, and would give the rows of the first one again
the micro-batch under a broadcast       likewise
a cached table, a subquery, adaptivity  likewise, or not to be known
something that is not deterministic     its seed is part of the plan
the present time                        likewise
======================================  =============================================================================

A query that is kept goes after `KEPT_S`: what its tables contain may have changed. The next one is made, and run on
nothing, beside it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any

KEPT_S = 30.0
_NOW = re.compile(r"\b(current_\w+|now|localtimestamp|curdate|unix_timestamp)\(")
_UNKNOWN = ("InMemory", "Subquery", "Adaptive", "Reused", "CommandResult")
_PLAIN = "BroadcastExchange"
_SOURCE = "Range"

Key = tuple[str, int]
"""An operation, and into how many parts a micro-batch is cut."""


@dataclass
class Prepared:
    """A query."""

    frame: Any
    is_kept: bool
    made_s: float


class Queries:
    """The queries that nobody runs at the moment.

    Parameters
    ----------
    make : callable
        Makes the DataFrame of an operation.
    warm_up : callable
        Runs it on nothing.
    """

    def __init__(self, make: Callable[[Key], Any], warm_up: Callable[[Key, Any], None]) -> None:
        self._make, self._warm_up = make, warm_up
        self._free: dict[Key, list[Prepared]] = {}
        self._being_made: set[Key] = set()
        self._lock = threading.Lock()
        self._maker = ThreadPoolExecutor(1, "penstock-query-maker")

    def take(self, key: Key) -> Prepared:
        """Take a query; nobody else runs it until it is given back."""
        with self._lock:
            free = self._free.get(key)
            if free:
                return free.pop()
        return self._made(key)

    def give(self, key: Key, query: Prepared) -> None:
        """Give a query back that has run."""
        if not query.is_kept:
            return
        is_old = monotonic() - query.made_s >= KEPT_S
        with self._lock:
            if is_old and key not in self._being_made:
                self._being_made.add(key)
                self._maker.submit(self._replace, key)
            self._free.setdefault(key, []).append(query)

    def _replace(self, key: Key) -> None:
        """Make a query in the place of those that are old."""
        try:
            made = self.warm(key)
        finally:
            with self._lock:
                self._being_made.discard(key)
        with self._lock:
            free = self._free.setdefault(key, [])
            free[:] = [each for each in free if monotonic() - each.made_s < KEPT_S] + ([made] if made.is_kept else [])

    def warm(self, key: Key) -> Prepared:
        """Make a query, and run it on nothing: what Spark does once, it has done then."""
        made = self._made(key)
        self._warm_up(key, made.frame)
        return made

    def _made(self, key: Key) -> Prepared:
        frame = self._make(key)
        return Prepared(frame, can_be_kept(frame), monotonic())

    def close(self) -> None:
        """Make no more."""
        self._maker.shutdown(wait=False, cancel_futures=True)


def can_be_kept(frame: Any) -> bool:
    """Whether a query can be run again for another micro-batch; see the table of this module."""
    execution = frame._jdf.queryExecution()
    analyzed = execution.analyzed()
    return bool(analyzed.deterministic()) and not _NOW.search(analyzed.toString()) and _fits(execution.executedPlan())


def _fits(node: Any, *, is_broadcast: bool = False) -> bool:
    name = node.nodeName()
    if any(name.startswith(each) for each in _UNKNOWN) or (name.endswith("Exchange") and name != _PLAIN):
        return False
    if name == _SOURCE and is_broadcast:
        return False
    children = node.children()
    below = is_broadcast or name == _PLAIN
    return all(_fits(children.apply(each), is_broadcast=below) for each in range(children.size()))
