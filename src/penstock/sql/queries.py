"""Reads a query with sqlglot and calls the verbs of streams: select, filter, group_by, agg, merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import PenstockError, TypeMismatch, nearest
from penstock.expr import Column, col, infer
from penstock.expr.aggregation import has_aggregate, session_window, window
from penstock.expr.column import Op
from penstock.expr.generating import Generator, names_of
from penstock.expr.text import fail, parse, read_expression
from penstock.pipeline.streams.base import Builder
from penstock.pipeline.streams.stream import Stream
from penstock.sql.joins import Scope, joined
from penstock.types import TypeKind, quoted

_HAVING = "_having"
_REFUSED = {
    "order": "ORDER BY: a stream has no end to sort up to",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "offset": "OFFSET",
}


def sql(text: str, **streams: Stream) -> Stream:
    """Build a stream from a query over streams.

    The dialect is Spark's. There are SELECT (DISTINCT), FROM streams and queries, JOIN (INNER, LEFT, RIGHT, FULL) ON
    equal keys and bounds on the times of both sides, LATERAL VIEW explode(…), WHERE, GROUP BY with
    ``window(time, '10 seconds')`` or ``session_window(time, '5 minutes')``, HAVING, LIMIT, UNION ALL and WITH; results
    are those of the verbs that they stand for.

    Parameters
    ----------
    text : str
        The query.
    **streams : Stream
        What its tables are.

    Examples
    --------
    >>> ps.sql("SELECT ad, count(*) AS n FROM ads GROUP BY window(at, '10 seconds'), ad", ads=ads)  # doctest: +SKIP
    >>> ps.sql(                                                                          # doctest: +SKIP
    ...     "SELECT v.ad, clicked FROM views v JOIN clicks c "
    ...     "ON v.ad = c.ad AND clicked BETWEEN viewed AND viewed + INTERVAL 10 MINUTES",
    ...     views=views, clicks=clicks,
    ... )
    """
    for name, stream in streams.items():
        if not isinstance(stream, Builder):
            raise TypeMismatch(what=f"{name}={stream!r} is not a stream.", operation="sql")
    return _Query(text, streams).read(parse(text, query=True))


class _Query:
    def __init__(self, text: str, streams: Mapping[str, Stream]) -> None:
        self._text = text
        self._streams = streams

    def read(self, node: Any) -> Stream:
        if node.args.get("with_"):
            return self._with(node)
        kind = type(node).__name__
        if kind == "Subquery":
            return self.read(node.this)
        if kind == "Union":
            if node.args.get("distinct"):
                raise fail(node, self._text, "UNION holds every record for ever; use UNION ALL")
            return self._limited(node, self._union(node))
        if kind != "Select":
            raise fail(node, self._text, f"{kind.upper()} is not supported")
        try:
            return self._select(node)
        except PenstockError as error:
            if error.code == "INVALID_TEXT":
                raise
            raise error.at("sql") from None

    def _with(self, node: Any) -> Stream:
        """A query that names others before: each may read those before it."""
        clause = node.args["with_"]
        if clause.args.get("recursive"):
            raise fail(node, self._text, "there is no WITH RECURSIVE")
        streams = dict(self._streams)
        for each in clause.expressions:
            if each.args["alias"].columns:
                raise fail(each, self._text, "columns are named in the query itself: WITH t AS (SELECT a AS b …)")
            streams[each.alias] = _Query(self._text, streams).read(each.this)
        node.set("with_", None)
        return _Query(self._text, streams).read(node)

    def _union(self, node: Any) -> Stream:
        """Both sides, with the names of the left one's columns."""
        if node.args.get("order"):
            raise fail(node, self._text, f"there is no {_REFUSED['order']}")
        left, right = self.read(node.left), self.read(node.right)
        if len(left.schema) != len(right.schema):
            raise fail(node, self._text, "the sides of UNION ALL have different numbers of columns")
        names = dict(zip(right.schema.names, left.schema.names, strict=True))
        return left.merge(right.rename(names) if names != {name: name for name in names} else right)

    def _select(self, node: Any) -> Stream:
        for part, told in _REFUSED.items():
            if node.args.get(part):
                raise fail(node, self._text, f"there is no {told}")
        scope = self._from(node)
        stream = scope.stream
        where = node.args.get("where")
        if where is not None:
            stream = stream.filter(self._column(where.this))
        items = self._items(node, scope)
        group = node.args.get("group")
        if group is None and not any(has_aggregate(item) for item in items):
            if node.args.get("having"):
                raise fail(node, self._text, "HAVING needs GROUP BY")
            made = stream.select(*items)
        else:
            made = self._grouped(stream, node, group, items)
        return self._limited(node, made.distinct() if node.args.get("distinct") else made)

    def _limited(self, node: Any, stream: Stream) -> Stream:
        limit = node.args.get("limit")
        if limit is None:
            return stream
        count = str(limit.expression)
        if not count.isdecimal():
            raise fail(limit, self._text, "LIMIT takes a number")
        return stream.limit(int(count))

    def _from(self, node: Any) -> Scope:
        """What the query reads from, with the names of its columns settled."""
        source = node.args.get("from_") or node.args.get("from")
        if source is None:
            raise fail(node, self._text, "the query has no FROM")
        stream, alias = self._table(source.this)
        scope = Scope(self._text, stream, {alias: {name: name for name in stream.schema.names}})
        for each in node.args.get("joins") or ():
            if type(each.this).__name__ not in ("Table", "Subquery"):
                raise fail(each, self._text, f"{each.this.sql('spark')!r} is not a stream")
            scope = joined(scope, each, *self._table(each.this))
        for each in node.args.get("laterals") or ():
            self._explode(scope, each)
        node.set("joins", None)
        node.set("laterals", None)
        scope.settle(node)
        return scope

    def _explode(self, scope: Scope, view: Any) -> None:
        """``LATERAL VIEW explode(tags) t AS tag``: the scope with one more column, and a record for each element."""
        scope.settle(view.this)
        made = self._column(view.this)
        generator = made.payload
        if not isinstance(generator, Generator):
            raise fail(view, self._text, "LATERAL VIEW takes explode or posexplode")
        if view.args.get("outer"):
            made = Column(made.op, made.args, replace(generator, outer=True))
        alias = view.args.get("alias")
        given = [each.name for each in alias.columns] if alias is not None else []
        made = made.alias(*given) if given else made
        is_map = infer(made.args[0].args[0] if given else made.args[0], scope.stream.schema).type.kind is TypeKind.MAP
        names = names_of(made, is_map=is_map)
        taken = [name for name in names if name in scope.stream.schema]
        if taken:
            raise fail(view, self._text, f"there is a column {taken[0]!r} already: give another name with AS")
        scope.stream = scope.stream.with_columns(made)
        scope.tables[(alias.name if alias is not None else "") or ", ".join(names)] = {name: name for name in names}

    def _table(self, table: Any) -> tuple[Stream, str]:
        """A stream that a query names, or a query of its own, and what it is called."""
        alias = table.alias_or_name
        if type(table).__name__ == "Subquery":
            return self.read(table.this), alias
        name = table.name
        if name not in self._streams:
            known = ", ".join(self._streams) or "none are given"
            raise fail(table, self._text, f"there is no stream {name!r} ({known}){nearest(name, self._streams)}")
        return self._streams[name], alias

    def _items(self, node: Any, scope: Scope) -> list[Column]:
        items: list[Column] = []
        for each in node.expressions:
            if type(each).__name__ == "Star":
                items += scope.columns(each)
            elif type(each).__name__ == "Column" and type(each.this).__name__ == "Star":
                if each.table not in scope.tables:
                    raise fail(each, self._text, f"there is no table {each.table!r}{nearest(each.table, scope.tables)}")
                items += scope.columns(each, each.table)
            else:
                items.append(self._column(each))
        return items

    def _column(self, node: Any) -> Column:
        return read_expression(node, self._text)

    def _grouped(self, stream: Stream, node: Any, group: Any, items: list[Column]) -> Stream:
        keys = [self._key(each, items) for each in (group.expressions if group is not None else [])]
        outputs = [item.alias(_name(item)) for item in items if has_aggregate(item)]
        having = node.args.get("having")
        condition = None if having is None else self._column(having.this)
        if condition is not None and has_aggregate(condition):
            outputs.append(condition.alias(_HAVING))
            condition = col(_HAVING)
        if not outputs:
            raise fail(node, self._text, "GROUP BY needs an aggregate, such as count(*)")
        made = stream.group_by(*keys).agg(*outputs)
        if condition is not None:
            made = made.filter(condition)
        computed = {str(_bare(key)): _name(key) for key in keys}
        shown = []
        for item in items:
            if has_aggregate(item):
                shown.append(col(quoted(_name(item))))
            elif str(_bare(item)) in computed:
                shown.append(col(quoted(computed[str(_bare(item))])).alias(_name(item)))
            else:
                shown.append(item)
        if tuple(map(_name, shown)) == made.schema.names and all(_bare(each).op is Op.REF for each in shown):
            return made
        return made.select(*shown)

    def _key(self, node: Any, items: list[Column]) -> Column:
        if type(node).__name__ == "Literal" and not node.is_string:
            place = int(node.this)
            if not 1 <= place <= len(items):
                raise fail(node, self._text, f"there is no item {place} to group by")
            return items[place - 1]
        if type(node).__name__ == "Anonymous" and str(node.this).lower() == "session_window":
            args = node.expressions
            if len(args) != 2 or not args[1].is_string:
                raise fail(node, self._text, "session_window takes a time column and a text: (at, '5 minutes')")
            return session_window(self._column(args[0]), args[1].this)
        if type(node).__name__ == "Anonymous" and str(node.this).lower() == "window":
            args = node.expressions
            if len(args) not in (2, 3) or not all(each.is_string for each in args[1:]):
                raise fail(node, self._text, "window takes a time column and texts: window(at, '10 seconds')")
            return window(self._column(args[0]), *[each.this for each in args[1:]])
        key = self._column(node)
        named = {_name(item): item for item in items if item.op is Op.ALIAS and not has_aggregate(item)}
        return named.get(str(key.payload), key) if key.op is Op.REF else key


def _bare(column: Column) -> Column:
    return _bare(column.args[0]) if column.op is Op.ALIAS else column


def _name(column: Column) -> str:
    if column.op is Op.ALIAS:
        return str(column.payload)
    return str(column.payload).rpartition(".")[2].strip("`") if column.op is Op.REF else str(column)
