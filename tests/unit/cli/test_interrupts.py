"""Ctrl-C: held back, taken, acknowledged, and given back afterwards."""

from __future__ import annotations

import signal

import pytest

from penstock.runtime.interrupts import HELD_NOTE, Acknowledge, held_interrupts, taken_interrupts


def test_the_first_interrupt_drains_and_every_further_one_stops() -> None:
    calls: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with taken_interrupts(lambda: calls.append("drain"), lambda: calls.append("stop")) as seen:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert seen == [signal.SIGINT, signal.SIGTERM, signal.SIGINT]
    assert calls == ["drain", "stop", "stop"]
    assert signal.getsignal(signal.SIGINT) is before


def test_one_interrupt_is_held_and_a_second_one_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    with held_interrupts() as seen:
        signal.raise_signal(signal.SIGINT)
        assert seen == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == f"{HELD_NOTE}\n"


def test_each_interrupt_is_acknowledged_once(capsys: pytest.CaptureFixture[str]) -> None:
    acknowledge = Acknowledge()
    for interrupts in (0, 0, 1, 1, 2, 2):
        acknowledge(interrupts)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "draining… Ctrl-C again stops at once"
    assert second.startswith("stopping at once")
