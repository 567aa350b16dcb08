"""A scenario over a pipeline of the user's: what a seed decides, and what the output must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from penstock.connectors.memory import Memory, memory
from penstock.operators import DEAD_LETTERS
from penstock.operators.alternatives import Alternatives
from penstock.operators.keyed.aggregation import Aggregation
from penstock.operators.keyed.windows import Emit
from penstock.pipeline.graph import Graph, Node
from penstock.pipeline.plan import Plan
from penstock.testing.rows import Row, difference
from penstock.testing.simulation.disk import Disk, Ledger
from penstock.testing.simulation.draws import draw_exchanges, draw_faults, draw_pins, draw_switch_faults
from penstock.testing.simulation.oracle import Output
from penstock.testing.simulation.scenario import HOUR_US, SWITCHING, Scenario
from penstock.testing.simulation.world import Violation, World
from penstock.types import Schema

NARROW_RECORDS_MAX = 300
"""With more than these, queues hold at least a few records: a simulation takes steps, not time."""
TOLERANCE = 1e-9
"""By how much fractions may be off: their sum depends on how blocks were cut, and so on the order of the additions."""
Wanted = Mapping[str, Sequence[Row]]
"""By sink: the rows that it must get."""
Latest = Mapping[str, Sequence[str]]
"""Sinks that get updates: of the rows with equal values in these columns the last one counts."""


@dataclass(frozen=True)
class GivenScenario(Scenario):
    """A job of the user's under faults."""

    nodes: tuple[Node, ...] = ()
    has_dead_letters: bool = False
    wanted: Wanted = field(default_factory=dict)
    latest: Latest = field(default_factory=dict)

    def plan(self, disk: Disk, world: World) -> tuple[Plan, dict[str, Memory]]:
        del world
        nodes = [replace(node, body=Ledger(disk)) if node.sink is not None else node for node in self.nodes]
        dead_letters = Ledger(disk) if self.has_dead_letters else None
        return Plan.of(Graph.check(nodes), self.options, dead_letters), {}

    def check(self, output: Output) -> None:
        schemas = sink_schemas(self.nodes)
        for name, schema in schemas.items():
            found = [dict(zip(schema.names, record, strict=True)) for _, record in output[name]]
            wrong = compared(name, found, self.wanted[name], self.latest)
            if wrong is not None:
                raise Violation(f"sink '{name}': {wrong}")
        if self.has_dead_letters:
            found = [{"operation": record[0], "record": record[3]} for _, record in output.get(DEAD_LETTERS, ())]
            if (wrong := difference(found, self.wanted.get(DEAD_LETTERS, ()))) is not None:
                raise Violation(f"dead letters: {wrong}")


def compared(sink: str, found: Sequence[Row], wanted: Sequence[Row], latest: Latest) -> str | None:
    """Say how a sink's rows differ from what it must get; None: they do not."""
    if sink in latest:
        found, wanted = _newest(found, latest[sink]), _newest(wanted, latest[sink])
    return difference(found, wanted, TOLERANCE)


def _newest(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    return list({tuple(repr(row[column]) for column in columns): row for row in rows}.values())


def sink_schemas(nodes: Sequence[Node]) -> dict[str, Schema]:
    """What each sink gets."""
    graph = Graph.check(nodes)
    return {node.name: graph.schema(node.inputs[0]) for node in nodes if node.sink is not None}


def updates(nodes: Sequence[Node]) -> dict[str, Sequence[str]]:
    """The sinks that get updates of aggregates: which ones come, depends on timing; the last one of each key counts."""
    by_name, schemas = {node.name: node for node in nodes}, sink_schemas(nodes)
    found: dict[str, Sequence[str]] = {}
    for name, schema in schemas.items():
        node = by_name[name]
        while len(node.inputs) == 1 and not isinstance(node.body, Aggregation):
            node = by_name[node.inputs[0].node]
        aggregation = node.body
        if isinstance(aggregation, Aggregation) and aggregation.emit in (Emit.CHANGE, Emit.EVERY):
            window = [each.name for each in aggregation.window.fields] if aggregation.window else []
            columns = [*aggregation.keys, *window]
            if all(column in schema for column in columns):
                found[name] = columns
    return found


def scenario_of(
    seed: int,
    nodes: Callable[[Random, int], Sequence[Node]],
    *,
    records: int,
    has_dead_letters: bool,
    wanted: Wanted,
    latest: Latest,
    exchanges: bool,
) -> GivenScenario:
    """Draw what happens to a job of the user's.

    Parameters
    ----------
    nodes : callable
        Makes the nodes with their scripted sources; the rows are spread over so many microseconds.
    records : int
        How many records there are, about.
    exchanges : bool
        Whether alternatives are exchanged.
    """
    random = Random(f"given {seed}")
    switching = random.random() < 0.5
    base = Scenario.of(seed + SWITCHING if switching else seed)
    length_us = random.choice([300_000, 1_000_000, 2_000_000])
    driver_dies = random.random() < 0.3
    made = tuple(nodes(random, length_us))
    narrow = base.options.queue_records if records <= NARROW_RECORDS_MAX else max(20, base.options.queue_records)
    draw = draw_switch_faults if switching else draw_faults
    scenario = GivenScenario(
        seed,
        base.shape,
        [],
        replace(base.options, idle_us=HOUR_US, queue_records=narrow),
        base.weather,
        draw(seed, random, driver_dies, length_us),
        delivered=False,
        write_us_max=base.write_us_max,
        work_ns_max=base.work_ns_max,
        restart_us_last=base.restart_us_last,
        submit_us_max=base.submit_us_max,
        nodes=made,
        has_dead_letters=has_dead_letters,
        wanted=wanted,
        latest=latest,
    )
    plan = Plan.of(Graph.check(made), scenario.options, memory() if has_dead_letters else None)
    if switching and any(len(unit.movable) for unit in plan.units):
        scenario = replace(scenario, pins=draw_pins(random, length_us, often=False))
    if exchanges:
        wishes = []
        for node in made:
            if isinstance(node.body, Alternatives):
                drawn = draw_exchanges(random, length_us, node.body.names)
                wishes += [replace(each, operation=node.name) for each in drawn]
        scenario = replace(scenario, exchanges=wishes)
    return scenario
