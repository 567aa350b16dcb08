"""Testing for users: a pipeline in one process, a manual clock, scripted input, assertions on exact output."""

from penstock.connectors.memory import At
from penstock.testing.conformance import Conformance, check_sink, check_source, check_table
from penstock.testing.forms import equal_forms, rows_of
from penstock.testing.harness import Harness, collect
from penstock.testing.preview import first
from penstock.testing.rows import assert_rows
from penstock.testing.script import BURST, CRASH, PAUSE, RESTART, SWITCH, Burst, Crash, Pause, Restart, Switch
from penstock.testing.simulating import Simulated, simulate

__all__ = [
    "BURST",
    "CRASH",
    "PAUSE",
    "RESTART",
    "SWITCH",
    "At",
    "Burst",
    "Conformance",
    "Crash",
    "Harness",
    "Pause",
    "Restart",
    "Simulated",
    "Switch",
    "assert_rows",
    "check_sink",
    "check_source",
    "check_table",
    "collect",
    "equal_forms",
    "first",
    "rows_of",
    "simulate",
]


def __dir__() -> list[str]:
    return __all__
