"""Types of function calls: finds the row of the table, brings arguments to the types that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Protocol, cast

from penstock.errors import TypeMismatch
from penstock.expr.column import Column, Op
from penstock.expr.conversions import convertible
from penstock.expr.numbers import common_number
from penstock.expr.table import EXACT, KINDS, Function, Parameter, find
from penstock.expr.typed import Typed
from penstock.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    DataType,
    TypeKind,
    array_of,
    map_of,
)

Variables = dict[str, DataType]


class Elaborate(Protocol):
    """Gives an argument its type, with the variables of a function around it."""

    def __call__(self, arg: Column, more: Variables | None = None) -> Typed | None: ...


def elaborate_call(column: Column, elaborate: Elaborate) -> Typed:
    """Return the typed node of a call."""
    if column.payload == "getItem":
        return _item(column, elaborate)
    function = find(str(column.payload))
    parameters = _spread(function, column)
    args: list[Typed | None] = []
    given = column.args
    if function.coerce == "timely" and len(given) > 1:
        first = elaborate(given[0])
        if first is not None and first.type != STRING:  # what is a time already is read by no pattern
            given, parameters = given[:1], parameters[:1]
    for parameter, arg in zip(parameters, given, strict=True):
        args.append(_lambda(function, arg, args, elaborate) if parameter.is_function else elaborate(arg))
    if function.coerce in ("common", "plain") or (function.coerce == "concat" and _has_array(args)):
        args = _common(column, parameters, args, with_text=function.coerce == "common")
    elif function.coerce == "concat" and any(arg is not None and arg.type != BINARY for arg in args):
        args = [arg if arg is None or arg.type == STRING else _as_text(column, arg) for arg in args]
    if function.coerce == "compare":
        _check_comparable(column, args)
    if function.coerce in ("element", "place"):
        args = _with_element(column, args, by_place=function.coerce == "place")
    typed = [
        arg if arg is not None and arg.op is Op.LAMBDA else _brought(column, parameter, arg, source)
        for parameter, arg, source in zip(parameters, args, given, strict=True)
    ]
    if function.name in _CHOSEN:
        return _CHOSEN[function.name](typed)
    result = function.result if isinstance(function.result, DataType) else function.result(typed)
    nullable = function.nullable or (function.strict and any(arg.nullable for arg in typed if arg.op is not Op.LAMBDA))
    return Typed(Op.CALL, result, nullable, tuple(typed), function)


def _if(args: Sequence[Typed]) -> Typed:
    return Typed(Op.CASE, args[1].type, args[1].nullable or args[2].nullable, tuple(args))


def _nvl2(args: Sequence[Typed]) -> Typed:
    there = Typed(Op.NOT, BOOLEAN, False, (Typed(Op.IS_NULL, BOOLEAN, False, (args[0],)),))
    return _if((there, *args[1:]))


def _nvl(args: Sequence[Typed]) -> Typed:
    return Typed(Op.COALESCE, args[0].type, True, tuple(args))


def _zero_if_null(args: Sequence[Typed]) -> Typed:
    (given,) = args
    kind = common_number(given.type, INT)
    zero = Decimal((0, (0,), -kind.scale)) if kind.kind is TypeKind.DECIMAL else 0.0 if kind.is_fractional else 0
    value = given if given.type == kind else Typed(Op.CAST, kind, given.nullable, (given,))
    return Typed(Op.COALESCE, kind, False, (value, Typed(Op.LITERAL, kind, False, (), zero)))


def _nanvl(args: Sequence[Typed]) -> Typed:
    return _if((Typed(Op.CALL, BOOLEAN, False, (args[0],), find("isnan")), args[1], args[0]))


_CHOSEN = {"if": _if, "nvl2": _nvl2, "nvl": _nvl, "nanvl": _nanvl, "zeroifnull": _zero_if_null}
"""Functions that compute only the argument that they choose: the others may raise."""


def _spread(function: Function, column: Column) -> list[Parameter]:
    """One parameter for each argument."""
    given = len(column.args)
    parameters = list(function.parameters)
    if parameters and parameters[-1].repeated:
        last = parameters.pop()
        parameters += [last] * (given - len(parameters))
    least = sum(not each.optional and not each.repeated for each in function.parameters)
    if not least <= given <= len(parameters):
        most = "" if least == len(parameters) else f" to {len(parameters)}"
        raise TypeMismatch(what=f"{column} has {given} arguments; {function.name} takes {least}{most}.")
    return parameters[:given]


def _lambda(function: Function, arg: Column, before: Sequence[Typed | None], elaborate: Elaborate) -> Typed:
    if arg.op is not Op.LAMBDA:
        raise TypeMismatch(what=f"{function.name} takes a function, such as lambda x: x + 1, not {arg}.")
    names = cast(tuple[str, ...], arg.payload)
    assert function.variables is not None
    types = function.variables(cast(list[Typed], before))
    if len(names) > len(types):
        raise TypeMismatch(what=f"the function in {function.name} has {len(names)} variables, at most {len(types)}.")
    body = elaborate(arg.args[0], dict(zip(names, types, strict=False)))
    if body is None:
        raise TypeMismatch(what=f"the function in {function.name} is always null.")
    return Typed(Op.LAMBDA, body.type, body.nullable, (body,), names)


def _item(column: Column, elaborate: Elaborate) -> Typed:
    from penstock.expr.infer import member

    base, key = (elaborate(arg) for arg in column.args)
    if base is None or key is None:
        raise TypeMismatch(what=f"{column} is always null.")
    if base.type.kind is TypeKind.STRUCT or (base.type.kind is TypeKind.ARRAY and key.type == STRING):
        if not isinstance(key.payload, str):
            raise TypeMismatch(what=f"{column}: a member of a struct is named by a text.")
        return member(base, key.payload)
    if base.type.kind is TypeKind.ARRAY and base.type.element is not None:
        if not key.type.is_integer:
            raise TypeMismatch(what=f"{column}: an element of an array is given by its place, from 0.")
        return Typed(Op.CALL, base.type.element, True, (base, key), find("_element"))
    if base.type.key is not None and base.type.element is not None:
        wanted = _implicit(key, base.type.key)
        if wanted is None:
            raise TypeMismatch(what=f"{column}: the keys are {base.type.key.ddl}, not {key.type.ddl}.")
        return Typed(Op.CALL, base.type.element, True, (base, wanted), find("_value"))
    raise TypeMismatch(what=f"{column.args[0]} is {base.type.ddl}, which has no elements.")


def _brought(column: Column, parameter: Parameter, arg: Typed | None, source: Column) -> Typed:
    exact = EXACT.get(parameter.kind)
    if arg is None:
        if exact is None:
            raise TypeMismatch(
                what=f"{column} has None as an argument, whose type is not known.",
                hint='Give it one: ps.lit(None).cast("string").',
            )
        return Typed(Op.LITERAL, exact, True)
    if KINDS[parameter.kind](arg.type) and arg.type != INTERVAL:
        return arg
    found = _implicit(arg, exact) if exact is not None else None
    if parameter.kind == "time" and arg.type == STRING:
        found = _implicit(arg, TIMESTAMP)
    if parameter.kind in ("text", "joined") or (parameter.kind == "sequence" and not arg.type.is_nested):
        found = _implicit(arg, STRING)
    if parameter.kind in ("strings", "joined") and arg.type.kind is TypeKind.ARRAY:
        found = _implicit(arg, array_of(STRING))
    if parameter.kind == "wide" and arg.type.is_integer:
        found = _implicit(arg, INT)
    if found is None:
        raise TypeMismatch(what=f"{column} needs {parameter.kind}, but {source} is {arg.type.ddl}.")
    return found


def _implicit(arg: Typed, target: DataType) -> Typed | None:
    """The argument as the type that is wanted, where Spark converts without being asked."""
    given = arg.type
    if given == target:
        return arg
    allowed = (
        (target == STRING and not given.is_nested and given not in (BINARY, INTERVAL))
        or (target.is_integer and given.is_integer and target.bounds()[1] > given.bounds()[1])
        or (target.kind is TypeKind.DOUBLE and given.is_numeric)
        or (target in (DATE, TIMESTAMP) and given in (DATE, TIMESTAMP, STRING))
        or (target == BINARY and given == STRING)
        or (target.kind is TypeKind.DECIMAL and given.is_integer)
        or (given == STRING and target.is_numeric)
        or (given == STRING and target == BOOLEAN)
        or (given.kind is target.kind and given.is_nested)
    )
    if not allowed or not convertible(given, target):
        return None
    return Typed(Op.CAST, target, arg.nullable, (arg,))


def common_type(column: Column, kinds: Sequence[DataType], *, with_text: bool = True) -> DataType:
    """The type in which arguments of one kind meet."""
    target = kinds[0]
    for kind in kinds[1:]:
        met = (_met_with_text if with_text else _met)(target, kind)
        if met is None:
            raise TypeMismatch(
                what=f"{column} brings together {target.ddl} and {kind.ddl}.", hint="Convert one of them with cast()."
            )
        target = met
    return target


def _met(left: DataType, right: DataType) -> DataType | None:
    if left == right:
        return left
    if left.is_numeric and right.is_numeric:
        return common_number(left, right)
    if {left, right} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    if left.element is not None and right.element is not None and left.kind is right.kind:
        element = _met(left.element, right.element)
        differ = left.element != right.element and TypeKind.DECIMAL in (left.element.kind, right.element.kind)
        if element is None or differ:
            return None
        if left.key is None or right.key is None:
            return array_of(element)
        key = _met(left.key, right.key)
        return None if key is None else map_of(key, element)
    return None


def _met_with_text(left: DataType, right: DataType) -> DataType | None:
    """Where a text meets something else it is read as that; numbers are then as wide as they get."""
    if STRING not in (left, right) or left == right:
        return _met(left, right)
    other = right if left == STRING else left
    if other.is_nested:
        return None
    return BIGINT if other.is_integer else DOUBLE if other.is_numeric else other


def _check_comparable(column: Column, args: Sequence[Typed | None]) -> None:
    kinds = [arg.type for arg in args if arg is not None]
    if len(kinds) == 2 and kinds[0] != kinds[1] and not all(kind.is_numeric for kind in kinds):
        what = f"{column} compares {kinds[0].ddl} with {kinds[1].ddl}."
        raise TypeMismatch(what=what, hint="Convert one of them with cast().")


def _has_array(args: Sequence[Typed | None]) -> bool:
    return any(arg is not None and arg.type.kind is TypeKind.ARRAY for arg in args)


def _as_text(column: Column, arg: Typed) -> Typed:
    if not convertible(arg.type, STRING) or arg.type.is_nested:
        raise TypeMismatch(what=f"{column} joins texts, and {arg.type.ddl} is none.", hint="Use cast().")
    return Typed(Op.CAST, STRING, arg.nullable, (arg,))


def _with_element(column: Column, args: list[Typed | None], *, by_place: bool) -> list[Typed | None]:
    """Bring what an array holds, or the keys of a map, and the last argument to one type, as numbers and times have."""
    held, value = args[0], args[-1]
    if held is None or value is None or not held.type.is_nested or held.type.element is None:
        return args
    kind = held.type
    if by_place and kind.key is None:
        if not value.type.is_integer or value.type == BIGINT:
            raise TypeMismatch(what=f"{column}: an element of an array is given by its place, from 1.")
        return args
    inner = kind.element if kind.key is None else kind.key
    assert inner is not None
    met = _met(inner, value.type)
    if met is None or (inner != value.type and TypeKind.DECIMAL in (inner.kind, value.type.kind)):
        what = f"{column}: {value.type.ddl} is compared with {inner.ddl}."
        raise TypeMismatch(what=what, hint="Convert one of them with cast().")
    wanted = array_of(met) if kind.key is None else map_of(met, cast(DataType, kind.element))
    made = list(args)
    made[0] = held if kind == wanted else Typed(Op.CAST, wanted, held.nullable, (held,))
    made[-1] = value if value.type == met else Typed(Op.CAST, met, value.nullable, (value,))
    return made


_MEETING = ("any", "array", "orderable", "map", "text", "sequence")


def _common(
    column: Column, parameters: Sequence[Parameter], args: list[Typed | None], *, with_text: bool = True
) -> list[Typed | None]:
    """Give the arguments of kind any (and array) one type."""
    places = [i for i, parameter in enumerate(parameters) if parameter.kind in _MEETING]
    known = [args[i].type for i in places if args[i] is not None]  # type: ignore[union-attr]
    if not known:
        if not places:
            return args
        raise TypeMismatch(what=f"{column} is always null.", hint='Give a type: ps.lit(None).cast("string").')
    target = common_type(column, known, with_text=with_text)
    made = list(args)
    for i in places:
        arg = args[i]
        if arg is None:
            made[i] = Typed(Op.LITERAL, target, True)
        elif arg.type != target:
            made[i] = Typed(Op.CAST, target, arg.nullable, (arg,))
    return made
