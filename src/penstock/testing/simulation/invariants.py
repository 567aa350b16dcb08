"""What must hold of a worker's logs and channels after every step it takes, whatever went wrong before."""

from __future__ import annotations

from penstock.dataset import Log
from penstock.engine.edges import READER
from penstock.engine.worker import Worker
from penstock.pipeline.plan import Plan
from penstock.testing.simulation.world import Violation


class Audit:
    """Looks at one worker again and again; a block is looked at once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._window = max(1, plan.options.queue_records // 2)
        self._seen: dict[Log, tuple[int, int]] = {}
        """By log: how many blocks were looked at, and the next id after them."""

    def check(self, worker: Worker, committed_epoch: int) -> None:
        """Raise Violation if something cannot be, now that ``committed_epoch`` is on record."""
        for output in worker._outputs.values():
            for log in output.logs:
                self._check_log(log)
        for channel, receiver in worker._receivers.items():
            largest = max((block.count for block in receiver._queue), default=0)
            if receiver.queued_records > max(self._window, largest):
                raise Violation(f"{channel}: {receiver.queued_records} records wait, the window is {self._window}")
        for each in worker.units:
            # The next epoch's marker may have passed, and the end after it.
            if each.done_epoch > committed_epoch + 2:
                raise Violation(f"{each.spec.name} is at epoch {each.done_epoch}, {committed_epoch} is committed")
            for i, source in enumerate(getattr(each, "inputs", ())):
                if source.disordered_blocks:
                    raise Violation(f"input {i} of {each.spec.name}.{each.instance} took a block out of order")

    def _check_log(self, log: Log) -> None:
        blocks, base = log._blocks, log._base
        end = base + len(blocks)
        seen, next_id = self._seen.get(log, (base, blocks[0].first if blocks else log.next_id))
        for block in blocks[max(seen - base, 0) :]:
            if block.first != next_id or block.last < block.first:
                raise Violation(f"log {log.name}: block {block.first}..{block.last} follows {next_id - 1}")
            next_id = block.last + 1
        if end < seen or next_id != log.next_id:
            raise Violation(f"log {log.name} ends at {next_id}, and says {log.next_id}")
        self._seen[log] = end, next_id
        cursor = log._cursors[READER]
        if not base <= cursor.consumed <= cursor.next <= end:
            raise Violation(f"log {log.name}: cursor {cursor} is not within {base}..{end}")
