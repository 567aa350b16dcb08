"""The half after the shuffle of a join that uses every record up: `Match` builds it where each may be in one pair only.

Which pairs there are depends on the order in which records are taken, so they are held until event time has passed
them and taken in the order of time then, whatever order they came in.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from math import copysign
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.operators.base import RecordForm, Result
from penstock.operators.errors import Errors
from penstock.operators.keyed.held import HIGH_US, LOW_US, HoldingOperator
from penstock.operators.keyed.state import Name
from penstock.operators.keyed.tag import Side
from penstock.operators.keys import key_source
from penstock.operators.loop import compile_loop
from penstock.types import DataType, Record, Schema, TypeKind, attribute

if TYPE_CHECKING:
    from penstock.operators.keyed.join import Join

LONG_QUEUE = 64
"""A key's records wait in a list, which is small; from this length on in a deque, whose first element goes quickly."""
Entry = tuple[Any, ...]
"""A record's place in the order: time, side, columns, and its number, which nothing but an equal record comes to."""
Queue = list[int] | deque[int]


class MatchOnceOperator(HoldingOperator):
    """The state of one instance: records ahead of the watermark in the order of time, and those that wait by key.

    With W the event time that every input has reached, less the lateness: a record whose time is before W when it
    comes is late, counted and not joined. The others are taken once W is after their time: with the first record of
    the other side that waits and is at most ``within`` older, or else to wait. Of a key, records of one side at most
    wait: the first of the other side that could not be paired would have found all of them too old.

    Attributes
    ----------
    oldest_us : int
        No record that waits is older.
    """

    hears_loading = True

    def __init__(self, of: Join, left: Schema, right: Schema, schema: Schema, errors: Errors) -> None:
        self._taken_us = LOW_US
        self.oldest_us = HIGH_US
        self._of = of
        self._outer = of.how.keeps_left, of.how.keeps_right
        self.state = self._open(errors.operation)
        self._rows = self.state.open()
        # From this number on nothing has been looked at since it came.
        self._fresh_number = 0
        self._ahead: list[Entry] = []
        self._waiting: tuple[dict[Any, Queue], dict[Any, Queue]] = ({}, {})
        # Numbers in the order in which they began to wait, which is that of time; some may have been used up.
        self._aging: deque[int] = deque()
        # Those that were loaded as waiting, as a heap: all of them are older than the others.
        self._aged: list[Entry] = []
        output = of.bind(left, right)
        scope = self._compile(left, right, output, errors)
        self._alone: tuple[Callable[[Record], Record], ...] = scope["alone"]
        self._key: Callable[[Record], Any] = scope["key"]
        self._entry: Callable[[int, Record], Entry] = scope["entry"]
        self._due: Callable[[int, int, int], list[Entry]] = scope["due"]
        self._take: Callable[[list[Entry]], list[Record]] = scope["take"]
        super().__init__(self._compile_arrival(errors), schema=schema, output=output)

    @property
    def held_records(self) -> int:
        """How many records are held."""
        return len(self._rows)

    def _compile_arrival(self, errors: Errors) -> RecordForm:
        body = ["if r._t < watermark_us: late_records += 1", "else:", "    rows_held[n] = r", "    n += 1"]
        names = {"op": self, "rows_held": self._rows, "changed": self._rows.changed}
        before = [*watermark_source(self._of.lateness_us), "n = op.next_number"]
        after = ["changed.update(dict.fromkeys(range(op.next_number, n)))", "op.next_number = n"]
        return compile_loop(errors.operation, body, names, errors, before=before, after=after, counts_late=True)

    def _compile(self, left: Schema, right: Schema, output: Schema, errors: Errors) -> dict[str, Any]:
        """Generate what is done with every record, so that it costs no call of ours."""
        of, key = self._of, key_source(self._of.tagged_keys)
        scope: dict[str, Any] = {"T": output.record_type, "op": self, "rows": self._rows, "ahead": self._ahead}
        scope |= {
            "lefts": self._waiting[False],
            "rights": self._waiting[True],
            "aging": self._aging,
            "aged": self._aged,
        }
        scope |= {"changed": self._rows.changed, "deque": deque, "heappush": heappush, "heappop": heappop}
        pair, alone_left, alone_right = of.output_source(left, right)
        lefts = order_source([(f"r._l{i}", f.type) for i, f in enumerate(of.plain_columns(left, Side.LEFT))], scope)
        rights = order_source([(f"r._r{i}", f.type) for i, f in enumerate(of.plain_columns(right, Side.RIGHT))], scope)
        entry = f"(r._t, True, {rights}n) if r._side else (r._t, False, {lefts}n)"
        lines = [f"alone = (lambda x: T({alone_left}), lambda y: T({alone_right}))"]
        lines += [f"def key(r): return {key}", f"def entry(n, r): return {entry}"]
        lines += [
            "def due(first, end, watermark_us):",
            "    found = []",
            "    append = found.append",
            "    for n in range(first, end):",
            "        r = rows[n]",
            f"        each = {entry}",
            "        if each[0] < watermark_us: append(each)",
            "        else: heappush(ahead, each)",
            "    while ahead and ahead[0][0] < watermark_us: append(heappop(ahead))",
            "    found.sort()",
            "    return found",
        ]
        # A null equals nothing; an outer record with one comes when it is taken, so that results are in order of time.
        no_key = " or ".join(f"r.{attribute(name)} is None" for name in of.tagged_keys) if any(self._outer) else "False"
        lines += [
            "def take(entries):",
            "    out = []",
            "    for entry in entries:",
            "        n = entry[-1]",
            "        r = rows[n]",
            f"        low = entry[0] - {of.bounds.high_us}",
            "        if op.oldest_us < low: op.expire(low, out)",
            f"        if {no_key}:",
            "            out.append(alone[r._side](rows.pop(n)))",
            "            changed[n] = None",
            "            continue",
            f"        k = {key}",
            "        queue = lefts.get(k) if r._side else rights.get(k)",
            "        if queue is None:",
            "            mine = rights if r._side else lefts",
            "            queue = mine.get(k)",
            "            if queue is None: mine[k] = [n]",
            "            else:",
            f"                if len(queue) == {LONG_QUEUE}: queue = mine[k] = deque(queue)",
            "                queue.append(n)",
            "            if not aging and not aged: op.oldest_us = entry[0]",
            "            aging.append(n)",
            "            continue",
            "        m = queue[0]",
            "        if len(queue) > 1: del queue[0]",
            "        elif r._side: del lefts[k]",
            "        else: del rights[k]",
            "        if r._side: x, y = rows.pop(m), rows.pop(n)",
            "        else: x, y = rows.pop(n), rows.pop(m)",
            "        changed[m] = changed[n] = None",
            f"        out.append(T({pair}))",
            "    return out",
        ]
        exec(compile("\n".join(lines), f"<penstock {errors.operation}>", "exec"), scope)
        return scope

    def expire(self, before_us: int, out: list[Record]) -> None:
        """Let go of the records that wait and are older; outer ones come out without a partner."""
        aged, aging = self._aged, self._aging
        while aged:
            if not self._expire(aged[0][-1], before_us, out):
                return
            heappop(aged)
        while aging:
            if not self._expire(aging[0], before_us, out):
                return
            aging.popleft()
        self.oldest_us = HIGH_US

    def _expire(self, number: int, before_us: int, out: list[Record]) -> bool:
        """Let go of a record that waits, if it still does, unless it is not older."""
        rows = self._rows
        row = rows.get(number)
        if row is None:
            return True
        if row._t >= before_us:
            self.oldest_us = row._t
            return False
        del rows[number]
        rows.changed[number] = None
        waiting, key = self._waiting[row._side], self._key(row)
        queue = waiting[key]
        # Of its key it has waited longest.
        if len(queue) > 1:
            del queue[0]
        else:
            del waiting[key]
        if self._outer[row._side]:
            out.append(self._alone[row._side](row))
        return True

    def advance(self, watermark_us: int) -> Result:
        watermark_us -= self._of.lateness_us
        if watermark_us <= self.watermark_us:
            return Result([])
        self.watermark_us = self._taken_us = watermark_us
        out = self._take_before(watermark_us)
        self.expire(watermark_us - self._of.bounds.high_us, out)
        return Result(out)

    def _take_before(self, time_us: int) -> list[Record]:
        due = self._due(self._fresh_number, self.next_number, time_us)
        self._fresh_number = self.next_number
        return self._take(due)

    def finish(self) -> Result:
        out = self._take_before(HIGH_US)
        self.expire(HIGH_US, out)
        return Result(out)

    def header(self) -> Any:
        return self.watermark_us, self._taken_us, self.next_number

    def prepare_next(self, header: Any) -> None:
        self._wait_before(header[1])

    def on_loaded(self, name: Name, number: int, row: Any, before: Any) -> None:
        """A record ahead of what is taken goes to the others there, one behind it waits already."""
        del name
        if row is not None and before is None:
            entry = self._entry(number, row)
            if entry[0] >= self._taken_us:
                heappush(self._ahead, entry)
            else:
                self._wait(entry, row)
        elif row is None and before._t < self._taken_us:  # else it is found to be gone when it would be its turn
            waiting, key = self._waiting[before._side], self._key(before)
            queue = waiting.get(key)
            if queue is not None and number in queue:
                queue.remove(number)
                if not queue:
                    del waiting[key]

    def _wait_before(self, taken_us: int) -> None:
        """Records before this time have been taken, while the state was written that is loaded."""
        self._taken_us, ahead = taken_us, self._ahead
        while ahead and ahead[0][0] < taken_us:
            entry = heappop(ahead)
            if (row := self._rows.get(entry[-1])) is not None:
                self._wait(entry, row)

    def _wait(self, entry: Entry, row: Record) -> None:
        """Have a record wait in its place among those of its key."""
        waiting, key = self._waiting[row._side], self._key(row)
        queue = waiting.get(key)
        if queue is None:
            waiting[key] = deque([entry[-1]])
        else:
            rows = self._rows
            insort(queue, entry[-1], key=lambda n: self._entry(n, rows[n]))
        heappush(self._aged, entry)

    def caught_up(self, headers: Sequence[Any]) -> None:
        super().restored([(watermark_us, number) for watermark_us, _, number in headers])
        self._wait_before(min(taken_us for _, taken_us, *_ in headers))
        self._fresh_number = self.next_number
        self.oldest_us = self._aged[0][0] if self._aged else HIGH_US

    def restored(self, headers: Sequence[Any]) -> None:
        super().restored([(watermark_us, number) for watermark_us, _, number in headers])
        # Records that one instance had not come to are taken next; so are some that wait, again: that changes nothing.
        self._taken_us = min(taken_us for _, taken_us, *_ in headers)
        self._fresh_number = self.next_number
        self._place()

    def _place(self) -> None:
        """Find out again which of the records held are to be taken and which ones wait."""
        entries = sorted(self._entry(number, row) for number, row in self._rows.items())
        for entry in entries:
            number = entry[-1]
            if entry[0] >= self._taken_us:
                self._ahead.append(entry)
                continue
            row = self._rows[number]
            self._waiting[row._side].setdefault(self._key(row), deque()).append(number)
            if not self._aging:
                self.oldest_us = entry[0]
            self._aging.append(number)
        heapify(self._ahead)


def watermark_source(lateness_us: int) -> list[str]:
    """Statements that find the watermark before which the records of a call are late."""
    straggler = f"op.straggler_us - {lateness_us}"
    return [
        "watermark_us = op.watermark_us",
        f"if op.straggler_us is not None: watermark_us = max(watermark_us, {straggler})",
    ]


def order_source(columns: list[tuple[str, DataType]], scope: dict[str, Any]) -> str:
    """Source of the elements that put records in the order of these columns, nulls first."""
    made = ""
    for source, data_type in columns:
        order = _order_of(data_type)
        value = source
        if order is not None:
            name = f"order_{len(scope)}"
            scope[name] = order
            value = f"{name}({source})"
        made += f"{source} is not None, {value}, "
    return made


def _order_of(data_type: DataType) -> Callable[[Any], Any] | None:
    """What values of a type are compared by; None where they can be compared as they are."""
    if data_type.is_fractional:
        return _double_order
    if data_type.kind in (TypeKind.MAP, TypeKind.STRUCT):
        return _packed_order
    if data_type.kind is TypeKind.ARRAY:
        assert data_type.element is not None
        return partial(_array_order, _order_of(data_type.element))
    return None


def _packed_order(value: object) -> bytes | None:
    """What has no order of its own is compared by its bytes."""
    return None if value is None else msgspec.msgpack.encode(value)


def _double_order(value: float | None) -> Entry | None:
    """NaN after all numbers; the zeros differ, or the result would depend on which of them came first."""
    if value is None:
        return None
    return (True, 0.0, 0.0) if value != value else (False, value, copysign(1.0, value))


def _array_order(order: Callable[[Any], Any] | None, values: list[Any] | None) -> Entry | None:
    if values is None:
        return None
    return tuple((each is not None, order(each) if order else each) for each in values)
