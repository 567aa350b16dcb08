"""What a snapshot holds of a memory sink whose commits are late."""

from __future__ import annotations

import penstock as ps
from penstock.control.recovery import everything
from penstock.engine.share import Share
from penstock.engine.snapshot import Persist
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m


class Alone:
    """The only worker of a plan, run by hand; keeps what it stores and says."""

    def __init__(self, plan: Plan, incarnation: int, generation: int = 0, restore: m.Restore | None = None) -> None:
        self.now_us = 1_000_000
        self.worker = Share(plan, 0, incarnation, lambda: self.now_us * 1000)
        self.disk: dict[str, Persist] = {}
        self.said: list[m.FromWorker] = []
        self._message = m.Start(
            peers=[m.Peer(worker=0, incarnation=incarnation, endpoint="")],
            start_us=0,
            generation=generation,
            restore=restore,
            careful=False,
        )

    def start(self, snapshots: dict[tuple[int, int], list[bytes]]) -> None:
        self.worker.start(self._message, snapshots)
        self.said += self.worker.to_driver()

    def run(self) -> None:
        worked = True
        while worked:
            self.now_us += 1000
            wake_us = self.worker.wake_us(self.now_us)
            worked = self.worker.step(self.now_us) or (wake_us is not None and wake_us <= self.now_us + 1000)
            for persist in self.worker.to_store():
                worked = True
                self.disk[persist.name] = persist
                p = persist
                self.worker.on_stored(
                    m.Stored(unit=p.unit, instance=p.instance, epoch=p.epoch, depth=p.depth, name=p.name, crc=0)
                )
            said = self.worker.to_driver()
            worked = worked or bool(said)
            self.said += said

    def delivered(self) -> list[tuple[int, int, bytes]]:
        return [(d.epoch, d.part, d.rows) for d in self.said if isinstance(d, m.Deliver)]


def test_the_end_before_the_word_of_the_last_commit_loses_nothing() -> None:
    """Epoch 1 is committed, but the worker ends, and dies, before it hears so: the final commit has both."""
    rows = [{"n": i} for i in range(200)]
    plan = Plan.of(
        ps.stream("in", ps.records(rows, schema="n bigint")).to(ps.memory()).graph(), Options.of(parallelism=1)
    )
    first = Alone(plan, 1)
    first.start({})
    first.worker.step(first.now_us)  # reads the first block only
    first.worker.on_driver(m.BeginEpoch(epoch=1))
    first.run()
    (finished,) = [each for each in first.said if isinstance(each, m.Finished)]
    assert [stored.epoch for stored in finished.stored] == [1, 2]
    first.worker.on_driver(m.Commit(epoch=1, final=False))
    first.run()
    first.worker.on_driver(m.Commit(epoch=2, final=True))
    first.run()

    restore = m.Restore(epoch=2, instances=sorted(everything(plan)), snapshots=finished.stored[-1:], renumber=False)
    second = Alone(plan, 2, 1, restore)
    second.start({(0, 0): [first.disk[finished.stored[-1].name].data]})
    assert [(epoch, part) for epoch, part, _ in first.delivered()] == [(1, 0), (2, 0)]
    assert second.delivered() == first.delivered(), "named alike, so that the driver takes each part once"
