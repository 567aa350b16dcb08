"""The last lines of a run: what sources have dropped is told by its cause, and only if there is some."""

from __future__ import annotations

from typing import Any

from penstock.control.monitor import Audit
from penstock.dashboard.summary import last_lines
from penstock.runtime.report import Report


def report(**changes: Any) -> Report:
    given: dict[str, Any] = {"job": "ads", "seconds": 2.0, "events_in": 5000, "results_out": 40, "measured_at": "count"}
    given |= dict.fromkeys(("lost", "duplicated", "reordered", "late", "skipped", "dead_letters", "epochs"), 0)
    given |= {"latency_ms": None, "start_us": 1, "first_result_s": None, "audit": Audit()}
    given |= {"offsets": {}, "operations": [], "workers": [], "switches": []}
    return Report(**{**given, **changes})


def test_what_was_dropped_is_told_by_its_cause() -> None:
    found = report(timed_out=1200, over_bound=30)
    lines = last_lines(found)
    assert "timed out     1,200" in lines
    assert "over bound    30" in lines
    assert repr(found).endswith("in 2.0 s, 1,200 timed out, 30 over bound>")
    calm = "\n".join(last_lines(report()))
    assert "timed out" not in calm
    assert "over bound" not in calm
