"""The functions of the table, sorted by what they are about; importing this fills the table."""

from penstock.expr.library import (
    arrays,
    choices,
    dates,
    hashes,
    higher,
    json_text,
    maps,
    maths,
    strings,
    timestamps,
    urls,
)

__all__ = [
    "arrays",
    "choices",
    "dates",
    "hashes",
    "higher",
    "json_text",
    "maps",
    "maths",
    "strings",
    "timestamps",
    "urls",
]
