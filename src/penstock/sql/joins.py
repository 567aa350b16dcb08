"""JOIN in a query: tables by their aliases, which column is which in the joined stream, and the verb that joins them.

A column that both sides have is renamed on the right one, out of sight: `Scope` knows what it is called, puts that into
the query's tree, and has it shown under its own name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from itertools import zip_longest
from typing import Any

from penstock.errors import nearest
from penstock.expr import Column, col
from penstock.expr.text import fail, read_expression
from penstock.operators import JoinHow
from penstock.pipeline.streams.conditions import conjuncts, equal
from penstock.pipeline.streams.stream import Stream
from penstock.types import TIMESTAMP, quoted


@dataclass
class Scope:
    """What a query reads from.

    Attributes
    ----------
    text : str
        The query, for errors.
    stream : Stream
        All of its tables joined.
    tables : dict
        By alias: columns as the query names them, and what they are called in the stream.
    keys : dict
        Columns of one name by which tables were joined, and what they are called in the stream: ``*`` has them once.
    """

    text: str
    stream: Stream
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def name(self, node: Any, alias: str | None, column: str) -> str | None:
        """What a column is called in the stream; None: there is no such column."""
        if alias is not None:
            known = self.tables[alias]
            if column not in known:
                raise fail(node, self.text, f"{alias!r} has no column {column!r}{nearest(column, known)}")
            return known[column]
        found = [alias for alias, columns in self.tables.items() if column in columns]
        if len(found) > 1:
            raise fail(node, self.text, f"{column!r} is ambiguous: write {' or '.join(f'{a}.{column}' for a in found)}")
        return self.tables[found[0]][column] if found else None

    def settle(self, tree: Any) -> None:
        """Write what columns are called in the stream into a part of the query's tree."""
        for node in list(_outside_of_subqueries(tree)):
            if type(node).__name__ == "Column" and type(node.this).__name__ != "Star":
                self._settle(node)

    def _settle(self, node: Any) -> None:
        parts = list(node.parts)
        alias = parts[0].name if len(parts) > 1 and parts[0].name in self.tables else None
        if alias is not None and len(self.tables) == 1 and alias in self.tables[alias]:
            alias = None  # a struct column with the table's own name
        named = parts[1:] if alias is not None else parts
        found = self.name(node, alias, named[0].name)
        if found is None:
            return
        shown = named[-1].name
        named[0].set("this", found)
        places = ("this", "table", "db", "catalog")
        for place, part in zip_longest(places, reversed(named)):
            node.set(place, part)
        if named[-1].name != shown and type(node.parent).__name__ == "Select":
            node.replace(_aliased(node, shown))

    def columns(self, node: Any, alias: str | None = None) -> list[Column]:
        """All columns, of one table or of all of them, under their own names."""
        chosen = self.tables if alias is None else {alias: self.tables[alias]}
        shown: dict[str, str] = {}
        for columns in chosen.values():
            for column, name in columns.items():
                name = self.keys.get(column, name) if alias is None else name
                if shown.setdefault(column, name) != name:
                    raise fail(node, self.text, f"* has two columns {column!r}: name those that are wanted")
        return [col(quoted(name)).alias(column) for column, name in shown.items()]


def _aliased(node: Any, shown: str) -> Any:
    from sqlglot import exp

    return exp.alias_(node.copy(), shown, quoted=True)


def _outside_of_subqueries(tree: Any) -> Any:
    return tree.walk(prune=lambda node: type(node).__name__ == "Subquery")


def joined(scope: Scope, node: Any, right: Stream, alias: str) -> Scope:
    """The scope with one more table, which a JOIN brings."""
    text = scope.text
    how = _how(node, text)
    if alias in scope.tables:
        raise fail(node, text, f"there are two tables {alias!r}: give one another name with AS")
    taken = set(scope.stream.schema.names)
    columns = {name: name if name not in taken else f"_{alias}_{name}" for name in right.schema.names}
    if node.args.get("using"):
        using = ", ".join(each.name for each in node.args["using"])
        raise fail(node, text, f"USING ({using}) bounds no time: use ON, such as ON a.k = b.k AND a.t BETWEEN …")
    condition = node.args.get("on")
    if condition is None:
        raise fail(node, text, "a JOIN has ON with equal keys and bounds on the times of both sides")
    both = Scope(text, scope.stream, {**scope.tables, alias: columns}, scope.keys)
    both.settle(condition)
    keys, times = _parts(read_expression(condition, text), scope.stream, columns)
    if not keys:
        raise fail(condition, text, "a JOIN needs equal keys: ON a.k = b.k AND …")
    if not times:
        raise fail(
            condition, text, "a JOIN bounds the times of both sides: a.t BETWEEN b.t AND b.t + INTERVAL 1 MINUTE"
        )
    left, tables = scope.stream, {each: dict(names) for each, names in scope.tables.items()}
    renamed = {name: new for name, new in columns.items() if name != new}
    for mine, theirs in keys.items():
        renamed[theirs] = mine
        columns[theirs] = mine
        if how.keeps_right:  # the key of a pair is whichever is there, a side's own may be null
            copy = f"_own_{mine}"
            left = left.with_column(copy, col(quoted(mine)))
            for table in tables.values():
                table |= {column: copy for column, name in table.items() if name == mine}
        if how.keeps_left:
            copy = f"_{alias}_own_{theirs}"
            right = right.with_column(copy, col(quoted(theirs)))
            columns[theirs] = copy
    made = left.join(
        right.rename(renamed) if renamed else right,
        on=list(keys),
        within=reduce(lambda one, other: one & other, times),
        how=how.value,
    )
    shared = {mine: mine for mine, theirs in keys.items() if mine == theirs}
    return Scope(text, made, {**tables, alias: columns}, {**scope.keys, **shared})


def _how(node: Any, text: str) -> JoinHow:
    side, kind = str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()
    if node.args.get("method") or kind not in ("", "INNER", "OUTER"):
        told = " ".join(str(each) for each in (node.args.get("method"), side, kind) if each)
        raise fail(node, text, f"there is no {told} JOIN; there are INNER, LEFT, RIGHT and FULL")
    return JoinHow(side.lower()) if side else JoinHow.INNER


def _parts(condition: Column, left: Stream, columns: dict[str, str]) -> tuple[dict[str, str], list[Column]]:
    """Equal keys, from the left column to the right one's own name, and what is said about times."""
    own = {new: name for name, new in columns.items()}
    keys: dict[str, str] = {}
    times: list[Column] = []
    for each in conjuncts(condition):
        pair = equal(each, lambda name: name in left.schema, lambda name: name in own)
        if pair is not None and left.schema.field(pair[0]).type != TIMESTAMP:
            keys[pair[0]] = own[pair[1]]
        else:
            times.append(each)
    return keys, times
