"""The end of the query service: no SQL job is left behind, also none that was just about to begin."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from penstock.protocol.queries import Answer, Ask
from penstock.runtime.queries import QueryService
from waiting import WAIT_S


class Context:
    """Cancels the jobs that it knows of, as Spark does; one that begins later runs on."""

    def __init__(self) -> None:
        self.looked = threading.Event()
        self.jobs: dict[str, threading.Event] = {}

    def cancelJobGroup(self, group: str) -> None:
        if group in self.jobs:
            self.jobs[group].set()
        self.looked.set()


def test_a_query_that_begins_while_the_service_ends_is_cancelled_too() -> None:
    context, began = Context(), threading.Event()

    class Service(QueryService):
        def __init__(self) -> None:
            self._lock, self._closed = threading.Lock(), threading.Event()
            self._running, self._causes, self._answers = {}, {}, []
            self._jobs, self._thread = ThreadPoolExecutor(1), threading.Thread(target=self._closed.wait)
            self._session = SimpleNamespace(sparkContext=context)
            self._queries = self._node = SimpleNamespace(close=lambda **_: None)
            self._thread.start()

        def _job(self, ask: Ask, group: str) -> Answer:
            began.set()
            assert context.looked.wait(WAIT_S), "the service ends, and has looked for jobs of this group"
            context.jobs[group] = threading.Event()
            assert context.jobs[group].wait(WAIT_S)
            raise RuntimeError("cancelled")

    service = Service()
    service._jobs.submit(service._run, SimpleNamespace(request=1, endpoint="worker"))
    assert began.wait(WAIT_S)
    service.close()
    assert [job.is_set() for job in context.jobs.values()] == [True]
    assert service._running == {}
