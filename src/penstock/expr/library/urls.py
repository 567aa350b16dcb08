"""Functions of URLs."""

from __future__ import annotations

import re
from urllib.parse import quote_plus, unquote_plus, urlsplit

from penstock.errors import BadRecord
from penstock.expr.table import define
from penstock.types import STRING

add = define("text")
_BROKEN = re.compile(r"%(?![0-9A-Fa-f]{2})")


def _url_decode(text: str) -> str:
    if _BROKEN.search(text):
        raise BadRecord(f"{text!r} is not an encoded URL.")
    return unquote_plus(text)


_URI = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:|(?![^/?#]*:))(?:[\w.~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
"""What Java takes for a URI."""


def parse_url(text: str, part: str, key: str | None = None) -> str | None:
    """A part of a URL: HOST, PATH, QUERY, REF, PROTOCOL, FILE, AUTHORITY or USERINFO."""
    if key is not None and part != "QUERY":
        return None
    try:
        if _URI.fullmatch(text) is None:
            raise ValueError
        url = urlsplit(text)
        host = url.hostname
    except ValueError:
        raise BadRecord(f"{text!r} is not a URL.") from None
    query = url.query or None
    if part == "QUERY" and key is not None:
        found = re.search(rf"(?:^|&){re.escape(key)}=([^&]*)", query or "")
        return None if found is None else found.group(1)
    authority = url.netloc or None
    parts = {
        "HOST": host,
        "PATH": url.path,
        "QUERY": query,
        "REF": url.fragment or None,
        "PROTOCOL": url.scheme or None,
        "FILE": url.path + (f"?{query}" if query else ""),
        "AUTHORITY": authority,
        "USERINFO": authority.rpartition("@")[0] or None if authority else None,
    }
    return parts.get(part)


add("url_encode", "c:string", STRING, lambda text: quote_plus(text, safe="*-._").replace("~", "%7E"))
add("url_decode", "c:string", STRING, _url_decode)
add("parse_url", "c:string c:string c:string?", STRING, parse_url, nullable=True)
