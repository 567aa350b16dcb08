"""CPU and memory of a run: this process and everything below it, the JVM included."""

from __future__ import annotations

import threading
import time

import psutil

SAMPLE_S = 0.25


class ProcessMeter:
    """Samples the process tree while it is open."""

    def __init__(self) -> None:
        self.rss_mb_max = 0.0
        self._cpu_s: dict[int, float] = {}
        self._cpu_s_first: dict[int, float] = {}
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProcessMeter:
        self._sample()
        self._cpu_s_first = dict(self._cpu_s)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()

    def restart(self) -> None:
        """Begin anew, after the warm-up."""
        self._sample()
        self._cpu_s_first = dict(self._cpu_s)
        self._began = time.monotonic()
        self.rss_mb_max = 0.0

    @property
    def cpu_cores(self) -> float:
        """Cores in use, on average since the start."""
        used = sum(now - self._cpu_s_first.get(pid, 0.0) for pid, now in self._cpu_s.items())
        return used / max(1e-9, time.monotonic() - self._began)

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        own = psutil.Process()
        rss = 0
        for process in [own, *own.children(recursive=True)]:
            try:
                times = process.cpu_times()
                self._cpu_s[process.pid] = times.user + times.system
                rss += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.rss_mb_max = max(self.rss_mb_max, rss / 1e6)
