"""The state half of a running aggregation whose keys have a time to live, by event time.

A record that is more than the time to live after the newest one of its key begins the aggregate anew, and one that is
behind the watermark of its own partition is late: counted, and in no aggregate. So once the watermark has passed a
key's newest record by more than that, nothing can be added to what is held, and it is forgotten. When that happens in
truth changes no result, which is why it may be done a few keys at a time, and why a replay gives the same. Processing
time would not: a record would meet its key, or not, by how fast a job recovers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.durations import format_us
from penstock.operators.base import RecordForm, Result, StatefulOperator
from penstock.operators.errors import Errors
from penstock.operators.keyed.match_once import watermark_source
from penstock.operators.keyed.panes import no_time
from penstock.operators.keyed.state import KeyedState, Name
from penstock.operators.keyed.windows import Emit
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.types import Schema, attribute

if TYPE_CHECKING:
    from penstock.operators.keyed.aggregation import Aggregation

FORGOTTEN_MAX = 1_000
"""Keys that are looked at in one call."""
BUCKETS = 16
"""Keys wait by buckets of time, this many in the time to live."""
_LOW = -(1 << 63)


@dataclass(frozen=True)
class TimeToLive:
    """How long a key is kept after its newest record, and which column says when that was."""

    on: str
    us: int

    def __str__(self) -> str:
        return f"kept for {format_us(self.us)} of {self.on}"


class ExpiringOperator(StatefulOperator):
    """The state of one instance: accumulators by key, each with the newest time of its records.

    Attributes
    ----------
    watermark_us : int
        Records before this time are late.
    """

    hears_loading = True

    def __init__(self, of: Aggregation, ttl: TimeToLive, schema: Schema, errors: Errors) -> None:
        self.watermark_us = _LOW
        self._of = of
        self._ttl = ttl
        self._errors = errors
        self._accumulator = of.accumulator("t")
        self.state = KeyedState(errors.operation, several=len(of.keys) != 1, load=self._load, notes_fresh=True)
        self._held = self.state.open()
        self._bucket_us = max(1, ttl.us // BUCKETS)
        # Every key that is held is in one bucket, of its newest time or an earlier one.
        self._buckets: dict[int, list[Any]] = {}
        output = of.bind(schema)
        super().__init__(self._compile(output), schema=schema, output=output)

    @property
    def held_keys(self) -> int:
        """How many keys are held."""
        return len(self._held)

    def _load(self, name: Name, key: Any, slots: list[Any]) -> msgspec.Struct:
        del name, key
        return self._accumulator(*slots)

    def _compile(self, output: Schema) -> RecordForm:
        of, ttl = self._of, self._ttl
        body = [f"t = r.{attribute(ttl.on)}", f"if t is None: no_time({ttl.on!r})"]
        body += ["if t < watermark_us:", "    late_records += 1", "    continue"]
        body.append(f"k = {key_source(of.keys) if of.keys else '()'}")
        names = [tuple(f"x{i}_{j}" for j in range(len(each))) for i, each in enumerate(of.of_record())]
        for group, expressions in zip(names, of.of_record(), strict=True):
            body += [f"{name} = {each}" for name, each in zip(group, expressions, strict=True)]
        flat = ", ".join(name for group in names for name in group)
        absorbing = list(zip((each for _, each in of.aggregates), of.kept_places, names, strict=True))
        body += ["a = s.get(k)", f"if a is None or t > a.t + {ttl.us}:"]
        body += ["    if a is None: op.began(k, t)", f"    s[k] = a = A({flat}, t)", "else:"]
        body += [f"    {line}" for each, slots, other in absorbing for line in each.before_absorb(slots, other)]
        body.append("    if t > a.t: a.t = t")
        body += [f"    {line}" for each, slots, other in absorbing for line in each.absorb(slots, other)]
        body.append("touched[k] = a")
        before, after = [*watermark_source(0), "touched = {}"], ["s.changed.update(touched)"]
        if of.emit is Emit.EVERY:
            body.append("append(row(k, None, a))")
        else:
            after.append("for k, a in touched.items(): append(row(k, None, a))")
        scope = {**of.names, "op": self, "s": self._held, "A": self._accumulator, "no_time": no_time}
        scope["row"] = of.compile_row(output, self._errors.operation)
        return compile_loop(
            self._errors.operation, body, scope, self._errors, before=before, after=after, counts_late=True
        )

    def began(self, key: Any, time_us: int) -> None:
        """Take note of a new key."""
        assert self._held.fresh is not None
        self._held.fresh.append(key)
        self._buckets.setdefault(time_us // self._bucket_us, []).append(key)

    def advance(self, watermark_us: int) -> Result:
        if watermark_us > self.watermark_us:
            self.watermark_us = watermark_us
            self._forget()
        return Result([])

    def _forget(self) -> None:
        """Look at some of the keys whose bucket is so old that they may be; those that are newer wait again."""
        expired_us = self.watermark_us - self._ttl.us
        buckets, held, left = self._buckets, self._held, FORGOTTEN_MAX
        while left and buckets and (oldest := min(buckets)) < expired_us // self._bucket_us:
            waiting = buckets[oldest]
            looked_at = waiting[-left:]
            del waiting[-left:]
            left -= len(looked_at)
            if not waiting:
                del buckets[oldest]
            for key in looked_at:
                if key not in held:
                    continue  # of a state that was loaded, and has changed since
                newest_us = held[key].t
                if newest_us < expired_us:
                    del held[key]
                    held.changed[key] = None
                else:
                    buckets.setdefault(newest_us // self._bucket_us, []).append(key)

    def finish(self) -> Result:
        return Result([])

    def header(self) -> Any:
        return self.watermark_us

    def on_loaded(self, name: Name, key: Any, held: Any, before: Any) -> None:
        del name
        if held is not None and before is None:
            self._buckets.setdefault(held.t // self._bucket_us, []).append(key)

    def caught_up(self, headers: Sequence[Any]) -> None:
        self.watermark_us = max(headers)

    def restored(self, headers: Sequence[Any]) -> None:
        self.caught_up(headers)
        for key, accumulator in self._held.items():
            self._buckets.setdefault(accumulator.t // self._bucket_us, []).append(key)
