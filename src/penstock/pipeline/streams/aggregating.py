"""``group_by("k", F.window("at", "10 seconds")).agg(F.sum("x").alias("t"))``: groups, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.errors import PenstockError, TypeMismatch, nearest
from penstock.expr import Column, Interval, col, infer, lit
from penstock.expr.aggregation import FUNCTIONS, AggregateCall, Gap, has_aggregate
from penstock.expr.column import Op
from penstock.expr.text import expr
from penstock.operators import Aggregation, Emit, Project, Window, session, sliding, tumbling
from penstock.operators.keyed.calls import aggregate_of
from penstock.pipeline.streams.hints import missing
from penstock.pipeline.streams.stream import Stream
from penstock.types import quoted

WINDOW = "window"
SESSION = "session_window"


class GroupedStream:
    """Records in groups, waiting for their aggregates; made by :meth:`Stream.group_by`."""

    def __init__(self, stream: Stream, keys: Sequence[str | Column]) -> None:
        self._stream = stream
        self._keys: list[Column] = []
        """Columns that are keys, the window among them at its place."""
        for key in keys:
            column = col(key) if isinstance(key, str) else key
            if not isinstance(column, Column):
                raise TypeMismatch(what=f"{key!r} is not a column to group by.", operation="group_by")
            if has_aggregate(column):
                raise TypeMismatch(what=f"{column} is an aggregate, not a key.", operation="group_by")
            self._keys.append(column)
        if sum(_bare(key).op is Op.WINDOW for key in self._keys) > 1:
            raise TypeMismatch(what="groups have one window.", operation="group_by")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self._keys)) or 'all'} of {self._stream!r})"

    def agg(
        self,
        *aggregates: Column | str | Mapping[str, str],
        emit: str | None = None,
        lateness: str | float = 0,
        allowed_lateness: str | float = 0,
        early: str | float | None = None,
        name: str | None = None,
        on_error: str = "fail",
        **named: Column | str,
    ) -> Stream:
        """Compute aggregates for each group: the keys come first, in their order, then these.

        Parameters
        ----------
        *aggregates, **named : Column or str
            Such as ``F.sum("x").alias("t")``, ``t=F.sum("x")`` or ``"sum(x) / count(*) AS mean"``: any expression of
            aggregates, over any expression of the records' columns. Also a dict, ``{"price": "sum", "*": "count"}``.
        emit : {"close", "change", "every"}
            With a window one result when it closes, or the value so far whenever it has changed, or for every record.
            Without one, ``"change"`` (the default) or ``"every"``.
        lateness, allowed_lateness, early : str or number
            As for :func:`penstock.tumbling`.

        Examples
        --------
        >>> ads.group_by("ad", F.window("at", "10 seconds")).agg(F.count("*").alias("n"))  # doctest: +SKIP
        """
        label = name or "agg"
        try:
            outputs = [each for given in aggregates for each in _outputs(given)]
            outputs += [_output(given).alias(alias) for alias, given in named.items()]
            if not outputs:
                raise TypeMismatch(what="agg has no aggregates.", hint='Give some, such as F.count("*").')
            options: dict[str, Any] = {"lateness": lateness, "allowed_lateness": allowed_lateness, "early": early}
            plan = _Plan(self._stream, self._keys, outputs)
            window, running = plan.window(emit, options)
            return plan.build(window, running, name, on_error)
        except PenstockError as error:
            raise error.at(label) from None

    def count(self) -> Stream:
        """Number of records in each group, as the column ``count``."""
        from penstock.expr.aggregation import count

        return self.agg(count("*").alias("count"))

    def sum(self, *columns: str) -> Stream:
        """Sums of columns, each named as in Spark: ``sum(price)``."""
        return self._each("sum", columns)

    def avg(self, *columns: str) -> Stream:
        """Means of columns, as ``avg(price)``."""
        return self._each("avg", columns)

    mean = avg

    def min(self, *columns: str) -> Stream:
        """Smallest values of columns, as ``min(price)``."""
        return self._each("min", columns)

    def max(self, *columns: str) -> Stream:
        """Largest values of columns, as ``max(price)``."""
        return self._each("max", columns)

    def _each(self, word: str, columns: Sequence[str]) -> Stream:
        if not columns or not all(isinstance(each, str) for each in columns):
            raise TypeMismatch(what=f"{word} takes names of columns.", operation=word, hint=f'Write .{word}("price").')
        return self.agg(*(FUNCTIONS[word](each) for each in columns))

    if not TYPE_CHECKING:  # to which any name would be there

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(self, name)


def _outputs(given: object) -> list[Column]:
    """The aggregates that a dict names, or the one that is given."""
    if not isinstance(given, Mapping):
        return [_output(given)]
    for word in given.values():
        if word not in FUNCTIONS:
            raise TypeMismatch(what=f"there is no aggregate {word!r}.", hint=nearest(str(word), FUNCTIONS).strip())
    return [FUNCTIONS[word](column) for column, word in given.items()]


def _output(given: object) -> Column:
    column = expr(given) if isinstance(given, str) else given
    if not isinstance(column, Column) or not has_aggregate(column):
        raise TypeMismatch(what=f"{column!r} is not an aggregate.", hint='Use F.sum("x"), F.count("*") and the like.')
    return column


def _bare(column: Column) -> Column:
    return _bare(column.args[0]) if column.op is Op.ALIAS else column


def _name(column: Column) -> str:
    if column.op is Op.ALIAS:
        return str(column.payload)
    return str(column.payload).rpartition(".")[2].strip("`") if column.op is Op.REF else str(column)


class _Plan:
    """The steps of one ``agg``: columns that are computed before, the aggregates, columns that are computed behind."""

    def __init__(self, stream: Stream, keys: list[Column], outputs: list[Column]) -> None:
        self._stream = stream
        self._keys = keys
        self._outputs = outputs
        self._inputs: dict[str, tuple[str, Column]] = {}
        """Columns that are computed before, by their text: a name, and the expression."""
        self._calls: dict[str, tuple[str, AggregateCall, tuple[str, ...]]] = {}

    def window(self, emit: str | None, options: dict[str, Any]) -> tuple[Window | None, Emit]:
        found = next((_bare(key) for key in self._keys if _bare(key).op is Op.WINDOW), None)
        if found is None:
            running = Emit.read(emit or "change")
            if running is Emit.CLOSE:
                raise TypeMismatch(what="without a window nothing closes.", hint='Use emit="change" or "every".')
            if options["early"] is not None:
                raise TypeMismatch(what="without a window nothing is early.", hint="Group by F.window(…).")
            return None, running
        on, sizes = str(found.args[0].payload), found.payload
        if isinstance(sizes, Gap):
            given = (emit or "close", options["allowed_lateness"], options["early"])
            if given != ("close", 0, None):
                raise TypeMismatch(what="a session is sent on when it closes.", hint="Leave emit and its like out.")
            # To Spark a session ends before the gap is over, here with it.
            made = session(sizes.duration, on=on, lateness=options["lateness"])
            return replace(made, size_us=made.size_us - 1), Emit.CHANGE
        assert isinstance(sizes, tuple)
        more = {"on": on, "emit": emit or "close", **options}
        window = tumbling(sizes[0], **more) if len(sizes) == 1 else sliding(sizes[0], slide=sizes[1], **more)
        return window, Emit.CHANGE

    def build(self, window: Window | None, running: Emit, name: str | None, on_error: str) -> Stream:
        keys = [self._input(key, _name(key)) for key in self._keys if _bare(key).op is not Op.WINDOW]
        behind = [self._without_aggregates(output) for output in self._outputs]
        stream = self._prepared(keys, window, on_error)
        plain = window is None and all(_bare(column).op is Op.REF for column in behind)
        labels = {internal: internal for internal, _, _ in self._calls.values()}
        if plain and len({str(_bare(column).payload) for column in behind}) == len(behind):
            labels |= {
                str(_bare(column).payload): _name(out) for column, out in zip(behind, self._outputs, strict=True)
            }
        aggregates = tuple(
            (labels[internal], aggregate_of(call, columns, stream.schema))
            for internal, call, columns in self._calls.values()
        )
        operation = Aggregation(tuple(keys), aggregates, window, running)
        made = stream._unkeyed._then(operation, name, on_error)
        if plain and all(labels[internal] != internal for internal, _, _ in self._calls.values()):
            return made
        return made._then(Project(tuple(self._shown(keys, behind))), None, on_error)

    def _shown(self, keys: list[str], behind: list[Column]) -> list[Column]:
        left = iter(keys)
        shown: list[Column] = []
        for key in self._keys:
            if _bare(key).op is Op.WINDOW:
                is_session = isinstance(_bare(key).payload, Gap)
                end = col("window_end") + lit(Interval(0, 1)) if is_session else col("window_end")
                pair = (lit("start"), col("window_start"), lit("end"), end)
                label = (SESSION if is_session else WINDOW) if key.op is Op.WINDOW else _name(key)
                shown.append(Column(Op.CALL, pair, "named_struct").alias(label))
            else:
                shown.append(col(quoted(next(left))))
        return [*shown, *(c.alias(_name(out)) for c, out in zip(behind, self._outputs, strict=True))]

    def _input(self, column: Column, name: str | None = None) -> str:
        """The name of a column that aggregates and keys read: the record's own, or one that is computed before."""
        bare = _bare(column)
        if bare.op is Op.REF and str(bare.payload) in self._stream.schema and (name in (None, bare.payload)):
            return str(bare.payload)
        text = f"{name}: {bare}" if name else str(bare)
        if text not in self._inputs:
            self._inputs[text] = (name or f"_x{len(self._inputs)}", bare)
        return self._inputs[text][0]

    def _without_aggregates(self, column: Column) -> Column:
        """The expression over the results of its aggregates."""
        if column.op is Op.AGGREGATE:
            call = column.payload
            assert isinstance(call, AggregateCall)
            for arg in column.args:
                infer(arg, self._stream.schema)
            text = str(column)
            if text not in self._calls:
                reads = tuple(self._input(arg) for arg in column.args)
                self._calls[text] = (f"_a{len(self._calls)}", call, reads)
            return col(self._calls[text][0])
        return Column(column.op, tuple(map(self._without_aggregates, column.args)), column.payload)

    def _prepared(self, keys: list[str], window: Window | None, on_error: str) -> Stream:
        """The stream with the columns that are computed before, where there are any."""
        if not self._inputs:
            return self._stream
        made = dict(self._inputs.values())
        wanted = [*keys, *([window.on] if window else []), *(n for _, _, reads in self._calls.values() for n in reads)]
        columns = [made[name].alias(name) if name in made else col(quoted(name)) for name in dict.fromkeys(wanted)]
        return self._stream._unkeyed._then(Project(tuple(columns)), None, on_error)
