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

One that is kept is run as a plain Spark job over its rows, and by several micro-batches at a time. It goes after
`KEPT_S`: what its tables contain may have changed. The next one is made, and run on nothing, beside it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

KEPT_S = 30.0
_NOW = re.compile(r"\b(current_\w+|now|localtimestamp|curdate|unix_timestamp)\(")
_UNKNOWN = ("InMemory", "Subquery", "Adaptive", "Reused", "CommandResult")
_PLAIN = "BroadcastExchange"
_PART = "penstock_part"
"""The column that says which part of a micro-batch a task is to fetch."""

Key = tuple[str, int]
"""An operation, and into how many parts a micro-batch is cut."""


class Prepared:
    """A query that is planned.

    Attributes
    ----------
    is_kept : bool
        Whether it can be run again.
    outputs : int
        Tasks that bring its result; 0: that is known when it has run.
    """

    def __init__(self, frame: Any) -> None:
        self.is_kept = can_be_kept(frame)
        self.made_s = monotonic()
        self.frame = frame
        self._rows = frame._jdf.queryExecution().toRdd() if self.is_kept else None
        self.outputs = int(self._rows.getNumPartitions()) if self._rows is not None else 0

    def run(self) -> dict[int, int]:
        """Run it; return how many pieces each of its tasks has brought, where that is not told by the tasks."""
        if self._rows is None:
            return {row.task: row.pieces for row in self.frame.collect()}
        # As a query it would be described, announced and followed by Spark each time, which takes longer than it runs.
        self._rows.count()
        return {}


class Queries:
    """The queries of a job.

    Parameters
    ----------
    make : callable
        Makes the DataFrame of an operation.
    warm_up : callable
        Runs a query on nothing.
    """

    def __init__(self, make: Callable[[Key], Any], warm_up: Callable[[Key, Prepared], None]) -> None:
        self._make, self._warm_up = make, warm_up
        self._kept: dict[Key, Prepared] = {}
        self._passing: set[Key] = set()
        """Those that are made anew each time."""
        self._being_made: set[Key] = set()
        self._locks: dict[Key, threading.Lock] = {}
        self._maker = ThreadPoolExecutor(1, "penstock-query-maker")

    def take(self, key: Key) -> Prepared:
        """A query to be run; others may run it too."""
        if key in self._passing:
            return Prepared(self._make(key))
        with self._lock(key):  # whoever else needs it would make it, too
            found = self._kept.get(key)
            if found is None:
                found = self._put(key, Prepared(self._make(key)))
            if monotonic() - found.made_s >= KEPT_S and found.is_kept and key not in self._being_made:
                self._being_made.add(key)
                self._maker.submit(self._renew, key)
        return found

    def drop(self, key: Key, query: Prepared) -> None:
        """A query has failed: it is not run again."""
        with self._lock(key):
            if self._kept.get(key) is query:
                del self._kept[key]

    def _lock(self, key: Key) -> threading.Lock:
        return self._locks.setdefault(key, threading.Lock())

    def _put(self, key: Key, query: Prepared) -> Prepared:
        if query.is_kept:
            self._kept[key] = query
        else:
            self._passing.add(key)
        return query

    def _renew(self, key: Key) -> None:
        """Make a query in the place of one that is old."""
        try:
            made = Prepared(self._make(key))
            self._warm_up(key, made)
            with self._lock(key):
                self._kept.pop(key, None)
                self._put(key, made)
        finally:
            self._being_made.discard(key)

    def close(self) -> None:
        """Make no more."""
        self._maker.shutdown(wait=False, cancel_futures=True)


def numbered(session: Any, parts: int, *, is_large: bool) -> Any:
    """The parts of a micro-batch, one in each partition, which tasks fetch.

    Spark plans by sizes, and broadcasts the smaller side of a join. It takes a micro-batch for tiny, or, if that is
    wanted, for large: then the table is broadcast, once for many micro-batches, if Spark finds it small enough.
    """
    numbers = session.range(0, parts, 1, parts).toDF(_PART)
    if not is_large:
        return numbers
    frame, java = numbers._jdf, session._jsparkSession
    return numbers.__class__(java.createDataFrame(frame.javaRDD(), frame.schema()), session)


def can_be_kept(frame: Any) -> bool:
    """Whether a query can be run again for another micro-batch; see the table of this module."""
    execution = frame._jdf.queryExecution()
    analyzed = execution.analyzed()
    return bool(analyzed.deterministic()) and not _NOW.search(analyzed.toString()) and _fits(execution.executedPlan())


def _fits(node: Any, *, is_broadcast: bool = False) -> bool:
    name = node.nodeName()
    if any(name.startswith(each) for each in _UNKNOWN) or (name.endswith("Exchange") and name != _PLAIN):
        return False
    children = node.children()
    if is_broadcast and _PART in node.output().toString():  # a leaf may have another name for it
        return False
    below = is_broadcast or name == _PLAIN
    return all(_fits(children.apply(each), is_broadcast=below) for each in range(children.size()))
