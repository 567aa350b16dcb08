"""Kills under exactly-once output: ``python benchmarks/kafka_kills.py [KILLS] [--seed=SEED]``.

A running count goes from topic to topic, with an epoch of 100 ms and a checkpoint, while somebody goes on writing. A
random worker is killed by SIGKILL every one to three seconds, the job goes over to other numbers of workers in between,
and now and then the driver is killed, alone or with all of its processes, and the job resumed. A reader of committed
records, outside of all that, compares every result: each once, and those of a key in their order. The findings are
printed, and written to ``results/kafka-kills.json``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import IO, Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

import penstock as ps
from penstock.demo.chaos import Campaign, Killer, Times
from penstock.errors import PenstockError
from penstock.testing.kafka_broker import KafkaBroker
from penstock_bench.meter.rows import Check, ResultRow, Results, make_header

KILLS = 50
RATE = 1_000
KEYS = 200
PARTITIONS = 4
PARALLELISM = 4
EPOCH = "100ms"
KILL_S = (1.0, 3.0)
RESCALES = 0.5
"""For each kill of a worker."""
KILLS_OF_DRIVER = 0.2
"""So many for each kill of a worker, at least two: the driver alone and with all processes of the job, in turn."""
UP_S_MAX = 120.0
REST_S_MAX = 120.0
"""How long nothing may come out before what is missing is taken for lost."""
OUT = Path(__file__).parent / "results" / "kafka-kills.json"


# --- the job, in a process of its own ---------------------------------------------------------------------------------


def drive(servers: str, source: str, target: str, checkpoint: str, seed: str) -> None:
    """Run the job, and do to it what is asked for, line by line; print what has come of it when it has changed."""
    events = ps.stream("in", ps.kafka(servers, source, columns=("value",))).parse_json("k string, n bigint")
    counts = events.key_by("k").count(emit="every")
    pipeline = counts.to(ps.kafka(servers, target, key="k"))
    options: dict[str, Any] = {"parallelism": PARALLELISM, "workers": 2, "epoch": EPOCH, "checkpoint": checkpoint}
    campaign, asked, told = Campaign(int(seed), 1), SimpleQueue[dict[str, Any]](), ""
    killer = Killer(campaign)
    threading.Thread(target=_hear, args=(asked,), daemon=True).start()
    with ps.start(pipeline, name="kafka-kills", **options) as job:
        while job.wait("50ms") is None:
            status = job.status()
            campaign.observe(status)
            try:
                match asked.get_nowait():
                    case {"kill": _}:
                        killer.strike(job)
                    case {"workers": workers}:
                        job.scale(workers)
                    case _:
                        job.drain()
            except Empty:
                pass
            except PenstockError as error:  # it is starting, or changes already
                sys.stderr.write(f"{error}\n")
            resumed = [each.resumed_s for each in campaign.kills]
            now = json.dumps({"up": status.phase == "running", "resumed_s": resumed, "moves": len(job.moves())})
            if now != told:
                told = now
                sys.stdout.write(f"{now}\n")
                sys.stdout.flush()


def _hear(asked: SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        asked.put(json.loads(line))


class Driver:
    """The process of the job, and what it has told."""

    def __init__(self, arguments: list[str], directory: Path) -> None:
        self.up, self.moves = False, 0
        self.resumed_s: list[float | None] = []
        self._log = directory / "log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--drive", *arguments],
                env={**os.environ, "PENSTOCK_STATE": str(directory / "state")},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        threading.Thread(target=self._hear, args=(self.process.stdout,), daemon=True).start()

    def _hear(self, lines: IO[str]) -> None:
        for line in lines:
            if line.startswith('{"up"'):  # others are Spark's
                told = json.loads(line)
                self.up = self.up or told["up"]
                self.resumed_s, self.moves = told["resumed_s"], told["moves"]

    def ask(self, **what: Any) -> None:
        """Have something done to the job."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def check(self) -> None:
        """Raise if it has ended."""
        if self.process.poll() is not None:
            raise SystemExit(f"the job has ended: {self._log.read_text()[-3_000:]}")

    def kill(self, *, alone: bool) -> None:
        """End the driver at once; where not alone, its workers and Spark's processes too."""
        if alone:
            self.process.kill()
        else:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


# --- what goes in, and what comes out ---------------------------------------------------------------------------------


class Feeder:
    """Writes numbers at a fixed rate; those of a key go to one partition."""

    def __init__(self, servers: str, topic: str) -> None:
        self.written = 0
        self._topic = topic
        settings = {"enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": servers, **settings})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(0.02):
            due = int((time.monotonic() - began) * RATE)
            for n in range(self.written, due):
                key = n % KEYS
                value = json.dumps({"k": f"k{key}", "n": n})
                self._producer.produce(self._topic, value, f"k{key}", key % PARTITIONS)
            self.written = due
            self._producer.poll(0)

    def end(self) -> int:
        """Write no more; return how many were."""
        self._ended.set()
        self._thread.join()
        left = self._producer.flush(UP_S_MAX)
        assert not left, f"{left} records could not be written"
        return self.written


class Reader:
    """Reads committed records from the beginning on."""

    def __init__(self, servers: str, topic: str) -> None:
        settings = {"group.id": "outside", "isolation.level": "read_committed", "enable.partition.eof": True}
        self._consumer = Consumer({"bootstrap.servers": servers, "log_level": 0, **settings})
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        self.ended: set[int | None] = set()

    def take(self, wait_s: float) -> Iterator[Message]:
        """Return what has come after so long."""
        for message in self._consumer.consume(5_000, wait_s):
            error = message.error()
            if error is None:
                self.ended.discard(message.partition())
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                self.ended.add(message.partition())
            elif not error.retriable():
                raise KafkaException(error)

    def close(self) -> None:
        """End it."""
        self._consumer.close()


@dataclass
class Verdict:
    """What a topic has of the results there should be."""

    results: int
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    wrong: int = 0
    """Results that no input explains."""

    @staticmethod
    def of(found: Mapping[str, Sequence[int]], written: int) -> Verdict:
        """Compare what was found of each key, in its order, with what there should be: the n-th number counts n."""
        verdict = Verdict(sum(map(len, found.values())))
        for key in {*found, *(f"k{each}" for each in range(KEYS))}:
            numbers = range(int(key[1:]), written, KEYS) if key[1:].isdigit() and int(key[1:]) < KEYS else ()
            expected, counts = set(range(1, len(numbers) + 1)), found.get(key, ())
            firsts = list(dict.fromkeys(counts))
            verdict.lost += len(expected.difference(firsts))
            verdict.wrong += len(set(firsts) - expected)
            verdict.doubled += len(counts) - len(firsts)
            verdict.reordered += sum(a > b for a, b in pairwise(firsts))
        return verdict


def read(servers: str, topic: str) -> dict[str, list[int]]:
    """Read all of a topic: what was counted of each key."""
    reader, found = Reader(servers, topic), defaultdict[str, list[int]](list)
    while len(reader.ended) < PARTITIONS:
        for message in reader.take(0.5):
            row = json.loads(message.value() or b"")
            found[row["k"]].append(row["count"])
    reader.close()
    return found


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass
class Deeds:
    """What was done, and what the jobs have told of it."""

    resumed_s: list[float | None] = field(default_factory=list)
    """For each worker that was killed, until an epoch was committed after its recovery; None: the driver was killed."""
    rescales: int = 0
    moves: int = 0
    drivers: int = 0
    """Kills of the driver alone."""
    whole: int = 0
    """Kills of the driver with all processes of the job."""

    def take(self, driver: Driver) -> None:
        """Take over what a driver has told."""
        self.resumed_s += driver.resumed_s
        self.moves += driver.moves


class Run:
    """Kills and rescales, and watches what comes out."""

    def __init__(self, servers: str, seed: int, directory: Path) -> None:
        self._servers, self._directory = servers, directory
        self._random = Random(seed)
        self.deeds = Deeds()
        self._reader, self._seen = Reader(servers, "out"), 0
        self._driver = self._started()

    def _started(self) -> Driver:
        arguments = ["in", "out", str(self._directory / "checkpoint"), str(self._random.randrange(1 << 30))]
        driver, until = Driver([self._servers, *arguments], self._directory), time.monotonic() + UP_S_MAX
        while not driver.up:
            driver.check()
            assert time.monotonic() < until, "the job does not come up"
            self._read()
        return driver

    def _read(self) -> int:
        """Wait a little, and return how many results have come."""
        new = sum(1 for _ in self._reader.take(0.1))
        self._seen += new
        return new

    def _pause(self) -> None:
        until = time.monotonic() + self._random.uniform(*KILL_S)
        while time.monotonic() < until:
            self._driver.check()
            self._read()

    def kill_worker(self) -> None:
        """Kill one after a while; before that, in half of the cases, have the job go over to another number."""
        self._pause()
        if self._random.random() < RESCALES:
            self._driver.ask(workers=self._random.randint(1, PARALLELISM))
            self.deeds.rescales += 1
        before = len(self._driver.resumed_s)
        while len(self._driver.resumed_s) == before:
            self._driver.ask(kill=1)
            self._pause()

    def kill_driver(self) -> None:
        """Kill the driver, and resume the job."""
        alone = self.deeds.drivers <= self.deeds.whole
        self.deeds.drivers, self.deeds.whole = self.deeds.drivers + alone, self.deeds.whole + (not alone)
        self._driver.kill(alone=alone)
        self.deeds.take(self._driver)
        self._driver = self._started()

    def end(self, written: int) -> None:
        """Wait until everything is out, or nothing comes any more, and end the job."""
        until = time.monotonic() + REST_S_MAX
        while self._seen < written and time.monotonic() < until:
            self._driver.check()
            until = time.monotonic() + REST_S_MAX if self._read() else until
        self._driver.ask(drain=1)
        self._driver.process.wait(UP_S_MAX)
        self.deeds.take(self._driver)
        self._reader.close()


def main(kills: int, seed: int) -> bool:
    """Run, print and write what came out; return whether it is exact."""
    began = time.monotonic()
    with KafkaBroker() as broker, tempfile.TemporaryDirectory() as directory:
        for made in broker.admin.create_topics([NewTopic(each, PARTITIONS, 1) for each in ("in", "out")]).values():
            made.result()
        feeder = Feeder(broker.servers, "in")
        run = Run(broker.servers, seed, Path(directory))
        drivers = max(2, round(kills * KILLS_OF_DRIVER))
        behind = {round(each * kills / (drivers + 1)) for each in range(1, drivers + 1)}
        for number in range(1, kills + 1):
            run.kill_worker()
            if number in behind:
                run.kill_driver()
        written = feeder.end()
        run.end(written)
        verdict = Verdict.of(read(broker.servers, "out"), written)
    found = results(run.deeds, verdict, written, seed, time.monotonic() - began)
    OUT.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    (row,) = found.rows
    for name, value in [("results", row.results), *((each.name, each.value) for each in found.checks)]:
        sys.stdout.write(f"{name:<32} {value:,}\n")
    faults = row.faults or "every result once, and those of a key in their order"
    sys.stdout.write(f"{written:,} expected: {faults}\n")
    return not row.faults


def results(deeds: Deeds, verdict: Verdict, written: int, seed: int, seconds: float) -> Results:
    """What is written."""
    settings: dict[str, object] = {"seed": seed, "epoch": EPOCH, "parallelism": PARALLELISM, "keys": KEYS}
    row = ResultRow(
        workload="kafka-kills", engine="penstock", form="auto", rate=RATE, seconds=round(seconds, 1), events=written,
        results=verdict.results, lost=verdict.lost, duplicated=verdict.doubled,
        reordered=verdict.reordered, wrong=verdict.wrong, settings=settings,
    )  # fmt: skip
    times = Times.of(deeds.resumed_s)
    checks = [
        Check("workers killed", len(deeds.resumed_s), "", "", True),
        Check("driver killed alone", deeds.drivers, "", "", True),
        Check("driver killed with all processes", deeds.whole, "", "", True),
        Check("rescales asked for", deeds.rescales, "", "", True),
        Check("moves of instances", deeds.moves, "", "", True),
    ]
    if times is not None:
        checks.append(Check("output again, median", round(times.p50, 2), "s", "", True, {"max": round(times.max, 2)}))
    return Results(header=make_header(settings), rows=[row], checks=checks)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        drive(*sys.argv[2:])
    else:
        from asking import parser  # it is beside the script, which tests load from elsewhere

        asked = parser(__doc__)
        asked.add_argument("kills", nargs="?", type=int, default=KILLS, help=f"kills of workers, usually {KILLS}")
        asked.add_argument("--seed", type=int, default=1, help="of what is killed, and when; usually 1")
        given = asked.parse_args()
        sys.exit(not main(given.kills, given.seed))
