"""Lines of the driver's glue that no seed misses: each is deleted, and a test of the machine objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import test_driver as tests

import penstock as ps
from deleting import without
from penstock.control.driver import DriverMachine
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

S = 1_000_000


def test_a_worker_that_has_left_is_history() -> None:
    keys = {"k": ps.fields.choice(["a", "b", "c", "d"])}
    counts = ps.stream("in", ps.generator(keys, rate=1_000, format="columns")).key_by("k").count(emit="every")
    plan = Plan.of(counts.to(ps.memory()).graph(), Options.of(parallelism=2, epoch="50ms", forms="record"))
    cluster = Cluster(plan)
    machine = cluster._driver
    cluster.run_until(cluster.start_us + 2 * S)
    cluster.scale(1)
    cluster.run_until(cluster.now_us + S)
    (left,) = machine.scheduler.members
    assert set(machine.pids) == {left}
    assert [each.worker for each in machine.monitor.workers({})] == [left]
    assert set(machine.scheduler.rescaling.loads._now) == {left}
    assert all(set(told) <= {left} for told in machine._hot._told.values())
    cluster.close()


def test_a_job_ends_when_nobody_wants_more() -> None:
    source = ps.generator({"n": ps.fields.sequence()}, rate=200, format="columns")
    plan = Plan.of(ps.stream("in", source).limit(10).to(ps.memory()).graph(), Options.of(parallelism=1, epoch="50ms"))
    cluster = Cluster(plan)
    cluster.run_until(cluster.start_us + 2 * S)
    assert cluster.ended


TELL_STOP = "self._tell(self._workers.get(incarnation), m.Stop())"
TELL_END = "self._tell(far, s.End(at_once=True))"
AT_PLACES = "self._obey(self.loop.on_replaced(now_us, cores))  # a worker may have been lost with its core"

DELETED: list[tuple[str, str, Callable[[], None]]] = [
    ("_on_worker", "return  # a newer one has overtaken it", tests.test_figures_that_were_overtaken_are_left_alone),
    ("_on_worker", "self.monitor.on_heartbeat(message)", tests.test_what_a_worker_begins_with_reaches_the_monitor),
    ("_on_worker", "self._limits.on_figures(message.stats)", test_a_job_ends_when_nobody_wants_more),
    (
        "_on_worker",
        "self.monitor.begin_after(worker, before)",
        tests.test_what_a_worker_begins_with_reaches_the_monitor,
    ),
    ("_on_register", "self._part_from(former)", tests.test_a_replaced_worker_is_told_to_stop_and_not_listened_to),
    (
        "_on_register",
        "self.pids[message.worker] = message.pid",
        tests.test_a_process_that_nobody_needs_is_told_to_stop_and_changes_nothing,
    ),
    (
        "_part_from",
        "self._tell(self._workers.get(peer.incarnation), m.Stop())",
        tests.test_a_replaced_worker_is_told_to_stop_and_not_listened_to,
    ),
    ("_schedule", TELL_STOP, tests.test_a_process_that_nobody_needs_is_told_to_stop_and_changes_nothing),
    ("_schedule", "self.pids.pop(worker, None)", test_a_worker_that_has_left_is_history),
    ("_schedule", "self.monitor.retire(worker)", test_a_worker_that_has_left_is_history),
    ("_schedule", "self.scheduler.rescaling.loads.forget(worker)", test_a_worker_that_has_left_is_history),
    ("_schedule", "self._hot.forget(worker)", test_a_worker_that_has_left_is_history),
    ("handle", AT_PLACES, tests.test_slots_give_their_cores_up_when_some_are_lost),
    ("handle", "self._cores = self.loop.places = cores", tests.test_slots_give_their_cores_up_when_some_are_lost),
    ("tick", 'self.handle(DrainRequested(by="limit"), now_us)', test_a_job_ends_when_nobody_wants_more),
    ("_on_slot", TELL_END, tests.test_whoever_comes_after_the_end_is_told_to_stop),
    ("_finish", TELL_END, tests.test_slots_hear_of_the_end),
    (
        "_finish",
        "self._chores.append(FinishSinks())",
        tests.test_sinks_finish_where_the_job_has_ended_well_and_nowhere_else,
    ),
]


@cache
def is_sound(objects: Callable[[], None]) -> bool:
    """Whether nothing is objected to where nothing is deleted."""
    objects()
    return True


@pytest.mark.parametrize(
    ("method", "line", "objects"), DELETED, ids=[f"{method}: {line}" for method, line, _ in DELETED]
)
def test_some_test_objects(
    method: str, line: str, objects: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_sound(objects)
    without(monkeypatch, DriverMachine, method, line)
    with pytest.raises((AssertionError, StopIteration, ps.PenstockError)):
        objects()
