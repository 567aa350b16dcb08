"""From the graph to what runs: units (chains of operations), edges between them, and where their instances live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.connectors.base import Sink, Source
from penstock.connectors.files import Files
from penstock.errors import InvalidGraph, NotSerializable
from penstock.operators import (
    DEAD_LETTER_SCHEMA,
    DEAD_LETTERS,
    LATE,
    MAIN,
    Aggregation,
    Combine,
    ErrorPolicy,
    Join,
    Match,
    Merge,
    Operation,
    Side,
    Tag,
)
from penstock.pipeline.graph import Graph, Input, Node, same_place
from penstock.pipeline.options import Options
from penstock.types import Schema


class Mode(Enum):
    """How an edge connects the instances of two units."""

    FORWARD = "forward"
    """Instance i to instance i, in one process."""
    SHUFFLE = "shuffle"
    """Every instance to the owner of each key."""
    GATHER = "gather"
    """Every instance to the only one."""


@dataclass(frozen=True)
class OpSpec:
    """One operation or sink in a unit's chain."""

    name: str
    operation: Operation | Sink
    schema: Schema
    output: Schema
    on_error: ErrorPolicy = ErrorPolicy.FAIL


@dataclass(frozen=True)
class EdgeSpec:
    """An edge from one output of a unit to another unit."""

    id: int
    producer: int
    op_index: int
    """Which operation of the producer; -1 is its source or input."""
    port: str
    consumer: int
    mode: Mode
    keys: tuple[str, ...]
    schema: Schema

    def consumers(self, plan: Plan, instance: int) -> list[int]:
        """Instances of the consumer that an instance of the producer sends to."""
        count = plan.units[self.consumer].instances
        if self.mode is Mode.SHUFFLE:
            return list(range(count))
        return [0] if self.mode is Mode.GATHER else [instance % count]

    def producers(self, plan: Plan, instance: int) -> list[int]:
        """Instances of the producer that send to an instance of the consumer."""
        count = plan.units[self.producer].instances
        return [i for i in range(count) if instance in self.consumers(plan, i)]


@dataclass
class UnitSpec:
    """A chain of operations that runs in one place, in as many instances as its input allows."""

    id: int
    name: str
    source: Source | None
    schema: Schema
    """Schema of what enters the chain."""
    instances: int
    ops: list[OpSpec] = field(default_factory=list)
    partitions: int = 0

    @property
    def output(self) -> Schema:
        """Schema of what leaves the chain."""
        return self.ops[-1].output if self.ops else self.schema

    @property
    def movable(self) -> range:
        """Indexes of the operations that can be run in slots: no state; the source (-1) if slots can read it."""
        first = -1 if self.source is not None and self.source.is_split else 0
        if self.ops and isinstance(self.ops[0].operation, Operation) and self.ops[0].operation.stateful:
            first = 1
        return range(first, len(self.ops))

    def schema_at(self, index: int) -> Schema:
        """Schema of what enters the operation at ``index``; the source's own at -1."""
        return self.ops[index].schema if 0 <= index < len(self.ops) else self.schema if index < 0 else self.output


@dataclass(frozen=True)
class Plan:
    """Everything a worker needs to know."""

    options: Options
    units: list[UnitSpec]
    edges: list[EdgeSpec]
    start_us: int = 0

    @property
    def workers(self) -> int:
        """Number of worker processes."""
        return self.options.parallelism

    def worker_of(self, instance: int) -> int:
        """Worker on which an instance lives; forward neighbours share it."""
        return instance % self.workers

    def inputs(self, unit: int) -> list[EdgeSpec]:
        """Edges into a unit."""
        return [edge for edge in self.edges if edge.consumer == unit]

    def outputs(self, unit: int) -> list[EdgeSpec]:
        """Edges out of a unit."""
        return [edge for edge in self.edges if edge.producer == unit]

    def instances(self, worker: int) -> Iterator[tuple[UnitSpec, int]]:
        """Yield what a worker runs."""
        for unit in self.units:
            for instance in range(unit.instances):
                if self.worker_of(instance) == worker:
                    yield unit, instance

    @staticmethod
    def of(
        graph: Graph,
        options: Options,
        dead_letters: Sink | None = None,
        start_us: int = 0,
        sinks: Mapping[str, dict[str, object]] | None = None,
    ) -> Plan:
        """Lay a checked graph out; ``sinks`` are the sinks' states of the run that is resumed, if one is."""
        planner = _Planner(graph, options)
        for node in graph.nodes:
            planner.place(node)
        planner.place_dead_letters(dead_letters, (sinks or {}).get(DEAD_LETTERS))
        _check_places(planner.units)
        return Plan(options, planner.units, planner.edges, start_us)


def _check_places(units: list[UnitSpec]) -> None:
    """Two sinks in one directory would overwrite each other's files."""
    sinks = [(op.name, op.operation) for unit in units for op in unit.ops if isinstance(op.operation, Sink)]
    for i, (name, sink) in enumerate(sinks):
        for earlier, other in sinks[:i]:
            if isinstance(sink, Files) and same_place(sink, other):
                raise InvalidGraph(
                    f"it writes into '{sink.path}', as '{earlier}' does.",
                    operation=name,
                    hint="Give each sink a directory of its own, or merge() the streams before one sink.",
                )


class _Planner:
    def __init__(self, graph: Graph, options: Options) -> None:
        self._graph = graph
        self._parallelism = options.parallelism
        self.units: list[UnitSpec] = []
        self.edges: list[EdgeSpec] = []
        self._home: dict[str, tuple[UnitSpec, int]] = {}  # node → its unit and index in the chain

    def place(self, node: Node) -> None:
        body = node.body
        if isinstance(body, Source):
            partitions = body.partitions(self._parallelism)
            unit = self._unit(node.name, body.schema, min(self._parallelism, partitions), body)
            unit.partitions = partitions
            self._home[node.name] = unit, -1
        elif body is None:
            schema = self._graph.schema(node.inputs[0])
            instances = max(self._home[edge.node][0].instances for edge in node.inputs)
            unit = self._unit(node.name, schema, instances)
            for edge in node.inputs:
                self._connect(edge, unit)
            self._home[node.name] = unit, -1
        elif isinstance(body, Aggregation):
            self._place_aggregation(node, body)
        elif isinstance(body, Join):
            self._place_join(node, body)
        else:
            schema = self._graph.schema(node.inputs[0])
            output = schema if isinstance(body, Sink) else self._graph.ports[node.name, MAIN]
            self._add(node.inputs[0], OpSpec(node.name, body, schema, output, node.on_error), node.name)

    def _place_aggregation(self, node: Node, body: Aggregation) -> None:
        schema = self._graph.schema(node.inputs[0])
        whole = body.needs_records or bool(self._graph.consumers(node.name, LATE))
        combine = Combine(body, whole)
        partial = combine.bind(schema)
        unit = self._add(node.inputs[0], OpSpec(f"{node.name}.combine", combine, schema, partial, node.on_error), None)
        merge = Merge(body, schema, whole)
        target = self._unit(node.name, partial, self._parallelism if body.keys else 1)
        target.ops.append(OpSpec(node.name, merge, partial, merge.bind(partial), node.on_error))
        keys = body.keys if whole else body.partial_keys()
        mode = Mode.SHUFFLE if body.keys else Mode.GATHER
        self._edge(unit, len(unit.ops) - 1, MAIN, target, mode, keys, partial)
        self._home[node.name] = target, 0

    def _place_join(self, node: Node, body: Join) -> None:
        left, right = map(self._graph.schema, node.inputs)
        tagged, sides = body.tagged(left, right), []
        for edge, side in zip(node.inputs, Side, strict=True):
            tag = Tag(body, left, right, side)
            spec = OpSpec(f"{node.name}.{side.value}", tag, self._graph.schema(edge), tagged, node.on_error)
            unit = self._add(edge, spec, None)
            sides.append((unit, len(unit.ops) - 1))
        match = Match(body, left, right)
        target = self._unit(node.name, tagged, self._parallelism)
        target.ops.append(OpSpec(node.name, match, tagged, match.bind(tagged), node.on_error))
        for unit, index in sides:
            self._edge(unit, index, MAIN, target, Mode.SHUFFLE, body.tagged_keys, tagged)
        self._home[node.name] = target, 0

    def _add(self, edge: Input, spec: OpSpec, node: str | None) -> UnitSpec:
        """Append an operation to its producer's chain, or begin a new unit where the chain ends."""
        unit, index = self._home[edge.node]
        alone = len(self._graph.consumers(edge.node, edge.port)) == 1
        if edge.keys or edge.port != MAIN or not alone or index != len(unit.ops) - 1:
            unit = self._unit(spec.name, spec.schema, self._parallelism if edge.keys else unit.instances)
            self._connect(edge, unit)
        unit.ops.append(spec)
        if node is not None:
            self._home[node] = unit, len(unit.ops) - 1
        return unit

    def _connect(self, edge: Input, consumer: UnitSpec) -> None:
        producer, index = self._home[edge.node]
        mode = Mode.SHUFFLE if edge.keys else Mode.FORWARD
        self._edge(producer, index, edge.port, consumer, mode, edge.keys, self._graph.schema(edge))

    def place_dead_letters(self, sink: Sink | None, state: dict[str, object] | None) -> None:
        dead = [
            (unit, i, op)
            for unit in self.units
            for i, op in enumerate(unit.ops)
            if op.on_error is ErrorPolicy.DEAD_LETTER
        ]
        if not dead:
            return
        if sink is None:
            raise InvalidGraph(
                'on_error="dead_letter" needs a sink for the bad records.',
                operation=dead[0][2].name,
                hint='Give .to(…, dead_letters=ps.files("dead")) or ps.run(…, dead_letters=…).',
            )
        if any(op.name == DEAD_LETTERS for unit in self.units for op in unit.ops):
            raise InvalidGraph(
                f"the name '{DEAD_LETTERS}' belongs to the sink of the bad records.",
                operation=DEAD_LETTERS,
                hint="Give this operation another name=….",
            )
        if state is None:
            sink.check(DEAD_LETTER_SCHEMA)
        else:
            sink.resume(state)
        target = self._unit(DEAD_LETTERS, DEAD_LETTER_SCHEMA, 1)
        target.ops.append(OpSpec(DEAD_LETTERS, sink, DEAD_LETTER_SCHEMA, DEAD_LETTER_SCHEMA))
        for unit, index, _ in dead:
            self._edge(unit, index, DEAD_LETTERS, target, Mode.GATHER, (), DEAD_LETTER_SCHEMA)

    def _unit(self, name: str, schema: Schema, instances: int, source: Source | None = None) -> UnitSpec:
        unit = UnitSpec(len(self.units), name, source, schema, instances)
        self.units.append(unit)
        return unit

    def _edge(
        self,
        producer: UnitSpec,
        index: int,
        port: str,
        consumer: UnitSpec,
        mode: Mode,
        keys: tuple[str, ...],
        schema: Schema,
    ) -> None:
        self.edges.append(EdgeSpec(len(self.edges), producer.id, index, port, consumer.id, mode, keys, schema))


def check_serializable(plan: Plan, dumps: object) -> None:
    """Raise NotSerializable naming the operation whose function cannot be sent to the workers."""
    assert callable(dumps)
    for unit in plan.units:
        parts = [(unit.name, unit.source), *((op.name, op.operation) for op in unit.ops)]
        for name, part in parts:
            try:
                dumps(part)
            except Exception as error:
                raise NotSerializable(operation=name, cause=error) from error
