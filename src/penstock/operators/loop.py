"""The one loop that every record form is: generated source around a body, so that a record costs no call of ours.

An exception in the body is handed to the operation's error policy together with its record, and the loop goes on with
the next one; nothing before the bad record is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from operator import length_hint
from typing import Any

from penstock.operators.base import RecordForm, Result, result_of
from penstock.operators.errors import Errors

_INDENT = " " * 16


def compile_loop(
    name: str,
    body: Iterable[str],
    namespace: Mapping[str, object],
    errors: Errors,
    *,
    before: Iterable[str] = (),
    after: Iterable[str] = (),
    sides: str = "None",
    counts_late: bool = False,
) -> RecordForm:
    """Compile ``for r in rows: body`` into a function from records to a result.

    Parameters
    ----------
    name : str
        Operation name, shown in tracebacks.
    body : iterable of str
        Statements over ``r``, with ``append`` and the list ``out`` for output.
    namespace : mapping
        What the body refers to.
    before, after : iterable of str
        Statements that run once per call, before and after the loop.
    sides : str
        Expression for the records of the other ports, after the loop.
    counts_late : bool
        Whether the body adds those that are late to ``late_records``.
    """
    late = ", late_records" if counts_late else ""
    beside = "" if sides == "None" else f", {sides}"
    held = "{}" if sides == "None" else f"({sides}) or {{}}"
    lines = [
        "def process(rows):",
        "    out = []",
        "    append = out.append",
        "    failures = None",
        *(["    late_records = 0"] if counts_late else []),
        *(f"    {line}" for line in before),
        "    it = left = iter(rows)",
        "    while True:",
        "        try:",
        "            for r in it:",
        *(_INDENT + line for line in body),
        "            break",
        "        except Exception as error:",
        "            if failures is None: failures = begin()",
        # The iterator knows how far it is, so that no record has to be counted for the case that it is bad.
        "            if failures.handle(r, error, len(rows) - length_hint(left) - 1):",
        # What is left is always the same iterator: wrapping it once more for every retry would go ever deeper.
        "                it = chain((r,), left)",
        *(f"    {line}" for line in after),
        f"    if failures is not None: return result_of(out, {sides}, failures{late})",
        *([f"    if late_records: return Result(out, {held}, None, late_records)"] if counts_late else []),
        f"    return Result(out{beside})",
    ]
    scope: dict[str, Any] = {**namespace, "begin": errors.begin, "chain": chain, "length_hint": length_hint}
    scope |= {"Result": Result, "result_of": result_of}
    exec(compile("\n".join(lines), f"<penstock {name}>", "exec"), scope)
    process: RecordForm = scope["process"]
    return process
