"""Any column name as an attribute of records: plain names are themselves, others are spelt in letters and digits."""

from __future__ import annotations

import keyword
import unicodedata
from functools import lru_cache

_SPELT = "x__"
_TAKEN = ("_asdict", "_columns")


@lru_cache(maxsize=4096)
def attribute(name: str) -> str:
    """Return the attribute of generated record classes that holds the column ``name``.

    Generated source names columns as attributes, and Python reads identifiers in their normal form only. Users read
    a column with a name of another kind as ``r["user id"]``.
    """
    plain = name.isidentifier() and not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name
    if plain and not name.startswith(("__", _SPELT)) and name not in _TAKEN:
        return name
    return _SPELT + name.encode("utf-8", "surrogatepass").hex()
