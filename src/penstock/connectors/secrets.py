"""Keeps credentials out of errors, logs, explain and checkpoints: addresses are shown without them."""

from __future__ import annotations

import re

HIDDEN = "***"
_IN_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)([^/?#\s@]*@)")
_AS_WORD = re.compile(
    r"(?i)\b([a-z_.-]*(?:password|passwd|passfile|secret|token|api_?key|sasl\.jaas\.config|sslkey|sslpassword))"
    r"(\s*[=:]\s*)('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,;&)]+)"
)
_SECRET_MIN = 4


def redacted(text: object, *secrets: str | None) -> str:
    """Return a text without credentials: those of URLs, those after words such as ``password=``, and given ones.

    Parameters
    ----------
    text : object
        Such as an address, or what a driver's error says.
    *secrets : str or None
        Values that must not be seen wherever they stand; those of fewer than 4 characters only as whole words.
    """
    shown = _AS_WORD.sub(rf"\1\2{HIDDEN}", _IN_URL.sub(rf"\1{HIDDEN}@", str(text)))
    for secret in sorted({each for each in secrets if each}, key=len, reverse=True):
        if len(secret) >= _SECRET_MIN:
            shown = shown.replace(secret, HIDDEN)
        else:
            shown = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, shown)
    return shown


def one_line(text: object, *secrets: str | None) -> str:
    """The same on one line, without a full stop at the end."""
    return " ".join(redacted(text, *secrets).split()).rstrip(".")
