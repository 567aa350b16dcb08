"""From a seed to what is simulated: the pipeline and its input, the options, the network, the faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from penstock.connectors.base import Sink
from penstock.connectors.memory import Memory
from penstock.control.scheduler import START_DELAY_US
from penstock.operators import DEAD_LETTERS
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Grouping, Options
from penstock.pipeline.plan import Plan
from penstock.pipeline.streams.stream import stream
from penstock.testing.simulation.alternatives import NAMES, SHAPES, with_alternatives
from penstock.testing.simulation.disk import Disk, Ledger
from penstock.testing.simulation.draws import (
    SILENCE_US,
    Degree,
    Pin,
    Regroup,
    Scale,
    Wanted,
    draw_bursts,
    draw_degrees,
    draw_exchange_faults,
    draw_exchanges,
    draw_faults,
    draw_move_faults,
    draw_partitions,
    draw_pins,
    draw_regroups,
    draw_scales,
    draw_steady,
    draw_swell,
    draw_switch_faults,
    draw_weather,
    first_moment,
)
from penstock.testing.simulation.faults import Action, Fault, Moment
from penstock.testing.simulation.followed import FollowedMemory
from penstock.testing.simulation.labour import ELASTIC_NS, LIGHT_NS, RECORD_NS, drag, labour
from penstock.testing.simulation.network import Weather
from penstock.testing.simulation.oracle import FUNCTIONS as FUNCTION_SHAPES
from penstock.testing.simulation.oracle import SCHEMA, Output, Row, Shape, check, check_dead_letters
from penstock.testing.simulation.poison import Poison
from penstock.testing.simulation.shapes import made, scripted
from penstock.testing.simulation.world import START_US, World

HOUR_US = 3_600_000_000
SWITCHING = 1_000_000
"""Seeds from here on have slots, and operations that change form."""
DECIDING = 2_000_000
"""Seeds from here on leave it to the control loop when they do."""
POISON = 3_000_000
"""Seeds from here on have records that kill their process."""
CAPACITY = 4_000_000
"""Seeds from here on have a cluster that loses cores for a while, and workers that take long to start."""
HEAVY = 5_000_000
"""Seeds from here on have records that are large, compared to what blocks, queues and windows may hold."""
ALTERNATING = 6_000_000
"""Seeds from here on have an operation with alternatives, which are exchanged."""
FUNCTIONS = 7_000_000
"""Seeds from here on have process functions with timers, and calls of a service."""
_STATELESS = (Shape.STATELESS, Shape.KEYED, Shape.SPLIT, Shape.FANOUT)
RESCALING = 9_000_000
"""Seeds from here on have workers that come and go."""
ELASTIC = 10_000_000
"""Seeds from here on have a load that comes and goes, and workers that follow it by themselves."""
SHIFTING = 11_000_000
"""Seeds from here on have key groups that go from one instance to another."""
REPLICATED = 8_000_000
"""Seeds from here on have replicas, which are activated, deactivated and lost."""
_POLICIES = ["skip", "skip", "dead_letter", "dead_letter", "fail"]


@dataclass(frozen=True)
class Scenario:
    """All that a seed decides before time begins."""

    seed: int
    shape: Shape
    partitions: list[list[Row]]
    options: Options
    weather: Weather
    faults: list[Fault]
    delivered: bool
    """Whether the driver takes the output (a memory sink), instead of a sink that publishes by itself."""
    write_us_max: int
    work_ns_max: int
    restart_us_last: int
    pins: list[Pin] | None = None
    """What the user settles, if there are slots."""
    submit_us_max: int = 0
    """How long Spark may take to start a slot."""
    poison: frozenset[tuple[int, int]] = frozenset()
    """Records that kill their process: partition and number."""
    on_error: str = "fail"
    """What becomes of them."""
    start_us_last: int = 0
    """How long Spark takes to start the last one of the first processes; 0: as long as any other."""
    exchanges: list[Wanted] | None = None
    """Which alternative the user wants when, if there are some."""
    scales: list[Scale] | None = None
    """How many workers the user wants when, if that changes."""
    regroups: list[Regroup] | None = None
    """Which key groups are to go elsewhere when."""
    degrees: list[Degree] | None = None
    """How many replicas are wanted of what when, if there are some."""
    held_up: bool = False
    """What is behind the source's unit is far slower than what arrives; the unit itself would carry five times that."""

    @property
    def has_slots(self) -> bool:
        """Whether operations may change form."""
        return self.pins is not None

    @property
    def tight(self) -> bool:
        """Whether the cluster has cores for the workers and one group of slots, and no more."""
        return self.seed % 4 == 3

    @property
    def may_idle(self) -> bool:
        """Whether partitions may be taken for idle."""
        return self.options.idle_us < HOUR_US

    @property
    def decides(self) -> bool:
        """Whether the control loop is told enough to decide by itself."""
        return self.pins is not None and DECIDING <= self.seed < POISON

    @property
    def moves(self) -> bool:
        """Whether instances move between workers."""
        return self.scales is not None

    @property
    def is_elastic(self) -> bool:
        """Whether the job chooses how many workers it has."""
        return self.options.workers_most > 0

    @property
    def rows(self) -> list[Row]:
        """The whole input."""
        return [row for partition in self.partitions for row in partition]

    @staticmethod
    def of(seed: int) -> Scenario:
        """Draw a scenario; what kind it is depends on where the seed lies."""
        kind = _KINDS[max(first for first in _KINDS if first <= seed)]
        return (_held_up if kind is _deciding and seed % 10 == 9 else kind)(seed)

    def plan(self, disk: Disk, world: World) -> tuple[Plan, dict[str, Memory]]:
        """Lay the pipeline out; return the sinks too, if the driver takes the output."""
        sinks: dict[str, Memory] = {}

        def sink(name: str) -> Sink:
            if not self.delivered:
                return Ledger(disk)
            sinks[name] = FollowedMemory()
            return sinks[name]

        records = stream("in", scripted(self.partitions))
        if self.decides:
            # Half of them may be called on samples too; the others are known when they have run.
            work = labour(world, LIGHT_NS if self.held_up else RECORD_NS, pure=self.seed // 10 % 2 == 0)
            records = records.map(work, name="labour")
        if self.is_elastic:
            records = records.map(labour(world, ELASTIC_NS, pure=True), name="labour")
        if self.held_up:
            slow = records.key_by("key").map(drag(world), name="drag")
            return Plan.of(Graph.check(slow.to(sink("out"), name="out").nodes()), self.options), sinks
        if self.poison:
            records = records.map(Poison(self.poison), schema=SCHEMA, name="poison", on_error=self.on_error)
        if self.exchanges is not None:
            pipeline = with_alternatives(self.shape, records).to(sink("out"), name="out")
        else:
            pipeline = made(self.shape, records, sink("out"), sink("late"), sink("counts"))
        dead_letters = sink(DEAD_LETTERS) if self.on_error == "dead_letter" else None
        return Plan.of(Graph.check(pipeline.nodes()), self.options, dead_letters), sinks

    def check(self, output: Output) -> None:
        """Raise Violation unless the output, by sink, is what it must be."""
        given = [row for row in self.rows if row[:2] not in self.poison]
        check(self.shape, given, output, may_idle=self.may_idle)
        if self.on_error == "dead_letter":
            check_dead_letters(self.poison, output[DEAD_LETTERS])


def _of_records(seed: int) -> Scenario:
    """Draw a scenario of the record path."""
    random = Random(f"scenario {seed}")
    shape = random.choice([each for each in Shape if each not in FUNCTION_SHAPES])
    driver_dies = random.random() < 0.3
    length_us = random.choice([50_000, 300_000, 1_000_000])
    faults = draw_faults(seed, random, driver_dies, length_us)
    options = Options(
        name="simulated",
        parallelism=random.choice([1, 2, 2, 2, 3]),
        epoch_us=random.choice([10_000, 30_000, 100_000, 300_000]),
        # Where no record may be late, or it is known which ones are, no partition may be taken for idle.
        idle_us=random.choice([50_000, HOUR_US]) if shape is Shape.LATE else HOUR_US,
        linger_us=random.choice([500, 5_000]),
        queue_records=random.choice([1, 2, 5, 20, 16_384]),
        silence_us=SILENCE_US,
        state_slice=Random(f"state {seed}").choice([1, 2, 5, 2_000]),
        durable=True,
    )
    return Scenario(
        seed,
        shape,
        draw_partitions(random, length_us, late=shape is Shape.LATE),
        options,
        draw_weather(random),
        faults,
        delivered=not driver_dies and random.random() < 0.5,
        write_us_max=random.choice([100, 5_000, 100_000]),
        work_ns_max=random.choice([2, 20_000, 500_000]),
        restart_us_last=random.choice([10_000, 500_000]),
    )


def _switching(seed: int) -> Scenario:
    """Draw a scenario in which the user has operations change form, a hundred times and more in some."""
    random = Random(f"switching {seed}")
    base = _of_records(seed)
    often = seed % 32 == 0
    length_us = 20_000_000 if often else random.choice([500_000, 1_000_000, 2_000_000])
    driver_dies = not often and random.random() < 0.25
    late = base.shape is Shape.LATE
    options = replace(
        base.options,
        parallelism=random.choice([1, 2, 2, 3]),
        epoch_us=300_000 if often else random.choice([30_000, 100_000, 300_000]),
        queue_records=random.choice([2, 5, 20, 16_384]),
        slots=random.choice([1, 2, 3]),
        group_size=random.choice([1, 3, 50]),
        interval_us=random.choice([1_000, 5_000, 50_000]),
        calm_us=Random(f"calm {seed}").choice([0, 50_000, 500_000, 30_000_000]),
    )
    weather = base.weather
    if often:
        weather = replace(weather, delay_us_max=100, driver_delay_us_max=100)
    elif first_moment(seed) is Moment.CLOSING:
        # On the way back something is to be waited for.
        length_us, weather = 3_000_000, replace(weather, delay_us_max=50_000)
        options = replace(options, interval_us=50_000)
    return replace(
        base,
        partitions=draw_partitions(random, length_us, late=late),
        options=options,
        faults=draw_switch_faults(seed, random, driver_dies, length_us),
        delivered=not driver_dies and random.random() < 0.5,
        work_ns_max=random.choice([2, 20_000, 200_000]),
        pins=draw_pins(random, length_us, often=often),
        submit_us_max=1_000 if often else random.choice([1_000, 50_000, 400_000]),
        weather=weather,
    )


def _deciding(seed: int) -> Scenario:
    """Draw a scenario with bursts that record form cannot carry; the switcher decides, and the user now and then."""
    random = Random(f"deciding {seed}")
    base = _switching(seed)
    length_us = 5_000_000
    options = replace(
        base.options,
        queue_records=16_384,
        epoch_us=random.choice([100_000, 300_000]),
        linger_us=5_000,
        block_work_us=20_000,
    )
    return replace(
        base,
        partitions=draw_bursts(random, length_us),
        options=options,
        # Many small blocks that are sent again and again would only make the run long.
        weather=replace(base.weather, loss=min(base.weather.loss, 0.01), reorders=False),
        work_ns_max=20_000,
        pins=draw_pins(random, length_us, often=False)[:3] if random.random() < 0.3 else [],
        submit_us_max=50_000,
    )


def _held_up(seed: int) -> Scenario:
    """Draw a scenario in which back-pressure makes a long backlog before a unit that has little to do."""
    random = Random(f"held up {seed}")
    base = _deciding(seed)
    return replace(
        base,
        shape=Shape.KEYED,
        partitions=draw_steady(random, 3_000_000),
        options=replace(base.options, queue_records=random.choice([20, 64]), parallelism=random.choice([1, 2])),
        weather=replace(base.weather, delay_us_max=min(base.weather.delay_us_max, 2_000)),
        faults=[],
        pins=[],
        held_up=True,
    )


def _poisoned(seed: int) -> Scenario:
    """Draw a scenario with a record or two that kill the worker or slot that handles them."""
    random = Random(f"poison {seed}")
    base = _switching(seed) if random.random() < 0.7 else _of_records(seed)
    rows = [(partition, number) for partition, number, *_ in base.rows]
    on_error = random.choice(_POLICIES)
    return replace(
        base,
        # One in ten may be struck by something else too: what is looked for here is found soon without.
        faults=base.faults[:1] if random.random() < 0.1 and on_error != "fail" else [],
        poison=frozenset(random.sample(rows, min(len(rows), random.choice([1, 1, 2])))),
        on_error=on_error,
        delivered=base.delivered,
    )


def _short_of_cores(seed: int) -> Scenario:
    """Draw a scenario in which there are too few cores for a while, once or twice, and processes start slowly."""
    random = Random(f"capacity {seed}")
    base = _switching(seed) if random.random() < 0.5 else _of_records(seed)
    last_us = max(row[4] for row in base.rows) - START_US
    start_us_last = random.choice([0, 0, 4 * SILENCE_US])
    shrinks = [
        Fault(
            Action.SHRINK,
            None,
            1,
            start_us_last + random.randrange(START_DELAY_US, START_DELAY_US + max(1, last_us)),
            random.choice([500_000, 2 * SILENCE_US, 6 * SILENCE_US, 16 * SILENCE_US]),
        )
        for _ in range(random.choice([1, 1, 2]))
    ]
    return replace(
        base,
        options=replace(base.options, parallelism=random.choice([1, 2, 3, 5])),
        faults=[*shrinks, *base.faults[: random.choice([0, 1])]],
        restart_us_last=random.choice([10_000, 500_000, 3 * SILENCE_US]),
        start_us_last=start_us_last,
    )


def _heavy(seed: int) -> Scenario:
    """Draw a scenario in which most blocks are cut, and few fit into a queue; some records fit into nothing."""
    random = Random(f"heavy {seed}")
    base = _switching(seed) if random.random() < 0.6 else _of_records(seed)
    width = random.choice([0, 100, 3_000])
    long = {key: key + "x" * random.choice([0, width // 3, width]) for _, _, key, _, _ in base.rows}
    return replace(
        base,
        partitions=[[(*row[:2], long[row[2]], *row[3:]) for row in rows] for rows in base.partitions],
        options=replace(
            base.options,
            queue_records=16_384,
            queue_bytes=random.choice([1, 100, 2_000, 20_000]),
            block_bytes=random.choice([1, 50, 1_000]),
        ),
    )


def _with_functions(seed: int) -> Scenario:
    """Draw a scenario with functions of the user's that keep state, set timers or wait for others."""
    random = Random(f"functions {seed}")
    base = _switching(seed) if random.random() < 0.3 else _of_records(seed)
    length_us = random.choice([300_000, 1_000_000, 2_000_000])
    return replace(
        base,
        shape=FUNCTION_SHAPES[seed % len(FUNCTION_SHAPES)],
        partitions=draw_partitions(random, length_us, late=False),
        options=replace(base.options, idle_us=HOUR_US),
    )


def _replicated(seed: int) -> Scenario:
    """Draw a scenario in which replicas are activated and deactivated, some while forms change too or records kill."""
    random = Random(f"replicated {seed}")
    base = _poisoned(seed) if random.random() < 0.15 else _switching(seed)
    length_us = random.choice([500_000, 1_000_000, 2_000_000])
    most = random.choice([2, 3, 4])
    partitions, faults = base.partitions, base.faults
    if not base.poison:
        partitions = draw_partitions(random, length_us, late=base.shape is Shape.LATE)
        faults = draw_switch_faults(seed, random, False, length_us)
    return replace(
        base,
        partitions=partitions,
        options=replace(base.options, replicas=most, grouping=random.choice([*Grouping])),
        faults=faults,
        delivered=random.random() < 0.5,
        pins=(base.pins or [])[:4] if random.random() < 0.3 else [],
        degrees=draw_degrees(random, length_us, most),
        submit_us_max=random.choice([1_000, 50_000]),
        work_ns_max=random.choice([20_000, 200_000, 1_000_000]),
    )


def _alternating(seed: int) -> Scenario:
    """Draw a scenario in which the user has alternatives exchanged, some while forms change too."""
    random = Random(f"alternating {seed}")
    base = _switching(seed) if random.random() < 0.4 else _of_records(seed)
    length_us = random.choice([500_000, 1_000_000, 2_000_000])
    driver_dies = random.random() < 0.3
    return replace(
        base,
        shape=SHAPES[seed // 4 % len(SHAPES)],
        partitions=draw_partitions(random, length_us, late=False),
        options=replace(base.options, idle_us=HOUR_US, parallelism=random.choice([1, 2, 2, 3])),
        faults=draw_exchange_faults(seed, random, driver_dies, length_us),
        delivered=not driver_dies and random.random() < 0.5,
        pins=base.pins[:5] if base.pins is not None else None,
        exchanges=draw_exchanges(random, length_us, NAMES),
    )


def _rescaling(seed: int) -> Scenario:
    """Draw a scenario in which the user has workers join and leave, some while forms and alternatives change too."""
    random = Random(f"rescaling {seed}")
    base = random.choices([_of_records, _with_functions, _switching, _alternating], [6, 2, 1, 1])[0](seed)
    length_us = random.choice([300_000, 1_000_000, 2_000_000])
    driver_dies = random.random() < 0.2
    if base.shape in _STATELESS and base.exchanges is None and random.random() < 0.7:
        base = replace(base, shape=random.choice([Shape.RUNNING, Shape.WINDOW, Shape.LATE, Shape.DEEP]))
    most = random.choice([2, 3, 3, 4])
    faults = draw_move_faults(seed, random, driver_dies, length_us)
    if random.random() < 0.15:  # cores that are gone for good, as far as this job is concerned
        at_us = random.randrange(START_DELAY_US, START_DELAY_US + length_us)
        faults = [Fault(Action.SHRINK, None, 1, at_us, 30 * SILENCE_US), *faults[:1]]
    return replace(
        base,
        partitions=draw_partitions(random, length_us, late=base.shape is Shape.LATE),
        options=replace(
            base.options,
            parallelism=most,
            workers=random.randint(1, most),
            epoch_us=random.choice([10_000, 30_000, 100_000]),
            state_slice=random.choice([1, 1, 2, 2_000]),
            shrink_after_us=random.choice([3, 8]) * SILENCE_US,
        ),
        faults=faults,
        delivered=not driver_dies and random.random() < 0.5,
        write_us_max=random.choice([100, 5_000]),
        pins=base.pins[:5] if base.pins is not None else None,
        scales=draw_scales(random, length_us, most),
    )


def _elastic(seed: int) -> Scenario:
    """Draw a scenario in which a load comes that one worker cannot carry, and goes; some lose a core for good."""
    random = Random(f"elastic {seed}")
    base = _rescaling(seed)
    most = random.choice([2, 3, 4])
    least, columns = random.randint(1, most - 1), most + random.choice([0, 1])
    driver_dies = random.random() < 0.1
    length_us = 6_000_000
    faults: list[Fault] = []
    if random.random() < 0.5:
        faults = draw_move_faults(seed, random, driver_dies, length_us)[:2]
    elif random.random() < 0.5:
        # Where one worker is left the job goes on without the core, which never comes back.
        gone_us = HOUR_US if least > 1 else 6 * SILENCE_US
        faults = [Fault(Action.SHRINK, None, 1, random.randrange(START_DELAY_US, length_us), gone_us, 1)]
    return replace(
        base,
        shape=random.choice([Shape.RUNNING, Shape.WINDOW, Shape.KEYED, Shape.STATELESS]),
        partitions=draw_swell(random, length_us, columns),
        options=replace(
            base.options,
            parallelism=columns,
            workers=least,
            workers_most=most,
            worker_interval_us=100_000,
            queue_records=random.choice([64, 16_384]),
            epoch_us=random.choice([30_000, 100_000]),
            linger_us=5_000,
            block_work_us=20_000,
            idle_us=HOUR_US,
            shrink_after_us=HOUR_US,
        ),
        weather=replace(base.weather, loss=0.0, delay_us_max=min(base.weather.delay_us_max, 2_000), reorders=False),
        faults=faults,
        delivered=not driver_dies and random.random() < 0.5,
        work_ns_max=20_000,
        restart_us_last=random.choice([10_000, 300_000]),
        pins=None,
        exchanges=None,
        scales=[],
    )


def _shifting(seed: int) -> Scenario:
    """Draw a scenario in which key groups go from one instance to another, in some while workers come and go."""
    base, random = _rescaling(seed), Random(f"shifting {seed}")
    length_us = max((each.at_us for each in base.scales or ()), default=300_000)
    return replace(base, scales=base.scales if random.random() < 0.3 else [], regroups=draw_regroups(random, length_us))


_KINDS = {0: _of_records, SWITCHING: _switching, DECIDING: _deciding, POISON: _poisoned, CAPACITY: _short_of_cores}
_KINDS |= {RESCALING: _rescaling, ELASTIC: _elastic, SHIFTING: _shifting}
_KINDS |= {HEAVY: _heavy, ALTERNATING: _alternating, FUNCTIONS: _with_functions, REPLICATED: _replicated}
