"""Where reading begins and ends: earliest, latest, a time, offsets, or where a group is; asked of the broker once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

from penstock.connectors.kafka.access import ANSWER_S, Access, Troubles, client_library
from penstock.errors import InvalidOption

Where = str | datetime | Mapping[int, int] | None
EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"


def check_where(option: str, given: Any, words: tuple[str, ...]) -> Where:
    """Check what users give for ``start`` or ``stop``."""
    allowed = f"{', '.join(words)}, a time (datetime or ISO-8601 text), or {{partition: offset}}"
    if given in words if isinstance(given, str) else False:
        return str(given)
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise InvalidOption(option=option, given=given, allowed=allowed) from None
    if isinstance(given, datetime):
        return given if given.tzinfo is not None else given.replace(tzinfo=UTC)
    if isinstance(given, Mapping) and given:
        numbers = [each for pair in given.items() for each in pair]
        if all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in numbers):
            return dict(given)
    raise InvalidOption(option=option, given=given, allowed=allowed)


def resolved(
    access: Access,
    topic: str,
    partitions: int,
    where: Where,
    *,
    group: str,
    isolation: str,
    option: str,
    is_strict: bool = True,
) -> dict[int, int]:
    """Return the offset of each partition; a partition that ``where`` says nothing about is read from its earliest.

    ``is_strict``: refuse offsets that the topic does not have.
    """
    clients, troubles = client_library(), Troubles()
    spec = clients.admin.OffsetSpec
    admin = access.admin(troubles)
    level = getattr(clients.IsolationLevel, isolation.upper())

    def ask(wanted: Any) -> dict[int, int]:
        def look(_: float) -> dict[int, int]:
            at = {clients.TopicPartition(topic, each): wanted for each in range(partitions)}
            answers: dict[Any, Future[Any]] = admin.list_offsets(at, isolation_level=level, request_timeout=ANSWER_S)
            return {key.partition: int(answer.result().offset) for key, answer in answers.items()}

        return access.ask(f"offsets of topic '{topic}'", look, admin, troubles)

    earliest = ask(spec.earliest())
    if where == EARLIEST:
        return earliest
    latest = ask(spec.latest())
    if where == LATEST:
        return latest
    if isinstance(where, datetime):
        found = ask(spec.for_timestamp(int(where.timestamp() * 1000)))
        return {each: latest[each] if offset < 0 else offset for each, offset in found.items()}
    if where == COMMITTED:
        left = _committed(access, topic, partitions, group)
        for partition, offset in left.items() if is_strict else ():
            if offset < earliest[partition]:
                raise access.failed(
                    f"group '{group}' has read partition {partition} of topic '{topic}' up to offset {offset}, and it "
                    f"begins at {earliest[partition]} by now: {earliest[partition] - offset} records were deleted "
                    "before they were read.",
                    hint='Give the topic a longer retention. To go on without them, say where: start="earliest", or '
                    "offsets.",
                )
        return {**earliest, **left}
    assert isinstance(where, Mapping)
    for partition, offset in where.items():
        if partition not in latest:
            allowed = f"partitions 0 to {partitions - 1} of topic '{topic}'"
            raise InvalidOption(option=option, given=dict(where), allowed=allowed)
        if is_strict and not earliest[partition] <= offset <= latest[partition]:
            allowed = f"offsets {earliest[partition]} to {latest[partition]} of partition {partition}"
            raise InvalidOption(option=option, given=dict(where), allowed=allowed)
    return {**(earliest if option == "start" else latest), **where}


def _committed(access: Access, topic: str, partitions: int, group: str) -> dict[int, int]:
    """Where a group is, for the partitions that it has been at."""
    clients, troubles = client_library(), Troubles()
    consumer = access.consumer(troubles, **{"group.id": group})
    try:
        at = [clients.TopicPartition(topic, each) for each in range(partitions)]
        found = access.ask(f"group '{group}'", lambda s: consumer.committed(at, timeout=s), consumer, troubles)
    finally:
        consumer.close()
    for each in found:
        if each.error is not None:
            raise access.failed(f"group '{group}': {each.error.str()}.")
    return {each.partition: each.offset for each in found if each.offset >= 0}
