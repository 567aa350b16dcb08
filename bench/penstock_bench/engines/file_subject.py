"""A workload file as the engines see it: messages as lines, the graph as numbers that any engine can repeat.

What is due when is in the results themselves: a result carries the time of its message, of the later one of a pair, or
of the end of its window, and event times follow the schedule.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from penstock.connectors.base import Sink
from penstock.pipeline.pipeline import Pipeline
from penstock.types import Record
from penstock_bench.files import Own, file_workload
from penstock_bench.files.program import specification
from penstock_bench.foreign.programs.graph import STATEFUL
from penstock_bench.meter.subject import Came, Input, Rate, Subject
from penstock_bench.meter.timeline import NEVER_US, Timeline
from penstock_bench.workloads import Comparison

CLOSING_US = 86_400_000_000
"""How far behind the last message the line is that closes all windows, where an engine needs one."""


class FileSubject(Subject):
    """A workload that a file describes."""

    columns = ("sink", "key", "value", "time", "id")

    def __init__(self, path: str) -> None:
        self._workload = file_workload(path)
        self._description = self._workload.description
        self._path = str(Path(path).absolute())
        self.name = self._workload.name
        sinks = list(self._description.layout.sinks)
        self.constants = {"sink": sinks[0]} if len(sinks) == 1 else {}
        self._steps: list[dict[str, Any]] = specification(self._description)["steps"]
        self.stateful = tuple(dict.fromkeys(step["do"] for step in self._steps if step["do"] in STATEFUL))
        self.loads = tuple(step["name"] for step in self._steps if "load" in step)

        once = next((step["name"] for step in self._steps if step.get("match") == "once"), None)
        self.not_in_sql = None if once is None else f"'{once}' pairs every message once, which no join of SQL does"
        self.nested = _nested(self._steps)
        several = any(step["do"] in ("split", "merge", "join") for step in self._steps)
        self.branches = several or len(sinks) > 1 or len(self._description.sources) > 1

    def closing(self, end_us: int) -> bytes | None:
        return b"-%d\t%d\t\t" % (len(self._description.sources), end_us + CLOSING_US) if self.stateful else None

    @property
    def reference(self) -> str:
        return self._path

    def input(self, rate: Rate, seconds: float | None, *, total: int | None = None, seed: int = 0) -> Input:
        sources = self._workload.sources(_rate(rate), seconds=seconds, total=total, seed=seed)
        return Input(tuple(sources.values()))

    def pipeline(self, rate: Rate, seconds: float, sink: Sink, *, seed: int = 0) -> Pipeline:
        return self._workload.pipeline(_rate(rate), sink, seconds=seconds, seed=seed)

    def line(self, record: Record) -> bytes:
        return b"%d\t%d\t%b\t%b" % (record.id, record.time, record.key.encode(), record.value.encode())

    def specification(self) -> dict[str, Any]:
        return specification(self._description)

    def judge(self, given: Input, came: Came) -> tuple[Timeline, Comparison]:
        exact = self._workload.expected(given.replay(came.event_start_us))
        rows = (dict(zip(self.columns, values, strict=True)) for _, values in came.rows)
        found = self._workload.compare(exact, rows, came.partitions)
        left: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for at_us, values in reversed(came.rows):
            left[tuple(values)].append(at_us)
        due, seen = [], []
        for result, count in exact.results.items():
            times = left.get(result, [])
            for _ in range(count):
                due.append(result[3] - came.event_start_us + came.start_us)
                seen.append(times.pop() if times else NEVER_US)
        due_us, seen_us = np.array(due, np.int64), np.array(seen, np.int64)
        order = np.argsort(due_us, kind="stable")
        return Timeline(due_us[order], seen_us[order]), found


def _nested(steps: list[dict[str, Any]]) -> str:
    """A step with state that reads what came out of another one."""
    behind: set[str] = set()
    for step in steps:
        keeps, before = step["do"] in STATEFUL, any(node in behind for node, _ in step["inputs"])
        if keeps and before:
            return str(step["name"])
        if keeps or before:
            behind.add(step["name"])
    return ""


def _rate(rate: Rate) -> Any:
    return Own.FILE if rate is None else rate
