"""Where engines are measured: fed over a socket, or between two topics of Kafka; the commands ask here for both."""

from __future__ import annotations

from dataclasses import replace

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


class Course:
    """Lines over a socket, and every engine stamps its results itself: engines, workloads, what the meter can do."""

    def engine(self, text: str) -> Engine:
        """Return the engine of a name, with or without a variant."""
        return open_engine(text)

    def subject(self, name: str) -> Subject:
        """Return the workload of a name."""
        return subject(name)

    def warm_up(self, subject: Subject, options: RunOptions) -> None:
        """Have what all engines share reach its speed, so that the first one meets what the others meet."""

    def limit(self, subject: Subject) -> Check:
        """Measure how much the generator can send."""
        return generator_limit(subject)

    def floor(self, subject: Subject, rate: Rate, options: RunOptions) -> Check:
        """Measure the latency of a loop without an engine."""
        return meter_floor(subject, rate, options)

    def __enter__(self) -> Course:
        return self

    def __exit__(self, *_: object) -> None:
        """End what was started for all runs."""


class OnKafka(Course):
    """A topic in, a topic out, and a reader outside."""

    def __init__(self) -> None:
        self._place = Place()

    def engine(self, text: str) -> Engine:
        return open_kafka_engine(text, self._place)

    def subject(self, name: str) -> Subject:
        return OverKafka(name)

    def warm_up(self, subject: Subject, options: RunOptions) -> None:
        if options.warm_up_s:
            options.tell("warming the broker up", BROKER_WARM_UP_S)
            quiet = replace(options, warm_up_s=0.0, settings={}, tell=lambda *_: None)
            KafkaPlain(self._place).run(subject, BROKER_RATE_EPS, BROKER_WARM_UP_S, quiet)

    def limit(self, subject: Subject) -> Check:
        assert isinstance(subject, OverKafka)
        return kafka_limit(self._place, subject)

    def floor(self, subject: Subject, rate: Rate, options: RunOptions) -> Check:
        return meter_floor(subject, rate, options, KafkaPlain(self._place), "from topic to topic, read from outside")

    def __exit__(self, *_: object) -> None:
        self._place.close()
