"""What the user of a client may do, asked of the broker before anything starts; the driver's checks call it."""

from __future__ import annotations

import logging

from penstock.connectors.kafka.access import ANSWER_S, Access, Troubles, client_library
from penstock.errors import InvalidOption

TIMEOUT_MS_MIN = 10_000
_NAME = "penstock-check"
"""A transactional id that nobody writes under; it is asked for as those of the writers are."""


def check_group(access: Access, group: str) -> None:
    """Refuse a group that the user may not commit offsets to."""
    clients, troubles = client_library(), Troubles()
    admin = access.admin(troubles)

    def look(_: float) -> list[object] | None:
        asked = admin.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=ANSWER_S
        ).values()
        (answer,) = asked
        found: list[object] | None = answer.result().authorized_operations
        return found

    may = access.ask(f"group '{group}'", look, admin, troubles)
    if may and clients.admin.AclOperation.READ not in may:
        raise access.failed(
            f"the user may not commit offsets to group '{group}'.", hint="Ask for the right READ on the group."
        )


def check_transactions(access: Access, timeout_ms: int) -> None:
    """Refuse a time-out that the broker would refuse of the first writer, and a user who may not have transactions."""
    most = _timeout_ms_max(access)
    if most is not None and timeout_ms > most:
        raise _refused(timeout_ms, f"{TIMEOUT_MS_MIN} to {most}, the broker's most")
    clients, troubles = client_library(), Troubles()
    silent = logging.Logger("penstock.kafka")  # the client prints what is fatal, whatever level it is given
    producer = access.producer(
        troubles, **{"transactional.id": _NAME, "transaction.timeout.ms": timeout_ms, "logger": silent}
    )

    def begin(wait_s: float) -> None:
        try:
            producer.init_transactions(wait_s)
        except clients.KafkaException as error:
            if error.args[0].code() == clients.KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise _refused(timeout_ms, "at most transaction.max.timeout.ms of the broker") from None
            raise

    access.ask("transactional id 'penstock-*'", begin, producer, troubles)


def _refused(timeout_ms: int, allowed: str) -> InvalidOption:
    return InvalidOption(option="options", given=f"transaction.timeout.ms={timeout_ms}", allowed=allowed)


def _timeout_ms_max(access: Access) -> int | None:
    """The broker's most; None: the user may not ask."""
    clients = client_library()
    admin = access.admin(Troubles())
    try:
        brokers = list(admin.list_topics(timeout=ANSWER_S).brokers)
        broker = clients.admin.ConfigResource(clients.admin.ConfigResource.Type.BROKER, str(brokers[0]))
        (asked,) = admin.describe_configs([broker], request_timeout=ANSWER_S).values()
        return int(asked.result()["transaction.max.timeout.ms"].value)
    except (clients.KafkaException, KeyError):
        return None
