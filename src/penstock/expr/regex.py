"""Regular expressions: Java's as Python has them, LIKE, and which of Python's patterns mean the same to Arrow's RE2."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidOption

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


def to_re2(pattern: str) -> str | None:
    """Translate a pattern so that RE2 finds it in exactly the texts in which Python's ``re`` does.

    Returns
    -------
    str or None
        None where the pattern uses something on which the two differ; the caller then searches with ``re``.
    """
    parts = []
    position = 0
    while position < len(pattern):
        token = _TOKENS.match(pattern, position)
        if token is None:
            return None
        parts.append(_TRANSLATED.get(token.lastgroup or "", token.group()))
        position = token.end()
    translated = "".join(parts)
    try:
        pc.match_substring_regex(pa.array([""]), translated)
    except pa.ArrowInvalid:
        return None
    return translated


_JAVA = re.compile(r"\\Q(.*?)(?:\\E|$)|\(\?<(?![=!])|\\[pPhHRXkGzv]|\\[AZ]|\\.|\[[^\]]*&&", re.DOTALL)
_REPEATED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|(?P<brace>\{)", re.DOTALL)
_CACHED = 1024


@lru_cache(maxsize=_CACHED)
def java_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression of Java's; what Python's ``re`` does not have is refused."""

    def translate(found: re.Match[str]) -> str:
        text = found.group()
        if text.startswith("\\Q"):
            return re.escape(found.group(1))
        if text == "(?<":
            return "(?P<"
        if text == "\\z":
            return r"\Z"
        if text == "\\Z":
            return r"(?=\n?\Z)"
        if text[:2] in ("\\p", "\\P", "\\h", "\\H", "\\R", "\\X", "\\k", "\\G", "\\v") or text.endswith("&&"):
            raise re.error(f"{text[:2]} is not supported")
        return text

    try:
        made = _JAVA.sub(translate, pattern)
        if any(found["brace"] for found in _REPEATED.finditer(made)):
            raise re.error("{ repeats nothing; write \\{ for the character")  # which Python takes for one
        return re.compile(made, re.ASCII)
    except (re.error, TypeError, OverflowError) as error:
        raise InvalidOption(option="pattern", given=pattern, allowed=f"a regular expression ({error})") from None


_REFERENCE = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)


@lru_cache(maxsize=_CACHED)
def java_replacement(text: str) -> str:
    """A replacement of Java's, with ``$1`` for a group, as Python's ``re`` writes it."""

    # A backslash that Python must not read is doubled; the marks are made last.
    made, at = [], 0
    for found in _REFERENCE.finditer(text):
        made.append(text[at : found.start()])
        escaped = found.group(1)
        made.append(
            escaped.replace("\\", "\\\\") if escaped is not None else f"\\g<{found.group(2) or found.group(3)}>"
        )
        at = found.end()
    made.append(text[at:])
    return "".join(made)


@lru_cache(maxsize=_CACHED)
def like_pattern(pattern: str, escape: str = "\\", flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern of SQL's LIKE."""
    made, at = [], 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("_", "%", escape):
                raise InvalidOption(option="pattern", given=pattern, allowed=f"{escape} only before _ or % or itself")
            made.append(re.escape(pattern[at]))
        else:
            made.append("." if letter == "_" else ".*" if letter == "%" else re.escape(letter))
        at += 1
    return re.compile("".join(made), re.DOTALL | flags)
