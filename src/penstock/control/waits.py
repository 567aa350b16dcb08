"""What a job waits for, in words: the status and the live view show it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.control.presence import Absence
from penstock.errors import SparkFailed

QUIET_US = 5_000_000
"""A worker, or an epoch, that is not heard of for longer is told as one that is waited for."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """A job's scheduler at one moment, as far as it waits for something.

    Attributes
    ----------
    workers : int
        Workers of the job; each needs a core.
    missing : collection of int
        Workers that have not come up since the job was started.
    absent : list of Absence
        Workers that have said nothing for `QUIET_US`.
    restoring : collection of int
        Workers that have not confirmed the present recovery.
    epoch, epoch_us, unreported : int, int, collection of int
        The epoch under way, how long ago it was begun, and the workers that have not reported it.
    cores, cores_most : int or None, int
        Tasks that can run side by side in the cluster, now and at the most until now; None where nobody has looked.
    joining : collection of int
        Workers that were ordered because the job is to have more of them, and have not come up.
    """

    workers: int
    missing: Collection[int]
    absent: list[Absence]
    restoring: Collection[int]
    epoch: int
    epoch_us: int
    unreported: Collection[int]
    cores: int | None
    cores_most: int
    joining: Collection[int] = ()

    def lines(self) -> list[str]:
        """One line for each thing that is waited for."""
        lines = [_absence(each) for each in self.absent]
        if self.missing:
            lines.insert(0, f"{_named(self.missing)} of {self.workers} to start")
        away = {each.worker for each in self.absent}
        if restoring := set(self.restoring) - away:
            lines.append(f"{_named(restoring)} to restore state")
        if self.epoch_us > QUIET_US and (unreported := set(self.unreported) - away):
            lines.append(f"{_named(unreported)} to report epoch {self.epoch}, for {self.epoch_us // 1_000_000} s")
        if self.joining:
            lines.append(f"{_named(self.joining)} to join")
        if self.cores is None:
            return lines
        lost = self.cores_most - self.cores
        if self.cores < self.workers + len(self.joining):
            told = f"cores: {self.workers + len(self.joining)} are needed, the cluster offers {self.cores}"
            lines.append(f"{told}, {lost} were lost" if lost else told)
        elif lost:
            lines.append(f"cores: {lost} of {self.cores_most} were lost; the workers have theirs, slots may not")
        return lines


def too_few(workers: int, came: int, waited_us: int, cores: int | None) -> SparkFailed:
    """The error of a job whose workers do not all start."""
    what = f"{workers - came} of {workers} workers did not start, and none has for {waited_us // 1_000_000} s"
    offer = "" if cores is None else f": the cluster offers {cores} cores, {workers} are needed"
    return SparkFailed(
        f"{what}{offer}.",
        hint="Every worker needs a core of the cluster for itself; lower the parallelism, or free or add cores.",
    )


def _named(workers: Collection[int]) -> str:
    return f"worker{'s' if len(workers) > 1 else ''} {', '.join(map(str, sorted(workers)))}"


def _absence(each: Absence) -> str:
    silent = f"worker {each.worker}, silent for {each.silent_us // 1_000_000} s"
    if each.ordered_us is None:
        return silent
    return f"{silent}; another process was ordered {each.ordered_us // 1_000_000} s ago"
