"""Deletes one line of a method for the length of a test, to see who objects."""

from __future__ import annotations

from inspect import getsource
from textwrap import dedent
from typing import Any

import pytest


def without(patch: pytest.MonkeyPatch, owner: type, method: str, line: str) -> None:
    """Put ``pass`` in the place of a line; it must be there once."""
    found = getattr(owner, method)
    lines = dedent(getsource(found)).splitlines()
    (at,) = (at for at, each in enumerate(lines) if each.strip() == line)
    lines[at] = lines[at].replace(line, "pass")
    made: dict[str, Any] = {}
    code = compile("\n".join(["from __future__ import annotations", *lines]), found.__code__.co_filename, "exec")
    exec(code, found.__globals__, made)
    patch.setattr(owner, method, made[method])
