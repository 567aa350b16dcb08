"""The engines over Kafka: how the programs of each are started. Settings that are not an engine's default are told."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from penstock.testing.jars import Jar, fetch, java
from penstock.testing.kafka_broker import fetch as fetch_broker
from penstock_bench.engines.bytewax import Bytewax
from penstock_bench.engines.environments import EngineEnvironment, InEnvironment
from penstock_bench.engines.flink import Flink
from penstock_bench.engines.launch import FOREIGN, Launch
from penstock_bench.engines.native import PROGRAM, Penstock
from penstock_bench.engines.plain import Plain
from penstock_bench.engines.spark import Spark, SparkRealTime
from penstock_bench.kafka.run import PARTITIONS, OverTopics, Place
from penstock_bench.meter.engine import Rate, RunOptions, cannot, no_java
from penstock_bench.meter.errors import UnknownEngine
from penstock_bench.meter.stamped import read_outputs
from penstock_bench.meter.subject import Subject

CLIENT = "confluent-kafka==2.12.2"
LINGER, LINGER_TOLD = {"linger_ms": 1}, {"linger.ms": 1}
"""Of producers whose default, 5 ms, would be most of the latency: for the programs, and for the results."""
EPOCH = {"immediate": "1s", "exactly-once": "100ms"}
_SPARK_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0 "
    "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    "org.apache.kafka:kafka-clients:4.1.0 eb74709dc3be35e06208827860c87a94872e8a4b00f466880670785c85a20627",
    "org.apache.commons:commons-pool2:2.12.1 5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
)
"""The newest on Maven Central. They work with Spark 4.3, whose Real-Time Mode keeps state; that of 4.2 does not."""
_FLINK_JARS = (
    "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2 "
    "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616",
)
STREAMS_VERSION = "4.1.0"
_STREAMS_JARS = (
    f"org.apache.kafka:kafka-streams:{STREAMS_VERSION} "
    "3e275e8a224035b7dab6344eef518fc125f6f17f3ac191b16d5ef5b55dada0a6",
)
"""What else it needs the broker has, of the same version; a state in memory needs no RocksDB."""


def _jars(name: str, lines: tuple[str, ...]) -> list[Path]:
    wanted = [Jar.of(line) for line in lines]
    place = fetch(name, wanted)
    return [place / "lib" / each.file for each in wanted]


class KafkaPenstock(OverTopics, Penstock):
    """Its topic at both ends; parsing, filter and join are Python functions."""

    variants: ClassVar = {
        "immediate": "every result is sent when it comes",
        "exactly-once": "every epoch is a transaction",
    }
    options: ClassVar = {
        "epoch": "time between commits, default '1s', exactly once '100ms'",
        "forms": "adaptive (the default), record or batch",
    }

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        chosen = {"epoch": EPOCH[self.variant], "forms": "adaptive", **options.settings}
        told = {"delivery": self.variant, "options": chosen}
        settings = {"parallelism": options.parallelism, "delivery": self.variant, **chosen}
        return Launch(PROGRAM, told, lead_s=3.0, settings=settings)


class KafkaPlain(OverTopics, Plain):
    """No engine: one loop in Python from one topic to the other. The floor of the meter."""

    variants: ClassVar = {"loop": "one loop in Python from topic to topic"}

    def version(self) -> str:
        return f"confluent-kafka {version('confluent-kafka')}"

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        return replace(super().launch(subject, rate, seconds, options), specification=LINGER, settings=LINGER_TOLD)


class KafkaSpark(OverTopics, Spark):
    """Structured Streaming with its own connector at both ends."""

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        return _connected(super().launch(subject, rate, seconds, options))


class KafkaRealTime(OverTopics, SparkRealTime):
    """Real-Time Mode, in SQL, as it allows no Arrow functions."""

    beside_tasks = PARTITIONS
    notes = SparkRealTime.notes[1:]

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        return _connected(super().launch(subject, rate, seconds, options))


def _connected(launch: Launch) -> Launch:
    jars = _jars("spark-kafka-4.2.0", _SPARK_JARS)
    settings = {**launch.specification["settings"], "spark.jars": ",".join(map(str, jars))}
    told = {**launch.settings, "spark.jars": ", ".join(each.name for each in jars)}
    return replace(launch, specification={**launch.specification, "settings": settings}, settings=told)


class KafkaFlink(OverTopics, Flink):
    """Flink with its own connector at both ends."""

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        configuration = self.configuration(options)
        (jar,) = _jars("flink-kafka-5.0.0", _FLINK_JARS)
        return replace(
            super().launch(subject, rate, seconds, options),
            specification={
                "variant": self.variant,
                "configuration": {**configuration, "pipeline.jars": jar.as_uri()},
            },
            lead_s=3.0,
            read=read_outputs,
            settings={**configuration, "pipeline.jars": jar.name},
            notes=["no checkpoints"],
        )


class KafkaBytewax(OverTopics, Bytewax):
    """Bytewax with its own connector at both ends; it has no recovery here."""

    environment = EngineEnvironment("bytewax", (*Bytewax.environment.requirements, CLIENT))

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        found = super().launch(subject, rate, seconds, options)
        settings = {**found.specification, **LINGER_TOLD}
        return replace(found, specification=LINGER, lead_s=2.0, settings=settings, notes=["no recovery"])


class KafkaQuix(OverTopics, InEnvironment):
    """Quix Streams: as many applications of one group as the parallelism; it groups through a topic of its own."""

    name = "quix"
    environment = EngineEnvironment("quix", ("quixstreams==3.28.1", "orjson>=3.10"))
    variants: ClassVar = {"at-least-once": "its default guarantee"}

    def supports(self, subject: Subject) -> str | None:
        return cannot(subject)

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        applications = options.parallelism
        return Launch(
            [[self.environment.python, "-m", "programs.kafka_quix", str(i)] for i in range(applications)],
            {**LINGER, "guarantee": self.variant},
            {"PYTHONPATH": str(FOREIGN)},
            # A group that one joins after the other is dealt out more than once.
            lead_s=8.0,
            settings={"applications": applications, **LINGER_TOLD, "processing_guarantee": self.variant},
            notes=["groups through a topic of its own, state with a changelog topic"],
        )


class KafkaStreams(OverTopics):
    """Kafka Streams: one Java with a thread for each of the parallelism; it groups through a topic of its own."""

    name = "kafka-streams"
    variants: ClassVar = {"at-least-once": "its default guarantee", "exactly-once": "its transactions, every 100 ms"}

    def version(self) -> str:
        return STREAMS_VERSION

    def supports(self, subject: Subject) -> str | None:
        return no_java() or cannot(subject)

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        settings = {
            "num.stream.threads": str(options.parallelism),
            # A result for every change; by default it sends them after 100 ms, and the last of each key only.
            "statestore.cache.max.bytes": "0",
            "producer.linger.ms": str(LINGER["linger_ms"]),
        }
        if self.variant == "exactly-once":
            settings |= {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": "100"}
        classes = [*_jars(f"kafka-streams-{STREAMS_VERSION}", _STREAMS_JARS), fetch_broker() / "lib" / "*"]
        program = FOREIGN / "programs" / "KafkaStreamsYahoo.java"
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        return Launch(
            [[java(), "-Xmx1g", logging, "-cp", ":".join(map(str, classes)), str(program)]],
            {"settings": settings},
            # A new group is dealt out more than once.
            lead_s=8.0,
            settings=settings,
            notes=["a program in Java", "groups through a topic of its own, state in memory with a changelog topic"],
        )


_PEERS = (KafkaSpark, KafkaRealTime, KafkaFlink, KafkaBytewax, KafkaQuix, KafkaStreams)
ENGINES: dict[str, type[OverTopics]] = {each.name: each for each in (KafkaPenstock, *_PEERS, KafkaPlain)}


def open_kafka_engine(text: str, place: Place) -> OverTopics:
    """Return the engine that ``name`` or ``name:variant`` names, for runs at a place."""
    name, _, variant = text.partition(":")
    if name not in ENGINES:
        raise UnknownEngine(given=name, what="engine over Kafka", available=sorted(ENGINES))
    return ENGINES[name](place, variant or None)
