"""Writes docs/decisions/0009-planted-bugs.md: which line of the glue has which planted bug, and the seed that finds it.

``python scripts/planted_bugs.py``, after ``RENEW_FINDERS=1 pytest tests/simulation/test_glue_mutations.py``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "decisions" / "0009-planted-bugs.md"
LINES = {
    "lost_control_messages_are_not_repeated": "`Link.frames` sends again what is not confirmed",
    "control_messages_are_taken_as_they_come": "`Link.receive` has what overtakes wait",
    "messages_of_another_incarnation_count": "`DriverMachine._far`: a link for each incarnation",
    "the_scheduler_is_not_told_what_workers_say": "`DriverMachine._on_worker`: `self._schedule(FromWorker(message), now_us)`",
    "committed_records_are_not_handed_over": "`DriverMachine._on_worker`: `self._chores.append(Hand(message))`",
    "silent_workers_are_not_replaced": "`DriverMachine._schedule`: `Replace` is a chore",
    "slots_make_no_place_for_a_replacement": "`DriverMachine._schedule`: `self._obey(self.loop.on_replaced(now_us, self._cores))`",
    "the_control_loop_is_not_told_what_slots_say": "`DriverMachine._on_slot`: `self._obey(self.loop.on_slot(message, now_us))`",
    "the_control_loop_is_not_told_of_switches_that_are_made": "`DriverMachine._on_worker`: `self.loop.on_worker(message, now_us)`",
    "workers_are_not_told_that_a_group_has_ended": "`DriverMachine.handle`: `self._obey(self.loop.on_group_ended(…))`",
    "slots_are_not_told_who_the_workers_are": "`DriverMachine._obey`: `self._tell(self._slots.get(slot), told)`",
    "nobody_has_sinks_finish": "`DriverMachine._finish`: `self._chores.append(FinishSinks())`",
    "what_the_driver_says_while_snapshots_are_read_back_is_forgotten": "`WorkerMachine._on_driver` keeps it until all is restored",
    "the_driver_does_not_hear_that_snapshots_are_stored": "`WorkerMachine.on_stored`: `self.share.on_stored(stored)`",
    "a_slot_takes_no_note_of_who_the_workers_are": "`SlotMachine.on_message`: `self.on_workers(peers, start_us)`",
    "a_slot_does_not_tell_workers_that_it_is_ready": "`SlotMachine.on_workers`: `self._tell(peer.worker, self._ready(peer.worker))`",
    "a_slot_says_nothing_again_that_was_lost": "`SlotMachine.step`: `self._say_again(now_us)`",
    "a_slot_goes_on_that_is_told_to_end": "`SlotMachine.on_message`: `self._leave()`",
    "a_slot_that_everyone_has_answered_does_not_end": "`SlotMachine.step`: `self._end()`",
}
HEAD = """# Planted bugs in the glue

Made by `scripts/planted_bugs.py` from `tests/simulation/finders.json`. Each bug of the first table is put into the machines by
`tests/simulation/test_glue_mutations.py`; a run of the simulator with that seed fails with it, or shows something else, and does not without it.
`make simulate SEED=…` runs a seed without the bug.

| line of glue | planted bug | seed that finds it |
| --- | --- | ---: |
"""
REST = """
What shows in figures only, or in what a process does that no longer counts, no seed of the simulator misses. Those lines of `DriverMachine` are
deleted one by one in `tests/unit/control/test_driver_glue.py`, and a test of the machine objects:

| line of glue, deleted | test that objects |
| --- | --- |
"""


def page() -> str:
    """The page as it should be."""
    seeds = json.loads((ROOT / "tests" / "simulation" / "finders.json").read_text())
    rows = [f"| {line} | {bug.replace('_', ' ')} | {seeds[bug]} |\n" for bug, line in LINES.items()]
    glue = (ROOT / "tests" / "unit" / "control" / "test_driver_glue.py").read_text()
    names = dict(re.findall(r"^([A-Z_]+) = \"(.*)\"$", glue, re.MULTILINE))
    listed = glue[glue.index("DELETED: ") : glue.index("@cache")]
    deleted = re.findall(r"\(\s*\"(\w+)\",\s*(?:\"(.*?)\"|'(.*?)'|([A-Z_]+)),\s*(?:tests\.)?(\w+),?\s*\)", listed)
    told = [
        f"| `{method}`: `{(double or single or names[name]).partition('  #')[0]}` | `{test}` |\n"
        for method, double, single, name, test in deleted
    ]
    return HEAD + "".join(rows) + REST + "".join(told)


if __name__ == "__main__":
    PAGE.write_text(page())
