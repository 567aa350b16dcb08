"""Shows references in docstrings, such as ``:meth:`take` ``, as names on the site; `mkdocs.yml` names this file."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:meth|func|class|mod|attr):`~?([^`]+)`")


class Roles(griffe.Extension):
    """Takes the roles out of every docstring."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Look at one object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
