"""Figures of a run: over all that is lost and restored in it, and without what the runs before it have counted."""

from __future__ import annotations

import msgspec

import penstock as ps
from penstock.control.monitor import Monitor
from penstock.metrics import OpStats
from penstock.metrics.message import StatsMessage
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m

SOURCE = ps.generator({"n": ps.fields.sequence()}, rate=10, format="columns")
PLAN = Plan.of(ps.stream("in", SOURCE).to(ps.memory(), name="out").graph(), Options.of(parallelism=1))


def stats(records: int, *latencies_us: int, operation: str = "out", built: int = 0) -> StatsMessage:
    made = OpStats(operation, "record")
    made.records_in = made.records_out = records
    for each in latencies_us:
        made.latency_us.record(each)
        made.left_us += each
    made.blocks = len(latencies_us)
    made.late_records = records // 100
    told = made.message(0, 0)
    return msgspec.structs.replace(told, built=built)


def beat(
    monitor: Monitor, at_s: float, *told: StatsMessage, incarnation: int = 1, cpu_s: float = 0.0, worker: int = 0
) -> None:
    monitor.on_heartbeat(
        m.Heartbeat(
            worker=worker,
            incarnation=incarnation + 10 * worker,
            at_us=int(at_s * 1e6),
            stats=list(told),
            rss_bytes=0,
            cpu_us=int(cpu_s * 1e6),
            edges=[],
            offsets={},
        )
    )


def test_latencies_of_a_run_cover_all_lives_of_an_instance() -> None:
    monitor = Monitor(PLAN)
    beat(monitor, 1, stats(900, *[10_000] * 900))
    beat(monitor, 2, stats(500, *[1_000_000] * 50, built=1))  # rolled back where it was
    assert monitor.latency("out").total == 950
    beat(monitor, 3, stats(700, *[1_000_000] * 60, built=1))
    beat(monitor, 4, stats(600, *[20_000] * 40, built=2), incarnation=2)  # in another process
    found = monitor.latency("out")
    assert found.total == 900 + 60 + 40
    assert found.quantile(0.5) < 10_500, "the median is that of the run, not of the time since the last recovery"
    assert found.maximum == 1_000_000
    (figures,) = [each for each in monitor.operations() if each.name == "out"]
    assert figures.records_in == 600, "records are counted once: a snapshot holds how many there were"
    assert figures.total_p50_ms < 10.5
    (measured,) = [each for each in monitor.measured() if each.name == "out"]
    assert measured.latency_us == (60 * 1_000_000 + 40 * 20_000) / 100


def test_the_warm_up_is_cut_whatever_is_lost_later() -> None:
    monitor = Monitor(PLAN)
    beat(monitor, 1, stats(100, *[900_000] * 100))
    monitor.begin_measuring()
    beat(monitor, 2, stats(80, *[10_000] * 5, built=1))
    assert monitor.latency("out").counts.keys() == stats(1, 10_000).latency_counts.keys()
    assert monitor.latency("out").total == 5


def test_a_move_of_an_instance_is_no_burst() -> None:
    monitor = Monitor(PLAN)
    seen = []

    def tell(worker: int, at_s: float, *told: StatsMessage) -> None:
        beat(monitor, at_s, *told, worker=worker)
        (figures,) = [each for each in monitor.operations() if each.name == "out"]
        seen.append((figures.in_eps, figures.instances))

    tell(0, 1.0, stats(10_000))
    tell(1, 1.1)
    tell(0, 2.0, stats(10_100))
    tell(1, 2.1, stats(10_110, built=1))  # it has moved, and its old worker has not been heard of since
    tell(0, 3.0)
    tell(0, 4.0)  # what it said before is without the instance as well
    tell(1, 3.1, stats(10_210, built=1))
    assert max(eps for eps, _ in seen) <= 100.0, seen
    assert {instances for _, instances in seen} == {1}
    (measured,) = [each for each in monitor.measured() if each.name == "out"]
    assert (measured.records_in, monitor.events_in()) == (10_210, 0)


def test_a_worker_has_used_what_all_of_its_processes_have() -> None:
    monitor = Monitor(PLAN)
    beat(monitor, 0, cpu_s=1.0)
    beat(monitor, 10, cpu_s=6.0)
    beat(monitor, 11, cpu_s=0.5, incarnation=2)
    beat(monitor, 20, cpu_s=5.0, incarnation=2)
    (worker,) = monitor.workers({})
    assert (worker.cpu_s, worker.cpu_cores) == (11.0, 0.5)


def test_a_run_that_goes_on_counts_from_zero_and_knows_what_was_before() -> None:
    monitor = Monitor(PLAN, resumed=True)
    beat(monitor, 1, stats(5_000, operation="in"))
    assert monitor.events_in() == 0, "what it begins with is not known yet"
    monitor.begin_after(0, [stats(5_000, operation="in"), stats(4_000)])
    beat(monitor, 2, stats(5_000, operation="in"), stats(4_000))
    assert (monitor.events_in(), monitor.before({"in"}), monitor.before({"out"})) == (0, 5_000, 4_000)
    beat(monitor, 3, stats(5_250, operation="in"), stats(4_300, *[10] * 300))
    beat(monitor, 4, stats(5_200, operation="in", built=3), stats(4_200, *[10] * 10, built=3))
    assert monitor.events_in() == 200
    (figures,) = [each for each in monitor.operations() if each.name == "out"]
    assert (figures.records_in, figures.late) == (200, 2)
    assert monitor.latency("out").total == 310
