"""How a Kafka is reached: addresses and client settings, with everything secret hidden from whatever is shown."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.connectors.secrets import HIDDEN, Secret, redacted
from penstock.errors import InvalidOption, KafkaFailed, nearest

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

ANSWER_S = 10.0
"""How long a broker may take to answer before a job starts."""
_LOOK_S = 0.5
_SECRET = re.compile(r"password|secret|token|credential|jaas|private|\.key\b|\.pem\b|sasl\.oauthbearer\.config", re.I)
_OWN = {
    "bootstrap.servers": "it is the first argument",
    "group.id": "give group=",
    "transactional.id": "each instance of the sink has its own",
    "enable.idempotence": "the sink is always idempotent",
    "enable.auto.commit": "offsets are committed with the epochs",
    "enable.auto.offset.store": "offsets are committed with the epochs",
    "auto.offset.reset": "give start=",
    "isolation.level": "give uncommitted=",
    "enable.partition.eof": "give stop=",
    "acks": "the sink waits for all replicas in sync",
    "error_cb": "errors end the job, or are waited out",
    "logger": "errors end the job, or are waited out",
}
_AT_ONCE = {"socket.nagle.disable": True}
"""Without it a small request waits in the system until the one before it is acknowledged, for up to 40 ms."""
_ALL_CONNECTED = {"enable.sparse.connections": False}
"""A client that connects only when it must forgets to wait between two tries while a question is open for a broker that
is gone: 30,000 connections a second, which take the processor from those who would elect another leader."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?):[0-9]{1,5}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Access:
    """Where the brokers are, and what a client tells them; its text shows nothing secret."""

    servers: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(servers: str, options: Mapping[str, Any] | None) -> Access:
        """Check what users give."""
        if not isinstance(servers, str) or not all(_HOST.fullmatch(each.strip()) for each in servers.split(",")):
            # Whoever has put a password into an address shall not find it in a log.
            given = re.sub(r"[^,/]*@", f"{HIDDEN}@", servers) if isinstance(servers, str) else type(servers).__name__
            raise InvalidOption(option="servers", given=given, allowed='"host:9092", or several with commas')
        if options is not None and not isinstance(options, Mapping):
            raise InvalidOption(option="options", given=type(options).__name__, allowed="a dictionary of settings")
        for name in options or {}:
            if name in _OWN:
                raise InvalidOption(
                    option="options", given=name, allowed=f"settings of librdkafka but this: {_OWN[name]}"
                )
        # Known as secret in every process that the plan comes to.
        hidden = {name: Secret(v) for name, v in (options or {}).items() if _SECRET.search(name) and isinstance(v, str)}
        return Access(servers, {**(options or {}), **hidden})

    def __repr__(self) -> str:
        shown = {name: HIDDEN if _SECRET.search(name) else value for name, value in self.options.items()}
        return f"{self.servers!r}" + (f", options={shown}" if shown else "")

    def hide(self, text: str) -> str:
        """Take every secret out of a text."""
        given = (value for name, value in self.options.items() if _SECRET.search(name) and isinstance(value, str))
        return redacted(text, *given)

    def failed(self, what: str, *, hint: str = "", operation: str | None = None) -> KafkaFailed:
        """An error that shows nothing secret."""
        return KafkaFailed(self.hide(what), hint=self.hide(hint), operation=operation)

    # --- clients ------------------------------------------------------------------------------------------------------

    def consumer(self, troubles: Troubles, **settings: Any) -> Consumer:
        """A consumer that commits nothing by itself."""
        own = {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"}
        made: Consumer = self._client("Consumer", troubles, {"group.id": "penstock", **own, **settings})
        return made

    def producer(self, troubles: Troubles, **settings: Any) -> Producer:
        """A producer that keeps order and repeats nothing."""
        made: Producer = self._client("Producer", troubles, {"enable.idempotence": True, **settings})
        return made

    def admin(self, troubles: Troubles) -> AdminClient:
        """Asks about topics."""
        made: AdminClient = self._client("AdminClient", troubles, _ALL_CONNECTED)
        return made

    def _client(self, kind: str, troubles: Troubles, settings: dict[str, Any]) -> Any:
        clients = client_library()
        make: Callable[[dict[str, Any]], Any]
        make = clients.admin.AdminClient if kind == "AdminClient" else getattr(clients, kind)
        quiet = {"log_level": 0, "error_cb": troubles.note}
        try:
            return make({"bootstrap.servers": self.servers, **_AT_ONCE, **self.options, **settings, **quiet})
        except clients.KafkaException as error:
            refused = str(error.args[0].str())
            name = re.search(r'"([\w.]+)"', refused)
            hint = f" {name[1]}." if name else ""
            raise self.failed(
                f"the client refuses its settings: {refused}.", hint=f"See librdkafka's list of settings.{hint}"
            ) from None

    def ask(
        self,
        what: str,
        question: Callable[[float], Made],
        client: Consumer | AdminClient | Producer,
        troubles: Troubles,
        wait_s: float | None = None,
    ) -> Made:
        """Ask the brokers something, and return what they answer; or say clearly why they do not.

        ``question`` is called with a time to wait, again and again while nobody answers; it asks ``client``.
        """
        errors = client_library().KafkaException
        deadline = time.monotonic() + (ANSWER_S if wait_s is None else wait_s)
        while True:
            try:
                return question(min(_LOOK_S * 2, max(0.1, deadline - time.monotonic())))
            except errors as error:
                found: KafkaError = error.args[0]
                if not _is_passing(found):
                    raise self.failed(f"{what}: {found.str()}.", hint=_hint(found)) from None
                client.poll(0.05)  # brings what its threads have met
                troubles.raise_fatal(self)
                if time.monotonic() >= deadline:
                    cause = troubles.latest or found.str()
                    raise self.failed(
                        f"nobody answers at {self.servers}: {cause}.",
                        hint="Check the address, security.protocol, and that the broker can be reached from here.",
                    ) from None


class Troubles:
    """What the client's own threads have met; some of it passes, some never will.

    Parameters
    ----------
    was_reached : bool
        Whether somebody has answered before. Then a name that is not known will be again: that of a broker that is
        started anew elsewhere may be gone meanwhile.
    """

    def __init__(self, *, was_reached: bool = False) -> None:
        self.latest = ""
        """The last one, for people; empty while all is well."""
        self._was_reached = was_reached
        self._fatal: KafkaError | None = None
        self._lock = threading.Lock()

    def note(self, error: KafkaError) -> None:
        """Called by the client."""
        kinds = client_library().KafkaError
        text = re.sub(r"^[\w/.:\[\]-]+/(bootstrap|\d+): ", "", error.str())
        with self._lock:
            if error.code() != kinds._ALL_BROKERS_DOWN or not self.latest:
                self.latest = text
            lasting = [kinds._AUTHENTICATION, kinds.SASL_AUTHENTICATION_FAILED, kinds._SSL]
            if error.fatal() or error.code() in (lasting if self._was_reached else [*lasting, kinds._RESOLVE]):
                self._fatal = error

    def passed(self) -> None:
        """Somebody has answered."""
        self._was_reached = True
        if self.latest:
            with self._lock:
                self.latest, self._fatal = "", None

    def raise_fatal(self, access: Access) -> None:
        """Raise what will not pass by waiting."""
        error = self._fatal
        if error is not None:
            raise access.failed(f"{self.latest or error.str()}.", hint=_hint(error))


def client_library() -> Any:
    """The client, which is installed with an extra."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise KafkaFailed(
            "the Kafka client is not installed.", hint="Install it: pip install 'penstock[kafka]'."
        ) from None
    return confluent_kafka


def _is_passing(error: KafkaError) -> bool:
    kinds = client_library().KafkaError
    passing = [kinds._TRANSPORT, kinds._TIMED_OUT, kinds._ALL_BROKERS_DOWN, kinds._WAIT_COORD, kinds._IN_PROGRESS]
    # Brokers hear of a new topic, or of a new leader, one after the other.
    passing += [kinds.NOT_LEADER_FOR_PARTITION, kinds.LEADER_NOT_AVAILABLE, kinds.UNKNOWN_TOPIC_OR_PART]
    passing.append(kinds._NOENT)  # "No leaders found", of a topic that was just made
    # A broker that was slow to answer the others is left out for a moment, and leads again under another epoch.
    passing += [kinds.FENCED_LEADER_EPOCH, kinds.UNKNOWN_LEADER_EPOCH]
    # A group or a transactional id has another coordinator, or its first one.
    passing += [kinds.NOT_COORDINATOR, kinds.COORDINATOR_NOT_AVAILABLE, kinds.COORDINATOR_LOAD_IN_PROGRESS]
    fenced = error.code() == kinds.INVALID_REPLICATION_FACTOR and "fenced" in error.str()
    return error.code() in passing or error.retriable() or fenced


def _hint(error: KafkaError) -> str:
    kinds = client_library().KafkaError
    code = error.code()
    if code in (kinds._AUTHENTICATION, kinds.SASL_AUTHENTICATION_FAILED):
        return "Check sasl.mechanism, sasl.username and sasl.password in options=."
    if code == kinds._RESOLVE:
        return "Check the host's name."
    if code == kinds._SSL:
        return "Check security.protocol and the ssl.* settings in options=."
    missing = [kinds.TOPIC_AUTHORIZATION_FAILED, kinds.GROUP_AUTHORIZATION_FAILED, kinds.CLUSTER_AUTHORIZATION_FAILED]
    if code in (*missing, kinds.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        return "The user may not do that: ask for the right on the broker."
    return ""


def check_topic(topic: object, option: str = "topic") -> str:
    """Check a topic's name."""
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise InvalidOption(option=option, given=topic, allowed="letters, digits, '.', '_' and '-', at most 249")
    return topic


def described(access: Access, topic: str, *rights: str, was_made: bool = False) -> tuple[str, int]:
    """Return the identity of a topic and its number of partitions, or say why it cannot be had.

    ``rights`` are what is to be done with it, ``READ`` or ``WRITE``: refused here where the user may not. ``was_made``:
    it is there, and brokers hear of it one after the other.
    """
    clients, troubles = client_library(), Troubles()
    admin = access.admin(troubles)

    def look(timeout_s: float) -> tuple[str, int, list[Any] | None] | None:
        found = admin.list_topics(topic, timeout=timeout_s).topics.get(topic)
        if found is None or (
            found.error is not None and found.error.code() == clients.KafkaError.UNKNOWN_TOPIC_OR_PART
        ):
            if was_made:
                raise clients.KafkaException(clients.KafkaError(clients.KafkaError.UNKNOWN_TOPIC_OR_PART))
            return None
        if found.error is not None:
            raise clients.KafkaException(found.error)
        topics = clients.TopicCollection([topic])
        asked = admin.describe_topics(topics, include_authorized_operations=True, request_timeout=ANSWER_S)
        (answer,) = (each.result() for each in asked.values())
        return str(answer.topic_id), len(found.partitions), answer.authorized_operations

    found = access.ask(f"topic '{topic}'", look, admin, troubles)
    if found is None:
        names = list(access.ask("topics", lambda s: admin.list_topics(timeout=s).topics, admin, troubles))
        raise access.failed(
            f"there is no topic '{topic}' at {access.servers}.",
            hint=f"Make it first: brokers differ in how many partitions they would give it.{nearest(topic, names)}",
        )
    identity, partitions, may = found
    for right in rights:
        if may and clients.admin.AclOperation[right] not in may:  # old brokers do not say
            raise access.failed(
                f"the user may not {right.lower()} topic '{topic}'.", hint=f"Ask for the right {right} on the topic."
            )
    return identity, partitions
