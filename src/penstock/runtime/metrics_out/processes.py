"""CPU time and memory of a job's processes: workers tell theirs, the exporter reads the others here."""

from __future__ import annotations

import psutil

from penstock.control.monitor import Status
from penstock.runtime.metrics_out.samples import ProcessFigures

LOOK_EVERY = 20
"""Readings between two looks for the JVM below this process."""


class Meter:
    """Reads the processes of a job; those on other machines are known by what workers tell."""

    def __init__(self, *, local: bool) -> None:
        self._local = local
        self._own = psutil.Process()
        self._jvm: psutil.Process | None = None
        self._readings = 0
        self._slots: dict[int, psutil.Process] = {}
        self._slots_cpu_s: dict[int, float] = {}
        self._slots_total_cpu_s = 0.0

    def read(self, status: Status) -> list[ProcessFigures]:
        """Read all processes."""
        found = [ProcessFigures(f"worker-{each.worker}", each.cpu_s, each.rss_mb_now * 1e6) for each in status.workers]
        driver = _read(self._own)
        if driver is not None:
            found.append(ProcessFigures("driver", *driver))
        jvm = self._find_jvm()
        if jvm is not None:
            found.append(ProcessFigures("jvm", *jvm))
        if self._local:
            found.append(self._read_slots(status.slots))
        return found

    def _find_jvm(self) -> tuple[float, float] | None:
        if self._jvm is None and self._readings % LOOK_EVERY == 0:
            self._jvm = next((each for each in self._own.children() if _name(each) == "java"), None)
        self._readings += 1
        figures = _read(self._jvm) if self._jvm is not None else None
        if figures is None:
            self._jvm = None
        return figures

    def _read_slots(self, pids: list[int]) -> ProcessFigures:
        """All slots together: they come and go, and nobody asks for a single one."""
        rss_bytes = 0.0
        for pid in [known for known in self._slots if known not in pids]:
            del self._slots[pid], self._slots_cpu_s[pid]
        for pid in pids:
            if pid not in self._slots:
                try:
                    self._slots[pid] = psutil.Process(pid)
                except psutil.Error:
                    continue
            figures = _read(self._slots[pid])
            if figures is None:
                continue
            cpu_s, own_rss_bytes = figures
            rss_bytes += own_rss_bytes
            # Spark uses its processes again: what one has done before it became a slot does not count.
            self._slots_total_cpu_s += max(0.0, cpu_s - self._slots_cpu_s.get(pid, cpu_s))
            self._slots_cpu_s[pid] = cpu_s
        self._slots = {pid: process for pid, process in self._slots.items() if pid in self._slots_cpu_s}
        return ProcessFigures("slots", self._slots_total_cpu_s, rss_bytes)


def _read(process: psutil.Process) -> tuple[float, float] | None:
    try:
        with process.oneshot():
            times = process.cpu_times()
            return times.user + times.system, float(process.memory_info().rss)
    except psutil.Error:
        return None


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""
