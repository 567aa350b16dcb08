"""What an option may be, as data: each check reads a value as users give it, or raises InvalidOption."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from penstock.durations import format_us, parse_us
from penstock.errors import InterfaceMismatch, InvalidOption, nearest

Choice = TypeVar("Choice", bound=Enum)


class Check(Protocol):
    """Reads one option."""

    def read(self, option: str, given: Any) -> Any:
        """Return what the job works with, or raise InvalidOption."""


@dataclass(frozen=True)
class OneOf(Generic[Choice]):
    """One of an enum's values."""

    choices: type[Choice]

    def read(self, option: str, given: object, *, operation: str | None = None) -> Choice:
        """Return the member with this value."""
        try:
            return self.choices(given)
        except ValueError:
            words = [each.value for each in self.choices]
            hint = nearest(given, words) if isinstance(given, str) else ""
            allowed = ", ".join(words)
            raise InvalidOption(option=option, given=given, allowed=allowed, operation=operation, hint=hint) from None


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds; True and False are none."""

    low: int
    high: int | None = None

    def read(self, option: str, given: object) -> int:
        """Return the number."""
        if (
            isinstance(given, int)
            and not isinstance(given, bool)
            and self.low <= given <= (given if self.high is None else self.high)
        ):
            return given
        to = "" if self.high is None else f" to {self.high}"
        raise InvalidOption(option=option, given=given, allowed=f"a whole number from {self.low}{to}")


@dataclass(frozen=True)
class Duration:
    """A duration, in microseconds once it is read."""

    low_us: int = 1
    high_us: int | None = None

    def read(self, option: str, given: Any) -> int:
        """Return the microseconds."""
        duration_us = parse_us(given, option=option)
        if self.low_us <= duration_us <= (duration_us if self.high_us is None else self.high_us):
            return duration_us
        rest = "or longer" if self.high_us is None else f"to {format_us(self.high_us)}"
        raise InvalidOption(option=option, given=given, allowed=f"{format_us(self.low_us)} {rest}")


@dataclass(frozen=True)
class Text:
    """A text of a pattern, which ``allowed`` describes."""

    pattern: re.Pattern[str]
    allowed: str

    def read(self, option: str, given: object) -> str:
        """Return the text."""
        if isinstance(given, str) and self.pattern.fullmatch(given):
            return given
        raise InvalidOption(option=option, given=given, allowed=self.allowed)


@dataclass(frozen=True)
class Flag:
    """True or False, and nothing that only counts as one."""

    def read(self, option: str, given: object) -> bool:
        """Return it."""
        if isinstance(given, bool):
            return given
        raise InvalidOption(option=option, given=given, allowed="True or False")


def local_path(option: str, path: str) -> str:
    """Return the path of a directory or file on this machine's file systems, also where it is given as ``file://``.

    Raises
    ------
    InvalidOption
        For any other URL: taken for a path it would be a directory of that name.
    """
    scheme, separator, rest = path.partition("://")
    if not separator:
        return path
    if scheme == "file":
        return "/" + rest.removeprefix("localhost").lstrip("/")
    raise InvalidOption(option=option, given=path, allowed="a path; object stores are not supported here")


INTERFACE = 1
"""Version of what sources, sinks and tables implement; it grows when connectors that are written for it cannot run on
an older Penstock."""
INTERFACE_OLDEST = 1
"""Connectors that are written for an older one than this do not run any more."""


def check_interface(part: object, kind: str) -> None:
    """Refuse a source, sink or table that is written for a version of the interface that is not there."""
    wanted = getattr(part, "interface", INTERFACE)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not INTERFACE_OLDEST <= wanted <= INTERFACE:
        raise InterfaceMismatch(
            kind=kind, module=type(part).__module__, wanted=wanted, oldest=INTERFACE_OLDEST, newest=INTERFACE
        )
