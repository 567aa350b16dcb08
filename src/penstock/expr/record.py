"""The record form of expressions: Python source over a record ``r``; operators paste it into their loops."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from penstock.expr import functions
from penstock.expr.column import ARITHMETIC, COMPARISONS, Column, Op
from penstock.expr.conversions import converter, may_be_null, wide
from penstock.expr.functions import CONVERSIONS
from penstock.expr.infer import elaborate, elaborate_condition
from penstock.expr.numbers import negated, positive
from penstock.expr.regex import java_pattern
from penstock.expr.table import Function
from penstock.expr.typed import Typed
from penstock.types import BIGINT, BOOLEAN, DOUBLE, DataType, Record, Schema, TypeKind, attribute, float32

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
    return typed_function(elaborate(column, schema))


def typed_function(node: Typed) -> Callable[[Any], object]:
    """Compile a typed node to a function of a record."""
    namespace: dict[str, object] = {}
    source = _Writer(namespace).value(node)
    exec(compile(f"def evaluate(r):\n    return {source}", "<penstock expression>", "exec"), namespace)
    return cast(Callable[[Any], object], namespace["evaluate"])


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
            return f"r.{attribute(cast(str, node.payload))}"
        if node.op is Op.VARIABLE:
            return f"_v_{node.payload}"
        if node.op in (Op.AND, Op.OR) and node.nullable:
            return self._kleene(node)
        if node.op is Op.EQ_NULL_SAFE:
            return self._equal_or_null(node)
        if _is_loose(node):
            return self._call(node, [_closed(self._argument(arg)) for arg in node.args])
        if node.op is Op.CASE:
            return self._case(node)
        if node.op is Op.COALESCE:
            return self._coalesce(node)
        guards: list[str] = []
        if _makes_nulls(node):
            args = [_closed(self._operand(arg, guards)) for arg in node.args]
            body = self._call(node, args) if node.op is Op.CALL else self._cast(node, args[0])
        else:
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
        if any(arg.type.is_fractional for arg in node.args):
            return None
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
        if node.op in (Op.REF, Op.VARIABLE) or (node.op is Op.FIELD and node.args[0].type.kind is TypeKind.STRUCT):
            if node.op is Op.FIELD:
                source = f"{_closed(self._strict(node.args[0], guards))}.{attribute(cast(str, node.payload))}"
            else:
                source = self.value(node)
            if node.nullable and _absent(source) not in guards:
                guards.append(_absent(source))
            return source
        if node.op is Op.IS_NULL:
            return self._null_test(node.args[0], True)
        if node.op in (Op.AND, Op.OR) and not node.nullable:
            return f" {node.op.value.lower()} ".join(_closed(self.value(arg)) for arg in node.args)
        if node.op in (Op.AND, Op.OR, Op.CASE, Op.COALESCE, Op.LITERAL) or _makes_nulls(node):
            source = self.value(node)
            if not node.nullable:
                return source
            name = self._temporary()
            guards.append(_absent(f"({name} := {source})"))
            return name
        if node.op is Op.CALL:
            return self._call(node, [_closed(self._operand(arg, guards)) for arg in node.args])
        operands = [_closed(self._strict(arg, guards)) for arg in node.args[: 1 if node.op is Op.IS_IN else None]]
        return self._operator(node, operands)

    def _operand(self, node: Typed, guards: list[str]) -> str:
        return self._argument(node) if node.op is Op.LAMBDA else self._strict(node, guards)

    def _argument(self, node: Typed) -> str:
        """Source of an argument that may be null, or of a function."""
        if node.op is not Op.LAMBDA:
            return self.value(node)
        names = ", ".join(f"_v_{name}" for name in cast(tuple[str, ...], node.payload))
        return f"(lambda {names}: ({self.value(node.args[0])}))"

    def _call(self, node: Typed, operands: list[str]) -> str:
        function = cast(Function, node.payload)
        if function.source is not None:
            return function.source.format(*operands)
        # Python assigns nothing within what a comprehension goes through.
        if function.name in ("transform", "filter") and ":=" not in operands[0]:
            return self._elements(node, operands[0])
        return f"{self._constant(function.helper_of(node))}({', '.join(operands)})"

    def _elements(self, node: Typed, values: str) -> str:
        """``transform`` and ``filter`` in place: a call for each element would cost as much as what it computes."""
        function = node.args[1]
        element, *place = (f"_v_{name}" for name in cast(tuple[str, ...], function.payload))
        through = f"{', '.join([*place, element])} in {f'enumerate({values})' if place else values}"
        if cast(Function, node.payload).name == "filter":
            return f"[{element} for {through} if {self.truth(function.args[0], True)}]"
        return f"[{self.value(function.args[0])} for {through}]"

    def _equal_or_null(self, node: Typed) -> str:
        left, right = (_closed(self.value(arg)) for arg in node.args)
        if not node.args[0].type.is_fractional:
            return f"{left} == {right}"
        return f"{self._helper(functions.equal_or_null)}({left}, {right})"

    def _operator(self, node: Typed, operands: list[str]) -> str:
        first = operands[0]
        op = node.op
        if op in _SYMBOLS:
            if any(arg.type.is_fractional for arg in node.args):
                return self._fractional(node, first, operands[1])
            return f"{first} {_SYMBOLS[op]} {operands[1]}"
        if op is Op.FIELD:
            member = attribute(cast(str, node.payload))
            return f"[None if _e is None else _e.{member} for _e in {first}]"
        if op is Op.BETWEEN:
            return f"{operands[1]} <= {first} <= {operands[2]}"
        if node.type.kind is TypeKind.DECIMAL and op in ARITHMETIC:
            return self._decimal(node, first, operands[1])
        if op in (Op.ADD, Op.SUB, Op.MUL):
            return self._in_range(node, f"{first} {op.value} {operands[1]}")
        if op is Op.DIV:
            return self._division(node, first, operands[1])
        if op is Op.MOD:
            return self._modulo(node, first, operands[1])
        if node.type.kind is TypeKind.DECIMAL and op in (Op.NEG, Op.ABS):
            return f"{self._constant(negated if op is Op.NEG else positive)}({first})"
        if op is Op.NEG:
            return self._in_range(node, f"-{first}")
        if op is Op.ABS:
            return self._in_range(node, f"abs({first})")
        if op is Op.NOT:
            return f"not {first}"
        if op is Op.IS_IN:
            if any(arg.type.is_fractional for arg in node.args):
                first = self._as_double(node.args[0], first)
            if any(arg.payload != arg.payload for arg in node.args[1:]):
                name = self._temporary()
                return f"(({name} := {first}) in {self._members(node)} or {name} != {name})"
            return f"{first} in {self._members(node)}"
        if op is Op.CAST:
            return self._cast(node, first)
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
        search = java_pattern(cast(str, node.payload)).search
        return f"{self._constant(search)}({text}) is not None"

    def _literal(self, node: Typed) -> str:
        value = node.payload
        if type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
            return repr(value)
        return self._constant(value)

    def _members(self, node: Typed) -> str:
        # NaN equals nothing, but a set would find the very same object.
        members = [arg.payload for arg in node.args[1:] if arg.payload == arg.payload]
        if any(arg.type.is_fractional for arg in node.args):
            members = [float(cast(float, member)) for member in members]
        return self._constant(frozenset(members))

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

    def _fractional(self, node: Typed, left: str, right: str) -> str:
        """A comparison in which NaN equals itself and is larger than any other number."""
        op = node.op
        left, right = (self._as_double(arg, side) for arg, side in zip(node.args, (left, right), strict=True))
        known = [arg.is_literal and arg.payload == arg.payload for arg in node.args]
        if any(known):
            if op in (Op.EQ, Op.NE) or (op in (Op.LT, Op.LE)) is known[1]:
                return f"{left} {_SYMBOLS[op]} {right}"
            return f"not {left} {_SYMBOLS[_OPPOSITE[op]]} {right}"
        x, y = self._temporary(), self._temporary()
        a, b = f"({x} := {left})", f"({y} := {right})"
        return {
            Op.EQ: f"({a} == {b} or ({x} != {x} and {y} != {y}))",
            Op.NE: f"not ({a} == {b} or ({x} != {x} and {y} != {y}))",
            Op.LT: f"({a} < {b} or ({y} != {y} and {x} == {x}))",
            Op.LE: f"({a} <= {b} or {y} != {y})",
            Op.GT: f"({a} > {b} or ({x} != {x} and {y} == {y}))",
            Op.GE: f"({a} >= {b} or {x} != {x})",
        }[op]

    @staticmethod
    def _as_double(node: Typed, source: str) -> str:
        """A number among doubles: Python would compare and divide large whole numbers exactly."""
        return f"float({source})" if node.type == BIGINT else source

    def _decimal(self, node: Typed, left: str, right: str) -> str:
        return f"{self._constant(functions.decimal_operation(node.op.value, node.type))}({left}, {right})"

    def _division(self, node: Typed, dividend: str, divisor: str) -> str:
        dividend, divisor = self._as_double(node.args[0], dividend), self._as_double(node.args[1], divisor)
        if node.args[1].op is Op.LITERAL and node.args[1].payload:
            return f"{dividend} / {divisor}"
        name = self._temporary()
        return f"{dividend} / {name} if ({name} := {divisor}) else {self._helper(functions.zero_divisor)}()"

    def _modulo(self, node: Typed, dividend: str, divisor: str) -> str:
        if node.type.is_fractional:
            source = f"{self._helper(functions.float_remainder)}({dividend}, {divisor})"
            return source if node.type == DOUBLE else f"{self._helper(float32)}({source})"
        by = node.args[1].payload
        if node.args[0].op is Op.REF and isinstance(by, int) and by > 0:
            # Python's own remainder has the divisor's sign.
            return f"{dividend} % {divisor} if {dividend} >= 0 else -(-{dividend} % {divisor})"
        return f"{self._helper(functions.remainder)}({dividend}, {divisor})"

    def _cast(self, node: Typed, source: str) -> str:
        given, target = node.args[0].type, node.type
        if node.op is Op.TRY_CAST:
            return f"{self._constant(functions.attempt(converter(given, target)))}({source})"
        if not _is_simple(given, target):
            return f"{self._constant(converter(given, target))}({source})"
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
        if node.type.kind is TypeKind.FLOAT:
            return f"{self._helper(float32)}({source})"
        if not node.type.is_integer:
            return source
        low, high = node.type.bounds()
        smallest, largest = _result_bounds(node)
        more = "" if node.type == BIGINT else f", {node.type.ddl!r}"
        return source if smallest >= low and largest <= high else self._checked(source, low, high, more)

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


_OPPOSITE = {Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}


def _is_loose(node: Typed) -> bool:
    """Whether a call takes nulls as arguments."""
    return node.op is Op.CALL and not cast(Function, node.payload).strict


def _makes_nulls(node: Typed) -> bool:
    """Whether the value may be null where no operand is."""
    if node.op is Op.CALL:
        function = cast(Function, node.payload)
        return function.nullable or not function.strict
    if node.op is Op.EQ_NULL_SAFE:
        return True
    return node.op is Op.TRY_CAST or (node.op is Op.CAST and may_be_null(node.args[0].type, node.type))


def _is_simple(given: DataType, target: DataType) -> bool:
    kinds = (TypeKind.FLOAT, TypeKind.DECIMAL)
    return not (given.is_nested or given.kind in kinds or target.kind in kinds)


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
    if node.op is Op.CAST and node.type.is_integer and node.args[0].type.is_integer:
        (low, high), (least, most) = _bounds(node.args[0]), node.type.bounds()
        return max(low, least), min(high, most)
    if not node.type.is_integer or node.op not in (Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS):
        return node.type.bounds()
    smallest, largest = _result_bounds(node)
    low, high = node.type.bounds()
    return max(smallest, low), min(largest, high)


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
