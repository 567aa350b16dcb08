"""Where event time is read in a plan, and how far behind it the readers of it are.

A window or a join follows the times of one column. Event time is read off the records once, as early as that column is
there: right behind the source, or behind the operation that makes the column. From there on every block carries how
far it has come (`Block.event_time_us`), and nobody else looks at the records. What was declared about delays is known
before anything runs, so it is no part of what travels: it is on the edge into the window or join (`EdgeSpec.delay_us`).

==============================  ====================================================================================
behind                          the times of a column are
==============================  ====================================================================================
a source                        read here, no delay
``with_watermark`` on it        those before it, with the delay that it declares
an operation that keeps it      those before it (filter, select, split, lookup)
a function that keeps its name  those before it, if ``with_watermark``, a window or a join has settled them; else read
                                here, no delay
an operation that makes it      read here, no delay
a merge                         those of all its inputs, with the largest delay
a window, a join                those it follows, with the delay of its results; other columns of it: read here
==============================  ====================================================================================

A stream carries one event time. Where two readers want different ones of the same stream, the second reads its own,
right before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.operators import MAIN, Lateness
from penstock.pipeline.graph import Graph, Input


@dataclass(frozen=True)
class Timing:
    """Where a unit reads event time off its records.

    Attributes
    ----------
    index : int
        Before which operation of its chain.
    column : str
        The time column.
    readers : tuple of Lateness
        When a record is late for the windows and joins that follow it.
    """

    index: int
    column: str
    readers: tuple[Lateness, ...]


Home = tuple[int, int]
"""A unit and an index in its chain; -1 is its source or input."""
Point = tuple[int, int, str]
"""A unit, the operation before which it reads event time, and the column."""
Found = tuple[int, frozenset[Point]]
_NOBODY: Point = (-1, -1, "")


class EventTimes:
    """Finds out for all windows and joins of a graph where their event time is read.

    Parameters
    ----------
    graph : Graph
        The graph, declarations of event time included.
    homes : mapping
        Where the steps of the graph are.
    """

    def __init__(self, graph: Graph, homes: Mapping[str, Home]) -> None:
        self._graph = graph
        self._homes = homes
        self._carried: dict[int, frozenset[Point]] = {}
        """By unit: what the event time is that it carries."""
        self._readers: dict[Point, list[Lateness]] = {}
        self._declared: dict[tuple[str, str, str], bool] = {}

    def add(self, edge: Input, column: str, lateness: Lateness, home: Home) -> int:
        """Have a reader follow a column of an edge; ``home`` is its first part. Returns the delay of the column."""
        path: dict[int, frozenset[Point]] = {}
        delay_us, points = self._find(edge, column, path, {})
        path[home[0]] = points
        known = self._carried
        if any(known.get(unit, carried) != carried for unit, carried in path.items()) or _NOBODY in points:
            points = frozenset([(home[0], home[1], column)])
            path = {home[0]: points}
        known |= path
        for point in points:
            self._readers.setdefault(point, []).append(replace(lateness, delay_us=lateness.delay_us + delay_us))
        return delay_us

    @property
    def timings(self) -> dict[int, Timing]:
        """What each unit that reads event time needs to know."""
        return {
            unit: Timing(index, column, tuple(dict.fromkeys(readers)))
            for (unit, index, column), readers in self._readers.items()
        }

    def origins(self, edge: Input, column: str) -> list[tuple[Input, str]]:
        """Where the times of a column of an edge are first there: behind sources, or what makes them."""
        before = self._before(edge, column)
        if before is None:
            return [(edge, column)]
        return [found for above, name in before for found in self.origins(above, name)]

    def _find(
        self, edge: Input, column: str, path: dict[int, frozenset[Point]], known: dict[tuple[str, str, str], Found]
    ) -> Found:
        """The delay of a column of an edge, and where its times are read; none of it where a state sets them."""
        place = edge.node, edge.port, column
        if place not in known:
            known[place] = self._found(edge, column, path, known)
        return known[place]

    def _found(
        self, edge: Input, column: str, path: dict[int, frozenset[Point]], known: dict[tuple[str, str, str], Found]
    ) -> Found:
        node = self._graph.node(edge.node)
        unit, index = self._homes[node.name]
        operation, delay_us = node.operation, 0
        if operation is not None and operation.stateful and edge.port == MAIN and column in operation.delays_us:
            delay_us, points = operation.delays_us[column], frozenset[Point]()
        elif (before := self._before(edge, column)) is not None:
            found = [self._find(each, name, path, known) for each, name in before]
            delay_us = max(delay for delay, _ in found)
            points = frozenset[Point]().union(*(each for _, each in found))
            declared = operation.declared_time if operation is not None else None
            if declared is not None and declared[0] == column:
                delay_us = declared[1]
        elif edge.port == MAIN:
            points = frozenset([(unit, index + 1, column)])
        else:
            points = frozenset([_NOBODY])  # of a side output nobody but its reader can read it
        path[unit] = points
        return delay_us, points

    def _before(self, edge: Input, column: str) -> list[tuple[Input, str]] | None:
        """The inputs of a step that a column of its output comes from, and what it is called there."""
        node = self._graph.node(edge.node)
        if node.source is not None:
            return None
        if node.operation is None:
            return [(each, column) for each in node.inputs]
        if node.operation.stateful:
            return None
        (above,) = node.inputs
        name = node.operation.column_of(column, self._graph.schema(above))
        if name is None and self._is_declared(above, column):
            name = column
        return None if name is None else [(above, name)]

    def _is_declared(self, edge: Input, column: str) -> bool:
        """Whether ``with_watermark``, a window or a join says what the event time of a stream is: this column."""
        place = edge.node, edge.port, column
        if place not in self._declared:
            self._declared[place] = self._says(edge, column)
        return self._declared[place]

    def _says(self, edge: Input, column: str) -> bool:
        node = self._graph.node(edge.node)
        if node.operation is not None and node.operation.declared_time is not None:
            return node.operation.declared_time[0] == column
        if node.operation is not None and node.operation.stateful:
            return edge.port == MAIN and column in node.operation.delays_us
        if node.source is not None:
            return False
        return all(self._is_declared(each, column) for each in node.inputs)
