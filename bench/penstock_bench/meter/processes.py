"""CPU and memory of a run: this process and everything below it, the JVM included; every run has one of these open."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import psutil

from penstock_bench.meter.rows import ProcessUsage

SAMPLE_S = 0.25
MEMORY_EVERY = 8
"""Memory is read with every so manieth sample: the kernel walks through all pages of a process for it."""
OTHERS, SMALL_MB, SMALL_S = "others", 20.0, 0.1
"""Processes so small, shells and helpers of a launcher, are told together."""


def memory_mb(process: psutil.Process) -> float:
    """The proportional share of a process (PSS): of a page that several processes share, each has its part."""
    try:
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    rss_bytes: int = process.memory_info().rss  # where the kernel does not tell, or not us
    return rss_bytes / 1e6


class Processes:
    """Samples the process tree while it is open.

    Parameters
    ----------
    memory : bool
        Read memory too; without, it costs next to nothing itself.
    apart : bool
        Leave out processes that run already, such as the Spark of a study that measures another engine.
    but : collection of int
        Process ids that are not left out.
    """

    def __init__(self, *, memory: bool = True, apart: bool = False, but: Collection[int] = ()) -> None:
        self._memory = memory
        self._left_out = {each.pid for each in psutil.Process().children(recursive=True)} if apart else set[int]()
        self._left_out -= set(but)
        self.memory_mb = 0.0
        """The most that all had together."""
        self._roles: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._memory_mb: dict[int, float] = {}
        self._cpu_s: dict[int, float] = {}
        self._cpu_s_first: dict[int, float] = {}
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

    def usages(self) -> list[ProcessUsage]:
        """All processes but this one, equal names together, largest consumer first."""
        self._sample()
        groups: dict[str, list[int]] = defaultdict(list)
        for pid, most_mb in list(self._memory_mb.items()):
            if pid != psutil.Process().pid:
                small = most_mb < SMALL_MB and self._cpu_s.get(pid, 0.0) < SMALL_S
                groups[self._roles.get(pid) or (OTHERS if small else self._names[pid])].append(pid)
        found = [
            ProcessUsage(
                name=name,
                processes=len(pids),
                cpu_cores=round(self._cores(pids), 3),
                pss_mb=round(sum(self._memory_mb[pid] for pid in pids), 1),
            )
            for name, pids in groups.items()
        ]
        return sorted(found, key=lambda usage: -usage.cpu_cores)

    def _cores(self, pids: list[int]) -> float:
        used_s = sum(self._cpu_s.get(pid, 0.0) - self._cpu_s_first.get(pid, 0.0) for pid in pids)
        return used_s / max(1e-9, time.monotonic() - self._began_s)

    def _run(self) -> None:
        count = 0
        while not self._ended.wait(SAMPLE_S):
            count += 1
            self._sample(memory=count % MEMORY_EVERY == 0)

    def _sample(self, *, memory: bool = True) -> None:
        own = psutil.Process()
        with self._lock:
            together_mb = 0.0
            for process in [own, *own.children(recursive=True)]:
                if process.pid in self._left_out:
                    continue
                try:
                    times = process.cpu_times()
                    self._cpu_s[process.pid] = times.user + times.system
                    # A launcher becomes what it launches: the last name counts.
                    self._names[process.pid] = process.name()
                    if memory and self._memory:
                        now_mb = memory_mb(process)
                        together_mb += now_mb
                        self._memory_mb[process.pid] = max(self._memory_mb.get(process.pid, 0.0), now_mb)
                except psutil.NoSuchProcess:
                    continue
            self.memory_mb = max(self.memory_mb, together_mb)
