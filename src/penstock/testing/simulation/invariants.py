"""What must hold of a worker's logs and channels after every step it takes, whatever went wrong before."""

from __future__ import annotations

from penstock.control.driver import DriverMachine
from penstock.control.scheduler import Phase
from penstock.dataset import Log, LogView
from penstock.engine.inspect import WorkerView
from penstock.pipeline.plan import Plan
from penstock.testing.simulation.world import Violation


class Audit:
    """Looks at one worker again and again; a block is looked at once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._window = max(1, plan.options.queue_records // 2)
        self._window_bytes = max(1, plan.options.queue_bytes // 2)
        self._seen: dict[Log, tuple[int, int]] = {}
        """By log: how many blocks were looked at, and the next id after them."""

    def check(self, worker: WorkerView, committed_epoch: int) -> None:
        """Raise Violation if something cannot be, now that ``committed_epoch`` is on record."""
        for channel, receiver in worker.receivers.items():
            if receiver.queued_records > max(self._window, receiver.largest):
                raise Violation(f"{channel}: {receiver.queued_records} records wait, the window is {self._window}")
            # A block is let in by what it is estimated to weigh, and counts by what it does.
            if receiver.queued_bytes > self._window_bytes + receiver.largest_bytes:
                raise Violation(f"{channel}: {receiver.queued_bytes} bytes wait, the window is {self._window_bytes}")
        for unit in worker.units:
            for log in unit.logs:
                self._check_log(log)
            # The next epoch's marker may have passed, and the end after it.
            if unit.done_epoch > committed_epoch + 2:
                raise Violation(f"{unit.name} is at epoch {unit.done_epoch}, {committed_epoch} is committed")
            for i, each in enumerate(unit.inputs):
                if each.disordered_blocks:
                    raise Violation(f"input {i} of {unit.name}.{unit.key[1]} took a block out of order")

    def _check_log(self, view: LogView) -> None:
        blocks, base = view.blocks, view.base
        end = base + len(blocks)
        seen, next_id = self._seen.get(view.log, (base, blocks[0].first if blocks else view.next_id))
        for block in blocks[max(seen - base, 0) :]:
            if block.first != next_id or block.last < block.first:
                raise Violation(f"log {view.log.name}: block {block.first}..{block.last} follows {next_id - 1}")
            next_id = block.last + 1
        if end < seen or next_id != view.next_id:
            raise Violation(f"log {view.log.name} ends at {next_id}, and says {view.next_id}")
        self._seen[view.log] = end, next_id
        for consumed, following in view.cursors:
            if not base <= consumed <= following <= end:
                raise Violation(f"log {view.log.name}: cursor {consumed}, {following} is not within {base}..{end}")


class StaffingAudit:
    """Looks at what a job that chooses its workers wants: within its bounds, and not to and fro."""

    FEW_US = 700_000
    """So long it may have fewer than the least."""
    HOLD_US = 900_000
    """So long it must keep what it has given itself: ten looks, of which the first may be just over."""

    def __init__(self) -> None:
        self._few_us: int | None = None

    def check(self, machine: DriverMachine, now_us: int) -> None:
        """Raise Violation if something cannot be."""
        scheduler, options = machine.scheduler, machine.staffing.plan.options
        wanted = len(scheduler.rescaling.wanted)
        if wanted > options.workers_most:
            raise Violation(f"{wanted} workers are wanted, {options.workers_most} are the most")
        if wanted >= options.workers or scheduler.phase is not Phase.RUNNING or scheduler.recovering:
            self._few_us = None
        elif self._few_us is None:
            self._few_us = now_us
        elif now_us - self._few_us > self.FEW_US:
            raise Violation(f"{wanted} workers are wanted, {options.workers} are the least")
        last = machine.staffing.decisions[-2:]
        if len(last) == 2 and all(each.inputs for each in last):
            (before, after), held_us = last, (last[1].at_s - last[0].at_s) * 1e6
            if before.workers > before.before and after.workers < after.before and held_us < self.HOLD_US:
                raise Violation(f"{before.workers} workers were wanted, and {after.workers} after {held_us} us")
