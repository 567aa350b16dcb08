"""A pipeline over history up to a cut: what the stream would have sent by then, and the state that it would have.

===================  ================================================================================================
of a source          what becomes of it
===================  ================================================================================================
nothing is given     its records up to the cut are read by its own readers; the live job goes on at that position
an input is given    that is its history; the live job begins where the source itself says (`start=` of a topic)
===================  ================================================================================================

The watermark at the cut is that of the stream: of every partition the newest time, and of all partitions the least,
less the declared delay. Where it cannot be told it is left out: then no window is closed yet, the state is larger, and
the live job closes them. What has left by the cut and what leaves behind it are one result in either case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from penstock.operators import (
    DEAD_LETTER_SCHEMA,
    DEAD_LETTERS,
    LATE,
    Aggregation,
    Emit,
    ErrorPolicy,
    Operation,
)
from penstock.pipeline.event_time import EventTimes
from penstock.pipeline.graph import Graph, Input, Node
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol import messages as m
from penstock.spark.backfill import Compiler
from penstock.spark.columns import Dialect
from penstock.spark.cuts import Cut
from penstock.spark.frames import DataFrame, Frame, Step
from penstock.spark.keyed import expanded
from penstock.spark.states import EPOCH, Held, Write, ordered_by
from penstock.types import Schema

Lane = tuple[str, int]
"""A source, and a partition of it; 0 where its history is given."""


class CutCompiler(Compiler):
    """Compiles a pipeline up to a cut.

    Parameters
    ----------
    cuts : mapping
        Sources that are read by their own readers.
    only : Lane, optional
        Read this partition of this source, and nothing of the others: to know how far its event time has come.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        cuts: Mapping[str, Cut],
        given: Mapping[str, Any],
        session: Any,
        dialect: Dialect,
        only: Lane | None = None,
    ) -> None:
        super().__init__(graph, {}, given, session, dialect)
        self._plan = plan
        self._cuts = cuts
        self._dialect_of_all = dialect
        self._only = only
        self._times = EventTimes(graph, {})
        self._held: dict[str, tuple[Held, DataFrame]] = {}

    def states(self, write: Write) -> list[m.Stored]:
        """Write the state of every operation that has some; to be called when the sinks have been compiled."""
        stored = []
        for name, (held, dealt) in self._held.items():
            unit = self._unit(name)
            found = {row.instance: (row.name, row.crc) for row in held.states(dealt, unit, write).collect()}
            for instance in range(unit.instances):
                if instance not in found:
                    label = f"u{unit.id}-i{instance}-e{EPOCH:08d}-bootstrap-none"
                    found[instance] = label, write(label, held.empty(unit))
                label, crc = found[instance]
                stored.append(m.Stored(unit=unit.id, instance=instance, epoch=EPOCH, depth=0, name=label, crc=crc))
        return stored

    def _unit(self, name: str) -> UnitSpec:
        return next(unit for unit in self._plan.units if unit.is_stateful and unit.name == name)

    def _read(self, node: Node, schema: Schema) -> DataFrame:
        if self._only is not None and node.source is not None and node.name != self._only[0]:
            from penstock.spark.types import spark_schema

            return self._session.createDataFrame([], spark_schema(schema))
        if node.name in self._cuts and node.name not in self._given:
            return self._cuts[node.name].df(self._session, None if self._only is None else self._only[1])
        return super()._read(node, schema)

    # --- state --------------------------------------------------------------------------------------------------------

    def _operated(self, node: Node, inputs: list[Frame], port: str, schema: Schema, output: Schema) -> Frame:
        if node.operation is not None and node.operation.stateful:
            return Frame(self._keyed(node, inputs, schema, port), schema)
        return super()._operated(node, inputs, port, schema, output)

    def _keyed(self, node: Node, inputs: list[Frame], schema: Schema, port: str) -> DataFrame:
        if port == LATE:
            return inputs[0].df.limit(0)
        if node.name not in self._held:
            self._held[node.name] = self._hold(node, inputs)
        held, dealt = self._held[node.name]
        return held.results(dealt, port, schema)

    def _hold(self, node: Node, inputs: list[Frame]) -> tuple[Held, DataFrame]:
        operation, unit = node.operation, self._unit(node.name)
        assert operation is not None
        read = {port for name, port in self._graph.ports if name == node.name and self._graph.consumers(name, port)}
        expansion = expanded([each.schema for each in inputs], operation, read)
        before = [
            frame.then(Step(f"{node.name}.{word}", part, frame.schema, part.bind(frame.schema), node.on_error))
            for frame, (word, part) in zip(inputs, expansion.before, strict=True)
        ]
        between = before[0].schema
        held = Held(
            Step(node.name, expansion.behind, between, unit.ops[0].output, node.on_error),
            expansion.keys,
            unit.instances,
            ordered_by(between, [column for column, _ in operation.readers_of_time]),
            self._watermark(node, operation),
            self._start_us,
            _last_by(operation),
        )
        dealt = held.dealt(reduce(lambda one, other: one.union(other), (each.df for each in before)))
        if node.on_error is ErrorPolicy.DEAD_LETTER:
            own = held.results(dealt, DEAD_LETTERS, DEAD_LETTER_SCHEMA)
            self._letters[node.name] = [*(each.dead_letters for each in before), own]
        return held, dealt

    # --- event time ---------------------------------------------------------------------------------------------------

    def _watermark(self, node: Node, operation: Operation) -> int | None:
        """How far event time has come for an operation; None where that cannot be told."""
        readers = operation.readers_of_time
        if not readers:
            return None
        edges = self._plan.inputs(self._unit(node.name).id)
        reached = []
        for edge, into, (column, _) in zip(node.inputs, edges, readers, strict=True):
            newest_us = self._newest(edge, column)
            if newest_us is None:
                return None
            reached.append(newest_us - into.delay_us)
        return min(reached)

    def _newest(self, edge: Input, column: str) -> int | None:
        """The newest time of a column in the partition that is furthest behind, of those that have records."""
        wanted: list[DataFrame] = []
        for origin, name in self._times.origins(edge, column):
            node = self._graph.node(origin.node)
            if node.operation is not None and node.operation.stateful:
                if name not in node.operation.delays_us:
                    return None
                wanted.append(_newest_of(self._frame(origin).df, name))
            elif self._has_state_above(origin):
                return None
            else:
                for lane in self._lanes(origin):
                    wanted.append(_newest_of(self._alone(lane)._frame(origin).df, name))
        rows = reduce(lambda one, other: one.union(other), wanted).collect()
        return min((row.newest for row in rows if row.newest is not None), default=None)

    def _alone(self, lane: Lane) -> CutCompiler:
        return CutCompiler(
            self._graph, self._plan, self._cuts, self._given, self._session, self._dialect_of_all, only=lane
        )

    def _above(self, edge: Input) -> Iterator[Node]:
        node = self._graph.node(edge.node)
        yield node
        if node.name not in self._given:
            for each in node.inputs:
                yield from self._above(each)

    def _has_state_above(self, edge: Input) -> bool:
        return any(node.operation is not None and node.operation.stateful for node in self._above(edge))

    def _lanes(self, edge: Input) -> list[Lane]:
        """The partitions of the sources above an edge; what is given counts as one."""
        found: dict[Lane, None] = {}
        for node in self._above(edge):
            if node.name in self._given:
                found[node.name, 0] = None
            elif node.name in self._cuts:
                found.update(dict.fromkeys((node.name, part.partition) for part in self._cuts[node.name].parts))
        return list(found)


def _newest_of(df: DataFrame, column: str) -> DataFrame:
    from pyspark.sql import functions as F

    return df.agg(F.max(F.unix_micros(F.col(column))).alias("newest"))


def _last_by(operation: Operation) -> tuple[str, ...] | None:
    """The columns that tell one running result from another, where only the last counts."""
    if not isinstance(operation, Aggregation) or operation.emit is not Emit.CHANGE:
        return None
    windows = ("window_start", "window_end") if operation.window is not None else ()
    return (*operation.keys, *windows)
