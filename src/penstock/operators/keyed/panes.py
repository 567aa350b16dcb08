"""Source that puts records into windows, for both halves of an aggregation: by panes, which no window divides."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import BadRecord
from penstock.operators.keyed.aggregates import Aggregate
from penstock.operators.keyed.windows import Window
from penstock.types import attribute


def no_time(column: str) -> None:
    """Refuse a record without a time; the source of `pane_source` calls it."""
    raise BadRecord(f"the window's time column '{column}' is null.")


def pane_source(window: Window) -> list[str]:
    """Statements that find the pane ``w`` of record ``r``, and its time ``t``."""
    return [f"t = r.{attribute(window.on)}", f"if t is None: no_time({window.on!r})", f"w = t - t % {window.pane_us}"]


def spread_source(
    aggregates: Sequence[Aggregate],
    places: Sequence[tuple[str, ...]],
    values: Sequence[tuple[str, ...]],
    touches: bool,
) -> list[str]:
    """Statements by which the accumulators of key ``k`` in all open windows of pane ``w`` absorb ``values``.

    The names are those of a `ReduceOperator`: ``starts`` gives a pane's windows, ``windows`` the accumulators, ``A``
    makes one, and ``touched`` takes those that have changed, where that is wanted.
    Everything that may raise comes before the first change: a bad record is in all of its windows or in none.
    The values are made anew for each window, because a user's state may be changed in place.
    """
    names = [tuple(f"x{i}_{j}" for j in range(len(each))) for i, each in enumerate(values)]
    made = [
        f"{name} = {value}"
        for group, each in zip(names, values, strict=True)
        for name, value in zip(group, each, strict=True)
    ]
    flat = ", ".join(name for group in names for name in group)
    absorbing = list(zip(aggregates, places, names, strict=True))
    checked = [line for each, slots, other in absorbing for line in each.before_absorb(slots, other)]
    absorbed = [line for each, slots, other in absorbing for line in each.absorb(slots, other)]
    return [
        "todo = []",
        "for u in starts(w):",
        "    if u <= until_us: continue",
        *(f"    {line}" for line in made),
        "    s = windows.get(u)",
        "    a = None if s is None else s.get(k)",
        *(["    if a is not None:", *(f"        {line}" for line in checked)] if checked else []),
        f"    todo.append((u, a, {flat}))",
        f"for u, a, {flat} in todo:",
        "    s = windows.get(u)",
        "    if s is None: s = open_window(u)",
        "    if a is None:",
        f"        s[k] = a = A({flat})",
        "        s.fresh.append(k)",
        "    else:",
        *(f"        {line}" for line in absorbed),
        "    s.changed[k] = a",
        *(["    touched[u, k] = a"] if touches else []),
    ]
