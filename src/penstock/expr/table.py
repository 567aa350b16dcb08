"""The table of functions: what each is called in Spark, what it takes, what it gives, and its two forms.

A row says everything about a function; type inference, both compilers, the names in `penstock.functions`, SQL text
and the page of the docs read the same rows. A signature is written as ``"c:string l:int? c:any*"``: ``c`` is a column,
which users may give by its name, ``l`` a plain value or a column, ``f`` a function of one or more variables; ``?`` may
be left out, ``*`` comes any number of times. The kinds of arguments are in `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InvalidOption, nearest
from penstock.expr.typed import Typed
from penstock.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
    TypeKind,
    array_of,
)

EXACT = {
    "string": STRING,
    "int": INT,
    "bigint": BIGINT,
    "double": DOUBLE,
    "boolean": BOOLEAN,
    "binary": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
}
KINDS: dict[str, Callable[[DataType], bool]] = {
    **{word: (lambda kind, wanted=wanted: kind == wanted) for word, wanted in EXACT.items()},  # type: ignore[misc]
    "any": lambda _kind: True,
    "number": lambda kind: kind.is_numeric,
    "integer": lambda kind: kind.is_integer,
    "array": lambda kind: kind.kind is TypeKind.ARRAY,
    "map": lambda kind: kind.kind is TypeKind.MAP,
    "struct": lambda kind: kind.kind is TypeKind.STRUCT,
    "text": lambda kind: kind in (STRING, BINARY),
    "sized": lambda kind: kind.kind in (TypeKind.ARRAY, TypeKind.MAP),
    "time": lambda kind: kind in (DATE, TIMESTAMP),
    "sequence": lambda kind: kind.kind is TypeKind.ARRAY or kind in (STRING, BINARY),
    "orderable": lambda kind: kind.kind is not TypeKind.MAP,
    "value": lambda _kind: True,
    "hashed": lambda kind: "map<" not in kind.ddl,
    "timely": lambda kind: kind in (STRING, DATE, TIMESTAMP),
    "nested": lambda kind: kind.is_nested,
    "hexable": lambda kind: kind.is_integer or kind in (STRING, BINARY),
    "wide": lambda kind: kind in (INT, BIGINT),
    "strings": lambda kind: kind == array_of(STRING),
    "joined": lambda kind: kind in (STRING, array_of(STRING)),
    "arrays": lambda kind: kind.element is not None and kind.element.kind is TypeKind.ARRAY,
}
_PARAMETER = re.compile(r"([clf]):(\w+)([?*]?)")
Result = DataType | Callable[[Sequence[Typed]], DataType]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a function."""

    kind: str
    is_column: bool
    is_function: bool
    optional: bool
    repeated: bool


@dataclass(frozen=True, eq=False)
class Function:
    """One row of the table.

    Attributes
    ----------
    name : str
        As in `pyspark.sql.functions`; also what Spark's SQL calls it, unless ``sql`` says otherwise.
    result : DataType or callable
        Type of the result, or a function of the typed arguments.
    helper, source, make :
        The record form: a Python function of the values; or source with ``{0}``, ``{1}`` … for them; or a function of
        the typed node that gives the helper.
    kernel : callable, optional
        The Arrow form: a function of Arrow data; without one, the record form goes over the columns.
    strict : bool
        Whether it is null where an argument is (and is not called then).
    nullable : bool
        Whether it may be null where no argument is.
    variables : callable, optional
        Types of the variables of a function argument, from the typed arguments before it.
    """

    name: str
    parameters: tuple[Parameter, ...]
    result: Result
    group: str
    helper: Callable[..., Any] | None = None
    source: str | None = None
    make: Callable[[Typed], Callable[..., Any]] | None = None
    kernel: Callable[..., Any] | None = None
    strict: bool = True
    nullable: bool = False
    variables: Callable[[Sequence[Typed]], list[DataType]] | None = None
    sql: str = ""
    coerce: str = ""
    """How arguments meet: ``common`` gives those of kind any one type, ``concat`` what `concat` joins; ``compare``
    leaves them as they are; ``element`` brings what an array holds and the last argument together, with ``place``
    only where that is the key of a map."""
    aliases: tuple[str, ...] = field(default=())

    @property
    def sql_name(self) -> str:
        """The name in Spark's SQL."""
        return self.sql or self.name

    def helper_of(self, node: Typed) -> Callable[..., Any]:
        """The record form for a node."""
        made = self.make(node) if self.make is not None else self.helper
        assert made is not None, self.name
        return made


FUNCTIONS: dict[str, Function] = {}
"""By name; other names of the same function have entries of their own."""


def signature(text: str) -> tuple[Parameter, ...]:
    """Read a signature."""
    found = _PARAMETER.findall(text)
    assert len(found) == len(text.split()), text
    return tuple(Parameter(kind, how == "c", how == "f", mark == "?", mark == "*") for how, kind, mark in found)


def define(group: str) -> Callable[..., None]:
    """Return the function that adds rows to a part of the table."""

    def add(
        names: str, takes: str, result: Result | str, helper: Callable[..., Any] | None = None, **more: Any
    ) -> None:
        name, *aliases = names.split()
        given: Result = EXACT[result] if isinstance(result, str) else result
        row = Function(name, signature(takes), given, group, helper, aliases=tuple(aliases), **more)
        for each in (name, *aliases):
            assert each not in FUNCTIONS, each
            FUNCTIONS[each] = row

    return add


def find(name: str) -> Function:
    """Return the function of that name, or refuse with the nearest one."""
    found = FUNCTIONS.get(name) or FUNCTIONS.get(name.lower())
    if found is None:
        raise InvalidOption(
            option="function", given=name, allowed=f"a function of docs/functions.md.{nearest(name, FUNCTIONS)}"
        )
    return found


def same(at: int = 0) -> Callable[[Sequence[Typed]], DataType]:
    """The result has the type of an argument."""
    return lambda args: args[at].type
