"""Functions of the user's on real Spark: calls of a service over HTTP, states and timers; a worker is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock as ps
from waiting import WAIT_S

pytestmark = pytest.mark.spark

Eventually = Callable[[Callable[[], object]], None]
CAPACITY = 8


class Service:
    """An HTTP server that answers ``/n`` with twice the number, after a while, and every 50th time with an error."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.under_way = self.most = self.refused = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(WAIT_S)

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                while await reader.readline() != b"\r\n":
                    pass
                number = int(line.split()[1][1:])
                self.requests[number] += 1
                self.under_way += 1
                self.most = max(self.most, self.under_way)
                await asyncio.sleep(0.005)
                self.under_way -= 1
                fails = number % 50 == 0 and self.requests[number] == 1
                self.refused += fails
                body = json.dumps({"double": 2 * number}).encode()
                status = b"503 Busy" if fails else b"200 OK"
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


def test_calls_states_and_timers_are_exact_through_a_killed_worker(service: Service, eventually: Eventually) -> None:
    port, keys = service.port, 5

    class Client:
        """Keeps its connections, as a library for HTTP would; made anew in every worker."""

        async def __call__(self, record: Any) -> Any:
            free = self.__dict__.setdefault("free", [])
            reader, writer = free.pop() if free else await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /%d HTTP/1.1\r\nHost: local\r\n\r\n" % record.n)
            status = await reader.readline()
            length = int((await reader.readline()).split()[1])
            await reader.readline()
            body = await reader.readexactly(length)
            free.append((reader, writer))
            if b"200" not in status:
                raise ConnectionError(status)
            return record.n % keys, record.n, record.at, json.loads(body)["double"]

    class Sums(ps.Process):
        """Counts each key, and tells its sum of every 200 ms when event time has passed them."""

        count = ps.state.value(int, default=0)
        windows = ps.state.map(int, int)

        def on_record(self, record: Any, ctx: Any) -> Any:
            self.count += 1
            start = record.at - record.at % 200_000
            self.windows[start] = self.windows.get(start, 0) + record.double
            ctx.set_timer(start, "200ms")
            ctx.output("counts", (record.k, self.count, record.n))

        def on_timer(self, at_us: int, ctx: Any) -> Any:
            yield ctx.key, at_us, self.windows.pop(at_us - 200_000)

    columns = {"n": ps.fields.sequence(), "at": ps.fields.event_time()}
    source = ps.generator(columns, rate=1_000, format="columns", partitions=2)
    called = ps.stream("in", source).map_async(
        Client(),
        schema="k bigint, n bigint, at timestamp, double bigint",
        capacity=CAPACITY,
        timeout="60s",
        retry=3,
        name="call",
    )
    sums, counts = ps.memory(), ps.memory()
    made = called.key_by("k").process(
        Sums,
        schema="k bigint, end timestamp, sum bigint",
        outputs={"counts": "k bigint, count bigint, n bigint"},
        time="at",
    )
    pipeline = made.to(sums, name="sums") + made.output("counts").to(counts, name="counts")
    with ps.start(pipeline, parallelism=2, epoch="200ms", name="functions") as job:
        eventually(lambda: job.status().epoch >= 3 and len(job.status().workers) == 2)
        os.kill(job.status().workers[0].pid, signal.SIGKILL)
        eventually(lambda: job.status().committed_us > job.status().resumed_us > 0)
        job.drain()
        report = job.wait()
    assert report is not None
    assert report.recoveries >= 1
    numbers = sorted(row.n for row in counts.rows)
    read = report.offsets["in"]
    assert numbers == sorted(offset * 2 + part for part, count in enumerate(read) for offset in range(count))
    by_key = Counter(n % keys for n in numbers)
    for key in range(keys):
        assert sorted(row.count for row in counts.rows if row.k == key) == list(range(1, by_key[key] + 1))
        assert sum(row.sum for row in sums.rows if row.k == key) == sum(2 * n for n in numbers if n % keys == key)
    assert len({(row.k, row.end) for row in sums.rows}) == len(sums.rows)
    assert set(service.requests) == set(numbers)
    # Of a worker that is killed the service may still be at work for calls that it had begun.
    assert service.most <= 3 * CAPACITY
    assert service.refused > 0
