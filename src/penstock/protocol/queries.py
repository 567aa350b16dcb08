"""Messages of the query service: who wants a micro-batch transformed, who fetches it, who brings the result.

==========================  =============================  =======================================================
message                     from, to                       then
==========================  =============================  =======================================================
``Ask``                     a slot or worker → service     the service submits a Spark SQL job
``Fetch``                   a task of that job → asker     the asker sends the rows of the task's part: ``Rows``
``Piece``                   a task of that job → asker     kept by task attempt: one that was lost may have sent some
``Brought``                 a task of that job → asker     the pieces of an attempt are complete; where it is known how
                                                           many tasks there are, one attempt of each is the result
``Answer``                  service → asker                names the attempts that count, unless tasks tell that
                                                           themselves; or why it failed
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
    outputs: int = 0
    """Tasks that bring the result, once the service knows; 0: the answer will tell."""


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


class Brought(msgspec.Struct, tag=True, kw_only=True):
    """All pieces of a task are on their way."""

    request: int
    task: int
    part: int
    pieces: int
    outputs: int


class Answer(msgspec.Struct, tag=True, kw_only=True):
    """The job is over."""

    request: int
    pieces: dict[int, int]
    """By task attempt: how many pieces it has sent; of none where the tasks say so themselves."""
    outputs: int = 0
    """Tasks that bring the result, if they say so themselves."""
    error: str = ""


QueryMessage = Ask | Fetch | Rows | Piece | Brought | Answer
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(QueryMessage).decode
