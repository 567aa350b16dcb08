"""A Kafka of one node for tests, examples and trying out: started from jars in a cache directory, on loopback ports."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import SparkFailed
from penstock.testing import jars
from penstock.testing.servers import HOST, Server, free_ports

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

VERSION = "4.1.0"
USER, PASSWORD = "tester", "a-test-password"
"""Who may log in at `KafkaBroker.secured_servers`."""
_JARS = Path(__file__).with_name("kafka_jars.txt")
_QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
_CLUSTER = "cGVuc3RvY2stdGVzdC0xMg"


def missing() -> str | None:
    """Say why no broker can be started here, after a try to fetch what it needs; None: one can."""
    try:
        fetch()
    except Exception as error:
        return f"Kafka cannot be had here: {error}"
    return None


def fetch() -> Path:
    """Return the directory with the jars and an empty store; the first call brings them from Maven Central, 43 MB."""
    return jars.fetch(f"kafka-{VERSION}", [jars.Jar.of(line) for line in _JARS.read_text().splitlines()], _format)


def _format(place: Path) -> None:
    """Make an empty store, which every broker begins with a copy of; making one takes a Java of its own."""
    template = place / "store"
    shutil.rmtree(template, ignore_errors=True)
    properties = place / "format.properties"
    properties.write_text(_properties(template, 1, 2, 3))
    command = [*_command(place), "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if found.returncode:
        raise SparkFailed(f"its store could not be made ({found.stderr.strip()[-300:]})")


def _command(place: Path, *, lasting: bool = False) -> list[str]:
    # One that lives for a minute never gets back what the second compiler costs.
    # One that is measured with shall not collect garbage every two seconds: a pause of 10 to 50 ms for everybody.
    flags = ["-Xms3g", "-Xmx3g", "-Xmn2500m"] if lasting else ["-Xmx400m", "-XX:TieredStopAtLevel=1"]
    flags += ["-XX:+UseSerialGC", "-Xshare:auto"]
    logging = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
    return [jars.java(), *flags, *logging, "-cp", f"{place}/lib/*"]


def _properties(store: Path, port: int, controller: int, secured: int) -> str:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SECURED://127.0.0.1:{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
        "log.dirs": store,
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 100,
        "controlled.shutdown.enable": "false",
        "broker.session.timeout.ms": 6000,
        "broker.heartbeat.interval.ms": 500,
        "num.network.threads": 2,
        "num.io.threads": 3,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


class KafkaBroker(Server):
    """A running broker, which is also its own controller; with `close`, or as a context, it ends and leaves nothing.

    Parameters
    ----------
    lasting : bool
        Run as brokers in production do: it starts as quickly, and carries more once it is warm.

    Attributes
    ----------
    servers : str
        Where it listens.
    secured_servers : str
        Where it listens too, for those with a password (SASL/PLAIN).
    """

    def __init__(self, *, lasting: bool = False) -> None:
        place = fetch()
        super().__init__("kafka")
        shutil.copytree(place / "store", self.directory / "store")
        port, controller, secured = free_ports(3)
        self.servers, self.secured_servers = f"{HOST}:{port}", f"{HOST}:{secured}"
        settings = self.directory / "server.properties"
        settings.write_text(_properties(self.directory / "store", port, controller, secured))
        command = [*_command(place, lasting=lasting), "kafka.Kafka", str(settings)]
        # Killed, not asked to end: nobody needs what it would put in order.
        self.run(command, self._answers, signal.SIGKILL)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        host, _, port = self.servers.partition(":")
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))):
                return False
        try:
            found = AdminClient({"bootstrap.servers": self.servers, **_QUIET}).list_topics(timeout=2)
        except KafkaException:
            return False
        return bool(found.brokers)

    @cached_property
    def admin(self) -> AdminClient:
        """Makes topics, and asks about them."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, **_QUIET})
