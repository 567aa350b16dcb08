"""The expression tree and its builder, what ``ps.col("x") > 3`` makes; both compilers read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import reduce
from numbers import Integral
from typing import TYPE_CHECKING, NoReturn

from penstock.errors import InvalidOption, TypeMismatch, nearest
from penstock.types import DataType, parse_type

SUBSTRING_MAX = (1 << 31) - 1


class Op(Enum):
    """What a node of the tree does; the value is how it is written in SQL."""

    REF = "column"
    LITERAL = "literal"
    ALIAS = "AS"
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    NEG = "negative"
    ABS = "abs"
    AND = "AND"
    OR = "OR"
    NOT = "NOT"
    IS_NULL = "IS NULL"
    IS_IN = "IN"
    BETWEEN = "BETWEEN"
    EQ_NULL_SAFE = "<=>"
    CAST = "CAST"
    TRY_CAST = "TRY_CAST"
    FIELD = "."
    CALL = "call"
    LAMBDA = "->"
    VARIABLE = "variable"
    AGGREGATE = "aggregate"
    WINDOW = "window"
    GENERATE = "generate"
    CASE = "CASE"
    COALESCE = "coalesce"
    CONTAINS = "contains"
    STARTS_WITH = "startswith"
    ENDS_WITH = "endswith"
    RLIKE = "RLIKE"
    LOWER = "lower"
    UPPER = "upper"
    TRIM = "trim"
    SUBSTR = "substr"
    SPLIT = "split"


COMPARISONS = frozenset({Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE})
ARITHMETIC = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD})


@dataclass(frozen=True, slots=True)
class Interval:
    """A span that is added to times: whole months, and the rest in microseconds."""

    months: int
    us: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Column:
    """A value computed from a record's columns: made by ``ps.col``, ``ps.lit`` and operators between them.

    Nulls follow SQL: they pass through operators, ``&`` and ``|`` are three-valued, and a filter keeps
    what is true. Types, overflow (which raises), division and rounding are Spark's in its ANSI mode.

    ``str(column)`` is Spark's SQL for the same value.

    Attributes
    ----------
    op : Op
        What the node does.
    args : tuple of Column
        What it does it with.
    payload : object
        A column's name, a literal's value, a cast's type, a pattern, the name of a function …
    """

    op: Op
    args: tuple[Column, ...] = ()
    payload: object = None

    # == builds an expression, so that a dict or set of columns could not tell them apart.
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeMismatch(
            what=f"the expression {self} has no truth value of its own.",
            hint="Use & | ~ instead of and, or, not, with parentheses around comparisons.",
        )

    def __str__(self) -> str:
        from penstock.expr.render import render

        return render(self)

    def __repr__(self) -> str:
        return f"Column<{self}>"

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return Column(Op.EQ, (self, lit(other)))

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return Column(Op.NE, (self, lit(other)))

    def __lt__(self, other: object) -> Column:
        return Column(Op.LT, (self, lit(other)))

    def __le__(self, other: object) -> Column:
        return Column(Op.LE, (self, lit(other)))

    def __gt__(self, other: object) -> Column:
        return Column(Op.GT, (self, lit(other)))

    def __ge__(self, other: object) -> Column:
        return Column(Op.GE, (self, lit(other)))

    def __add__(self, other: object) -> Column:
        return Column(Op.ADD, (self, lit(other)))

    def __radd__(self, other: object) -> Column:
        return Column(Op.ADD, (lit(other), self))

    def __sub__(self, other: object) -> Column:
        return Column(Op.SUB, (self, lit(other)))

    def __rsub__(self, other: object) -> Column:
        return Column(Op.SUB, (lit(other), self))

    def __mul__(self, other: object) -> Column:
        return Column(Op.MUL, (self, lit(other)))

    def __rmul__(self, other: object) -> Column:
        return Column(Op.MUL, (lit(other), self))

    def __truediv__(self, other: object) -> Column:
        return Column(Op.DIV, (self, lit(other)))

    def __rtruediv__(self, other: object) -> Column:
        return Column(Op.DIV, (lit(other), self))

    def __mod__(self, other: object) -> Column:
        return Column(Op.MOD, (self, lit(other)))

    def __rmod__(self, other: object) -> Column:
        return Column(Op.MOD, (lit(other), self))

    def __floordiv__(self, other: object) -> Column:
        """``a // b`` is ``floor(a / b)``, as in Python; ``a div b`` in text cuts towards zero."""
        return call("floor", self / other)

    def __rfloordiv__(self, other: object) -> Column:
        return call("floor", Column(Op.DIV, (lit(other), self)))

    def __pow__(self, other: object) -> Column:
        return call("pow", self, other)

    def __rpow__(self, other: object) -> Column:
        return call("pow", other, self)

    def __getitem__(self, key: object) -> Column:
        """Element of an array (from 0; out of range raises), value of a map, or member of a struct."""
        if isinstance(key, slice):
            raise TypeMismatch(what=f"{self} cannot be cut with [:].", hint="Use substr() or F.slice().")
        return Column(Op.CALL, (self, lit(key)), "getItem")

    def __iter__(self) -> NoReturn:
        raise TypeMismatch(what=f"the column {self} cannot be iterated over.", hint="Use explode() or F.transform().")

    def __neg__(self) -> Column:
        return Column(Op.NEG, (self,))

    def __abs__(self) -> Column:
        return self.abs()

    def __and__(self, other: object) -> Column:
        return Column(Op.AND, (self, lit(other)))

    def __rand__(self, other: object) -> Column:
        return Column(Op.AND, (lit(other), self))

    def __or__(self, other: object) -> Column:
        return Column(Op.OR, (self, lit(other)))

    def __ror__(self, other: object) -> Column:
        return Column(Op.OR, (lit(other), self))

    def __invert__(self) -> Column:
        return Column(Op.NOT, (self,))

    def __dir__(self) -> list[str]:
        return [name for name in dir(type(self)) if not name.startswith("_") and name not in Column.__slots__]

    if not TYPE_CHECKING:  # to which any name would be there

        def __getattr__(self, name: str) -> NoReturn:
            raise _missing(self, name)

    def alias(self, name: str, *names: str) -> Column:
        """Name the result; what ``F.posexplode`` and ``F.explode`` of a map make has several names."""
        for each in (name, *names):
            if not isinstance(each, str) or not each:
                raise InvalidOption(option="name", given=each, allowed="a text of at least one character")
        if names and self.op is not Op.GENERATE:
            raise InvalidOption(option="names", given=(name, *names), allowed="one name")
        return Column(Op.ALIAS, (self,), (name, *names) if names else name)

    def cast(self, to: str | DataType) -> Column:
        """Convert to another type as Spark does; a value that does not fit raises."""
        return Column(Op.CAST, (self,), to if isinstance(to, DataType) else parse_type(to))

    def try_cast(self, to: str | DataType) -> Column:
        """Convert to another type; null where a value does not fit."""
        return Column(Op.TRY_CAST, (self,), to if isinstance(to, DataType) else parse_type(to))

    def eqNullSafe(self, other: object) -> Column:
        """Whether both are equal or both null; never null itself."""
        return Column(Op.EQ_NULL_SAFE, (self, lit(other)))

    def getItem(self, key: object) -> Column:
        """Element of an array, or value of a map."""
        return self[key]

    def getField(self, name: str) -> Column:
        """Member of a struct."""
        return self[name]

    def is_null(self) -> Column:
        """Whether there is no value; never null itself."""
        return Column(Op.IS_NULL, (self,))

    def is_not_null(self) -> Column:
        """Whether there is a value; never null itself."""
        return ~self.is_null()

    isNull = is_null
    isNotNull = is_not_null
    astype = cast

    def isNaN(self) -> Column:
        """Whether the number is NaN."""
        return call("isnan", self)

    def bitwiseAND(self, other: object) -> Column:
        """Bits that are set in both."""
        return call("bitwiseAND", self, other)

    def bitwiseOR(self, other: object) -> Column:
        """Bits that are set in one of them."""
        return call("bitwiseOR", self, other)

    def bitwiseXOR(self, other: object) -> Column:
        """Bits in which they differ."""
        return call("bitwiseXOR", self, other)

    def like(self, pattern: object) -> Column:
        r"""Whether the whole text fits a pattern: ``%`` is any text, ``_`` any character, ``\`` takes their meaning."""
        return call("like", self, pattern)

    def ilike(self, pattern: object) -> Column:
        """Like :meth:`like`, whatever the case."""
        return call("ilike", self, pattern)

    def isin(self, *values: object) -> Column:
        """Whether the value is one of ``values``: constants or columns, one by one or as one list, tuple or set."""
        if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset):
            values = tuple(values[0])
        members = tuple(lit(value) for value in values)
        if any(member.op is Op.LITERAL and member.payload is None for member in members):
            raise TypeMismatch(what=f"isin on {self} takes values.", hint="For nulls add | column.is_null().")
        if any(member.op is not Op.LITERAL for member in members):
            return reduce(lambda one, other: one | other, (self == member for member in members))
        return Column(Op.IS_IN, (self, *members))

    def between(self, low: object, high: object) -> Column:
        """Whether ``low <= value <= high``."""
        return Column(Op.BETWEEN, (self, lit(low), lit(high)))

    def contains(self, part: str | bytes | Column) -> Column:
        """Whether the text (or the bytes) has ``part`` in it."""
        if isinstance(part, Column):
            return call("contains", self, part)
        return Column(Op.CONTAINS, (self,), _text(part, "contains"))

    def startswith(self, prefix: str | bytes | Column) -> Column:
        """Whether the text (or the bytes) begins with ``prefix``."""
        if isinstance(prefix, Column):
            return call("startswith", self, prefix)
        return Column(Op.STARTS_WITH, (self,), _text(prefix, "startswith"))

    def endswith(self, suffix: str | bytes | Column) -> Column:
        """Whether the text (or the bytes) ends with ``suffix``."""
        if isinstance(suffix, Column):
            return call("endswith", self, suffix)
        return Column(Op.ENDS_WITH, (self,), _text(suffix, "endswith"))

    def rlike(self, pattern: str | Column) -> Column:
        """Whether the regular expression is found in the text; Java's, as far as Python's ``re`` has it too."""
        from penstock.expr.regex import java_pattern

        if isinstance(pattern, Column):
            return call("rlike", self, pattern)
        java_pattern(pattern)
        return Column(Op.RLIKE, (self,), pattern)

    def lower(self) -> Column:
        """Text in lower case."""
        return Column(Op.LOWER, (self,))

    def upper(self) -> Column:
        """Text in upper case."""
        return Column(Op.UPPER, (self,))

    def trim(self) -> Column:
        """Text without spaces at either end; other white space stays, as in Spark."""
        return Column(Op.TRIM, (self,))

    def length(self) -> Column:
        """Number of characters of a text, bytes of a binary value, or elements of an array."""
        return call("length", self)

    def substr(self, start: int | Column, length: int | Column) -> Column:
        """Return at most ``length`` characters from the 1-based position ``start``."""
        if isinstance(start, Column) or isinstance(length, Column) or start <= 0:
            return call("substring", self, start, length)
        for option, given, least in (("start", start, 1), ("length", length, 0)):
            if not isinstance(given, int) or not least <= given <= SUBSTRING_MAX:
                raise InvalidOption(
                    option=option, given=given, allowed=f"whole numbers from {least} to {SUBSTRING_MAX}"
                )
        return Column(Op.SUBSTR, (self,), (start, length))

    def split(self, separator: str) -> Column:
        """Return the parts of the text between occurrences of ``separator``, as an array."""
        if not isinstance(separator, str) or not separator:
            raise InvalidOption(option="separator", given=separator, allowed="a text of at least one character")
        return Column(Op.SPLIT, (self,), separator)

    def abs(self) -> Column:
        """Value without its sign."""
        return Column(Op.ABS, (self,))


class CaseColumn(Column):
    """A ``when`` that may be continued; without ``otherwise`` the remaining records get null."""

    __slots__ = ()

    def when(self, condition: Column, value: object) -> CaseColumn:
        """Give ``value`` where ``condition`` is true and none of the conditions before it was."""
        return CaseColumn(Op.CASE, (*self.args, _condition(condition), lit(value)))

    def otherwise(self, value: object) -> Column:
        """Give ``value`` where none of the conditions is true."""
        return Column(Op.CASE, (*self.args, lit(value)))


def col(name: str) -> Column:
    """Refer to the column ``name`` of the record; ``"a.b"`` is the member ``b`` of the struct ``a``."""
    if not isinstance(name, str):
        raise TypeMismatch(what=f"a column is named by a text, not by {name!r}.")
    return Column(Op.REF, (), name)


def lit(value: object) -> Column:
    """Make a constant: None, bool, int, float, Decimal, str, bytes, date, datetime (UTC without a zone), timedelta."""
    if isinstance(value, Column):
        return value
    return Column(Op.LITERAL, (), _plain(value))


def call(name: str, *args: object) -> Column:
    """Call the function of that name in the table; arguments that are no columns are constants."""
    from penstock.expr.table import find

    return Column(Op.CALL, tuple(lit(arg) for arg in args), find(name).name)


def when(condition: Column, value: object) -> CaseColumn:
    """Begin a choice: ``ps.when(ps.col("x") > 0, "up").when(ps.col("x") < 0, "down").otherwise("flat")``."""
    return CaseColumn(Op.CASE, (_condition(condition), lit(value)))


def coalesce(*columns: object) -> Column:
    """Return the first value that is not null."""
    if not columns:
        raise TypeMismatch(what="coalesce needs at least one column.")
    return Column(Op.COALESCE, tuple(lit(column) for column in columns))


_SORTED = "a stream has no end to sort up to. The best of each group: ps.agg.top."
_INSTEAD = {
    **dict.fromkeys(
        ("asc", "asc_nulls_first", "asc_nulls_last", "desc", "desc_nulls_first", "desc_nulls_last"), _SORTED
    ),
    "over": "a stream has no end to rank up to. Use stream.key_by(…).process(…), or a window with group_by(…).",
    "withField": "make the struct anew, with F.struct(…).",
    "dropFields": "make the struct anew, with F.struct(…).",
    "name": "it is alias(…) here.",
}


def _missing(column: Column, name: str) -> AttributeError:
    if name.startswith("_"):
        return AttributeError(f"'Column' has no '{name}'.")
    there = nearest(name, dir(column)) or f' A member of a struct is {column}["{name}"].'
    return AttributeError(f"'Column' has no '{name}'{': ' + _INSTEAD[name] if name in _INSTEAD else '.' + there}")


def _condition(condition: object) -> Column:
    if not isinstance(condition, Column | bool):
        raise TypeMismatch(what=f"a condition is a column expression, not {condition!r}.")
    return lit(condition)


def _text(value: object, method: str) -> str | bytes:
    if not isinstance(value, str | bytes):
        raise TypeMismatch(what=f"{method} takes a text or bytes, not {value!r}.")
    return value


def _plain(value: object) -> object:
    """Turn a literal into exactly the type it stands for; enums and NumPy scalars only look like it."""
    item = getattr(value, "item", None)
    if callable(item):
        value = item()
    if value is None or isinstance(value, bool | datetime | date | Decimal | Interval):
        return value
    if isinstance(value, timedelta):
        return Interval(0, value // timedelta(microseconds=1))
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    raise TypeMismatch(
        what=f"{value!r} cannot be a constant in an expression.",
        hint="Constants are None, bool, int, float, Decimal, str, bytes, datetime, date and timedelta.",
    )
