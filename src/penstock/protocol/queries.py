"""Messages of the query service: who wants a micro-batch transformed, who fetches it, who brings the result.

==========================  =============================  =======================================================
message                     from, to                       then
==========================  =============================  =======================================================
``Ask``                     a slot or worker → service     the service submits a Spark SQL job
``Fetch``                   a task of that job → asker     the asker sends the rows of the task's part: ``Rows``
``Piece``                   a task of that job → asker     kept by task attempt: one that was lost may have sent some
``Answer``                  service → asker                names the attempts that count, or why it failed
==========================  =============================  =======================================================

The rows go between the asker and the tasks; the service sees none. ``Ask`` and ``Fetch`` are repeated until they are
answered, and answered as often as they come; a request is one job. If a piece is lost on the way the asker makes
another request, and whoever waits for an asker that is gone gives up.
"""

from __future__ import annotations

import msgspec


class Ask(msgspec.Struct, tag=True, kw_only=True):
    """Have a micro-batch transformed."""

    request: int
    operation: str
    endpoint: str
    count: int


class Fetch(msgspec.Struct, tag=True, kw_only=True):
    """Send me part ``part`` of ``parts``."""

    request: int
    endpoint: str
    part: int
    parts: int


class Rows(msgspec.Struct, tag=True, kw_only=True):
    """What was fetched; the payload is a packed batch."""

    request: int
    part: int


class Piece(msgspec.Struct, tag=True, kw_only=True):
    """Some of the result; the payload is a packed batch."""

    request: int
    task: int
    number: int


class Answer(msgspec.Struct, tag=True, kw_only=True):
    """The job is over."""

    request: int
    pieces: dict[int, int]
    """By task attempt: how many pieces it has sent."""
    error: str = ""


QueryMessage = Ask | Fetch | Rows | Piece | Answer
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(QueryMessage).decode
