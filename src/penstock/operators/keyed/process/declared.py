"""What a process function keeps for each key: states declared on its class, their types, defaults and time to live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from penstock.durations import parse_us
from penstock.errors import TypeMismatch

T = TypeVar("T")
_PLAIN = (bool, int, float, str, bytes, type(None))


@dataclass(frozen=True)
class State:
    """One declared state: what `value`, `list` and `map` return."""

    type: Any
    default: Any = None
    ttl_us: int | None = None
    text: str = ""
    """Its type in words, where they are other than those of ``type``."""

    @property
    def is_shared(self) -> bool:
        """Whether all keys may have the default itself: it cannot be changed in place."""
        return isinstance(self.default, _PLAIN) or (
            isinstance(self.default, tuple) and all(isinstance(each, _PLAIN) for each in self.default)
        )

    def fresh(self) -> Any:
        """A default of a key's own."""
        return self.default if self.is_shared else deepcopy(self.default)


def _declare(state_type: Any, default: Any, ttl: str | float | None) -> Any:
    try:
        text = type_text(state_type)
    except TypeError as error:
        raise TypeMismatch(
            what=f"{state_type!r} cannot be kept as state: {error}.",
            hint="Use numbers, text, bytes, lists, dicts, datetimes, dataclasses or msgspec structs.",
        ) from None
    if default is not None:
        try:
            default = msgspec.convert(
                msgspec.to_builtins(default, builtin_types=_KEPT), state_type, builtin_types=_KEPT
            )
        except (msgspec.ValidationError, TypeError) as error:
            raise TypeMismatch(what=f"the default {default!r} of a state is no {text}: {error}.") from None
    else:
        state_type = state_type | None if state_type is not Any else Any
    return State(state_type, default, None if ttl is None else parse_us(ttl, option="ttl"))


_KEPT = (bytes, bytearray)


def value(type: type[T] | Any, *, default: Any = None, ttl: str | float | None = None) -> Any:
    """Declare one value for each key; None where there is no default.

    Parameters
    ----------
    type : type
        What it holds: ``float``, ``str``, ``list[int]``, a dataclass, a ``msgspec.Struct`` …
    default : object
        What a key begins with.
    ttl : str or number
        Time to live: the value is the default again when its key has had no record and no timer for so long.

    Examples
    --------
    >>> class Changes(Process):                                # doctest: +SKIP
    ...     last = ps.state.value(float, default=0.0)
    ...     def on_record(self, record, ctx):
    ...         yield {"id": record.id, "change": record.price - self.last}
    ...         self.last = record.price
    """
    return _declare(type, default, ttl)


def list_of(type: type[T] | Any, *, ttl: str | float | None = None) -> Any:
    """Declare a list for each key, empty at first; ``ps.state.list(float)``."""
    element: Any = type
    return _declare(list[element], [], ttl)


def map_of(key: Any, type: type[T] | Any, *, ttl: str | float | None = None) -> Any:
    """Declare a dict for each key, empty at first; ``ps.state.map(str, int)``."""
    held: Any = type
    return _declare(dict[key, held], {}, ttl)


def type_text(state_type: Any) -> str:
    """A type in words, the same in every process; raises TypeError for what cannot be stored."""
    return _text(msgspec.inspect.type_info(state_type))


def _text(info: msgspec.inspect.Type) -> str:
    i = msgspec.inspect
    match info:
        case i.ListType(item_type=item) | i.VarTupleType(item_type=item):
            return f"list[{_text(item)}]"
        case i.SetType(item_type=item) | i.FrozenSetType(item_type=item):
            return f"set[{_text(item)}]"
        case i.TupleType(item_types=items):
            return f"tuple[{', '.join(map(_text, items))}]"
        case i.DictType(key_type=key, value_type=kept):
            return f"dict[{_text(key)}, {_text(kept)}]"
        case i.UnionType(types=types):
            return " or ".join(sorted(map(_text, types)))
        case i.StructType(cls=cls, fields=fields) | i.DataclassType(cls=cls, fields=fields):
            return f"{cls.__name__}({', '.join(f'{each.encode_name} {_text(each.type)}' for each in fields)})"
        case i.TypedDictType(cls=cls, fields=fields) | i.NamedTupleType(cls=cls, fields=fields):
            return f"{cls.__name__}({', '.join(f'{each.encode_name} {_text(each.type)}' for each in fields)})"
        case i.EnumType(cls=cls):
            return f"{cls.__name__}({', '.join(str(each.value) for each in cls)})"
        case i.Metadata(type=inner):
            return _text(inner)
        case i.CustomType(cls=cls):
            raise TypeError(f"{cls.__name__} is no type of values")
        case _:
            return type(info).__name__.removesuffix("Type").lower()


class Layout:
    """All states of a process function, by name in the order of their declaration.

    Attributes
    ----------
    ttls_us : list of int
        Times to live, shortest first.
    forgets_all : bool
        Whether every state has a time to live, so that a key can be forgotten as a whole.
    """

    def __init__(self, states: dict[str, State]) -> None:
        self.states = states
        self.ttls_us = sorted({each.ttl_us for each in states.values() if each.ttl_us is not None})
        self.forgets_all = bool(states) and all(each.ttl_us is not None for each in states.values())
        self.names = tuple(states)

    @staticmethod
    def of(function: object) -> Layout:
        """The states that the classes of an object declare, and the object itself where `__init__` does."""
        found: dict[str, State] = {}
        for each in reversed(type(function).__mro__):
            for name, held in vars(each).items():
                if isinstance(held, State):
                    found[name] = held
                elif name in found:
                    del found[name]
        found |= {name: held for name, held in vars(function).items() if isinstance(held, State)}
        for name in found:
            if name.startswith("__"):
                raise TypeMismatch(what=f"'{name}' cannot be the name of a state.")
        return Layout(found)

    def texts(self) -> dict[str, str]:
        """The type of each state in words."""
        return {name: each.text or type_text(each.type) for name, each in self.states.items()}

    def expired(self, elapsed_us: int) -> Iterator[tuple[str, State]]:
        """The states that live shorter than that."""
        return (
            (name, each) for name, each in self.states.items() if each.ttl_us is not None and each.ttl_us < elapsed_us
        )

    def decoder(self, names: list[str]) -> Callable[[bytes], tuple[Any, ...]]:
        """Reads the values of states that were stored under these names; of those that are gone, anything."""
        types = tuple(self.states[name].type if name in self.states else Any for name in names)
        kept: Any = tuple[types] if types else tuple[()]  # type: ignore[valid-type]
        decode: Callable[[bytes], tuple[Any, ...]] = msgspec.msgpack.Decoder(kept).decode
        return decode
