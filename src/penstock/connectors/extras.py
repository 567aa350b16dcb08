"""Packages that come with an extra of ours, such as a database's driver."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.errors import InvalidOption


def installed(package: str, extra: str) -> Any:
    """Return a package, or say what to install."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InvalidOption(
            option=extra, given=f"no {package}", allowed=f"with its driver: pip install 'penstock[{extra}]'"
        ) from None
