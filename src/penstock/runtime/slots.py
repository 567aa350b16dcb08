"""The shell around a slot: runs inside a task of a group's Spark job, moves messages between sockets and the `Slot`.

Spark uses a Python process for one task after another. What is dear to make is kept in it between groups: the plan, the
operations, the sockets.
"""

from __future__ import annotations

import os
import signal
from time import thread_time_ns

import msgspec

from penstock.engine.slot import Identity, Slices, SlotMachine
from penstock.operators.errors import describe_error
from penstock.runtime.clock import adopt, now_ns, now_us
from penstock.runtime.host import Assignment, open_plan, own_place, warm_arrow_up
from penstock.runtime.queries import offer_service
from penstock.runtime.tables import offer_tables
from penstock.runtime.transport import Node

IDLE_WAIT_US = 30_000_000


class GroupTask(msgspec.Struct, frozen=True):
    """What the tasks of a group are told through Spark."""

    group: int
    micro_batches: int
    assignment: Assignment


class _Kept:
    """What a process keeps of a job between two groups."""

    def __init__(self, packed: bytes, task: GroupTask) -> None:
        warm_arrow_up()
        self.plan = open_plan(packed)
        self.slices: Slices = {}
        assignment = task.assignment
        adopt(assignment.clock)
        self.node = Node(assignment.keys, own_place(assignment))
        self.node.connect(assignment.driver)
        offer_service(assignment.queries, self.plan)
        offer_tables(assignment.tables)

    def close(self) -> None:
        for each in self.slices.values():
            each.close()
        self.node.close(linger_ms=0)


_kept: dict[bytes, _Kept] = {}
"""By the job's key; one at the most."""


def run_slot(packed: bytes, slot: int, task: GroupTask) -> str | None:
    """Host one slot until its group is done; called in a Spark task.

    Returns
    -------
    str or None
        Why it could not begin. A task that fails instead would be started again by Spark, with the same end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    key = task.assignment.keys.public
    if key not in _kept:
        for other in list(_kept):
            _kept.pop(other).close()
        try:
            _kept[key] = _Kept(packed, task)
        except (Exception, SystemExit) as error:
            return f"a slot cannot open the pipeline: {describe_error(error)}"
    _serve(_kept[key], slot, task)
    return None


def _serve(kept: _Kept, slot: int, task: GroupTask) -> None:
    node = kept.node
    incarnation = int.from_bytes(os.urandom(6), "big")
    identity = Identity(task.group, slot, incarnation, node.endpoint, os.getpid())
    driver = task.assignment.driver
    machine = SlotMachine(kept.plan, identity, task.micro_batches, kept.slices, now_ns, driver, thread_time_ns)
    while True:
        arrived = node.receive()
        now = now_us()
        for frames in arrived:
            machine.receive(frames, now)
        worked = machine.step(now)
        for connect in machine.connects():
            # A process that runs one group after another stays connected to the workers.
            if connect.former is not None:
                node.disconnect(connect.former)
            node.connect(connect.endpoint)
        for endpoint, kind, outgoing in machine.sends(now):
            node.send(endpoint, kind, outgoing)
        if machine.ended:
            return
        if not worked and not arrived:
            node.wait(min(IDLE_WAIT_US, machine.wake_us() - now))
