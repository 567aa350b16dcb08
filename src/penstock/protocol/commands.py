"""What a user says to a running job from another terminal, and what the job answers; typed, one command a connection.

A new command is a struct here, a line in `Command`, and a case in `runtime/commands.py`, which carries it out.
"""

from __future__ import annotations

import msgspec

COMMAND_BYTES_MAX = 64 << 10
"""The most that a command or an answer may weigh."""


class UseAlternative(msgspec.Struct, tag="use", frozen=True, forbid_unknown_fields=True):
    """Have an operation use an alternative; ``auto``: the job chooses."""

    operation: str
    alternative: str


class SwitchForm(msgspec.Struct, tag="switch", frozen=True, forbid_unknown_fields=True):
    """Settle the form of operations: record, batch or auto."""

    operations: list[str]
    to: str


class StopJob(msgspec.Struct, tag="stop", frozen=True, forbid_unknown_fields=True):
    """Finish what is under way and end; or end ``at_once``, without committing anything more."""

    at_once: bool = False


class ScaleJob(msgspec.Struct, tag="scale", frozen=True, forbid_unknown_fields=True):
    """Run the job on so many workers; ``auto``: as many as it chooses."""

    workers: int | str


class ReplicateOperation(msgspec.Struct, tag="replicate", frozen=True, forbid_unknown_fields=True):
    """Have so many processes compute an operation that has replicas; ``auto``: as many as the job chooses."""

    operation: str
    replicas: int | str


Command = UseAlternative | SwitchForm | StopJob | ScaleJob | ReplicateOperation


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The job's answer: what it does now, or why it does not."""

    done: str = ""
    code: str = ""
    what: str = ""
    operation: str | None = None
    hint: str = ""


encode = msgspec.json.Encoder().encode
decode_command = msgspec.json.Decoder(Command).decode
decode_answer = msgspec.json.Decoder(Answer).decode
