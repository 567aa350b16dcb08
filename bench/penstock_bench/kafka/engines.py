"""The engines over Kafka: how the programs of each are started. Settings that are not an engine's default are told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from penstock.durations import parse_us
from penstock.testing.jars import Jar, fetch, java
from penstock.testing.kafka_broker import fetch as fetch_broker
from penstock_bench.engines.bytewax import Bytewax, free_addresses
from penstock_bench.engines.environments import EngineEnvironment
from penstock_bench.engines.flink import Flink
from penstock_bench.engines.flink import environment as flink_environment
from penstock_bench.engines.launch import FOREIGN, Launch
from penstock_bench.engines.spark import REAL_TIME_BATCH, launched
from penstock_bench.kafka.place import Place, Topics
from penstock_bench.kafka.run import KafkaEngine
from penstock_bench.meter.engine import RunOptions, no_java
from penstock_bench.meter.errors import UnknownEngine
from penstock_bench.meter.subject import Subject

CLIENT = "confluent-kafka==2.12.2"
CLIENT_LINGER_MS = 1
"""Of producers whose default, 5 ms, would be most of the latency."""
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


class KafkaPenstock(KafkaEngine):
    """Its topic at both ends; parsing, filter and join are Python functions."""

    name = "penstock"
    variants: ClassVar = {
        "immediate": "every result is sent when it comes",
        "exactly-once": "every epoch is a transaction",
    }
    options: ClassVar = {
        "epoch": "time between commits, default '1s', exactly once '100ms'",
        "forms": "adaptive (the default), record or batch",
    }
    form = "adaptive"

    def version(self) -> str:
        return version("penstock")

    def supports(self, subject: Subject) -> str | None:
        return no_java() or super().supports(subject)

    def launch(self, topics: Topics, options: RunOptions) -> Launch:
        chosen = {"epoch": EPOCH[self.variant], "forms": "adaptive", **options.settings}
        return Launch(
            [[sys.executable, "-m", "penstock_bench.kafka.native_program"]],
            {"delivery": self.variant, "options": chosen},
            lead_s=3.0,
            settings={"parallelism": options.parallelism, "delivery": self.variant, **chosen},
        )


class KafkaPlain(KafkaEngine):
    """No engine: one loop in Python from one topic to the other. The floor of the meter."""

    name = "plain"
    variants: ClassVar = {"loop": "one loop in Python from topic to topic"}

    def version(self) -> str:
        return f"confluent-kafka {version('confluent-kafka')}"

    def launch(self, topics: Topics, options: RunOptions) -> Launch:
        return Launch(
            [[sys.executable, "-m", "programs.kafka_plain"]],
            {"linger_ms": CLIENT_LINGER_MS},
            {"PYTHONPATH": str(FOREIGN)},
            settings={"linger.ms": CLIENT_LINGER_MS},
        )


class KafkaSpark(KafkaEngine):
    """Structured Streaming with its own connector at both ends."""

    name = "spark"
    variants: ClassVar = {"sql": "built-in functions only", "python": "parsing, filter and join in Python with Arrow"}
    options: ClassVar = {"trigger": "time between micro-batches, '0s' (as fast as possible, the default), '1s' …"}
    form = "batch"

    def version(self) -> str:
        return version("pyspark")

    def supports(self, subject: Subject) -> str | None:
        return no_java() or super().supports(subject)

    def launch(self, topics: Topics, options: RunOptions) -> Launch:
        trigger_us = parse_us(options.settings.get("trigger", "0s"), option="trigger", allow_zero=True)
        trigger = f"{trigger_us // 1000} milliseconds" if trigger_us else ""
        return self._launched(self.variant, trigger, trigger or "as fast as possible", options.parallelism)

    @staticmethod
    def _launched(variant: str, trigger: str, told: str, cores: int, *notes: str) -> Launch:
        jars = _jars("spark-kafka-4.2.0", _SPARK_JARS)
        settings = {"spark.jars": ",".join(map(str, jars))}
        found = launched(variant, trigger, f"local[{cores}]", told, settings, notes=notes)
        found.settings["spark.jars"] = ", ".join(each.name for each in jars)  # type: ignore[index]
        return replace(found, commands=[[sys.executable, "-m", "penstock_bench.kafka.spark_program"]])


class KafkaRealTime(KafkaSpark):
    """Real-Time Mode, in SQL, as it allows no Arrow functions."""

    name = "spark-realtime"
    variants: ClassVar = {"sql": "built-in functions only"}
    options: ClassVar = {"batch": f"time between its checkpoints, '{REAL_TIME_BATCH}' (the default) or longer"}
    form = "record"

    def launch(self, topics: Topics, options: RunOptions) -> Launch:
        batch_us = parse_us(options.settings.get("batch", REAL_TIME_BATCH), option="batch")
        trigger = f"{batch_us // 1000} milliseconds"
        # All stages run at once: a task for each partition of the topic, the others behind the shuffle.
        cores = topics.partitions + options.parallelism
        note = "no watermark (not allowed there): windows are kept for ever"
        return self._launched("real-time", trigger, f"realTime={trigger}", cores, note)


class KafkaFlink(KafkaEngine):
    """Flink with its own connector at both ends."""

    name = "flink"
    variants: ClassVar = Flink.variants
    options: ClassVar = Flink.options

    def __init__(self, place: Place, variant: str | None = None) -> None:
        super().__init__(place, variant)
        self._engine = Flink(self.variant)

    def prepare(self, tell: Callable[[str, float | None], None]) -> None:
        self._engine.prepare(tell)

    def version(self) -> str:
        return self._engine.version()

    def supports(self, subject: Subject) -> str | None:
        return no_java() or super().supports(subject)

    def launch(self, topics: Topics, options: RunOptions) -> Launch:
        configuration = self._engine.configuration(options)
        (jar,) = _jars("flink-kafka-5.0.0", _FLINK_JARS)
        return Launch(
            [[self._engine.environment.python, "-m", "programs.kafka_flink"]],
            {"variant": self.variant, "configuration": {**configuration, "pipeline.jars": jar.as_uri()}},
            flink_environment(),
            lead_s=3.0,
            settings={**configuration, "pipeline.jars": jar.name},
            notes=["no checkpoints"],
        )


class _InEnvironment(KafkaEngine):
    environment: ClassVar[EngineEnvironment]

    def prepare(self, tell: Callable[[str, float | None], None]) -> None:
        self.environment.make(lambda text: tell(text, None))

    def version(self) -> str:
        return self.environment.versions()[self.environment.requirements[0].partition("==")[0]]


class KafkaBytewax(_InEnvironment):
    """Bytewax with its own connector at both ends; it has no recovery here."""

    name = "bytewax"
    environment = EngineEnvironment("bytewax", (*Bytewax.environment.requirements, CLIENT))
    variants: ClassVar = Bytewax.variants

    def launch(self, topics: Topics, options: RunOptions) -> Launch:
        workers = options.parallelism if self.variant == "processes" else 1
        command = [self.environment.python, "-m", "bytewax.run", "programs.kafka_bytewax:flow"]
        commands = [command]
        if workers > 1:
            addresses = ";".join(free_addresses(workers))
            commands = [[*command, "-i", str(i), "-a", addresses] for i in range(workers)]
        return Launch(
            commands,
            {"linger_ms": CLIENT_LINGER_MS},
            {"PYTHONPATH": str(FOREIGN)},
            lead_s=2.0,
            settings={"workers": workers, "linger.ms": CLIENT_LINGER_MS},
            notes=["no recovery"],
        )


class KafkaQuix(_InEnvironment):
    """Quix Streams: as many applications of one group as the parallelism; it groups through a topic of its own."""

    name = "quix"
    environment = EngineEnvironment("quix", ("quixstreams==3.28.1", "orjson>=3.10"))
    variants: ClassVar = {"at-least-once": "its default guarantee"}

    def launch(self, topics: Topics, options: RunOptions) -> Launch:
        settings = {"linger.ms": CLIENT_LINGER_MS, "processing_guarantee": self.variant}
        return Launch(
            [[self.environment.python, "-m", "programs.kafka_quix", str(i)] for i in range(options.parallelism)],
            {"linger_ms": CLIENT_LINGER_MS, "guarantee": self.variant},
            {"PYTHONPATH": str(FOREIGN)},
            # A group that one joins after the other is dealt out more than once.
            lead_s=8.0,
            settings={"applications": options.parallelism, **settings},
            notes=["groups through a topic of its own, state with a changelog topic"],
        )


class KafkaStreams(KafkaEngine):
    """Kafka Streams: one Java with a thread for each of the parallelism; it groups through a topic of its own."""

    name = "kafka-streams"
    variants: ClassVar = {"at-least-once": "its default guarantee", "exactly-once": "its transactions, every 100 ms"}

    def version(self) -> str:
        return STREAMS_VERSION

    def supports(self, subject: Subject) -> str | None:
        return no_java() or super().supports(subject)

    def launch(self, topics: Topics, options: RunOptions) -> Launch:
        settings = {
            "num.stream.threads": str(options.parallelism),
            # A result for every change; by default it sends them after 100 ms, and the last of each key only.
            "statestore.cache.max.bytes": "0",
            "producer.linger.ms": str(CLIENT_LINGER_MS),
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
ENGINES: dict[str, type[KafkaEngine]] = {each.name: each for each in (KafkaPenstock, *_PEERS, KafkaPlain)}


def open_kafka_engine(text: str, place: Place) -> KafkaEngine:
    """Return the engine that ``name`` or ``name:variant`` names, for runs at a place."""
    name, _, variant = text.partition(":")
    if name not in ENGINES:
        raise UnknownEngine(given=name, what="engine over Kafka", available=sorted(ENGINES))
    return ENGINES[name](place, variant or None)
