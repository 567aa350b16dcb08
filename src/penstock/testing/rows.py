"""Compares rows exactly, and says in words which ones differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.types import Record, nested_dict

SHOWN_MAX = 10
_WIDTH_MAX = 300
_COMPARED_MAX = 1_000_000
"""Pairs of rows that are looked at to find which ones are meant to be the same."""

Row = Mapping[str, object]


def assert_rows(
    found: Iterable[object], expected: Iterable[object], *, in_order: bool = False, tolerance: float = 0.0
) -> None:
    """Raise AssertionError unless the rows are exactly the expected ones, with a line for each that differs.

    Parameters
    ----------
    found, expected : iterable of dict or record
        Each row as often as it is meant to come. NaN equals NaN.
    in_order : bool
        Whether their order counts too.
    tolerance : float
        By how much a fraction may be off, as a share of it; a sum of them depends on the order of the additions.

    Examples
    --------
    >>> assert_rows([{"k": "a", "n": 2}], [{"k": "a", "n": 3}])
    Traceback (most recent call last):
    AssertionError: 1 row found, 1 expected: 1 missing, 1 unexpected
      expected    {'k': 'a', 'n': 3}
      found       {'k': 'a', 'n': 2}: n is 2, not 3
    """
    __tracebackhide__ = True
    have, want = [as_dict(row) for row in found], [as_dict(row) for row in expected]
    text = difference(have, want, tolerance)
    if text is None and in_order:
        text = _disorder(have, want, tolerance)
    if text is not None:
        raise AssertionError(text)


def as_dict(row: object) -> Row:
    """A row as a dict."""
    if isinstance(row, Record) or hasattr(row, "_columns"):
        return nested_dict(row)  # type: ignore[arg-type]
    if isinstance(row, Mapping):
        return row
    raise TypeError(f"{row!r} is no row: give a dict or a record")


def difference(found: Sequence[Row], expected: Sequence[Row], tolerance: float = 0.0) -> str | None:
    """Say how rows differ from the expected ones, whatever their order; None: they do not."""
    have, want = Counter(map(_frozen, found)), Counter(map(_frozen, expected))
    if have == want:
        return None
    missing = _rows(expected, want - have)
    unexpected = _rows(found, have - want)
    if tolerance:
        _leave_out_close(missing, unexpected, tolerance)
        if not missing and not unexpected:
            return None
    lines = [
        f"{_rows_word(len(found))} found, {len(expected)} expected: "
        f"{len(missing)} missing, {len(unexpected)} unexpected"
    ]
    near = len(missing) * len(unexpected) <= _COMPARED_MAX
    for row in missing[:SHOWN_MAX]:
        nearest = min(unexpected, key=lambda other: _distance(row, other), default=None) if near else None
        if nearest is None or _distance(row, nearest) > (len(row) + 1) // 2:
            lines.append(f"  missing     {_shown(row)}{_often(row, have, want)}")
        else:
            unexpected.remove(nearest)
            wrong = "; ".join(_columns(nearest, row))
            lines += [f"  expected    {_shown(row)}", f"  found       {_shown(nearest)}: {wrong}"]
    lines += [f"  unexpected  {_shown(row)}{_often(row, have, want)}" for row in unexpected[:SHOWN_MAX]]
    left = max(0, len(missing) - SHOWN_MAX) + max(0, len(unexpected) - SHOWN_MAX)
    return "\n".join([*lines, *([f"  … and {left} more"] if left else [])])


def _leave_out_close(missing: list[Row], unexpected: list[Row], tolerance: float) -> None:
    """Take out pairs of rows that differ in their fractions only, and by little."""
    alike: dict[object, list[Row]] = {}
    for row in unexpected:
        alike.setdefault(_frozen(row, fractions=False), []).append(row)
    for row in list(missing):
        candidates = alike.get(_frozen(row, fractions=False), [])
        found = next((each for each in candidates if _is_close(each, row, tolerance)), None)
        if found is not None:
            candidates.remove(found)
            missing.remove(row)
            unexpected.remove(found)


def _is_close(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two values, equal but for fractions, differ by little."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(one, Mapping):
        return all(_is_close(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list | tuple):
        return all(_is_close(a, b, tolerance) for a, b in zip(one, other, strict=True))
    return True


def _disorder(found: Sequence[Row], expected: Sequence[Row], tolerance: float) -> str | None:
    for at, (have, want) in enumerate(zip(found, expected, strict=True)):
        same = _frozen(have, fractions=not tolerance) == _frozen(want, fractions=not tolerance)
        if not same or (tolerance and not _is_close(have, want, tolerance)):
            return f"the rows are the expected ones in another order: row {at} is {_shown(have)}, not {_shown(want)}"
    return None


def _rows(rows: Sequence[Row], wanted: Counter[Any]) -> list[Row]:
    """Those of the rows that are in the counter, as often as they are."""
    left, found = Counter(wanted), []
    for row in rows:
        key = _frozen(row)
        if left[key] > 0:
            left[key] -= 1
            found.append(row)
    return found


def _distance(one: Row, other: Row) -> int:
    return sum(1 for name in {**one, **other} if _value(one, name) != _value(other, name))


def _columns(found: Row, expected: Row) -> list[str]:
    texts = []
    for name in {**expected, **found}:
        if name not in found:
            texts.append(f"there is no column {name}")
        elif name not in expected:
            texts.append(f"column {name} is not expected")
        elif _value(found, name) != _value(expected, name):
            texts.append(f"{name} is {_shown(found[name])}, not {_shown(expected[name])}")
    return texts


def _often(row: Row, have: Counter[Any], want: Counter[Any]) -> str:
    key = _frozen(row)
    return f": it is there {have[key]} times, not {want[key]}" if have[key] and want[key] else ""


def _value(row: Row, name: str) -> object:
    return _frozen(row[name]) if name in row else _frozen


def _frozen(value: Any, *, fractions: bool = True) -> Any:
    """The same value as something that can be counted; NaN equals NaN, 1 and True differ."""
    if isinstance(value, float) and (not fractions or math.isnan(value)):
        return "float", "nan" if fractions else ""
    if isinstance(value, Mapping):
        return frozenset((str(key), _frozen(each, fractions=fractions)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(each, fractions=fractions) for each in value)
    return (type(value), value) if isinstance(value, bool) else value


def _shown(value: object) -> str:
    text = repr(dict(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= _WIDTH_MAX else f"{text[:_WIDTH_MAX]}…"


def _rows_word(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"
