"""Options of a job, checked before anything starts; the planner, the engine and the driver read them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, get_type_hints

from penstock.checks import Check, Duration, Flag, OneOf, Text, Whole, local_path
from penstock.dataset.sizes import BLOCK_BYTES, QUEUE_BYTES
from penstock.errors import InvalidOption
from penstock.operators import Form
from penstock.operators.keys import PARALLELISM_MAX
from penstock.pipeline.outlets import Outlet, read_outlets

_NAME = Text(re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"), "1 to 64 letters, digits, '_', '-' and '.'")
_MASTER = Text(
    re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|spark://\S+|yarn|k8s://\S+"),
    "local, local[N], spark://HOST:PORT, yarn, k8s://…",
)

_ADDRESS = Text(re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,253}[A-Za-z0-9])?"), "an IPv4 address or a name, no port")


REPLICAS_MAX = 1_000


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


class Grouping(Enum):
    """Which replica gets the next item."""

    LOAD = "load"
    """The least utilised one."""
    SHUFFLE = "shuffle"
    """The next one, whatever it has to do."""


class ReplicaLaw(Enum):
    """How the number of replicas follows from what is measured; all but the first are there to be compared with."""

    PREDICTIVE = "predictive"
    DS2 = "ds2"
    THRESHOLD = "threshold"


@dataclass(frozen=True)
class Options:
    """How a job runs. What users may give is checked by what its field is annotated with.

    Attributes
    ----------
    name : str
        Name of the job, for `penstock top` and file names.
    parallelism : int
        Instances of every keyed operation; the most workers that the job may have.
    workers : int
        Worker processes that the job begins with, which share the instances; 0: one for each instance.
    workers_most : int
        The most that the job may give itself as the load grows, ``workers`` being the least; 0: it stays as it is.
    master : str
        Spark master; ``local`` embeds Spark in this process.
    epoch_us : int
        Interval between epoch markers.
    idle_us : int
        After so long without input a source partition no longer holds event time back.
    linger_us : int
        A scheduled source wakes its worker up so long after the last read, or somewhat later if it found few records
        then, which bounds the work of calm streams; a worker that is awake anyway reads after half of it.
    block_work_us : int
        A source cuts blocks of about this much work at the most.
    queue_records : int
        Records that may wait on one edge before its producer pauses.
    queue_bytes : int
        Bytes that may wait there, and a part of what may be kept for replay.
    block_bytes : int
        About the most that a block weighs; micro-batches and messages are made of a few of that size.
    state_slice : int
        Entries of keyed state that are written in one turn; a state of so many is written whole at each marker.
    start_timeout_us : int
        How long the workers may take to come up.
    silence_us : int
        A worker that is silent for so long is lost; a worker without its driver ends after as long.
    shrink_after_us : int
        A worker that is silent for so long leaves the job: the others take over what it had. Workers say twice a second
        that they are there.
    """

    name: Annotated[str, _NAME] = "job"
    parallelism: Annotated[int, Whole(1, PARALLELISM_MAX)] = 2
    workers: int = 0
    workers_most: int = 0
    worker_interval_us: Annotated[int, Duration(100_000, 3_600_000_000)] = 1_000_000
    """How often it is decided how many workers there are to be, where that is left to the job."""
    master: Annotated[str, _MASTER] = "local"
    epoch_us: Annotated[int, Duration(10_000)] = 1_000_000
    idle_us: Annotated[int, Duration()] = 2_000_000
    linger_us: int = 500
    block_work_us: int = 2_000
    queue_records: Annotated[int, Whole(1, 10_000_000)] = 16_384
    queue_bytes: int = QUEUE_BYTES
    block_bytes: int = BLOCK_BYTES
    state_slice: int = 1_000
    start_timeout_us: int = 120_000_000
    silence_us: int = 30_000_000
    shrink_after_us: Annotated[int, Duration(2_000_000)] = 600_000_000
    checkpoint: str = ""
    """Directory of snapshots and commits; filled in by the job where the user named none."""
    durable: bool = False
    """Whether the user named it: it stays, and a job that is started again goes on from it."""
    bootstrap: str = ""
    """Where the state is that the job begins with, if its own checkpoint has none."""
    forms: Annotated[Forms, OneOf(Forms)] = Forms.ADAPTIVE
    pins: tuple[tuple[str, Form], ...] = ()
    """Operations whose form the user has settled."""
    advise: Annotated[bool, Flag()] = False
    """Whether switches are only reported, not done."""
    slots: Annotated[int, Whole(1, 1000)] = 0
    """Tasks that run micro-batches side by side; 0: as many as workers."""
    interval_us: Annotated[int, Duration(1_000, 10_000_000)] = 50_000
    """Least time that a micro-batch gathers."""
    group_size: Annotated[int, Whole(1, 1000)] = 0
    """Micro-batches of a group's task; 0: tuned."""
    calm_us: int = 30_000_000
    """Slots that have had no work for so long end, all but one."""
    driver_address: str = ""
    """Where the processes of a cluster reach the driver; empty: where Spark's own do."""
    bind_address: str = ""
    """Where the driver listens; empty: at its address."""
    ports: tuple[int, int] = (0, 0)
    """First and last of the ports that a job's processes listen at; (0, 0): any."""
    py_files: tuple[str, ...] = ()
    """Modules, packages and archives of them that the workers import."""
    files: tuple[str, ...] = ()
    """Files that the workers open."""
    environment: str = ""
    """An archive with the Python that the workers of a cluster run."""
    replicas: Annotated[int, Whole(0, REPLICAS_MAX)] = 0
    """Processes that stand by to compute operations in record form; 0: as many as operations ask for."""
    grouping: Annotated[Grouping, OneOf(Grouping)] = Grouping.LOAD
    replica_interval_us: Annotated[int, Duration(100_000, 3_600_000_000)] = 1_000_000
    """td: how often the number of replicas is decided."""
    replica_law: ReplicaLaw = ReplicaLaw.PREDICTIVE
    """Users have no choice; studies do."""
    event_timeout_us: Annotated[int, Duration(1_000)] = 0
    """Records that have waited for longer at their source are dropped, and counted; 0: none are."""
    queue_bound: Annotated[int, Whole(1)] = 0
    """Records that may wait at a source; of more, the oldest are dropped, and counted; 0: any number."""
    metrics: tuple[Outlet, ...] = ()
    """Where samples of the job's figures go."""

    @staticmethod
    def of(
        *,
        name: str = "job",
        parallelism: int | None = None,
        workers: int | tuple[int, int] | str | None = None,
        worker_interval: str | float = "1s",
        master: str | None = None,
        epoch: str | float = "1s",
        idle: str | float = "2s",
        queue_records: int = 16_384,
        checkpoint: str | os.PathLike[str] | None = None,
        bootstrap: str | os.PathLike[str] | None = None,
        forms: str = "adaptive",
        pin: Mapping[str, str] | None = None,
        advise: bool = False,
        slots: int | None = None,
        interval: str | float = "50ms",
        group_size: int | None = None,
        driver_address: str | None = None,
        bind_address: str | None = None,
        ports: str | None = None,
        py_files: str | Sequence[str | os.PathLike[str]] = (),
        files: str | Sequence[str | os.PathLike[str]] = (),
        environment: str | os.PathLike[str] | None = None,
        shrink_after: str | float = "10m",
        replicas: int = 0,
        grouping: str = "load",
        replica_interval: str | float = "1s",
        event_timeout: str | float | None = None,
        queue_bound: int | None = None,
        metrics: str | Sequence[str] | None = None,
    ) -> Options:
        """Check the options as users give them."""
        given = dict(locals())
        least, most = read_workers(workers)
        if parallelism is None:
            given["parallelism"] = most or min(os.cpu_count() or 1, 8)
        unset = {
            option
            for option in ("master", "slots", "group_size", "event_timeout", "queue_bound")
            if given[option] is None
        }
        checks = [(field, field.removesuffix("_us"), check) for field, check in _CHECKS.items()]
        read = {field: check.read(option, given[option]) for field, option, check in checks if option not in unset}
        if max(least, most) > read["parallelism"]:
            allowed = f"1 to {read['parallelism']}, which is the parallelism"
            raise InvalidOption(option="workers", given=workers, allowed=allowed)
        threads = re.fullmatch(r"local\[(\d+)(,\d+)?\]", master or "")
        if threads and int(threads[1]) < (needed := most or least or read["parallelism"]):
            allowed = f"at least {needed} slots, one per worker"
            raise InvalidOption(option="master", given=master, allowed=allowed)
        if replicas == 1:
            allowed = f"0, or from 2 to {REPLICAS_MAX}: one replica computes no more than the worker itself"
            raise InvalidOption(option="replicas", given=replicas, allowed=allowed)
        if pin is not None and not isinstance(pin, Mapping):
            raise InvalidOption(option="pin", given=pin, allowed="a dictionary from operations to forms")
        return Options(
            **read,
            workers=least,
            workers_most=most,
            checkpoint=_place(os.fspath(checkpoint)) if checkpoint is not None else "",
            durable=checkpoint is not None,
            bootstrap=_place(os.fspath(bootstrap)) if bootstrap is not None else "",
            pins=tuple((name, OneOf(Form).read(f"pin[{name!r}]", form)) for name, form in (pin or {}).items()),
            driver_address=_address("driver_address", driver_address, master),
            bind_address=_address("bind_address", bind_address, master),
            ports=_ports(ports),
            py_files=read_paths("py_files", py_files),
            files=read_paths("files", files),
            environment=os.fspath(environment) if environment is not None else "",
            metrics=read_outlets(metrics),
        )


def _address(option: str, given: object, master: str | None) -> str:
    """An address or a name, without a port; where all processes are on this machine there is nothing to say."""
    if given is None:
        return ""
    if (master or "local").startswith("local"):
        raise InvalidOption(option=option, given=given, allowed="on a cluster only: give a master")
    return _ADDRESS.read(option, given)


def _ports(given: object) -> tuple[int, int]:
    if given is None:
        return 0, 0
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", given) if isinstance(given, str) else None
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1024 <= first < last <= 65_535:
        raise InvalidOption(option="ports", given=given, allowed="FIRST-LAST, from 1024 to 65535, as in 40000-40200")
    return first, last


def read_workers(given: object) -> tuple[int, int]:
    """Read what ``workers=`` was given: a number, or the least and the most; also as text, ``"4"`` or ``"2-6"``.

    Returns the least, or the number, and the most; 0 for what is not said.

    Examples
    --------
    >>> read_workers(4), read_workers((2, 6)), read_workers("2-6")
    ((4, 0), (2, 6), (2, 6))
    """
    if given is None:
        return 0, 0
    found = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", given) if isinstance(given, str) else None
    pair: list[Any] = list(given) if isinstance(given, tuple | list) else [given]
    if found:
        pair = [int(each) for each in found.groups() if each is not None]
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in pair)
    if not whole or len(pair) not in (1, 2) or not 1 <= pair[0] <= pair[-1] <= PARALLELISM_MAX:
        allowed = f"a whole number from 1 to {PARALLELISM_MAX}, or the least and the most of them: (2, 6)"
        raise InvalidOption(option="workers", given=given, allowed=allowed)
    return pair[0], pair[1] if len(pair) == 2 else 0


def read_paths(option: str, given: object) -> tuple[str, ...]:
    """Read paths: a list of them, or a text with commas in between."""
    each = given.split(",") if isinstance(given, str) else given
    if not isinstance(each, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in each):
        raise InvalidOption(option=option, given=given, allowed="paths, as a list or with commas in between")
    return tuple(dict.fromkeys(os.fspath(path) for path in each if path != ""))


def read_replicas(given: int | tuple[int, int], operation: str) -> tuple[int, int]:
    """Read what a verb's ``replicas=`` was given: a number, or the least and the most."""
    pair = given if isinstance(given, tuple | list) else (given, given)
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in pair)
    if not whole or len(pair) != 2 or not 1 <= pair[0] <= pair[1] <= REPLICAS_MAX:
        allowed = f"a whole number from 1 to {REPLICAS_MAX}, or the least and the most of them: (1, 8)"
        raise InvalidOption(option="replicas", given=given, allowed=allowed, operation=operation)
    return pair[0], pair[1]


def _place(checkpoint: str) -> str:
    """A directory may be given as a URL too."""
    return local_path("checkpoint", checkpoint) if checkpoint.startswith("file://") else checkpoint


_CHECKS: dict[str, Check] = {
    field: hint.__metadata__[0]
    for field, hint in get_type_hints(Options, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
"""The check of each field that has one."""
