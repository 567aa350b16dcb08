"""The record form of expressions: Python source over a record ``r``; operators paste it into their loops."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import count
from typing import cast

from penstock.expr import functions
from penstock.expr.column import COMPARISONS, Column, Op
from penstock.expr.functions import CONVERSIONS, INT64_MAX, INT64_MIN
from penstock.expr.infer import Typed, elaborate, elaborate_condition, wide
from penstock.types import BIGINT, BOOLEAN, DOUBLE, Record, Schema

_SYMBOLS = {Op.EQ: "==", Op.NE: "!=", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}
_METHODS = {Op.LOWER: "lower", Op.UPPER: "upper"}
_ATOM = re.compile(r"[\w.]+")
_BUILTINS = (bool, float, int, str)


def record_source(column: Column, schema: Schema, namespace: dict[str, object]) -> str:
    """Write an expression as Python source over the variable ``r``.

    Parameters
    ----------
    column : Column
        The expression.
    schema : Schema
        Of the record ``r``.
    namespace : dict
        Globals for the source; constants and functions it needs are added.

    Returns
    -------
    str
        A Python expression without parentheses around it; its value is None where SQL says null.
    """
    return _Writer(namespace).value(elaborate(column, schema))


def predicate_source(column: Column, schema: Schema, namespace: dict[str, object]) -> str:
    """Write a condition as Python source that is truthy exactly where the condition is true.

    Null and false are not told apart, which makes the source cheaper than that of ``record_source``.
    """
    return _Writer(namespace).truth(elaborate_condition(column, schema), True)


def record_function(column: Column, schema: Schema) -> Callable[[Record], object]:
    """Compile an expression to a function of a record."""
    namespace: dict[str, object] = {}
    source = record_source(column, schema, namespace)
    exec(compile(f"def evaluate(r):\n    return {source}", "<penstock expression>", "exec"), namespace)
    return cast(Callable[[Record], object], namespace["evaluate"])


class _Writer:
    """Writes one expression.

    Operators that pass nulls through are written in one piece behind a single test of the columns
    that may be null ("guards"), so that ``a + b * c`` costs one conditional and not two.
    """

    def __init__(self, namespace: dict[str, object]) -> None:
        self._namespace = namespace
        self._temporaries = count()

    def value(self, node: Typed) -> str:
        """Source of the value, None where it is null."""
        if _is_null_literal(node):
            return "None"
        if node.op is Op.REF:
            return f"r.{node.payload}"
        if node.op in (Op.AND, Op.OR) and node.nullable:
            return self._kleene(node)
        if node.op is Op.CASE:
            return self._case(node)
        if node.op is Op.COALESCE:
            return self._coalesce(node)
        guards: list[str] = []
        body = self._strict(node, guards)
        return f"None if {' or '.join(guards)} else {body}" if guards else body

    def truth(self, node: Typed, wanted: bool) -> str:
        """Source that is truthy exactly where a condition is ``wanted``."""
        if node.op is Op.NOT:
            return self.truth(node.args[0], not wanted)
        if node.op in (Op.AND, Op.OR):
            word = "and" if (node.op is Op.AND) is wanted else "or"
            parts = [self.truth(arg, wanted) for arg in node.args]
            # A chain stays flat: Python refuses more than 200 nested parentheses.
            flat = node.args[0].op is node.op
            return f"{parts[0] if flat else _closed(parts[0])} {word} {_closed(parts[1])}"
        if node.op is Op.IS_NULL:
            return self._null_test(node.args[0], wanted)
        if node.op in COMPARISONS or node.op in (Op.IS_IN, Op.BETWEEN) or node.op in _MATCHES:
            guards: list[str] = []
            body = self._equality(node, wanted, guards) or self._negated(self._strict(node, guards), wanted)
            return " and ".join([*(_present(guard) for guard in guards), body])
        source = self.value(node)
        if wanted:
            # A bare conditional cannot stand where a condition does.
            return f"({source})" if " if " in source else source
        return f"{_closed(source)} is False" if node.nullable else f"not {_closed(source)}"

    @staticmethod
    def _negated(source: str, wanted: bool) -> str:
        return source if wanted else f"not {_closed(source)}"

    def _equality(self, node: Typed, wanted: bool, guards: list[str]) -> str | None:
        """An equality of bare columns and constants needs one guard less: None equals no value."""
        if node.op is Op.IS_IN and wanted and node.args[0].op is Op.REF:
            return f"{self.value(node.args[0])} in {self._members(node)}"
        if (node.op is Op.EQ and wanted) or (node.op is Op.NE and not wanted):
            left, right = node.args
            # Of anything else the guard must stay: it may raise where the column's null would have spared it.
            if left.op is Op.REF and right.op in (Op.REF, Op.LITERAL):
                return f"{self.value(left)} == {_closed(self._strict(right, guards))}"
            if left.op is Op.LITERAL and right.op is Op.REF:
                return f"{_closed(self._strict(left, guards))} == {self.value(right)}"
        return None

    def _null_test(self, node: Typed, wanted: bool) -> str:
        guards: list[str] = []
        self._strict(node, guards)
        if not guards:
            return str(not wanted)
        return " or ".join(guards) if wanted else " and ".join(_present(guard) for guard in guards)

    def _strict(self, node: Typed, guards: list[str]) -> str:
        """Source of the value where none of ``guards``, to which this adds, holds."""
        if node.op is Op.LITERAL and not _is_null_literal(node):
            return self._literal(node)
        if node.op is Op.REF:
            source = f"r.{node.payload}"
            if node.nullable and _absent(source) not in guards:
                guards.append(_absent(source))
            return source
        if node.op is Op.IS_NULL:
            return self._null_test(node.args[0], True)
        if node.op in (Op.AND, Op.OR) and not node.nullable:
            return f" {node.op.value.lower()} ".join(_closed(self.value(arg)) for arg in node.args)
        if node.op in (Op.AND, Op.OR, Op.CASE, Op.COALESCE, Op.LITERAL):
            source = self.value(node)
            if not node.nullable:
                return source
            name = self._temporary()
            guards.append(_absent(f"({name} := {source})"))
            return name
        operands = [_closed(self._strict(arg, guards)) for arg in node.args[: 1 if node.op is Op.IS_IN else None]]
        return self._operator(node, operands)

    def _operator(self, node: Typed, operands: list[str]) -> str:
        first = operands[0]
        op = node.op
        if op in _SYMBOLS:
            return f"{first} {_SYMBOLS[op]} {operands[1]}"
        if op is Op.BETWEEN:
            return f"{operands[1]} <= {first} <= {operands[2]}"
        if op in (Op.ADD, Op.SUB, Op.MUL):
            return self._in_range(node, f"{first} {op.value} {operands[1]}")
        if op is Op.DIV:
            return self._division(node, first, operands[1])
        if op is Op.MOD:
            return self._modulo(node, first, operands[1])
        if op is Op.NEG:
            return self._in_range(node, f"-{first}")
        if op is Op.ABS:
            return self._in_range(node, f"abs({first})")
        if op is Op.NOT:
            return f"not {first}"
        if op is Op.IS_IN:
            return f"{first} in {self._members(node)}"
        if op is Op.CAST:
            return self._cast(node, first)
        if op is Op.LENGTH:
            return f"len({first})"
        if op in _METHODS:
            return f"{first}.{_METHODS[op]}()"
        if op is Op.TRIM:
            return f'{first}.strip(" ")'
        if op is Op.SUBSTR:
            start, length = cast(tuple[int, int], node.payload)
            return f"{first}[{start - 1}:{start - 1 + length}]"
        if op is Op.SPLIT:
            return f"{first}.split({self._constant(node.payload)})"
        return self._match(node, first)

    def _match(self, node: Typed, text: str) -> str:
        if node.op is Op.CONTAINS:
            return f"{self._constant(node.payload)} in {text}"
        if node.op is Op.STARTS_WITH:
            return f"{text}.startswith({self._constant(node.payload)})"
        if node.op is Op.ENDS_WITH:
            return f"{text}.endswith({self._constant(node.payload)})"
        search = re.compile(cast(str, node.payload), re.ASCII).search
        return f"{self._constant(search)}({text}) is not None"

    def _literal(self, node: Typed) -> str:
        value = node.payload
        if type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
            return repr(value)
        return self._constant(value)

    def _members(self, node: Typed) -> str:
        # NaN equals nothing, but a set would find the very same object.
        return self._constant(frozenset(arg.payload for arg in node.args[1:] if arg.payload == arg.payload))

    def _kleene(self, node: Typed) -> str:
        left, right = (self.value(arg) for arg in node.args)
        if not node.args[0].nullable:
            return f"{_closed(left)} {node.op.value.lower()} {_closed(right)}"
        x, y = self._temporary(), self._temporary()
        decisive = node.op is Op.OR
        passes = f"{x} is False" if decisive else x
        second = f"{y} if ({y} := {right}) is {decisive} or {passes} else None"
        return f"{x} if ({x} := {left}) is {decisive} else {second}"

    def _case(self, node: Typed) -> str:
        branches = [
            f"{_closed(self.value(node.args[i + 1]))} if {self.truth(node.args[i], True)} else "
            for i in range(0, len(node.args) - 1, 2)
        ]
        return "".join(branches) + _closed(self.value(node.args[-1]))

    def _coalesce(self, node: Typed) -> str:
        parts: list[str] = []
        for arg in node.args:
            source = self.value(arg)
            if not arg.nullable:
                return "".join(parts) + _closed(source)
            name = source
            if arg.op is not Op.REF:
                name = self._temporary()
                source = f"({name} := {source})"
            parts.append(f"{name} if {source} is not None else ")
        return "".join(parts) + "None"

    def _division(self, node: Typed, dividend: str, divisor: str) -> str:
        if node.args[1].op is Op.LITERAL and node.args[1].payload:
            return f"{dividend} / {divisor}"
        name = self._temporary()
        return f"{dividend} / {name} if ({name} := {divisor}) else {self._helper(functions.zero_divisor)}()"

    def _modulo(self, node: Typed, dividend: str, divisor: str) -> str:
        if node.type == DOUBLE:
            return f"{self._helper(functions.float_remainder)}({dividend}, {divisor})"
        by = node.args[1].payload
        if node.args[0].op is Op.REF and isinstance(by, int) and by > 0:
            # Python's own remainder has the divisor's sign.
            return f"{dividend} % {divisor} if {dividend} >= 0 else -(-{dividend} % {divisor})"
        return f"{self._helper(functions.remainder)}({dividend}, {divisor})"

    def _cast(self, node: Typed, source: str) -> str:
        given, target = node.args[0].type, node.type
        if wide(given) != wide(target):
            convert = CONVERSIONS[wide(given).kind, wide(target).kind]
            source = f"{self._helper(convert)}({source})"
        if not target.is_integer:
            return source
        low, high = target.bounds()
        smallest, largest = _bounds(node.args[0]) if given.is_integer else BIGINT.bounds()
        if given == BOOLEAN or (low <= smallest and largest <= high):
            return source
        return self._checked(source, low, high, f", {target.ddl!r}")

    def _in_range(self, node: Typed, source: str) -> str:
        """Add the check for overflow, unless the operands' types exclude it."""
        if node.type == DOUBLE:
            return source
        smallest, largest = _result_bounds(node)
        return source if smallest >= INT64_MIN and largest <= INT64_MAX else self._checked(source, INT64_MIN, INT64_MAX)

    def _checked(self, source: str, low: int, high: int, argument: str = "") -> str:
        name = self._temporary()
        otherwise = f"{self._helper(functions.overflow)}({name}{argument})"
        return f"{name} if {low} <= ({name} := {source}) <= {high} else {otherwise}"

    def _temporary(self) -> str:
        return f"_t{next(self._temporaries)}"

    def _constant(self, value: object) -> str:
        name = next(name for name in (f"_c{i}" for i in count()) if name not in self._namespace)
        self._namespace[name] = value
        return name

    def _helper(self, function: Callable[..., object]) -> str:
        if function in _BUILTINS:
            return function.__name__
        name = f"_{function.__name__}"
        self._namespace[name] = function
        return name


_MATCHES = frozenset({Op.CONTAINS, Op.STARTS_WITH, Op.ENDS_WITH, Op.RLIKE})


def _is_null_literal(node: Typed) -> bool:
    return node.op is Op.LITERAL and node.payload is None


def _closed(source: str) -> str:
    return source if _ATOM.fullmatch(source) else f"({source})"


def _absent(source: str) -> str:
    return f"{source} is None"


def _present(guard: str) -> str:
    return f"{guard.removesuffix(' is None')} is not None"


def _bounds(node: Typed) -> tuple[int, int]:
    """Smallest and largest value a whole-number expression can have without raising."""
    if isinstance(node.payload, int):
        return node.payload, node.payload
    if node.op not in (Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS):
        return node.type.bounds()
    smallest, largest = _result_bounds(node)
    return max(smallest, INT64_MIN), min(largest, INT64_MAX)


def _result_bounds(node: Typed) -> tuple[int, int]:
    low, high = _bounds(node.args[0])
    if node.op is Op.NEG:
        return -high, -low
    if node.op is Op.ABS:
        return 0, max(-low, high)
    other_low, other_high = _bounds(node.args[1])
    if node.op is Op.ADD:
        return low + other_low, high + other_high
    if node.op is Op.SUB:
        return low - other_high, high - other_low
    corners = [a * b for a in (low, high) for b in (other_low, other_high)]
    return min(corners), max(corners)
