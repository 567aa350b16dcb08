"""Finds engines through the entry points of the group ``penstock.engines``; the command line asks here."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from penstock.errors import PenstockError
from penstock_bench.meter.engine import Engine
from penstock_bench.meter.errors import UnknownEngine

GROUP = "penstock.engines"


def _found() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=GROUP)}


def engine_names() -> list[str]:
    return sorted(_found())


def engine_class(name: str) -> type[Engine]:
    """Load the class of an engine by name."""
    found = _found()
    if name not in found:
        raise UnknownEngine(given=name, what="engine", available=sorted(found))
    try:
        loaded = found[name].load()
    except ImportError as error:
        raise PenstockError(f"engine '{name}' cannot be loaded from {found[name].value}: {error}.") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Engine)):
        raise PenstockError(
            f"engine '{name}': {found[name].value} is not an Engine.",
            hint="Its entry point must name a subclass of penstock_bench.engines.Engine.",
        )
    return loaded


def open_engine(text: str) -> Engine:
    """Return the engine that ``name`` or ``name:variant`` names."""
    name, _, variant = text.partition(":")
    return engine_class(name)(variant or None)
