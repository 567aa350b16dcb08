"""Functions of text."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from operator import add as add_two
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadRecord, InvalidOption, TypeMismatch
from penstock.expr.conversions import text_of
from penstock.expr.regex import java_pattern, java_replacement, like_pattern
from penstock.expr.table import define, same
from penstock.expr.typed import Typed
from penstock.types import BINARY, BOOLEAN, INT, STRING, DataType, array_of

add = define("text")
STRINGS = array_of(STRING)


def _ascii(text: Any) -> bool:
    return bool(pc.all(pc.string_is_ascii(text)).as_py() is not False)


def _length(value: Any) -> Any:
    return pc.binary_length(value) if pa.types.is_binary(value.type) else pc.utf8_length(value)


def substring(text: str, start: int, length: int = (1 << 31) - 1) -> str:
    """Part of a text from a place that counts from 1, or from the end where it is negative."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = first + length
    return text[max(first, 0) : max(end, 0)] if end > first else text[:0]


def substring_index(text: str, separator: str, count: int) -> str:
    """What is before the ``count``-th separator, or behind it from the end."""
    if not separator or not count:
        return ""
    if count > 0:
        return separator.join(text.split(separator)[:count])
    return separator.join(text.split(separator)[count:]) if -count <= text.count(separator) else text


def split(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Parts between matches of a regular expression."""
    if not pattern:
        if limit > 0:
            return [*text[: limit - 1], text[limit - 1 :]] if len(text) > limit else list(text) or [""]
        return list(text) or [""]
    parts: list[str] = []
    at = 0
    for found in java_pattern(pattern).finditer(text):
        if 0 < limit <= len(parts) + 1:
            break
        if found.end() == 0 or (found.end() == found.start() == len(text)):
            continue  # an empty match at either end cuts nothing off
        parts.append(text[at : found.start()])
        at = found.end()
    return [*parts, text[at:]]


def _split_of(node: Typed) -> Any:
    """A separator of one plain letter needs no regular expression."""
    pattern = node.args[1].payload if node.args[1].is_literal else None
    if len(node.args) == 2 and isinstance(pattern, str) and len(pattern) == 1 and re.escape(pattern) == pattern:
        return str.split
    if len(node.args) == 2 and pattern == " ":
        return str.split
    return split


def _split_columns(text: Any, pattern: Any, limit: Any = None) -> Any:
    """Arrow's own split where the separator is plain; None: the record form has to."""
    separator = pattern.as_py() if isinstance(pattern, pa.Scalar) else None
    if limit is not None or not separator or (separator != " " and re.escape(separator) != separator):
        return None
    return pc.split_pattern(text, pattern=separator)


def split_part(text: str, separator: str, part: int) -> str:
    """One part of a text; parts count from 1, or from the end."""
    if part == 0:
        raise BadRecord("split_part counts from 1 or -1, not from 0.")
    parts = text.split(separator) if separator else [text]
    at = part - 1 if part > 0 else len(parts) + part
    return parts[at] if 0 <= at < len(parts) else ""


def regexp_extract(text: str, pattern: str, group: int = 1) -> str:
    """A group of the first match; empty where there is none."""
    compiled = java_pattern(pattern)
    found = compiled.search(text)
    if found is None:
        return ""
    _check_group(compiled, group)
    return found.group(group) or ""


def regexp_extract_all(text: str, pattern: str, group: int = 1) -> list[str]:
    """A group of every match."""
    compiled = java_pattern(pattern)
    matches = list(compiled.finditer(text))
    if matches:
        _check_group(compiled, group)
    return [found.group(group) or "" for found in matches]


def _check_group(pattern: re.Pattern[str], group: int) -> None:
    if not 0 <= group <= pattern.groups:
        raise InvalidOption(option="group", given=group, allowed=f"0 to {pattern.groups} for {pattern.pattern!r}")


def regexp_replace(text: str, pattern: str, replacement: str, position: int = 1) -> str:
    """Replace every match, from a place on that counts from 1."""
    if position < 1:
        raise BadRecord(f"regexp_replace begins at a place from 1, not at {position}.")
    head, tail = text[: position - 1], text[position - 1 :]
    return head + java_pattern(pattern).sub(java_replacement(replacement), tail)


def regexp_substr(text: str, pattern: str) -> str | None:
    """The first match, or null."""
    found = java_pattern(pattern).search(text)
    return None if found is None else found.group() or None


def regexp_instr(text: str, pattern: str) -> int:
    """Place of the first match, from 1; 0 where there is none."""
    found = java_pattern(pattern).search(text)
    return 0 if found is None else found.start() + 1


def regexp_like(text: str, pattern: str) -> bool:
    """Whether there is a match."""
    return java_pattern(pattern).search(text) is not None


def pad(text: str, length: int, padding: str, *, left: bool) -> str:
    """Cut or fill a text to a length."""
    if length <= len(text) or not padding:
        return text[: max(length, 0)]
    missing = length - len(text)
    fill = (padding * (missing // len(padding) + 1))[:missing]
    return fill + text if left else text + fill


def initcap(text: str) -> str:
    """Words, between spaces, with a capital first and the rest small."""
    return " ".join(word[:1].title() + word[1:].lower() for word in text.split(" "))


def locate(part: str | None, text: str | None, start: int | None = 1) -> int | None:
    """Place of a part in a text, from 1; 0 where there is none, or no place to begin at."""
    if start is None:
        return 0
    if part is None or text is None:
        return None
    if not part and start > 0:
        return 1
    return text.find(part, start - 1) + 1 if start > 0 else 0


@lru_cache(maxsize=256)
def _translation(matching: str, replacement: str) -> dict[int, str | None]:
    table: dict[int, str | None] = {}
    for at, letter in enumerate(matching):
        table.setdefault(ord(letter), replacement[at] if at < len(replacement) else None)
    return table


def translate(text: str, matching: str, replacement: str) -> str:
    """Replace letters by those at the same place, or take them away."""
    return text.translate(_translation(matching, replacement))


def overlay(text: str, replacement: str, start: int, length: int = -1) -> str:
    """Write over a part of a text."""
    count = length if length >= 0 else len(replacement)
    return substring(text, 1, start - 1) + replacement + substring(text, start + count)


def levenshtein(left: str, right: str, threshold: int | None = None) -> int:
    """How many letters have to be changed to make one text of the other."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1] if threshold is None or row[-1] <= threshold else -1


_SOUNDS = {
    letter: code for code, letters in enumerate(("BFPV", "CGJKQSXZ", "DT", "L", "MN", "R"), 1) for letter in letters
}


def soundex(text: str) -> str:
    """Code of how an English word sounds."""
    if not text or not (text[0].isascii() and text[0].isalpha()):
        return text
    code, last = text[0].upper(), _SOUNDS.get(text[0].upper(), 0)
    for letter in text[1:].upper():
        if not "A" <= letter <= "Z":
            continue
        sound = _SOUNDS.get(letter, 0)
        if sound and sound != last:
            code += str(sound)
            if len(code) == 4:
                break
        if letter not in "HW":
            last = sound
    return code.ljust(4, "0")


_FORMAT = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")


def format_string(shown: Sequence[Any], pattern: str, *values: Any) -> str:
    """Java's printf, for %s %d %f %e %x %o %c %b and %%."""
    following = iter(range(len(values)))

    def write(found: re.Match[str]) -> str:
        place, flags, width, precision, letter = found.groups()
        if letter == "%":
            return "%"
        if letter == "n":
            return "\n"
        at = int(place) - 1 if place else next(following, -1)
        if not 0 <= at < len(values):
            raise BadRecord(f"format_string has no value for {found.group()!r}.")
        value = values[at]
        if value is None:
            text = "null"[: None if precision is None else int(precision)] if letter not in "bB" else "false"
        elif value != value and letter in "feEgG":
            text = "NaN"
        elif letter in "sS":
            text = shown[at](value)[: None if precision is None else int(precision)]
        elif letter in "bB":
            text = "true" if value is not False else "false"
        elif letter in "dxXofeEgGc":
            kind = letter if letter != "c" or not isinstance(value, int) else "c"
            sign = "".join(flag for flag in "+ ," if flag in flags)
            zeros = "0" + (width or "") if "0" in flags and width else ""
            number = value
            if kind in "xXo" and isinstance(value, int) and value < 0:
                number = value + (1 << 64 if abs(value) > 1 << 31 else 1 << 32)
            try:
                digits = f".{precision or 6}" if kind in "feEgG" else ""
                text = format(number, f"{sign.replace(',', '')}{zeros}{',' if ',' in sign else ''}{digits}{kind}")
            except (ValueError, TypeError):
                raise BadRecord(f"format_string cannot write {value!r} as {found.group()!r}.") from None
        else:
            raise BadRecord(f"format_string does not know {found.group()!r}.")
        if letter in "SB":
            text = text.upper()
        return text.ljust(int(width or 0)) if "-" in flags else text.rjust(int(width or 0))

    return _FORMAT.sub(write, pattern)


def _format_string(node: Typed) -> Any:
    return partial(format_string, [text_of(arg.type) for arg in node.args[1:]])


_PLACES_MAX = 1000


def format_number(value: Any, places: int) -> str | None:
    """A number with commas between thousands."""
    if places < 0:
        return None
    if places > _PLACES_MAX:
        raise BadRecord(f"a number with {places} places is too long.")
    return format(value, f",.{places}f") if value == value else "NaN"


def concat_ws(separator: str | None, *values: Any) -> str | None:
    """Texts, and those of arrays, with a separator between them; nulls are left out."""
    if separator is None:
        return None
    flat: list[str] = []
    for value in values:
        if isinstance(value, list):
            flat += [each for each in value if each is not None]
        elif value is not None:
            flat.append(value)
    return separator.join(flat)


def _reverse(value: Any) -> Any:
    return value[::-1]


def _concat(*values: Any) -> Any:
    first, *rest = values
    for value in rest:
        first = first + value
    return first


def _concat_of(node: Typed) -> Any:
    return add_two if len(node.args) == 2 else _concat


def _concat_kernel(*values: Any) -> Any:
    if not pa.types.is_string(values[0].type):
        return None
    return pc.binary_join_element_wise(*values, "", null_handling="emit_null")


def decode(value: bytes, charset: str) -> str:
    """Bytes as text."""
    try:
        return value.decode(_charset(charset))
    except UnicodeDecodeError as error:
        raise BadRecord(f"{value!r} is not {charset} text: {error}.") from None


def encode(text: str, charset: str) -> bytes:
    """Text as bytes."""
    try:
        return text.encode(_charset(charset))
    except UnicodeEncodeError as error:
        raise BadRecord(f"{text!r} cannot be written in {charset}: {error}.") from None


def _charset(name: str) -> str:
    if name.upper() not in ("US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16", "UTF-32"):
        raise BadRecord(f"{name!r} is not a charset.", hint="Use UTF-8, UTF-16, UTF-32, ISO-8859-1 or US-ASCII.")
    return name


def _unbase64(text: str) -> bytes:
    letters = re.sub(r"[^A-Za-z0-9+/=]", "", text)
    try:
        if len(letters.rstrip("=")) % 4 == 1:
            raise ValueError
        return base64.b64decode(letters + "==")
    except ValueError:
        raise BadRecord(f"{text!r} is not base64.") from None


def _chr(number: int) -> str:
    return "" if number < 0 else chr(number % 256)


def _ascii_code(text: str) -> int:
    return ord(text[0]) if text else 0


def find_in_set(text: str, names: str) -> int:
    """Place of a text in a list with commas, from 1."""
    return 0 if "," in text else (names.split(",").index(text) + 1 if text in names.split(",") else 0)


def _elt(at: int | None, *values: Any) -> Any:
    if at is None:
        return None
    if not 1 <= at <= len(values):
        raise BadRecord(f"elt has {len(values)} values, and not one at {at}.")
    return values[at - 1]


def luhn_check(text: str) -> bool:
    """Whether digits pass the check of payment cards."""
    if not text.isascii() or not text.isdigit():
        return False
    digits = [int(digit) for digit in reversed(text)]
    total = sum(digits[::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return total % 10 == 0


def _join_type(args: Sequence[Typed]) -> DataType:
    return args[0].type


def _matched(args: Sequence[Typed]) -> DataType:
    escape = args[2] if len(args) > 2 else None
    if escape is not None and not (escape.is_literal and len(str(escape.payload)) == 1):
        raise TypeMismatch(what="what escapes in LIKE is one character, as a constant.")
    return BOOLEAN


def _like(text: str, pattern: str, escape: str = "\\") -> bool:
    return like_pattern(pattern, escape).fullmatch(text) is not None


def _ilike(text: str, pattern: str, escape: str = "\\") -> bool:
    return like_pattern(pattern, escape, re.IGNORECASE).fullmatch(text) is not None


def _repeat_kernel(text: Any, count: Any) -> Any:
    return pc.binary_repeat(text, pc.max_element_wise(count, 0)) if isinstance(count, pa.Scalar) else None


def _overlaid(value: Any) -> int:
    return len(value.encode()) if isinstance(value, str) else len(value)


_SIDES = {"trim": ("strip", pc.ascii_trim), "ltrim": ("lstrip", pc.ascii_ltrim), "rtrim": ("rstrip", pc.ascii_rtrim)}
for _name, (_method, _kernel) in _SIDES.items():
    add(
        _name,
        "c:string c:string?",
        STRING,
        (lambda text, letters=" ", _method=_method: getattr(text, _method)(letters)),
        kernel=(lambda text, letters=None, _kernel=_kernel: _kernel(text, characters=" ") if letters is None else None),
    )
add("btrim", "c:string c:string?", STRING, lambda text, letters=" ": text.strip(letters))
add("lower lcase", "c:string", STRING, source="{0}.lower()", kernel=lambda t: pc.ascii_lower(t) if _ascii(t) else None)
add("upper ucase", "c:string", STRING, source="{0}.upper()", kernel=lambda t: pc.ascii_upper(t) if _ascii(t) else None)
add("initcap", "c:string", STRING, initcap)
add("length char_length character_length len", "c:text", INT, source="len({0})", kernel=_length)
add("octet_length", "c:text", INT, _overlaid, kernel=pc.binary_length)
add("bit_length", "c:text", INT, lambda value: 8 * _overlaid(value))
add("concat", "c:sequence*", _join_type, make=_concat_of, kernel=_concat_kernel, coerce="concat")
add("concat_ws", "l:string c:joined*", STRING, concat_ws, strict=False, nullable=True)
add("substring substr", "c:text c:int c:int?", same(), substring)
add("left", "c:string c:int", STRING, lambda text, n: text[: max(n, 0)])
add("right", "c:string c:int", STRING, lambda text, n: text[-n:] if n > 0 else "")
add("substring_index", "c:string l:string l:int", STRING, substring_index)
add("split", "c:string l:string l:int?", STRINGS, make=_split_of, kernel=_split_columns)
add("split_part", "c:string c:string c:int", STRING, split_part)
add("regexp_extract", "c:string l:string l:int?", STRING, regexp_extract)
add("regexp_extract_all", "c:string c:string l:int?", STRINGS, regexp_extract_all)
add("regexp_replace", "c:string l:string l:string l:int?", STRING, regexp_replace)
add("regexp_substr", "c:string c:string", STRING, regexp_substr, nullable=True)
add("regexp_instr", "c:string c:string", INT, regexp_instr)
add("regexp_count", "c:string c:string", INT, lambda text, p: sum(1 for _ in java_pattern(p).finditer(text)))
add("rlike regexp regexp_like", "c:string c:string", "boolean", regexp_like)
add("like", "c:string c:string c:string?", _matched, _like)
add("ilike", "c:string c:string c:string?", _matched, _ilike)
add("contains", "c:text c:text", "boolean", source="{1} in {0}", coerce="common")
add("startswith", "c:text c:text", "boolean", source="{0}.startswith({1})", coerce="common")
add("endswith", "c:text c:text", "boolean", source="{0}.endswith({1})", coerce="common")
add("lpad", "c:string l:int l:string?", STRING, lambda text, n, fill=" ": pad(text, n, fill, left=True))
add("rpad", "c:string l:int l:string?", STRING, lambda text, n, fill=" ": pad(text, n, fill, left=False))
add("instr", "c:string l:string", INT, source="({0}.find({1}) + 1)")
add("locate", "l:string c:string l:int?", INT, locate, strict=False, nullable=True)
add("position", "c:string c:string c:int?", INT, locate, strict=False, nullable=True)
add("replace", "c:string c:string c:string?", STRING, lambda t, s, by="": t.replace(s, by) if s else t)
add("translate", "c:string l:string l:string", STRING, translate)
add("overlay", "c:string c:string l:int l:int?", STRING, overlay)
add("reverse", "c:sequence", same(), _reverse)
add("repeat", "c:string l:int", STRING, source="{0} * {1}", kernel=_repeat_kernel)
add("space", "c:int", STRING, source="' ' * {0}")
add("format_string printf", "l:string c:any*", STRING, make=_format_string, strict=False)
add("format_number", "c:number l:int", STRING, format_number, nullable=True)
add("ascii", "c:string", INT, _ascii_code)
add("char chr", "c:bigint", STRING, _chr)
add("base64", "c:binary", STRING, lambda value: base64.b64encode(value).decode())
add("unbase64", "c:string", BINARY, _unbase64)
add("encode", "c:string l:string", BINARY, encode)
add("decode", "c:binary l:string", STRING, decode)
add("levenshtein", "c:string c:string l:int?", INT, levenshtein)
add("soundex", "c:string", STRING, soundex)
add("find_in_set", "c:string c:string", INT, find_in_set)
add("elt", "c:int c:string*", STRING, _elt, strict=False, nullable=True)
add("luhn_check", "c:string", "boolean", luhn_check)
