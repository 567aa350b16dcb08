"""From the graph to what runs: units (chains of operations), edges between them, and where their instances live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from penstock.connectors.base import Sink, Source
from penstock.errors import InvalidGraph, InvalidOption, NotSerializable
from penstock.operators import DEAD_LETTER_SCHEMA, DEAD_LETTERS, MAIN, ErrorPolicy, Expansion, Operation
from penstock.operators.base import BatchKind
from penstock.pipeline.event_time import EventTimes, Timing
from penstock.pipeline.graph import Graph, Input, Node, same_place
from penstock.pipeline.options import Forms, Options
from penstock.pipeline.routes import Shift
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
    """One operation or sink in a unit's chain.

    Attributes
    ----------
    name : str
        Name in the plan, in figures and in checkpoints; unique.
    display : str
        Name that users know it by: both parts of an aggregation have the aggregation's.
    """

    name: str
    operation: Operation | Sink
    schema: Schema
    output: Schema
    on_error: ErrorPolicy = ErrorPolicy.FAIL
    display: str = ""
    replicas: tuple[int, int] | None = None
    """The least and the most of them, if the user has said so."""

    def __post_init__(self) -> None:
        if not self.display:
            object.__setattr__(self, "display", self.name)

    @property
    def sink(self) -> Sink | None:
        """The sink that it is, if it is one."""
        return self.operation if isinstance(self.operation, Sink) else None

    @property
    def is_replicable(self) -> bool:
        """Whether replicas can run it."""
        return self.operation.is_replicable

    @property
    def waits(self) -> bool:
        """Whether many records are under way in it, so that it has a unit of its own."""
        return self.operation.waits


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
    user_keys: tuple[str, ...]
    """The keys as users name them."""
    delay_us: int = 0
    """How far the watermark of a window or join that it leads to trails the event time that it carries."""

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
    timing: Timing | None = None
    """Where it reads event time off its records, if it does."""
    lane: int = -1
    """Number of its first lane: of a partition of its source, or of the result of an instance with state."""

    @property
    def is_stateful(self) -> bool:
        """Whether it begins with an operation that keeps state."""
        return bool(self.ops) and self.ops[0].operation.stateful

    @property
    def output(self) -> Schema:
        """Schema of what leaves the chain."""
        return self.ops[-1].output if self.ops else self.schema

    @property
    def movable(self) -> range:
        """Indexes of operations that slots can run (-1, the source, too): no state, no sink that is called in order."""
        first = -1 if self.source is not None and self.source.is_split else 0
        if self.ops and self.ops[0].waits:
            # What it waits for is not processor time: slots would wait as long. Some of its alternatives may compute.
            return range(int(self.ops[0].operation.batch_kind is not BatchKind.NONE))
        if self.is_stateful:
            first = 1
        sink = self.ops[-1].sink if self.ops else None
        return range(first, len(self.ops) - (sink is not None and not sink.is_movable))

    @property
    def replicable(self) -> range:
        """Indexes of the operations that replicas can run: no state, no sink, a record form, one alternative."""
        if self.ops and self.ops[0].waits:
            return range(0)
        first = int(self.is_stateful)
        unable = (index for index, op in enumerate(self.ops) if index >= first and not op.is_replicable)
        return range(first, next(unable, len(self.ops)))

    @property
    def repeatable(self) -> range:
        """Indexes of the operations that samples are taken of: up to the first that must see each record once only."""
        if self.ops and self.ops[0].operation.stateful:
            return range(0)
        pure = [op.operation.is_pure for op in self.ops]
        return range(self.movable.start, pure.index(False) if False in pure else len(pure))

    def is_whole(self, first: int, last: int) -> bool:
        """Whether a range has an operation that takes a micro-batch as a whole."""
        return any(op.operation.is_whole for op in self.ops[max(first, 0) : last + 1])

    def name_at(self, index: int) -> str:
        """Name of the operation at ``index``; the source's at -1."""
        return self.name if index < 0 else self.ops[index].name

    def display_at(self, index: int) -> str:
        """Name that users know the operation at ``index`` by."""
        return self.name if index < 0 else self.ops[index].display

    def schema_at(self, index: int) -> Schema:
        """Schema of what enters the operation at ``index``; the source's own at -1."""
        return self.ops[index].schema if 0 <= index < len(self.ops) else self.schema if index < 0 else self.output


@dataclass(frozen=True)
class Basis:
    """What a checkpoint directory held when the job was planned; its start finds out whether it still does."""

    job_id: str = ""
    """Identity of the job that has been there, if one has committed anything."""
    attempt: int = 0
    """Which run wrote the newest commit record."""
    begun: int = 0
    """Which run has begun last."""


@dataclass(frozen=True)
class Plan:
    """Everything a worker needs to know."""

    options: Options
    units: list[UnitSpec]
    edges: list[EdgeSpec]
    start_us: int = 0
    job_id: str = ""
    """Tells this job from every other one, also of the same name; runs that go on from a checkpoint share it."""
    basis: Basis = Basis()
    placement: list[int] = field(default_factory=list)
    """Worker of each instance; this and the routes change while a job runs. Empty: dealt out in turn."""
    routes: list[Shift] = field(default_factory=list)
    """Key groups that go to another instance than they would at first."""

    @property
    def workers(self) -> int:
        """Number of worker processes at the start."""
        return self.options.workers or self.options.parallelism

    def placed(self) -> Plan:
        """Return the plan with a placement and routes of its own, which only whoever asks for it changes."""
        return replace(self, placement=[i % self.workers for i in range(self.options.parallelism)], routes=[])

    def worker_of(self, instance: int) -> int:
        """Worker on which an instance lives; forward neighbours share it."""
        return self.placement[instance] if self.placement else instance % self.workers

    def processes(self, unit: UnitSpec) -> int:
        """How many workers have instances of a unit; those of one worker take turns in its process."""
        return len({self.worker_of(instance) for instance in range(unit.instances)})

    def inputs(self, unit: int) -> list[EdgeSpec]:
        """Edges into a unit."""
        return [edge for edge in self.edges if edge.consumer == unit]

    def outputs(self, unit: int) -> list[EdgeSpec]:
        """Edges out of a unit."""
        return [edge for edge in self.edges if edge.producer == unit]

    def lanes(self, unit: int, instance: int) -> frozenset[int]:
        """The lanes that an instance writes: its partitions, itself if it keeps state, else those that it reads."""
        found: set[int] = set()
        seen, todo = {(unit, instance)}, [(unit, instance)]
        while todo:
            number, each = todo.pop()
            spec = self.units[number]
            if spec.source is not None:
                found.update(spec.lane + p for p in range(spec.partitions) if p % spec.instances == each)
            elif spec.is_stateful:
                found.add(spec.lane + each)
            else:
                above = {(edge.producer, i) for edge in self.inputs(number) for i in edge.producers(self, each)}
                todo += above - seen
                seen |= above
        return frozenset(found)

    def sources_of(self, unit: int) -> str:
        """Names of the sources that a unit's records may have come from, in the order of the plan."""
        found, todo = {unit}, [unit]
        while todo:
            above = {edge.producer for edge in self.inputs(todo.pop())} - found
            found |= above
            todo += above
        return ", ".join(self.units[each].name for each in sorted(found) if self.units[each].source is not None)

    def keeps_lanes(self, unit: int) -> bool:
        """Whether someone behind a unit, or the unit itself, reads event time off the records of its lanes."""
        seen, todo = {unit}, [unit]
        while todo:
            number = todo.pop()
            if self.units[number].timing is not None:
                return True
            behind = {each.consumer for each in self.outputs(number)} - seen
            todo += [each for each in behind if not self.units[each].is_stateful]
            seen |= behind
        return False

    @property
    def replicas(self) -> int:
        """Processes that stand by as replicas: as many as the job is given, or else as its operations may use."""
        asked = [max((op.replicas[1] for op in unit.ops if op.replicas is not None), default=0) for unit in self.units]
        return self.options.replicas or sum(most for most in asked if most > 1)

    def whole(self, unit: UnitSpec) -> list[int]:
        """The operations of a unit that are in batch form from the beginning: those that have no other."""
        if self.options.forms is Forms.RECORD:
            return []
        return [index for index in unit.movable if index >= 0 and unit.is_whole(index, index)]

    @property
    def sinks(self) -> dict[str, Sink]:
        """Every sink by name."""
        return {op.name: op.sink for unit in self.units for op in unit.ops if op.sink is not None}

    def instances(self, worker: int) -> Iterator[tuple[UnitSpec, int]]:
        """Yield what a worker runs."""
        yield from ((unit, i) for unit in self.units for i in range(unit.instances) if self.worker_of(i) == worker)

    @staticmethod
    def of(
        graph: Graph,
        options: Options,
        dead_letters: Sink | None = None,
        start_us: int = 0,
        sinks: Mapping[str, dict[str, object]] | None = None,
    ) -> Plan:
        """Lay a checked graph out; ``sinks`` are the sinks' states of the run that is resumed, if one is."""
        planner = _Planner(graph.without_declarations(), options)
        planner.place_all()
        planner.place_dead_letters(dead_letters, (sinks or {}).get(DEAD_LETTERS))
        planner.settle_event_time(graph)
        _check_places(planner.units)
        plan = Plan(options, planner.units, planner.edges, start_us)
        for unit in planner.units:
            for op in unit.ops:
                if op.replicas is not None and max(op.replicas[0], 2) > plan.replicas > 0:
                    allowed = f"at least {op.replicas[0]}, which '{op.display}' asks for"
                    raise InvalidOption(option="replicas", given=options.replicas, allowed=allowed)
        return plan


def _check_places(units: list[UnitSpec]) -> None:
    """Two sinks in one directory would overwrite each other's files."""
    sinks = [(op.name, op.sink) for unit in units for op in unit.ops if op.sink is not None]
    for i, (name, sink) in enumerate(sinks):
        for earlier, other in sinks[:i]:
            if sink.place is not None and same_place(sink, other):
                raise InvalidGraph(
                    f"it writes into '{sink.place}', as '{earlier}' does.",
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
        self._parts: dict[str, list[tuple[UnitSpec, int]]] = {}  # node → its parts before a shuffle

    def place_all(self) -> None:
        for node in self._graph.nodes:
            self._place(node)

    def _place(self, node: Node) -> None:
        if node.source is not None:
            self._place_source(node, node.source)
        elif node.body is None:
            self._place_union(node)
        elif (expansion := self._expansion(node)) is not None:
            self._place_parts(node, expansion)
        else:
            schema = self._graph.schema(node.inputs[0])
            output = self._graph.ports.get((node.name, MAIN), schema)
            body = node.operation or node.sink
            assert body is not None
            spec = OpSpec(node.name, body, schema, output, node.on_error, replicas=node.replicas)
            self._add(node.inputs[0], spec, node.name)

    def _place_source(self, node: Node, source: Source) -> None:
        partitions = source.partitions(self._parallelism)
        unit = self._unit(node.name, source.schema, min(self._parallelism, partitions), source)
        unit.partitions = partitions
        self._home[node.name] = unit, -1

    def _place_union(self, node: Node) -> None:
        schema = self._graph.schema(node.inputs[0])
        instances = max(self._home[edge.node][0].instances for edge in node.inputs)
        unit = self._unit(node.name, schema, instances)
        for edge in node.inputs:
            self._connect(edge, unit)
        self._home[node.name] = unit, -1

    def _expansion(self, node: Node) -> Expansion | None:
        if node.operation is None:
            return None
        graph = self._graph
        read = {port for name, port in graph.ports if name == node.name and graph.consumers(name, port)}
        return node.operation.expand([graph.schema(edge) for edge in node.inputs], read)

    def _place_parts(self, node: Node, expansion: Expansion) -> None:
        """Place what runs before a shuffle at the end of its producers' chains, and what is behind it in a new unit."""
        ends: list[tuple[UnitSpec, int]] = []
        for edge, (word, part) in zip(node.inputs, expansion.before, strict=True):
            schema, name = self._graph.schema(edge), f"{node.name}.{word}"
            between = part.bind(schema)
            # Where there is one part only, users need not know that it is one.
            display = node.name if len(expansion.before) == 1 else name
            unit = self._add(edge, OpSpec(name, part, schema, between, node.on_error, display), None)
            ends.append((unit, len(unit.ops) - 1))
        behind = expansion.behind
        target = self._unit(node.name, between, self._parallelism if expansion.keys else 1)
        target.ops.append(OpSpec(node.name, behind, between, behind.bind(between), node.on_error))
        mode = Mode.SHUFFLE if expansion.keys else Mode.GATHER
        for unit, index in ends:
            self._edge(unit, index, MAIN, target, mode, expansion.keys, between, expansion.user_keys)
        self._parts[node.name] = ends
        self._home[node.name] = target, 0

    def settle_event_time(self, graph: Graph) -> None:
        """Find out where event time is read, and number the lanes."""
        homes = {name: (unit.id, index) for name, (unit, index) in self._home.items()}
        for node in graph.nodes:
            if node.operation is not None and node.operation.declared_time is not None:
                homes[node.name] = homes[node.inputs[0].node]
        times = EventTimes(graph, homes)
        for node in graph.nodes:
            readers = node.operation.readers_of_time if node.operation is not None else ()
            for edge, (unit, index), (column, lateness) in zip(
                node.inputs, self._parts.get(node.name, []), readers, strict=bool(readers)
            ):
                delay_us, target = times.add(edge, column, lateness, (unit.id, index)), self._home[node.name][0]
                (into,) = (e for e in self.edges if (e.producer, e.op_index, e.consumer) == (unit.id, index, target.id))
                self.edges[into.id] = replace(into, delay_us=delay_us)
        lane = 0
        for unit in self.units:
            unit.timing = times.timings.get(unit.id)
            if unit.source is not None or unit.is_stateful:
                unit.lane = lane
                lane += unit.partitions or unit.instances

    def _add(self, edge: Input, spec: OpSpec, node: str | None) -> UnitSpec:
        """Append an operation to its producer's chain, or begin a new unit where the chain ends."""
        unit, index = self._home[edge.node]
        alone = len(self._graph.consumers(edge.node, edge.port)) == 1
        waits = spec.waits or any(each.waits for each in unit.ops)
        if spec.replicas is not None and unit.ops and unit.ops[-1].replicas != spec.replicas:
            # A unit has one range in replicas at a time: a second one is a unit of its own.
            waits = waits or any(each.replicas is not None for each in unit.ops)
        if edge.keys or edge.port != MAIN or not alone or index != len(unit.ops) - 1 or waits:
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
            sink.take_up(state)
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
        user_keys: tuple[str, ...] | None = None,
    ) -> None:
        shown = keys if user_keys is None else user_keys
        self.edges.append(EdgeSpec(len(self.edges), producer.id, index, port, consumer.id, mode, keys, schema, shown))


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
