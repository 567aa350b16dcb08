"""Regular expressions elsewhere: which of Python's patterns mean the same to RE2 (in Arrow) and to Java (in Spark)."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

# What may stand in a pattern so that Python (with re.ASCII) and RE2 agree on it. Left out are, above all:
# look-around and flags; \b, whose edges differ; $ other than at the end; possessive repetition.
_TOKENS = re.compile(
    r"""
    (?P<same>
        [^\\\[\](){}.*+?|^$]            # characters that stand for themselves
      | \\[dDwW]                        # ASCII only, in both
      | \\[^0-9A-Za-z\s]                # escaped punctuation
      | [.|^)]
      | \((?!\?) | \(\?:                # plain groups
      | (?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??(?![*+?{])
      | \[\^?[\w ]+(?:-[\w ][\w ]*)*\]  # plain sets
    )
  | (?P<space>\\s)
  | (?P<end>\$\Z)
    """,
    re.VERBOSE,
)
_TRANSLATED = {"space": r"[\t\n\v\f\r ]", "end": r"\n?\z"}
_JAVA = {".": r"[^\n]", "$": r"\n?\z"}
"""What has another meaning to Java: for it, more characters end a line."""


def to_re2(pattern: str) -> str | None:
    """Translate a pattern so that RE2 finds it in exactly the texts in which Python's ``re`` does.

    Returns
    -------
    str or None
        None where the pattern uses something on which the two differ; the caller then searches with ``re``.
    """
    tokens = _tokens(pattern)
    if tokens is None:
        return None
    translated = "".join(_TRANSLATED.get(token.lastgroup or "", token.group()) for token in tokens)
    try:
        pc.match_substring_regex(pa.array([""]), translated)
    except pa.ArrowInvalid:
        return None
    return translated


def to_java(pattern: str) -> str | None:
    """Translate a pattern so that Java finds it where Python's ``re`` does, or return None where the two may differ."""
    tokens = _tokens(pattern)
    return None if tokens is None else "".join(_JAVA.get(token.group(), token.group()) for token in tokens)


def _tokens(pattern: str) -> list[re.Match[str]] | None:
    """Cut a pattern into what means the same elsewhere; None where it has something that does not."""
    tokens, position = [], 0
    while position < len(pattern):
        token = _TOKENS.match(pattern, position)
        if token is None:
            return None
        tokens.append(token)
        position = token.end()
    return tokens
