"""A Kafka of one node for tests, examples and trying out: started from jars in a cache directory, on loopback ports."""

from __future__ import annotations

import base64
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
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
_ASKING: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None, "enable.sparse.connections": False}
"""Of clients that ask: they say nothing, and do not try all the time to reach a node that is gone."""
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
    properties.write_text(_text(_properties(template, 1, 2, 3)))
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


def _text(settings: Mapping[str, Any]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _properties(store: Path, port: int, controller: int, secured: int) -> dict[str, Any]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SECURED://127.0.0.1:{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": login({USER: PASSWORD}),
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


def _joining(node: int, port: int, secured: int) -> dict[str, Any]:
    """What is different where another node is the controller."""
    listeners = f"PLAINTEXT://127.0.0.1:{port},SECURED://127.0.0.1:{secured}"
    return {"process.roles": "broker", "node.id": node, "listeners": listeners}


def _rename(store: Path, node: int) -> None:
    """Make an empty store that of another node."""
    (store / "bootstrap.checkpoint").unlink()
    directory = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
    named = {"version": 1, "cluster.id": _CLUSTER, "node.id": node, "directory.id": directory}
    (store / "meta.properties").write_text(_text(named))


def login(passwords: Mapping[str, str]) -> str:
    """What a broker has to be told of users and their passwords."""
    users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"


class KafkaBroker(Server):
    """A running broker, which is also its own controller; with `close`, or as a context, it ends and leaves nothing.

    Parameters
    ----------
    lasting : bool
        Run as brokers in production do: it starts as quickly, and carries more once it is warm.
    settings : dict, optional
        Settings of the broker that shall be other than they are here.
    beside : KafkaBroker, optional
        One that runs, whose cluster it joins; the other one stays the controller, and has to run as long.

    Attributes
    ----------
    servers : str
        Where it listens.
    secured_servers : str
        Where it listens too, for those with a password (SASL/PLAIN).
    node : int
        Its number in the cluster.
    """

    def __init__(
        self,
        *,
        lasting: bool = False,
        settings: Mapping[str, Any] | None = None,
        beside: KafkaBroker | None = None,
    ) -> None:
        place = fetch()
        super().__init__("kafka")
        store, told = self.directory / "store", self.directory / "server.properties"
        shutil.copytree(place / "store", store)
        port, own_controller, secured = free_ports(3)
        self.node: int = 1 if beside is None else beside.node + 1
        self._controller: int = own_controller if beside is None else beside._controller
        self.servers, self.secured_servers = f"{HOST}:{port}", f"{HOST}:{secured}"
        own = _properties(store, port, self._controller, secured)
        if beside is not None:
            own |= _joining(self.node, port, secured)
            _rename(store, self.node)
        told.write_text(_text({**own, **(settings or {})}))
        command = [*_command(place, lasting=lasting), "kafka.Kafka", str(told)]
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
            found = AdminClient({"bootstrap.servers": self.servers, **_ASKING}).list_topics(timeout=2)
        except KafkaException:
            return False
        return bool(found.brokers)

    @cached_property
    def admin(self) -> AdminClient:
        """Makes topics, and asks about them."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, **_ASKING})
