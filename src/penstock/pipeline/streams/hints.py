"""What to write instead of a name that a stream does not have; for those who know it from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection

from penstock.errors import nearest

_SORTED = 'a stream has no end to sort up to. The best of each group: window(…).aggregate(best=ps.agg.top(3, "price")).'
_INSTEAD = {
    "alias": 'Rename what both sides have: rename({"old": "new"}).',
    "cache": "A stream is computed once for all that read it.",
    "collect": "Use take(n), or to(ps.memory()).",
    "cross_join": "Use join(…, on=…, within=…).",
    "dtypes": "Use schema.",
    "first": "Use take(1).",
    "foreach": "Use to(ps.foreach(…)).",
    "foreach_batch": "Use to(ps.foreach(…)), or transform(…) for a DataFrame function.",
    "head": "Use take(n).",
    "na": "Use dropna(…) or fillna(…).",
    "order_by": _SORTED,
    "persist": "A stream is computed once for all that read it.",
    "pivot": 'Give one aggregate for each value: F.sum(F.when(ps.col("kind") == "a", ps.col("price"))).alias("a").',
    "print_schema": "Use print(stream.schema).",
    "repartition": "Use key_by(…), and parallelism= of the job.",
    "rdd": "Use map(…) or flat_map(…).",
    "sort": _SORTED,
    "top": 'Use aggregate(best=ps.agg.top(3, "price")).',
    "to_df": "Use ps.backfill(…) for history as a DataFrame.",
    "to_pandas": "Use take(n).",
    "union": "Use merge(…), or union_by_name(…).",
    "union_all": "Use merge(…), or union_by_name(…).",
    "write": "Use to(…), such as to(ps.console()), and ps.run(…).",
    "write_stream": "Use to(…), such as to(ps.console()), and ps.start(…).",
}


def missing(of: object, name: str) -> AttributeError:
    """The error for an attribute that is not there."""
    told = f"'{type(of).__name__}' has no '{name}'"
    if name.startswith("_"):
        return AttributeError(f"{told}.")
    plain = _plain(name)
    there = [each for each in dir(type(of)) if not each.startswith("_")]
    if plain != name and plain in there:
        return AttributeError(f"{told}. Use {plain}(…).")
    return AttributeError(f"{told}{_told(plain)}" if plain in _INSTEAD else f"{told}.{nearest(plain, there)}")


_NAMES = {
    "sliding": 'Use window("10s", slide="2s", on=…).',
    "window": 'Use stream.window("10s", on=…), or F.window(…) in group_by.',
    "udf": "Use stream.map(…), with a batch form where you have one.",
    "pandas_udf": "Use stream.map(…), with a batch form where you have one.",
    "read": "Use ps.stream(name, source), such as ps.json_files(…).",
    "read_stream": "Use ps.stream(name, source), such as ps.json_files(…).",
}


def missing_name(name: str, there: Collection[str], functions: Collection[str]) -> AttributeError:
    """The error for a name that the package does not have."""
    told = f"'penstock' has no '{name}'."
    plain = _plain(name)
    if name.startswith("_") or plain in _NAMES:
        return AttributeError(f"{told} {_NAMES.get(plain, '')}".rstrip())
    if name in functions:
        return AttributeError(f"{told} Use F.{name}: from penstock import functions as F.")
    return AttributeError(f"{told}{nearest(plain, there)}")


def _plain(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def _told(name: str) -> str:
    instead = _INSTEAD[name]
    return f": {instead}" if instead[0].islower() else f". {instead}"
