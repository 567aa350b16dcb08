"""Expressions written as SQL text: sqlglot reads Spark's dialect, and the trees are those of `penstock.functions`.

Every function is left as a name with arguments, and looked up in the table; so text and functions mean the same.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache, reduce
from typing import Any

from penstock.errors import InvalidText, PenstockError, nearest
from penstock.expr import aggregation, generating
from penstock.expr.column import Column, Interval, Op, call, col, lit
from penstock.expr.functions import text_to_date, text_to_double, text_to_timestamp
from penstock.expr.table import FUNCTIONS, find
from penstock.types import parse_type, quoted

Variables = frozenset[str]
_UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_UNITS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_BINARY = {
    "EQ": Op.EQ,
    "NEQ": Op.NE,
    "LT": Op.LT,
    "LTE": Op.LE,
    "GT": Op.GT,
    "GTE": Op.GE,
    "Add": Op.ADD,
    "Sub": Op.SUB,
    "Mul": Op.MUL,
    "Div": Op.DIV,
    "Mod": Op.MOD,
    "And": Op.AND,
    "Or": Op.OR,
    "NullSafeEQ": Op.EQ_NULL_SAFE,
}
_CALLS = {
    "IntDiv": "div",
    "DPipe": "concat",
    "BitwiseAnd": "bitwiseAND",
    "BitwiseOr": "bitwiseOR",
    "BitwiseXor": "bitwiseXOR",
    "RegexpLike": "rlike",
    "Like": "like",
    "ILike": "ilike",
}
_TYPE_NAMES = "boolean tinyint smallint int bigint float double string binary timestamp date decimal".split()


def expr(text: str) -> Column:
    """Build a column from SQL text: ``ps.expr("price * 2 AS twice")``.

    Examples
    --------
    >>> str(expr("upper(city) LIKE 'B%' AND price > 10"))
    "(upper(city) LIKE 'B%') AND price > 10"
    """
    return read_expression(parse(text), text)


def parse(text: str, *, query: bool = False) -> Any:
    """Read SQL text into sqlglot's tree, or raise with the place of the mistake."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidText(text=repr(text), problem="is no SQL text")
    import sqlglot

    try:
        made = sqlglot.parse_one(text, dialect=_dialect())
    except sqlglot.errors.SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        first = details[0]
        raise InvalidText(
            text=text,
            problem=_problem(str(first.get("description") or error)),
            line=first.get("line"),
            column=_column_of(first),
        ) from None
    if query is not isinstance(made, sqlglot.exp.Query):
        wanted = "a query: SELECT …" if query else "an expression, such as a + 1"
        raise InvalidText(text=text, problem=f"is not {wanted}")
    return made


def _problem(told: str) -> str:
    return "a part is missing here" if told.startswith("Required keyword") else told.rstrip(".")


def _column_of(details: dict[str, Any]) -> int | None:
    at, mark = details.get("col"), details.get("highlight") or ""
    return None if at is None else max(at - len(mark) + 1, 1)


@lru_cache(maxsize=1)
def _dialect() -> Any:
    from sqlglot.dialects.spark import Spark

    kept = ("CAST", "TRY_CAST", "EXTRACT", "TRIM")

    class Plain(Spark):
        """Spark's SQL with every function as it is written."""

        class Tokenizer(Spark.Tokenizer):
            # GROUP BY window(…) is a call here, and there are no named windows that the word could begin.
            KEYWORDS = {k: v for k, v in Spark.Tokenizer.KEYWORDS.items() if k != "WINDOW"}  # noqa: RUF012

        class Parser(Spark.Parser):  # type: ignore[misc,valid-type]
            FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012 (sqlglot's way)
            FUNCTION_PARSERS = {k: v for k, v in Spark.Parser.FUNCTION_PARSERS.items() if k in kept}  # noqa: RUF012

    return Plain


def fail(node: Any, text: str, problem: str) -> InvalidText:
    """The error for a part of a text, with its place."""
    place: dict[str, Any] = next((each.meta for each in node.walk() if "line" in each.meta), {})
    start = place.get("start")
    column = None if start is None else start - (text.rfind("\n", 0, start) + 1) + 1
    return InvalidText(text=text, problem=problem, line=place.get("line"), column=column)


def read_expression(node: Any, text: str, variables: Variables = frozenset()) -> Column:
    """Turn a node of sqlglot's tree into a column."""
    try:
        return _Reader(text, variables).read(node)
    except InvalidText:
        raise
    except PenstockError as error:
        raise fail(node, text, error.what) from None


class _Reader:
    def __init__(self, text: str, variables: Variables) -> None:
        self._text = text
        self._variables = variables

    def read(self, node: Any) -> Column:
        kind = type(node).__name__
        if kind in _BINARY:
            return Column(_BINARY[kind], (self.read(node.this), self.read(node.expression)))
        if kind in _CALLS:
            return call(_CALLS[kind], self.read(node.this), self.read(node.expression))
        method = getattr(self, f"_{kind.lower()}", None)
        if method is None:
            why = ": a stream has no end to sort up to; use ps.agg.top(…) or process(…)" if kind == "Window" else ""
            raise fail(node, self._text, f"{node.sql('spark')!r} is not supported{why}")
        made: Column = method(node)
        return made

    def _paren(self, node: Any) -> Column:
        return self.read(node.this)

    def _alias(self, node: Any) -> Column:
        return self.read(node.this).alias(node.alias)

    def _aliases(self, node: Any) -> Column:
        return self.read(node.this).alias(*[each.name for each in node.expressions])

    def _column(self, node: Any) -> Column:
        parts = [part.name for part in node.parts]
        if len(parts) == 1 and parts[0] in self._variables:
            return Column(Op.VARIABLE, (), parts[0])
        if parts[0] in self._variables:
            return reduce(lambda base, name: base[name], parts[1:], Column(Op.VARIABLE, (), parts[0]))
        return col(".".join(map(quoted, parts)) if len(parts) > 1 or quoted(parts[0]) != parts[0] else parts[0])

    def _identifier(self, node: Any) -> Column:
        name = node.name
        return Column(Op.VARIABLE, (), name) if name in self._variables else col(quoted(name))

    def _dot(self, node: Any) -> Column:
        return self.read(node.this)[node.expression.name]

    def _bracket(self, node: Any) -> Column:
        return self.read(node.this)[self.read(node.expressions[0])]

    def _literal(self, node: Any) -> Column:
        if node.is_string:
            return lit(node.this)
        text = str(node.this)
        if text.lstrip("-").isdecimal():
            return lit(int(text))
        return lit(float(text)) if "e" in text.lower() else lit(Decimal(text))

    def _boolean(self, node: Any) -> Column:
        return lit(bool(node.this))

    def _null(self, node: Any) -> Column:
        del node
        return lit(None)

    def _hexstring(self, node: Any) -> Column:
        return lit(bytes.fromhex(str(node.this)))

    def _neg(self, node: Any) -> Column:
        inner = self.read(node.this)
        value = inner.payload
        if inner.op is Op.LITERAL and isinstance(value, Interval):
            return lit(Interval(-value.months, -value.us))
        if inner.op is Op.LITERAL and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return lit(-value)
        return -inner

    def _not(self, node: Any) -> Column:
        return ~self.read(node.this)

    def _is(self, node: Any) -> Column:
        kind = type(node.expression).__name__
        value = self.read(node.this)
        if kind == "Null":
            return value.is_null()
        if kind == "Boolean":
            return value.eqNullSafe(bool(node.expression.this))
        raise fail(node, self._text, "IS takes NULL, TRUE or FALSE")

    def _in(self, node: Any) -> Column:
        if not node.expressions:
            raise fail(node, self._text, "IN takes a list of values")
        value = self.read(node.this)
        members = [self.read(each) for each in node.expressions]
        if all(each.op is Op.LITERAL and each.payload is not None for each in members):
            return value.isin(*members)
        return reduce(lambda a, b: a | b, [value == each for each in members])

    def _between(self, node: Any) -> Column:
        return self.read(node.this).between(self.read(node.args["low"]), self.read(node.args["high"]))

    def _case(self, node: Any) -> Column:
        subject = None if node.this is None else self.read(node.this)
        args: list[Column] = []
        for branch in node.args["ifs"]:
            condition = self.read(branch.this)
            args += [condition if subject is None else subject == condition, self.read(branch.args["true"])]
        default = node.args.get("default")
        return Column(Op.CASE, (*args, *([] if default is None else [self.read(default)])))

    def _cast(self, node: Any) -> Column:
        to = node.args["to"].sql("spark")
        inner = node.this
        if type(inner).__name__ == "Literal" and inner.is_string and to in ("TIMESTAMP", "DATE"):
            return _time(inner.this, to)
        if type(inner).__name__ == "Literal" and not inner.is_string and to == "DOUBLE":
            return lit(float(inner.this))
        if type(node).__name__ == "TryCast" and node.args.get("safe"):
            return self.read(inner).try_cast(parse_type(to))
        return self.read(inner).cast(parse_type(to))

    _trycast = _cast

    def _interval(self, node: Any) -> Column:
        if node.this is None or type(node.this).__name__ not in ("Literal", "Neg"):
            raise fail(node, self._text, "an interval is a number and a unit: INTERVAL 10 MINUTES")
        unit = str(node.args["unit"] or "").upper().removesuffix("S")
        try:
            count = Decimal(node.this.name if type(node.this).__name__ == "Literal" else f"-{node.this.this.name}")
        except ArithmeticError:
            raise fail(node, self._text, f"{node.this.name!r} is not a number") from None
        if unit in _UNITS_MONTHS:
            return lit(Interval(int(count) * _UNITS_MONTHS[unit], 0))
        if unit not in _UNITS_US:
            raise fail(node, self._text, f"{unit!r} is not a unit of time")
        return lit(Interval(0, int(count * _UNITS_US[unit])))

    def _extract(self, node: Any) -> Column:
        return call("extract", str(node.this).upper(), self.read(node.expression))

    def _trim(self, node: Any) -> Column:
        side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "BOTH", "trim")
        letters = node.expression
        return call(side, self.read(node.this), *([] if letters is None else [self.read(letters)]))

    def _lambda(self, node: Any) -> Column:
        names = tuple(each.name for each in node.expressions)
        body = _Reader(self._text, self._variables | set(names)).read(node.this)
        return Column(Op.LAMBDA, (body,), names)

    def _if(self, node: Any) -> Column:
        rest = node.args.get("false")
        return call(
            "if", self.read(node.this), self.read(node.args["true"]), lit(None) if rest is None else self.read(rest)
        )

    def _bitwisenot(self, node: Any) -> Column:
        return call("bitwise_not", self.read(node.this))

    def _transform(self, node: Any) -> Column:
        return call("transform", self.read(node.this), self.read(node.expression))

    def _star(self, node: Any) -> Column:
        raise fail(node, self._text, "* stands alone in a select, or in count(*)")

    def _anonymous(self, node: Any) -> Column:
        name = str(node.this).lower()
        if name in aggregation.FUNCTIONS:
            return self._aggregate(name, node)
        args = [self.read(arg) for arg in node.expressions]
        if name in generating.FUNCTIONS:
            if len(args) != 1:
                raise fail(node, self._text, f"{name} takes one array or map")
            return generating.FUNCTIONS[name](args[0])
        if name == "struct":
            return _struct(args)
        if name == "coalesce":
            return Column(Op.COALESCE, tuple(args))
        if name in _TYPE_NAMES and len(args) == 1:
            if name == "double" and isinstance(args[0].payload, str):
                return lit(text_to_double(args[0].payload))
            return args[0].cast(name)
        if name in ("timestampadd", "timestampdiff") and node.expressions:
            args[0] = lit(node.expressions[0].name)
        if name in ("window", "session_window"):
            raise fail(node, self._text, f"{name} stands in GROUP BY")
        if name.startswith("_") or (name not in FUNCTIONS and str(node.this) not in FUNCTIONS):
            known = [*FUNCTIONS, *aggregation.FUNCTIONS]
            raise fail(node, self._text, f"there is no function {name!r}.{nearest(name, known)}".rstrip("."))
        return Column(Op.CALL, tuple(args), find(name if name in FUNCTIONS else str(node.this)).name)

    def _aggregate(self, name: str, node: Any) -> Column:
        given = node.expressions
        if len(given) == 1 and type(given[0]).__name__ == "Star":
            return aggregation.FUNCTIONS[name]()
        if len(given) == 1 and type(given[0]).__name__ == "Distinct":
            distinct = {"count": "count_distinct", "sum": "sum_distinct"}.get(name)
            if distinct is None or distinct not in aggregation.FUNCTIONS:
                raise fail(node, self._text, f"{name}(DISTINCT …) is not supported")
            return aggregation.FUNCTIONS[distinct](*[self.read(arg) for arg in given[0].expressions])
        return aggregation.FUNCTIONS[name](*[self.read(arg) for arg in given])


def _time(text: str, to: str) -> Column:
    from datetime import UTC, date, datetime, timedelta

    if to == "DATE":
        return lit(date.fromordinal(719163 + text_to_date(text)))
    return lit(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=text_to_timestamp(text)))


def _struct(args: list[Column]) -> Column:
    from penstock.expr.makers import struct

    return struct(*args)
