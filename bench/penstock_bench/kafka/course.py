"""Where engines are measured: fed over a socket, or between two topics of Kafka; the commands ask here for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from penstock_bench.engines import open_engine, subject
from penstock_bench.engines.plain import generator_limit, meter_floor
from penstock_bench.kafka.engines import KafkaPlain, open_kafka_engine
from penstock_bench.kafka.run import OverKafka, Place
from penstock_bench.kafka.run import generator_limit as kafka_limit
from penstock_bench.meter.engine import Engine, Rate, RunOptions
from penstock_bench.meter.rows import Check
from penstock_bench.meter.subject import Subject

BROKER_RATE_EPS, BROKER_WARM_UP_S = 20_000, 20.0
"""What a new broker carries before anything is measured: its Java compiles itself meanwhile, on everybody's cores."""


@dataclass(frozen=True)
class Course:
    """Engines, workloads, what the meter can do: as given, over a socket, and every engine stamps its own results."""

    engine: Callable[[str], Engine] = open_engine
    subject: Callable[[str], Subject] = subject
    limit: Callable[[Subject], Check] = generator_limit
    """Measures how much the generator can send."""
    floor: Callable[[Subject, Rate, RunOptions], Check] = meter_floor
    """Measures the latency of a loop without an engine."""
    warm_up: Callable[[Subject, RunOptions], object] = lambda *_: None
    """Has what all engines share reach its speed, so that the first one meets what the others meet."""
    close: Callable[[], object] = lambda: None
    """Ends what was started for all runs."""


def on_kafka() -> Course:
    """A topic in, a topic out, and a reader outside."""
    place = Place()
    loop = KafkaPlain(place)

    def limit(subject: Subject) -> Check:
        assert isinstance(subject, OverKafka)
        return kafka_limit(place, subject)

    def warm_up(subject: Subject, options: RunOptions) -> None:
        if options.warm_up_s:
            options.tell("warming the broker up", BROKER_WARM_UP_S)
            quiet = replace(options, warm_up_s=0.0, settings={}, tell=lambda *_: None)
            loop.run(subject, BROKER_RATE_EPS, BROKER_WARM_UP_S, quiet)

    floor = partial(meter_floor, loop=loop, how="from topic to topic, read from outside")
    return Course(partial(open_kafka_engine, place=place), OverKafka, limit, floor, warm_up, place.close)
