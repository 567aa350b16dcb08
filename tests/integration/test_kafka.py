"""From topic to topic on real Spark: workers killed, the broker restarted, the job ended and resumed; exact output."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

import penstock as ps
from penstock.connectors.kafka.access import Access, Troubles
from penstock.runtime.job import Job
from services.kafka import Pair

pytestmark = pytest.mark.spark

Eventually = Callable[[Callable[[], object]], None]


class Course:
    """A job that numbers go through, while somebody goes on writing them."""

    def __init__(self, server: Any, checkpoint: Path) -> None:
        self.server = server
        self.source, self.target = server.topic("in", 4), server.topic("out", 4)
        self._checkpoint = checkpoint
        self.written = 0

    def start(self, epoch: str = "100ms") -> Job:
        place = ps.kafka(self.server.servers, self.source, columns=("value",), group=f"g-{self.source}")
        stream = ps.stream("in", place).parse_json("k string, n bigint").key_by("k").filter(ps.col("n") >= 0)
        pipeline = stream.to(ps.kafka(self.server.servers, self.target, key="k"))
        return ps.start(pipeline, parallelism=2, name="course", epoch=epoch, checkpoint=self._checkpoint)

    def write(self, count: int) -> None:
        """Write the next numbers; those of a key go to one partition."""
        numbers = range(self.written, self.written + count)
        self.server.fill(self.source, [(n % 4, f"k{n % 20}", {"k": f"k{n % 20}", "n": n}) for n in numbers])
        self.written += count

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Go on writing meanwhile."""
        ended = threading.Event()

        def write() -> None:
            while not ended.wait(0.05):  # a rate, so that reading all of it stays quick
                self.write(50)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def read(self) -> dict[str, list[int]]:
        """What readers of committed records find, by key."""
        found = defaultdict(list)
        for each in self.server.read(self.target):
            found[each.key().decode()].append(json.loads(each.value())["n"])
        return found

    @property
    def arrived(self) -> int:
        return sum(map(len, self.read().values()))

    def assert_exact(self) -> None:
        """Every number once, and those of a key in their order."""
        assert self.read() == {f"k{k}": list(range(k, self.written, 20)) for k in range(20)}


def kill(job: Job, random: Random, eventually: Eventually) -> None:
    """Kill a worker, and wait until its successor is at work."""
    pids = {worker.worker: worker.pid for worker in job.status().workers}
    lost = random.choice(sorted(pids))
    os.kill(pids[lost], signal.SIGKILL)
    recoveries = job.status().recoveries
    eventually(lambda: {w.worker: w.pid for w in job.status().workers}.get(lost) not in (None, pids[lost]))
    eventually(lambda: job.status().recoveries > recoveries or job.status().resumed_us)


def test_kills_a_restart_of_the_broker_and_a_second_run_leave_the_output_exact(
    tmp_path: Path, eventually: Eventually, kafka_server: Any
) -> None:
    course, random = Course(kafka_server, tmp_path / "checkpoint"), Random(12)
    course.write(2_000)
    with course.start() as job:
        eventually(lambda: course.arrived > 0)
        for _ in range(2):
            course.write(2_000)
            kill(job, random, eventually)
        eventually(lambda: course.arrived == course.written)
        kafka_server.stop()
        kafka_server.start()
        course.write(1_000)
        eventually(lambda: course.arrived == course.written)
        course.assert_exact()
        job.drain()
        job.wait()
    course.write(1_000)
    with course.start() as job:
        eventually(lambda: course.arrived == course.written)
        job.drain()
        job.wait()
    course.assert_exact()
    assert sum(kafka_server.committed(f"g-{course.source}", course.source).values()) == course.written


def test_a_node_that_is_gone_is_not_connected_to_all_the_time(eventually: Eventually, kafka_server: Any) -> None:
    """Clients that did so took the processor from those who would elect another leader."""
    with closing(Pair()) as pair:
        topic = pair.topic("t", 2)
        eventually(lambda: set(pair.leaders(topic)) == {1, 2})
        admin = Access.of(pair.servers, None).admin(Troubles())
        wanted = {TopicPartition(topic, each): OffsetSpec.latest() for each in range(2)}

        def is_answered() -> bool:
            asked = admin.list_offsets(wanted, request_timeout=5).values()
            return all(each.exception() is None for each in asked)

        eventually(is_answered)
        pair.second.stop()
        before_s = time.process_time()
        eventually(is_answered)  # by the one that leads then, two seconds later
        assert time.process_time() - before_s < 0.5  # a try costs 50 µs of this process's time


def test_other_leaders_under_load_leave_the_output_exact(
    tmp_path: Path, eventually: Eventually, kafka_server: Any
) -> None:
    """A node is lost by SIGKILL, comes back, and leads again what it has led: topics, tokens and coordinators."""
    with closing(Pair()) as pair:
        course = Course(pair, tmp_path / "checkpoint")
        topics = [course.source, course.target]
        with course.start() as job:

            def visible() -> int:
                assert job.wait("1ms") is None  # says why, if the job has failed
                return pair.visible(course.target)

            with course.writing():
                eventually(visible)
                topics += ["penstock-epochs", "__transaction_state"]
                before = {each: pair.leaders(each) for each in topics}
                assert all({1, 2} == set(before[each]) for each in topics[:3])
                pair.second.stop()
                eventually(lambda: all(set(pair.leaders(each)) == {1} for each in topics))
                seen = visible()
                eventually(lambda: visible() > seen + 8)
                pair.second.start()
                eventually(lambda: all(pair.in_sync(each) == {1, 2} for each in topics))
                pair.lead_as_preferred()
                eventually(lambda: {each: pair.leaders(each) for each in topics} == before)
                again = visible()
                eventually(lambda: visible() > again + 8)
            eventually(lambda: course.arrived == course.written)
            job.drain()
            report = job.wait()
        course.assert_exact()
        assert report is not None
        assert report.recoveries == 0
