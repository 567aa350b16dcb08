"""CPU and memory of every process of a run, by name; the engines' runs keep one open around the programs they start."""

from __future__ import annotations

import time
from collections import defaultdict

import psutil

from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import ProcessUsage

OTHERS, SMALL_MB, SMALL_S = "others", 20.0, 0.1
"""Processes so small, shells and helpers of a launcher, are told together."""


class ProcessTable(ProcessMeter):
    """A meter that also keeps apart what it samples; the runner itself is left out."""

    def __init__(self) -> None:
        super().__init__()
        self._roles: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._rss_mb: dict[int, float] = {}

    def __enter__(self) -> ProcessTable:
        super().__enter__()
        return self

    def name(self, pid: int, role: str) -> None:
        """Say what a process does; those that it starts are told by their own names."""
        self._roles[pid] = role

    def restart(self) -> None:
        """Begin anew, after the warm-up."""
        super().restart()
        self._rss_mb.clear()

    def usages(self) -> list[ProcessUsage]:
        """All processes but the runner, equal names together, largest consumer first."""
        elapsed_s = max(1e-9, time.monotonic() - self._began)
        groups: dict[str, list[int]] = defaultdict(list)
        for pid in list(self._names):
            if pid in self._rss_mb:
                small = self._rss_mb[pid] < SMALL_MB and self._cpu_s.get(pid, 0.0) < SMALL_S
                groups[self._roles.get(pid) or (OTHERS if small else self._names[pid])].append(pid)
        found = [
            ProcessUsage(
                name=name,
                processes=len(pids),
                cpu_cores=round(
                    sum(self._cpu_s.get(pid, 0.0) - self._cpu_s_first.get(pid, 0.0) for pid in pids) / elapsed_s, 3
                ),
                rss_mb=round(sum(self._rss_mb[pid] for pid in pids), 1),
            )
            for name, pids in groups.items()
        ]
        return sorted(found, key=lambda usage: -usage.cpu_cores)

    def _sample(self) -> None:
        super()._sample()
        own = psutil.Process()
        for process in own.children(recursive=True):
            try:
                self._rss_mb[process.pid] = max(self._rss_mb.get(process.pid, 0.0), process.memory_info().rss / 1e6)
                # A launcher becomes what it launches: the last name counts.
                self._names[process.pid] = process.name()
            except psutil.NoSuchProcess:
                continue
