"""Servers that are away: how long they are waited for, and what a thread does meanwhile."""

from __future__ import annotations

import threading

import pytest

from penstock.connectors import patience
from penstock.connectors.patience import Patience


def test_pauses_grow_to_a_bound_and_end_after_the_time_that_was_given() -> None:
    now_s, pauses = [100.0], []
    waiting = Patience(60.0, lambda: now_s[0])
    while (pause_s := waiting.pause_s()) is not None:
        pauses.append(pause_s)
        now_s[0] += pause_s
    assert pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(pauses) == patience.BACK_OFF_MAX_S
    assert 60.0 - patience.BACK_OFF_MAX_S < sum(pauses) <= 60.0


def test_what_the_server_asks_for_is_granted_within_the_bound_and_zero_means_not_again() -> None:
    assert Patience(60.0).pause_s(2.0) == 2.0
    assert Patience(60.0).pause_s(900.0) == patience.BACK_OFF_MAX_S
    assert Patience(0.0).pause_s() is None


def test_only_the_thread_that_signs_does_so_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_STEP_S", 0.001)
    signs: list[int] = []
    with patience.signing(lambda: signs.append(threading.get_ident())):
        patience.sleep(0.01)
        other = threading.Thread(target=patience.sleep, args=(0.01,))
        other.start()
        other.join()
    assert len(signs) > 1
    assert set(signs) == {threading.get_ident()}
    assert not patience.wait(lambda seconds: False, 0.0)
    assert patience.wait(lambda seconds: True, 0.0)
    assert not patience._signs
