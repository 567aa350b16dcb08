"""Packages whose names are imported when they are first used: `penstock` and `penstock.connectors`.

A worker needs a small part of them, and imports it while somebody waits for the first result. The rule: these two
packages import nothing by themselves; all other modules import each other as usual. `tests/unit/test_imports.py` says
what a worker does without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


class _Package(ModuleType):
    """Keeps its names: Python would put a module that is imported in the place of the function that is called alike."""

    _functions: frozenset[str]

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self._functions):
            super().__setattr__(name, value)


def lazily(
    package: str,
    names: Mapping[str, str],
    modules: Mapping[str, str],
    missing: Callable[[str], AttributeError] | None = None,
) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package.

    Parameters
    ----------
    package : str
        Its name.
    names : mapping
        By module, which of its names the package has, separated by spaces.
    modules : mapping
        By name, the modules that the package has.
    missing : callable, optional
        Makes the error for a name that it does not have, of those that users may write.
    """
    homes = {name: module for module, listed in names.items() for name in listed.split()}
    itself = sys.modules[package]
    vars(itself)["_functions"] = frozenset(homes)
    itself.__class__ = _Package

    def get(name: str) -> object:
        if name in modules:
            value: object = import_module(modules[name])
        elif name in homes:
            value = getattr(import_module(homes[name]), name)
        elif missing is not None and not name.startswith("__"):
            raise missing(name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=itself)
        setattr(itself, name, value)
        return value

    return get
