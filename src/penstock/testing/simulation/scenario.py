"""From a seed to what is simulated: the pipeline and its input, the options, the network, the faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from penstock.connectors import memory, records
from penstock.connectors.base import Sink, Source
from penstock.connectors.memory import At, Memory
from penstock.control.scheduler import START_DELAY_US
from penstock.expr import col
from penstock.operators import Tumbling
from penstock.operators import aggregates as agg
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.pipeline.stream import Pipeline, stream
from penstock.testing.simulation.disk import Disk, Ledger
from penstock.testing.simulation.faults import Action, Fault, Moment
from penstock.testing.simulation.network import Weather
from penstock.testing.simulation.oracle import SCHEMA, WINDOW_US, Row, Shape
from penstock.testing.simulation.world import START_US

HOUR_US = 3_600_000_000
SILENCE_US = 2_500_000
_MOMENTS = list(Moment)
_OFTEN = [Moment.MARKER, Moment.STORING, Moment.STORED, Moment.EPOCH_DONE, Moment.RECORDED, Moment.COMMIT]
_RECOVERY = [Moment.REGISTERED, Moment.RESTART, Moment.ROLLBACK, Moment.ROLLED_BACK, Moment.RESUME]
_AT_ONE = [Action.KILL_IT, Action.KILL_IT, Action.KILL_IT, Action.KILL_OTHER, Action.KILL_TWO, Action.FREEZE]
_AT_ANY_TIME = [*_AT_ONE, Action.ISOLATE, Action.CUT, Action.RETRY]
_OF_DRIVER = [Action.KILL_DRIVER, Action.KILL_DRIVER, Action.DRAIN]


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
    restart_us_max: int

    @property
    def rows(self) -> list[Row]:
        """The whole input."""
        return [row for partition in self.partitions for row in partition]

    @staticmethod
    def of(seed: int) -> Scenario:
        """Draw a scenario."""
        random = Random(f"scenario {seed}")
        shape = random.choice(list(Shape))
        driver_dies = random.random() < 0.3
        length_us = random.choice([50_000, 300_000, 1_000_000])
        faults = _faults(seed, random, driver_dies, length_us)
        options = Options(
            name="simulated",
            parallelism=random.choice([1, 2, 2, 2, 3]),
            epoch_us=random.choice([10_000, 30_000, 100_000, 300_000]),
            # Where no record may be late, no partition may be taken for idle.
            idle_us=random.choice([50_000, 300_000]) if shape is Shape.LATE else HOUR_US,
            linger_us=random.choice([500, 5_000]),
            queue_records=random.choice([1, 2, 5, 20, 16_384]),
            silence_us=SILENCE_US,
            durable=True,
        )
        return Scenario(
            seed,
            shape,
            _partitions(random, length_us, late=shape is Shape.LATE),
            options,
            _weather(random),
            faults,
            delivered=not driver_dies and random.random() < 0.5,
            write_us_max=random.choice([100, 5_000, 100_000]),
            work_ns_max=random.choice([2, 20_000, 500_000]),
            restart_us_max=random.choice([10_000, 500_000]),
        )

    def plan(self, disk: Disk) -> tuple[Plan, dict[str, Memory]]:
        """Lay the pipeline out; return the sinks too, if the driver takes the output."""
        sinks: dict[str, Memory] = {}

        def sink(name: str) -> Sink:
            if not self.delivered:
                return Ledger(disk)
            sinks[name] = memory()
            return sinks[name]

        pipeline = _pipeline(self.shape, self._source(), sink("out"), sink("late"), sink("counts"))
        return Plan.of(Graph.check(pipeline.nodes()), self.options), sinks

    def _source(self) -> Source:
        scripts: list[list[object]] = []
        for partition in self.partitions:
            script: list[object] = []
            due_us = 0
            for row in partition:
                if row[4] - START_US > due_us:
                    due_us = row[4] - START_US
                    script.append(At(due_us / 1e6))
                script.append(row)
            scripts.append(script)
        return records(schema=SCHEMA, partitions=scripts)


def _partitions(random: Random, length_us: int, *, late: bool) -> list[list[Row]]:
    """Records at random times; event time is the time at which they are due, or before it where some may be late."""
    keys = [f"k{i}" for i in range(random.choice([1, 3, 8]))]
    partitions: list[list[Row]] = []
    for partition in range(random.choice([1, 2, 3, 4])):
        counts: Counter[str] = Counter()
        rows: list[Row] = []
        times = sorted(random.randrange(length_us) for _ in range(random.choice([0, 5, 20, 40])))
        for seq, time_us in enumerate(times):
            key = random.choice(keys)
            counts[key] += 1
            back_us = random.choice([0, 0, WINDOW_US, 3 * WINDOW_US]) if late else 0
            rows.append((partition, seq, key, counts[key], START_US + time_us - back_us))
        partitions.append(rows)
    if not any(partitions):
        partitions[0].append((0, 0, keys[0], 1, START_US))
    return partitions


def _weather(random: Random) -> Weather:
    delay_us_max, driver_delay_us_max = random.choices([100, 2_000, 50_000], k=2)
    if random.random() < 0.3:
        return Weather(delay_us_max, driver_delay_us_max, reorders=False)
    loss, duplication = random.choice([0.0, 0.01, 0.1]), random.choice([0.0, 0.01, 0.2])
    return Weather(delay_us_max, driver_delay_us_max, loss, duplication, random.random() < 0.7)


def _faults(seed: int, random: Random, driver_dies: bool, length_us: int) -> list[Fault]:
    """The first fault's step goes through all steps as seeds go on, so that a range of seeds covers every one."""
    first = _MOMENTS[seed % len(_MOMENTS)]
    moments: list[Moment | None] = [first]
    for _ in range(random.choice([0, 0, 1, 2, 3])):
        moments.append(random.choice([*_MOMENTS, *[None] * 8]))
    if first in _RECOVERY:
        moments.append(random.choice([None, *_OFTEN]))  # which brings a recovery about
    faults = []
    for n, moment in enumerate(moments):
        action = random.choice(_AT_ONE if moment else _AT_ANY_TIME)
        if driver_dies and (n == 1 or random.random() < 0.5):
            action = random.choice(_OF_DRIVER)
        if first in _RECOVERY and n == len(moments) - 1:
            action = Action.KILL_IT
        faults.append(
            Fault(
                action,
                moment,
                random.choice([1, 1, 1, 2, 5]) if moment in _OFTEN else random.choice([1, 1, 2]),
                random.randrange(START_DELAY_US, START_DELAY_US + length_us),
                random.choice([20_000, 800_000, SILENCE_US + 500_000, SILENCE_US + 3_000_000]),
            )
        )
    return faults


def _pipeline(shape: Shape, source: Source, out: Sink, late: Sink, counts: Sink) -> Pipeline:
    count, total = agg.count(), agg.sum("seq")
    window = Tumbling(WINDOW_US, "at")
    records = stream("in", source)
    match shape:
        case Shape.STATELESS:
            return records.filter(col("seq") >= 0).to(out, name="out")
        case Shape.KEYED:
            return records.key_by("key").filter(col("seq") >= 0).to(out, name="out")
        case Shape.RUNNING:
            return records.key_by("key").aggregate(n=count, total=total).to(out, name="out")
        case Shape.WINDOW:
            return records.key_by("key").window(window).aggregate(n=count, total=total).to(out, name="out")
        case Shape.LATE:
            closed = records.key_by("key").window(window).aggregate(n=count, total=total)
            return closed.to(out, name="out") + closed.late.to(late, name="late")
        case Shape.SPLIT:
            branches = records.split(some=col("key") < "k2")
            some = branches["some"].filter(col("seq") >= 0)
            return some.merge(branches["rest"].filter(col("key_seq") >= 0)).to(out, name="out")
        case Shape.FANOUT:
            kept = records.filter(col("seq") >= 0)
            return kept.to(out, name="out") + kept.key_by("key").aggregate(n=count, total=total).to(
                counts, name="counts"
            )
        case Shape.DEEP:
            closed = records.key_by("key").window(window).aggregate(n=count, total=total)
            again = closed.key_by("key").aggregate(n=agg.sum("n"), total=agg.sum("total"))
            return again.to(out, name="out")
