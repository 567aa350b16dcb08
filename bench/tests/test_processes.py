"""CPU and memory are those of the processes that a run has started."""

from __future__ import annotations

import subprocess
import sys

from penstock_bench.meter.processes import Processes

WAITING = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]


def start() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(WAITING, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def names(table: Processes, before: int, after: int) -> set[str]:
    table.name(before, "before")
    table.name(after, "after")
    return {usage.name for usage in table.usages()}


def test_what_ran_before_can_be_left_out() -> None:
    with start() as before:
        table, whole = Processes(apart=True), Processes()
        with start() as after:
            assert names(table, before.pid, after.pid) & {"before", "after"} == {"after"}
            assert names(whole, before.pid, after.pid) >= {"before", "after"}
            after.kill()
        before.kill()
