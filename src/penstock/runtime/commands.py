"""The control channel of a job: a Unix socket beside its status file that only its owner can open.

The server is a thread of the job's process. A connection brings one command; whoever sends it is known from the
kernel (user and process), not from what it says. The command is checked, handed to the driver as an event, and
answered; the driver logs it with who and when.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from penstock.control.asked import checked_replicas
from penstock.control.events import (
    AlternativePinned,
    DegreeWanted,
    DrainRequested,
    Event,
    FormsPinned,
    ScaleRequested,
    StopRequested,
    Wish,
)
from penstock.control.exchanges import AUTO, checked_alternative
from penstock.control.pins import checked_operations
from penstock.errors import InvalidOption, JobNotFound, PenstockError, nearest, rebuilt
from penstock.operators import Form
from penstock.pipeline.plan import Plan
from penstock.protocol import commands as c
from penstock.redaction import redacted

READ_S = 2.0
"""How long a client may take to say what it wants."""
ANSWER_S = 10.0
"""How long a client waits for the answer."""
PATH_BYTES_MAX = 100
"""Paths of sockets have little room; longer ones are opened through their directory."""
_CREDENTIALS = struct.Struct("3i")


def socket_path(status: Path) -> Path:
    """The channel of the job that writes this status file."""
    return status.with_suffix(".sock")


def checked(plan: Plan, command: c.Command, by: str = "") -> tuple[Event | Wish, str]:
    """What a command means for the driver, and what is answered.

    Raises
    ------
    PenstockError
        If the job has nothing of that name, or cannot do it.
    """
    match command:
        case c.UseAlternative(operation=operation, alternative=alternative):
            checked_alternative(plan, operation, alternative)
            if alternative == AUTO:
                return AlternativePinned(operation, None, by), f"'{operation}' uses what the job chooses"
            return AlternativePinned(operation, alternative, by), f"'{operation}' uses '{alternative}' from here on"
        case c.SwitchForm(operations=operations, to=to):
            allowed = [*(form.value for form in Form), AUTO]
            if to not in allowed:
                raise InvalidOption(option="to", given=to, allowed=", ".join(allowed), hint=nearest(to, allowed))
            form = None if to == AUTO else Form(to)
            found = checked_operations(plan, operations, form)
            what = f"{', '.join(operations)}: {'the job chooses the form' if form is None else f'{to} form'}"
            return FormsPinned(found, form, by), what
        case c.StopJob(at_once=at_once):
            if at_once:
                return StopRequested(by), "the job ends now"
            return DrainRequested(by), "the job finishes what is under way, and ends"
        case c.ReplicateOperation(operation=operation, replicas=replicas):
            degree = checked_replicas(plan, operation, replicas)
            who = "as many processes as the job chooses" if degree is None else f"{degree} processes"
            who = "each worker itself" if degree == 1 else who
            if plan.options.advise:
                return DegreeWanted(operation, degree, by), f"'{operation}' stays as it is: the job only advises"
            return DegreeWanted(operation, degree, by), f"'{operation}' is computed by {who} from here on"
        case c.ScaleJob(workers=workers):
            most = plan.options.parallelism
            if workers == AUTO:
                return ScaleRequested(0, by), "the job chooses how many workers it has"
            if not isinstance(workers, int) or not 1 <= workers <= most:
                raise InvalidOption(
                    option="workers",
                    given=workers,
                    allowed=f"1 to {most}, which is the parallelism of the job, or {AUTO}",
                    hint="A job that is to grow is started with a higher parallelism, and fewer workers=….",
                )
            return ScaleRequested(workers, by), f"the job goes over to {workers} worker{'s' * (workers > 1)}"


class Channel:
    """Listens for commands while a job runs.

    Parameters
    ----------
    path : Path
        Where the socket is; in a directory of this user's.
    take : callable
        Carries a command out, given who has sent it; returns what is done now.
    """

    def __init__(self, path: Path, take: Callable[[c.Command, str], str]) -> None:
        self._path = path
        self._take = take
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        with _reachable(path) as name:
            self._socket.bind(name)
        path.chmod(0o600)  # nobody can connect before it listens
        self._socket.listen(8)
        self._thread = threading.Thread(target=self._listen, name="penstock-commands", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return  # closed
            with closing(accepted), suppress(OSError):
                accepted.settimeout(READ_S)
                by = _owner(accepted)
                if by is not None:
                    accepted.sendall(c.encode(self._answer(_read(accepted), by)))

    def _answer(self, packed: bytes, by: str) -> c.Answer:
        try:
            return c.Answer(done=self._take(c.decode_command(packed), by))
        except msgspec.DecodeError as error:
            return c.Answer(code="INVALID_COMMAND", what=f"the command cannot be read: {error}.")
        except PenstockError as error:
            what, hint = redacted(error.what), redacted(error.hint)
            return c.Answer(code=error.code, what=what, operation=error.operation, hint=hint)

    def close(self) -> None:
        """The job is over."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread up
        self._socket.close()
        self._path.unlink(missing_ok=True)


def _owner(peer: socket.socket) -> str | None:
    """Who is at the other end, if that is this user; the kernel says so."""
    if not hasattr(socket, "SO_PEERCRED"):
        return "this user"  # the mode of the socket has seen to it
    pid, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != os.geteuid():
        return None
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"user {uid}"
    return f"{name}, process {pid}"


def _read(peer: socket.socket) -> bytes:
    """All that the other end says, until it has said it."""
    parts, size = [], 0
    while part := peer.recv(1 << 16):
        parts.append(part)
        size += len(part)
        if size > c.COMMAND_BYTES_MAX:
            raise OSError("too long")
    return b"".join(parts)


def send(status: Path, job: str, command: c.Command) -> str:
    """Send a command to a running job; return what it does now.

    Raises
    ------
    PenstockError
        As the job says; JobNotFound if it has just ended.
    """
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as channel:
        channel.settimeout(ANSWER_S)
        try:
            with _reachable(socket_path(status)) as name:
                channel.connect(name)
            channel.sendall(c.encode(command))
            channel.shutdown(socket.SHUT_WR)
            packed = _read(channel)
        except OSError as error:
            raise JobNotFound(
                f"job '{job}' cannot be reached: {error.strerror or error}.", hint="It may have just ended."
            ) from None
    if not packed:
        raise JobNotFound(f"job '{job}' does not answer.", hint="It may have just ended.")
    answer = c.decode_answer(packed)
    if answer.code:
        raise rebuilt(answer.code, answer.what, answer.operation, answer.hint, "")
    return answer.done


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """A name for the socket that is short enough."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
