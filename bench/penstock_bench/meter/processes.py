"""CPU and memory of a run: this process and everything below it, the JVM included; every run has one of these open."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import psutil

from penstock_bench.meter.rows import ProcessUsage

SAMPLE_S = 0.25
MEMORY_EVERY = 8
"""Memory is read with every so manieth sample: the kernel walks through all pages of a process for it."""
OTHERS, SMALL_MB, SMALL_S = "others", 20.0, 0.1
"""Processes so small, shells and helpers of a launcher, are told together."""


def memory_mb(process: psutil.Process) -> float:
    """The proportional share of a process (PSS): of a page that several processes share, each has its part."""
    with suppress(psutil.AccessDenied, AttributeError):  # where the kernel does not tell, or not us
        return float(process.memory_full_info().pss) / 1e6
    return float(process.memory_info().rss) / 1e6


class Processes:
    """Samples the process tree while it is open.

    Without ``memory`` it costs next to nothing itself. ``apart`` leaves out processes that run already, such as the
    Spark of a study that measures another engine, except those with the ids ``but``.
    """

    def __init__(self, *, memory: bool = True, apart: bool = False, but: Collection[int] = ()) -> None:
        self._memory = memory
        self._left_out = {each.pid for each in psutil.Process().children(recursive=True)} if apart else set[int]()
        self._left_out -= set(but)
        self.memory_mb = 0.0
        """The most that all had together."""
        self._roles, self._names = dict[int, str](), dict[int, str]()
        self._memory_mb, self._cpu_s, self._cpu_s_first = dict[int, float](), dict[int, float](), dict[int, float]()
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Processes:
        self.restart()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def name(self, pid: int, role: str) -> None:
        """Say what a process does; those that it starts are told by their own names."""
        self._roles[pid] = role

    def restart(self) -> None:
        """Begin anew, after the warm-up."""
        self._sample(memory=False)
        with self._lock:
            self._cpu_s_first, self._began_s = dict(self._cpu_s), time.monotonic()
            self._memory_mb.clear()
            self.memory_mb = 0.0

    @property
    def cpu_cores(self) -> float:
        """Cores in use, on average since the start."""
        self._sample(memory=False)
        return self._cores(list(self._cpu_s))

    def used(self) -> dict[str, Any]:
        """Cores and memory of all together, as a row of results has them."""
        self._sample()
        return {"cpu_cores": round(self.cpu_cores, 3), "pss_mb": round(self.memory_mb, 1)}

    def usages(self) -> list[ProcessUsage]:
        """All processes but this one, equal names together, largest consumer first."""
        self._sample()
        groups: dict[str, list[int]] = defaultdict(list)
        for pid, most_mb in list(self._memory_mb.items()):
            if pid != psutil.Process().pid:
                small = most_mb < SMALL_MB and self._cpu_s.get(pid, 0.0) < SMALL_S
                groups[self._roles.get(pid) or (OTHERS if small else self._names[pid])].append(pid)
        found = []
        for name, pids in groups.items():
            cores, pss_mb = round(self._cores(pids), 3), round(sum(self._memory_mb[pid] for pid in pids), 1)
            found.append(ProcessUsage(name=name, processes=len(pids), cpu_cores=cores, pss_mb=pss_mb))
        return sorted(found, key=lambda usage: -usage.cpu_cores)

    def _cores(self, pids: list[int]) -> float:
        used_s = sum(self._cpu_s.get(pid, 0.0) - self._cpu_s_first.get(pid, 0.0) for pid in pids)
        return used_s / max(1e-9, time.monotonic() - self._began_s)

    def _run(self) -> None:
        for count in itertools.count(1):
            if self._ended.wait(SAMPLE_S):
                return
            self._sample(memory=count % MEMORY_EVERY == 0)

    def _sample(self, *, memory: bool = True) -> None:
        own = psutil.Process()
        with self._lock:
            together_mb = 0.0
            for process in [own, *own.children(recursive=True)]:
                if process.pid in self._left_out:
                    continue
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    self._cpu_s[process.pid] = times.user + times.system
                    # A launcher becomes what it launches: the last name counts.
                    self._names[process.pid] = process.name()
                    if memory and self._memory:
                        now_mb = memory_mb(process)
                        together_mb += now_mb
                        self._memory_mb[process.pid] = max(self._memory_mb.get(process.pid, 0.0), now_mb)
            self.memory_mb = max(self.memory_mb, together_mb)
