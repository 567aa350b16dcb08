"""Keeps credentials out of every text that people read: errors, reports, dead letters, explain, checkpoints.

Two things tell what is hidden: how credentials are usually written, and values that are known in this process to be
secret (`Secret`). Errors show themselves by `redacted`, and so does whatever goes to another process or into a dead
letter; what a user's function raises need not know of it.
"""

from __future__ import annotations

import re
from urllib.parse import quote

HIDDEN = "***"
KNOWN_MAX = 1_000
"""Secrets that a process remembers; the oldest goes first."""
_IN_URL = re.compile(r"(://)([^/?#\s@]*@)")
_AS_WORD = re.compile(
    r"(?i)(password|passwd|pwd|passfile|secret|token|(?:api|access|account|private|secret|shared|ssl)_?key"
    r"|sasl\.jaas\.config)(['\"]?[ \t]*[=:](?!=)[ \t]*)('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,;&)]+)"
)
_AS_HEADER = re.compile(r"(?i)(authorization['\"]?[ \t]*[=:][ \t]*['\"]?(?:bearer|basic) +)([a-z0-9._~+/=-]+)")
_SCHEMES = ("bearer ", "basic ")
_SECRET_MIN = 4
_WORDS = frozenset("postgres postgresql redis rediss kafka penstock http https localhost password secret token".split())
"""What texts of ours say by themselves; a password that is such a word is hidden only where it stands as one."""
_known: dict[str, None] = {}


class Secret(str):
    """A text that must not be seen, in any process that it comes to; to whoever uses it, it is the text."""

    __slots__ = ()

    def __new__(cls, value: str) -> Secret:
        remember(value)
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return repr(HIDDEN)

    def __reduce__(self) -> tuple[object, ...]:
        return Secret, (str(self),)


def remember(value: str) -> None:
    """Hide a value from here on in this process, also as URLs write it; one of fewer than 4 characters is a word."""
    if value.lower().startswith(_SCHEMES):
        value = value.partition(" ")[2]
    for each in (value, quote(value, safe="")):
        if len(each) >= _SECRET_MIN and each.lower() not in _WORDS:
            _known[each] = None
    while len(_known) > KNOWN_MAX:
        del _known[next(iter(_known))]


def redacted(text: object, *secrets: str | None) -> str:
    """Return a text without credentials: those of URLs, those after words such as ``password=``, and known ones.

    Parameters
    ----------
    text : object
        Such as an address, or what a driver's error says.
    *secrets : str or None
        More values that must not be seen wherever they stand; those of fewer than 4 characters only as whole words.
    """
    shown = str(text)
    for secret in sorted({*_known, *(each for each in secrets if each)}, key=len, reverse=True):
        if len(secret) >= _SECRET_MIN:
            shown = shown.replace(secret, HIDDEN)
        else:
            shown = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, shown)
    shown = _AS_WORD.sub(rf"\1\2{HIDDEN}", _IN_URL.sub(rf"\1{HIDDEN}@", shown))
    return _AS_HEADER.sub(rf"\1{HIDDEN}", shown)


def one_line(text: object, *secrets: str | None) -> str:
    """The same on one line, without a full stop at the end."""
    return " ".join(redacted(text, *secrets).split()).rstrip(".")
