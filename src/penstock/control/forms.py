"""When which operations change form: the analysing and planning half of the control loop; the scheduler asks. Pure.

Why it decides as it does is told in `docs/decisions/0007-when-to-switch.md`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.control.analysis import AppliedLaw, WantedSwitch
from penstock.control.candidates import NOWHERE, OpMeasure, UnitMeasure, candidate, capacity_eps, wider
from penstock.control.laws.switch_point import US_PER_S
from penstock.errors import InvalidOption
from penstock.operators import Form
from penstock.pipeline.ranges import NONE, Range

__all__ = ["OpMeasure", "Switcher", "UnitMeasure", "WantedSwitch"]

TRIPS_MAX = 3
"""Ways up and back within TRIPS_WINDOW_US that are no thrashing; after more of them batch forms are kept for longer."""
TRIPS_WINDOW_US = 60_000_000
HOLD_US_MAX = 60_000_000
BACKOFF_US_MIN = 1_000_000
BACKOFF_US_MAX = 60_000_000
PENDING_US_MAX = 10_000_000
"""A switch of which nothing was heard for this long is wanted again."""
NOTES_MAX = 1_000
PRESSED_MIN = 2
"""Consecutive measurements of a long backlog that does not go down, after which a range in batch form is widened."""
SHRINKING = 0.95
"""A backlog goes down if it loses at least the rest within a control interval, and with it is gone in some seconds."""


@dataclass(slots=True)
class _UnitState:
    """What is remembered of a unit between two looks at it."""

    hold_us: int
    range: Range = NONE
    since_us: int | None = None
    eased_us: int = 0
    up: bool = False
    up_us: int = 0
    back_us: int | None = None
    trips: deque[int] = field(default_factory=lambda: deque(maxlen=TRIPS_MAX + 1))
    """When the last ways up that were followed by a way back began."""
    backoff_us: int = 0
    blocked_until_us: int = 0
    pending_until_us: int = 0
    calm_since_us: int | None = None
    pressed: int = 0
    backlog_records: float = float("inf")
    """At the last look; infinite before the first, which therefore never counts as growth."""
    noted: str = ""


class Switcher:
    """Decides which operations change form, from what is measured of them at every control interval.

    The caller carries switches out and says what has become of them: `switched` or `failed`. Until then nothing more
    is decided for the unit.

    Parameters
    ----------
    delta : float
        Hysteresis around the switch point, between 0 and 1.
    hold_us : int
        Least time in batch form before the way back. It doubles, up to a minute, when a unit goes up and back more than
        three times within a minute, or goes up again sooner than the hold after it went back. It halves after every
        minute in which it was not doubled.
    gain_min : float
        How much more a unit must carry with a range in batch form.
    calm_us : int
        How long the conditions of the way back must hold.
    lead_us : int
        How long a switch takes until it has an effect. A queue that is gone by then is no reason for one.
    pause_us : int
        How long a range stands still in a switch; what arrives meanwhile waits for the form that takes over.

    Attributes
    ----------
    notes : list of str
        Why units under pressure were left as they are, with the time; each said once.
    """

    def __init__(
        self,
        *,
        delta: float = 0.2,
        hold_us: int = 2_000_000,
        gain_min: float = 1.2,
        calm_us: int = 500_000,
        lead_us: int = 300_000,
        pause_us: int = 50_000,
    ) -> None:
        if not 0.0 < delta < 1.0:
            raise InvalidOption(option="delta", given=delta, allowed="a number between 0 and 1, both excluded")
        if gain_min < 1.0:
            raise InvalidOption(option="gain_min", given=gain_min, allowed="1 or more")
        for option, given in {"hold_us": hold_us, "calm_us": calm_us, "lead_us": lead_us, "pause_us": pause_us}.items():
            if given < 0:
                raise InvalidOption(option=option, given=given, allowed="0 or more")
        self.notes: list[str] = []
        self._delta = delta
        self._hold_us = hold_us
        self._gain_min = gain_min
        self._calm_us = calm_us
        self._lead_s = lead_us / US_PER_S
        self._pause_s = pause_us / US_PER_S
        self._states: dict[int, _UnitState] = {}

    def decide(self, now_us: int, units: Sequence[UnitMeasure]) -> list[WantedSwitch]:
        """Return what should change now; call it at every control interval with fresh figures."""
        wanted = []
        for unit in units:
            state = self._state(unit.unit)
            self._ease(state, now_us)
            if not unit.operations or now_us < max(state.blocked_until_us, state.pending_until_us):
                continue
            switch = self._decide(now_us, self._relieved(now_us, unit, state), state)
            if switch is not None:
                state.pending_until_us = now_us + PENDING_US_MAX
                state.noted = ""
                wanted.append(switch)
        return wanted

    def switched(self, unit: int, chosen: Range, now_us: int) -> None:
        """Take note of what really is in batch form from now on."""
        state = self._state(unit)
        before, after = len(state.range), len(chosen)
        state.range = chosen
        state.since_us = now_us
        state.pending_until_us = state.blocked_until_us = state.backoff_us = 0
        state.calm_since_us, state.pressed, state.backlog_records = None, 0, float("inf")
        if after > before and not state.up:
            state.up, state.up_us = True, now_us
            if state.back_us is not None and now_us - state.back_us < state.hold_us:
                self._hold_longer(state, unit, now_us)
        elif after < before:
            state.up, state.back_us = False, now_us
            state.trips.append(state.up_us)
            if len(state.trips) > TRIPS_MAX and now_us - state.trips[0] <= TRIPS_WINDOW_US:
                self._hold_longer(state, unit, now_us)

    def failed(self, unit: int, now_us: int) -> None:
        """Take note that a switch could not be done: the next one is decided later, each time twice as late."""
        state = self._state(unit)
        state.backoff_us = min(max(2 * state.backoff_us, BACKOFF_US_MIN), BACKOFF_US_MAX)
        state.blocked_until_us = now_us + state.backoff_us
        state.pending_until_us = 0
        state.calm_since_us, state.pressed = None, 0
        self._note(state, now_us, f"unit {unit}: a switch failed, the next try is in {_s(state.backoff_us)}")

    # --- one unit -----------------------------------------------------------------------------------------------------

    def _decide(self, now_us: int, unit: UnitMeasure, state: _UnitState) -> WantedSwitch | None:
        operations = unit.operations
        offset = operations[0].index
        span = range(state.range.first - offset, state.range.last - offset + 1) if state.range else NOWHERE
        span = range(max(span.start, 0), min(span.stop, len(operations))) or NOWHERE
        pinned = _pinned(operations)
        if not set(pinned) <= set(span):
            joined = range(min(span.start, pinned.start), max(span.stop, pinned.stop)) if span else pinned
            if all(operations[position].batchable for position in joined):
                return WantedSwitch.between(unit, span, joined, "pinned to batch form", {}, now_us)
            return WantedSwitch.between(unit, span, NOWHERE, "makes way for what is pinned to batch form", {}, now_us)
        if not all(operations[position].batchable for position in span):
            return WantedSwitch.between(unit, span, pinned, "must be in record form", {}, now_us)
        if span:
            return self._in_batch_form(now_us, unit, state, span, pinned)
        return self._in_record_form(now_us, unit, state)

    def _relieved(self, now_us: int, unit: UnitMeasure, state: _UnitState) -> UnitMeasure:
        """Leave out what those behind the unit are to blame for, and say so."""
        relieved = unit.without_back_pressure(self._delta / 2)
        if relieved is not unit and _strained(unit) and not _strained(relieved):
            self._note(state, now_us, f"unit {unit.unit} is held up by what is behind it: a switch would gain nothing")
        return relieved

    def _in_record_form(self, now_us: int, unit: UnitMeasure, state: _UnitState) -> WantedSwitch | None:
        span = candidate(unit.operations, unit.arrival_eps / (1 - self._delta / 2), self._gain_min)
        view = AppliedLaw.of(unit, span, self._delta)
        if view is None:
            if _strained(unit) and any(op.batchable for op in unit.operations):
                known = capacity_eps(unit.operations) is not None and any(op.batch_eps for op in unit.operations)
                why = "batches would gain nothing" if known else "rates are not known yet"
                self._note(state, now_us, f"unit {unit.unit} stays in record form under load: {why}")
            return None
        # The queue as it will be when a switch has its effect: one that the record form empties by then is no burst.
        if view.left_records(self._lead_s) <= view.law.up_records:
            return None
        reason = (
            f"queue {view.queue_records:,.0f} > L_up {view.law.up_records:,.0f}: {view.arrival_eps:,.0f}/s arrive, "
            f"record form carries {view.record_eps:,.0f}/s, batch form {view.batch_eps:,.0f}/s"
        )
        return WantedSwitch.between(unit, NOWHERE, span, reason, view.inputs(), now_us)

    def _in_batch_form(
        self, now_us: int, unit: UnitMeasure, state: _UnitState, span: range, pinned: range
    ) -> WantedSwitch | None:
        view = AppliedLaw.of(unit, span, self._delta)
        if view is None:
            self._note(state, now_us, f"unit {unit.unit} stays in batch form: rates are not known")
            return None
        self._watch(state, view)
        if state.pressed >= PRESSED_MIN:
            target = wider(unit.operations, span, self._gain_min)
            if target:
                more = capacity_eps(unit.operations, target) or 0.0
                reason = (
                    f"backlog {view.backlog_records:,.0f} > L_up {view.law.up_records:,.0f} and does not go down: "
                    f"{unit.arrival_eps:,.0f}/s arrive, a wider range carries {more:,.0f}/s"
                )
                return WantedSwitch.between(unit, span, target, reason, view.inputs(), now_us)
            self._note(state, now_us, f"unit {unit.unit} falls behind in batch form: nothing more gains by joining")
        disappoints = view.batch_eps * self._gain_min <= view.record_eps
        if span != pinned and disappoints and self._has_held(now_us, state):
            reason = f"batch form carries {view.batch_eps:,.0f}/s, less than record form with {view.record_eps:,.0f}/s"
            return WantedSwitch.between(unit, span, pinned, reason, view.inputs(), now_us)
        if span == pinned or not self._calm(view):
            state.calm_since_us = None
            return None
        if state.calm_since_us is None:
            state.calm_since_us = now_us
        if not self._has_held(now_us, state) or now_us - state.calm_since_us < self._calm_us:
            return None
        reason = (
            f"backlog {view.backlog_records:,.0f} < L_down {view.law.down_records:,.0f} for {_s(self._calm_us)}: "
            f"{view.arrival_eps:,.0f}/s arrive, record form carries {view.record_eps:,.0f}/s"
        )
        return WantedSwitch.between(unit, span, pinned, reason, view.inputs(), now_us)

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _calm(self, view: AppliedLaw) -> bool:
        """Whether the record form would carry the load again, in every instance, although it takes a queue over."""
        carries = view.arrival_eps * view.unit.spread <= (1 - self._delta / 2) * view.record_eps
        left_records = view.left_records(self._lead_s) + view.arrival_eps * self._pause_s
        settles = left_records <= view.law.switch_records
        return carries and settles and view.backlog_records < view.law.down_records

    @staticmethod
    def _has_held(now_us: int, state: _UnitState) -> bool:
        return state.since_us is None or now_us - state.since_us >= state.hold_us

    @staticmethod
    def _watch(state: _UnitState, view: AppliedLaw) -> None:
        """Count how often in a row the backlog was too long and hardly shorter than before; no change is no news."""
        backlog_records = view.backlog_records
        if backlog_records <= view.law.up_records or backlog_records < SHRINKING * state.backlog_records:
            state.pressed = 0
        elif backlog_records != state.backlog_records:
            state.pressed += 1
        state.backlog_records = backlog_records

    # --- memory -------------------------------------------------------------------------------------------------------

    def _state(self, unit: int) -> _UnitState:
        return self._states.setdefault(unit, _UnitState(self._hold_us))

    def _hold_longer(self, state: _UnitState, unit: int, now_us: int) -> None:
        state.hold_us = max(state.hold_us, min(2 * state.hold_us, HOLD_US_MAX))
        state.eased_us = now_us
        self._note(state, now_us, f"unit {unit} goes up and back often: batch form is kept {_s(state.hold_us)}")

    def _ease(self, state: _UnitState, now_us: int) -> None:
        """Halve a lengthened hold for every minute in which it was not lengthened."""
        while state.hold_us > self._hold_us and now_us - state.eased_us >= TRIPS_WINDOW_US:
            state.hold_us = max(self._hold_us, state.hold_us // 2)
            state.eased_us += TRIPS_WINDOW_US

    def _note(self, state: _UnitState, now_us: int, text: str) -> None:
        if text == state.noted:
            return
        state.noted = text
        self.notes.append(f"{now_us / US_PER_S:.3f} s: {text}")
        del self.notes[:-NOTES_MAX]


def _strained(unit: UnitMeasure) -> bool:
    """Whether a unit of which no range can be considered has more waiting than arrives within an interval."""
    return unit.queue_records > max(1.0, unit.arrival_eps * unit.interval_us / US_PER_S)


def _pinned(operations: Sequence[OpMeasure]) -> range:
    """Positions from the first pinned to batch form to the last; a second range of them is refused before the start."""
    positions = [position for position, op in enumerate(operations) if op.pinned is Form.BATCH]
    if not positions:
        return NOWHERE
    span = range(positions[0], positions[-1] + 1)
    return range(span.start, next((p for p in span if not operations[p].batchable), span.stop))


def _s(time_us: float) -> str:
    return f"{time_us / US_PER_S:g} s"
