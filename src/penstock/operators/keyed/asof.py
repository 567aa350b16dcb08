"""The half after the shuffle of an as-of join: a left record meets the latest right record of its key up to its time.

The right side is a table that changes: `Match` builds this operator for it. What is the latest at a time is known once
event time has passed that time, so left records wait until then, and leave in the order of time.

=====================  =================================================  ==============================================
with W the watermark   a left record                                      a right record
=====================  =================================================  ==============================================
comes before W         is late: counted, not joined                       is late: counted, no version
comes at or after W    waits                                              is a version of its key
W passes its time      leaves with the last version up to its time, with  takes the place of the versions before it:
                       nulls or not at all where there is none            whoever comes from now on is after it
W passes its time and                                                     is forgotten, where a tolerance is given
the tolerance
=====================  =================================================  ==============================================

So a key costs one version, and as many more as are ahead of the watermark. Of several versions of one time the last one
by their other columns counts, nulls first: an order of arrival would be another one in a replay.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.operators.base import RecordForm, Result
from penstock.operators.errors import Errors
from penstock.operators.keyed.bounds import UNBOUNDED_US
from penstock.operators.keyed.held import HIGH_US, HoldingOperator
from penstock.operators.keyed.match_once import order_source, watermark_source
from penstock.operators.keyed.state import Name
from penstock.operators.keyed.tag import Side
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.types import Record, Schema

if TYPE_CHECKING:
    from penstock.operators.keyed.join import Join

_TIME = itemgetter(0)
Entry = tuple[Any, ...]
"""A record's place in the order of its side: time, columns, and its number, to which equal records come only."""


class AsOfOperator(HoldingOperator):
    """The state of one instance: left records that wait, and versions by key, numbered in the order of arrival."""

    hears_loading = True

    def __init__(self, of: Join, left: Schema, right: Schema, schema: Schema, errors: Errors) -> None:
        self._of = of
        self.state = self._open(errors.operation)
        self._rows = self.state.open()
        self._ahead: list[Entry] = []
        self._versions: dict[Any, list[Entry]] = {}
        # When the versions of a key are to be looked at: as soon as the watermark has passed a time.
        self._due: list[tuple[int, int, Any]] = []
        output = of.bind(left, right)
        scope = self._compile(left, right, output, errors)
        self._key: Callable[[Record], Any] = scope["key"]
        self._entry: Callable[[int, Record], Entry] = scope["entry"]
        self._pair: Callable[[Record, Record], Record] = scope["pair"]
        self._alone: Callable[[Record], Record] = scope["alone"]
        super().__init__(self._compile_arrival(scope, errors), schema=schema, output=output)

    @property
    def held_records(self) -> int:
        """How many records are held: left ones that wait, and versions."""
        return len(self._rows)

    def _compile(self, left: Schema, right: Schema, output: Schema, errors: Errors) -> dict[str, Any]:
        of, scope = self._of, {"T": output.record_type}
        pair, alone, _ = of.output_source(left, right)
        lefts = order_source([(f"r._l{i}", f.type) for i, f in enumerate(of.plain_columns(left, Side.LEFT))], scope)
        rights = order_source([(f"r._r{i}", f.type) for i, f in enumerate(of.plain_columns(right, Side.RIGHT))], scope)
        lines = [f"def key(r): return {key_source(of.tagged_keys)}"]
        lines += [f"def pair(x, y): return T({pair})", f"def alone(x): return T({alone})"]
        lines += [f"def entry(n, r): return (r._t, {rights}n) if r._side else (r._t, {lefts}n)"]
        exec(compile("\n".join(lines), f"<penstock {errors.operation}>", "exec"), scope)
        return scope

    def _compile_arrival(self, scope: dict[str, Any], errors: Errors) -> RecordForm:
        body = ["if r._t < watermark_us:", "    late_records += 1", "    continue", "held[n] = r"]
        body += ["if r._side: add_version(n, r)", "else: heappush(ahead, entry(n, r))", "n += 1"]
        names = {"op": self, "held": self._rows, "changed": self._rows.changed, "ahead": self._ahead}
        names |= {"entry": scope["entry"], "heappush": heappush, "add_version": self._add_version}
        before = [*watermark_source(self._of.lateness_us), "n = op.next_number"]
        after = ["changed.update(dict.fromkeys(range(op.next_number, n)))", "op.next_number = n"]
        return compile_loop(errors.operation, body, names, errors, before=before, after=after, counts_late=True)

    def _add_version(self, number: int, row: Record) -> None:
        """Take note of what a key is from a time on."""
        key, entry = self._key(row), self._entry(number, row)
        versions = self._versions.get(key)
        if versions is None:
            self._versions[key] = [entry]
        elif versions[-1] < entry:
            versions.append(entry)
        else:
            insort(versions, entry)
        heappush(self._due, (row._t, number, key))

    def advance(self, watermark_us: int) -> Result:
        watermark_us -= self._of.lateness_us
        if watermark_us <= self.watermark_us:
            return Result([])
        self.watermark_us = watermark_us
        out = self._take_before(watermark_us)
        self._forget(watermark_us)
        return Result(out)

    def _take_before(self, time_us: int) -> list[Record]:
        """Left records before a time, each with its version, in the order of time."""
        ahead, rows, changed, versions_of = self._ahead, self._rows, self._rows.changed, self._versions
        inner, reach_us = not self._of.how.keeps_left, -self._of.bounds.low_us
        out: list[Record] = []
        while ahead and ahead[0][0] < time_us:
            at_us, *_, number = heappop(ahead)
            row = rows.pop(number, None)
            if row is None:
                continue  # of a state that was loaded, and has changed since
            changed[number] = None
            versions = versions_of.get(self._key(row))
            if versions:
                before = len(versions)
                if versions[-1][0] > at_us:
                    before = bisect_right(versions, at_us, key=_TIME)
                if before and at_us - versions[before - 1][0] <= reach_us:
                    out.append(self._pair(row, rows[versions[before - 1][-1]]))
                    continue
            if not inner:
                out.append(self._alone(row))
        return out

    def _forget(self, watermark_us: int) -> None:
        """Let go of versions that no record at or after the watermark can meet."""
        due, tolerance_us = self._due, -self._of.bounds.low_us
        expires = self._of.bounds.low_us != UNBOUNDED_US
        while due and due[0][0] < watermark_us:
            _, _, key = heappop(due)
            versions = self._versions.get(key)
            if versions is None:
                continue
            passed = bisect_right(versions, watermark_us - 1, key=_TIME)
            kept = passed - 1 if passed else 0
            if expires and passed and versions[kept][0] + tolerance_us < watermark_us:
                kept = passed
            for *_, number in versions[:kept]:
                del self._rows[number]
                self._rows.changed[number] = None
            del versions[:kept]
            if not versions:
                del self._versions[key]
            elif expires and versions[0][0] < watermark_us:
                heappush(due, (versions[0][0] + tolerance_us, versions[0][-1], key))

    def finish(self) -> Result:
        out = self._take_before(HIGH_US)
        self._rows.changed.update(dict.fromkeys(self._rows))
        for each in (self._rows, self._versions, self._due):
            each.clear()
        return Result(out)

    def on_loaded(self, name: Name, number: int, row: Any, before: Any) -> None:
        del name
        if row is not None and before is None:
            if row._side:
                self._add_version(number, row)
            else:
                heappush(self._ahead, self._entry(number, row))
        elif row is None and before._side and (versions := self._versions.get(key := self._key(before))):
            del versions[bisect_left(versions, self._entry(number, before))]
            if not versions:
                del self._versions[key]

    def caught_up(self, headers: Sequence[Any]) -> None:
        super().restored(headers)

    def restored(self, headers: Sequence[Any]) -> None:
        super().restored(headers)
        entries = [(row, self._entry(number, row)) for number, row in self._rows.items()]
        self._ahead += [entry for row, entry in entries if not row._side]
        for row, entry in entries:
            if row._side:
                self._versions.setdefault(self._key(row), []).append(entry)
        for key, versions in self._versions.items():
            versions.sort()
            self._due += [(entry[0], entry[-1], key) for entry in versions]
        heapify(self._ahead)
        heapify(self._due)
