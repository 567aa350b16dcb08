"""Options of a job, checked before anything starts; the planner, the engine and the driver read them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.durations import parse_us
from penstock.errors import InvalidOption, nearest
from penstock.operators import Form
from penstock.operators.keys import KEY_GROUPS
from penstock.pipeline.outlets import Outlet, read_outlets

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MASTER = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|spark://\S+|yarn|k8s://\S+")


class Forms(Enum):
    """Which forms a job's operations may take."""

    ADAPTIVE = "adaptive"
    """Record form, and batch form while a burst lasts."""
    RECORD = "record"
    BATCH = "batch"

    @property
    def pin(self) -> Form | None:
        """The form that every operation is pinned to, if they all are."""
        return {Forms.ADAPTIVE: None, Forms.RECORD: Form.RECORD, Forms.BATCH: Form.BATCH}[self]


@dataclass(frozen=True)
class Options:
    """How a job runs.

    Attributes
    ----------
    name : str
        Name of the job, for `penstock top` and file names.
    parallelism : int
        Workers, and instances of every keyed operation.
    master : str
        Spark master; ``local`` embeds Spark in this process.
    epoch_us : int
        Interval between epoch markers.
    idle_us : int
        After so long without input a source partition no longer holds event time back.
    linger_us : int
        Least time between two reads of a scheduled source: bounds the work of calm streams.
    block_work_us : int
        A source cuts blocks of about this much work at the most.
    queue_records : int
        Records that may wait on one edge before its producer pauses.
    start_timeout_us : int
        How long the workers may take to come up.
    silence_us : int
        A worker that is silent for so long is lost; a worker without its driver ends after as long.
    """

    name: str = "job"
    parallelism: int = 2
    master: str = "local"
    epoch_us: int = 1_000_000
    idle_us: int = 2_000_000
    linger_us: int = 500
    block_work_us: int = 2_000
    queue_records: int = 16_384
    start_timeout_us: int = 120_000_000
    silence_us: int = 30_000_000
    checkpoint: str = ""
    """Directory of snapshots and commits; filled in by the job where the user named none."""
    durable: bool = False
    """Whether the user named it: it stays, and a job that is started again goes on from it."""
    forms: Forms = Forms.ADAPTIVE
    pins: tuple[tuple[str, Form], ...] = ()
    """Operations whose form the user has settled."""
    advise: bool = False
    """Whether switches are only reported, not done."""
    slots: int = 0
    """Tasks that run micro-batches side by side; 0: as many as workers."""
    interval_us: int = 50_000
    """Least time that a micro-batch gathers."""
    group_size: int = 0
    """Micro-batches of a group's task; 0: tuned."""
    metrics: tuple[Outlet, ...] = ()
    """Where samples of the job's figures go."""

    @staticmethod
    def of(
        *,
        name: str = "job",
        parallelism: int | None = None,
        master: str | None = None,
        epoch: str | float = "1s",
        idle: str | float = "2s",
        queue_records: int = 16_384,
        checkpoint: str | os.PathLike[str] | None = None,
        forms: str = "adaptive",
        pin: Mapping[str, str] | None = None,
        advise: bool = False,
        slots: int | None = None,
        interval: str | float = "50ms",
        group_size: int | None = None,
        metrics: str | Sequence[str] | None = None,
    ) -> Options:
        """Check the options as users give them."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidOption(option="name", given=name, allowed="1 to 64 letters, digits, '_', '-' and '.'")
        if parallelism is None:
            parallelism = min(os.cpu_count() or 1, 8)
        if isinstance(parallelism, bool) or not isinstance(parallelism, int) or not 1 <= parallelism <= KEY_GROUPS:
            raise InvalidOption(
                option="parallelism", given=parallelism, allowed=f"a whole number from 1 to {KEY_GROUPS}"
            )
        if master is not None and (not isinstance(master, str) or not _MASTER.fullmatch(master)):
            raise InvalidOption(
                option="master", given=master, allowed="local, local[N], spark://HOST:PORT, yarn, k8s://…"
            )
        threads = re.fullmatch(r"local\[(\d+)(,\d+)?\]", master or "")
        if threads and int(threads[1]) < parallelism:
            raise InvalidOption(option="master", given=master, allowed=f"at least {parallelism} slots, one per worker")
        if (
            isinstance(queue_records, bool)
            or not isinstance(queue_records, int)
            or not 1 <= queue_records <= 10_000_000
        ):
            raise InvalidOption(
                option="queue_records", given=queue_records, allowed="a whole number from 1 to 10000000"
            )
        epoch_us = parse_us(epoch, option="epoch")
        if epoch_us < 10_000:
            raise InvalidOption(option="epoch", given=epoch, allowed="10ms or longer")
        interval_us = parse_us(interval, option="interval")
        if not 1_000 <= interval_us <= 10_000_000:
            raise InvalidOption(option="interval", given=interval, allowed="1ms to 10s")
        for option, given in (("slots", slots), ("group_size", group_size)):
            if given is not None and (isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 1000):
                raise InvalidOption(option=option, given=given, allowed="a whole number from 1 to 1000")
        if pin is not None and not isinstance(pin, Mapping):
            raise InvalidOption(option="pin", given=pin, allowed="a dictionary from operations to forms")
        if not isinstance(advise, bool):
            raise InvalidOption(option="advise", given=advise, allowed="True or False")
        pins = tuple((operation, _form(f"pin[{operation!r}]", form)) for operation, form in (pin or {}).items())
        return Options(
            name=name,
            parallelism=parallelism,
            master=master or "local",
            epoch_us=epoch_us,
            idle_us=parse_us(idle, option="idle"),
            queue_records=queue_records,
            checkpoint=os.fspath(checkpoint) if checkpoint is not None else "",
            durable=checkpoint is not None,
            forms=_forms(forms),
            pins=pins,
            advise=advise,
            slots=slots or 0,
            interval_us=interval_us,
            group_size=group_size or 0,
            metrics=read_outlets(metrics),
        )


def _forms(given: str) -> Forms:
    try:
        return Forms(given)
    except ValueError:
        raise _unknown("forms", given, Forms) from None


def _form(option: str, given: str) -> Form:
    try:
        return Form(given)
    except ValueError:
        raise _unknown(option, given, Form) from None


def _unknown(option: str, given: str, known: type[Enum]) -> InvalidOption:
    names = [each.value for each in known]
    return InvalidOption(option=option, given=given, allowed=", ".join(names), hint=nearest(str(given), names))
