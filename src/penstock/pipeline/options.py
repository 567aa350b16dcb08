"""Options of a job, checked before anything starts; the planner, the engine and the driver read them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from penstock.durations import parse_us
from penstock.errors import InvalidOption
from penstock.operators.keys import KEY_GROUPS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MASTER = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|spark://\S+|yarn|k8s://\S+")


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
        slots = re.fullmatch(r"local\[(\d+)(,\d+)?\]", master or "")
        if slots and int(slots[1]) < parallelism:
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
        return Options(
            name=name,
            parallelism=parallelism,
            master=master or "local",
            epoch_us=epoch_us,
            idle_us=parse_us(idle, option="idle"),
            queue_records=queue_records,
            checkpoint=os.fspath(checkpoint) if checkpoint is not None else "",
            durable=checkpoint is not None,
        )
