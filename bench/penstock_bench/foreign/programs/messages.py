"""Messages of workload files where Penstock is not installed: read from lines, written as rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple


class Message(NamedTuple):
    """What flows in every stream."""

    key: str
    value: str
    time_us: int
    id: int
    origin: int = -1  # the id of the generated message that it came from, for who needs to know


Emit = Callable[[Message], None]
END_US = 1 << 62  # after every message


def parse(line: bytes) -> Message:
    id_, time_us, key, value = line.decode().split("\t", 3)
    return Message(key, value, int(time_us), int(id_))


def line_time_us(line: bytes) -> int:
    return int(line.split(b"\t", 2)[1])


def row(sink: str, message: Message) -> bytes:
    return json.dumps([sink, message.key, message.value, message.time_us, message.id]).encode()
