"""Ctrl-C: while the program is imported, while Spark starts, while a job runs; given back afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic

import pytest

from penstock.runtime.interrupts import Acknowledge, ending_interrupts, taken_interrupts
from waiting import WAIT_S


def test_the_first_interrupt_drains_and_every_further_one_stops() -> None:
    calls: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with taken_interrupts(lambda: calls.append("drain"), lambda: calls.append("stop")) as seen:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert seen == [signal.SIGINT, signal.SIGTERM, signal.SIGINT]
    assert calls == ["drain", "stop", "stop"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_ends_what_is_waited_for_and_is_raised_then() -> None:
    ended = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def wait() -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        if ended.wait(WAIT_S):
            raise RuntimeError("what was waited for is gone")

    with pytest.raises(KeyboardInterrupt), ending_interrupts(ended.set):
        wait()
    assert ended.is_set()
    assert signal.getsignal(signal.SIGINT) is before


def test_what_fails_without_an_interrupt_fails_as_it_is() -> None:
    ended = threading.Event()
    with pytest.raises(ZeroDivisionError), ending_interrupts(ended.set):
        raise ZeroDivisionError
    assert not ended.is_set()


def test_an_interrupt_is_raised_although_what_is_inside_got_through() -> None:
    with pytest.raises(KeyboardInterrupt), ending_interrupts(lambda: None):
        signal.raise_signal(signal.SIGINT)


def test_each_interrupt_is_acknowledged_once(capsys: pytest.CaptureFixture[str]) -> None:
    acknowledge = Acknowledge()
    for interrupts in (0, 0, 1, 1, 2, 2):
        acknowledge(interrupts)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "draining… Ctrl-C again stops at once"
    assert second.startswith("stopping at once")


def test_ctrl_c_while_the_program_is_imported_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text(
        "import pathlib, threading\npathlib.Path('importing').touch()\nthreading.Event().wait()\n"
    )
    program = subprocess.Popen(
        [Path(sys.executable).with_name("penstock"), "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = monotonic() + WAIT_S
        while not (tmp_path / "importing").exists():
            assert monotonic() < deadline, "the import has not begun"
            assert program.poll() is None, program.communicate()
            threading.Event().wait(0.01)
        program.send_signal(signal.SIGINT)
        assert program.communicate(timeout=WAIT_S) == ("", "")
        assert program.returncode == 130
    finally:
        program.kill()
        program.wait()
