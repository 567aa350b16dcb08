"""Where a job's metrics go, as users write it: ``file:…``, ``prometheus:…``, ``influx:…``; the options read it here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from penstock.errors import InvalidOption, nearest

OUTLETS_MAX = 8
LOOPBACK = "127.0.0.1"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_DATABASE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_ALLOWED = "file:PATH, prometheus:PORT, prometheus:HOST:PORT, influx:http://HOST:PORT/DATABASE"


@dataclass(frozen=True)
class FileOutlet:
    """A file of JSON lines, appended to."""

    path: str

    def __str__(self) -> str:
        return f"file:{self.path}"


@dataclass(frozen=True)
class PrometheusOutlet:
    """An endpoint that Prometheus scrapes; port 0 takes one that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"prometheus:{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True)
class InfluxOutlet:
    """A database of an InfluxDB server. Credentials are never part of it: they come from the environment."""

    secure: bool
    host: str
    port: int
    prefix: str
    database: str

    def __str__(self) -> str:
        scheme = "https" if self.secure else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"influx:{scheme}://{host}:{self.port}{self.prefix}/{self.database}"


Outlet = FileOutlet | PrometheusOutlet | InfluxOutlet


def read_outlets(given: str | Sequence[str] | None) -> tuple[Outlet, ...]:
    """Check what ``metrics=`` was given."""
    if given is None:
        return ()
    texts = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    outlets: list[Outlet] = []
    for text in texts:
        outlet = _read(text)
        if outlet in outlets:
            raise _refused(text, "each place once")
        outlets.append(outlet)
    if len(outlets) > OUTLETS_MAX:
        raise InvalidOption(option="metrics", given=f"{len(outlets)} places", allowed=f"at most {OUTLETS_MAX}")
    return tuple(outlets)


def _read(text: str) -> Outlet:
    if not isinstance(text, str):
        raise InvalidOption(option="metrics", given=text, allowed=_ALLOWED)
    kind, colon, rest = text.partition(":")
    readers = {"file": _file, "prometheus": _prometheus, "influx": _influx}
    if not colon or kind not in readers:
        raise _refused(text, _ALLOWED, hint=nearest(kind, readers))
    return readers[kind](text, rest)


def _file(text: str, rest: str) -> Outlet:
    if not rest or "\0" in rest:
        raise _refused(text, "file:PATH, as in file:run.jsonl")
    return FileOutlet(rest)


def _prometheus(text: str, rest: str) -> Outlet:
    host, colon, port = rest.rpartition(":")
    if colon and not _HOST.fullmatch(host):
        raise _refused(text, "prometheus:HOST:PORT, with an IPv6 address in brackets")
    return PrometheusOutlet(host.strip("[]") or LOOPBACK, _port(text, port))


def _influx(text: str, rest: str) -> Outlet:
    allowed = "influx:http://HOST:PORT/DATABASE, or https"
    try:
        url = urlsplit(rest)
        port = url.port
    except ValueError:
        raise _refused(text, allowed) from None
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise _refused(text, f"{allowed}; credentials come from environment variables, see docs/metrics.md")
    prefix, _, database = unquote(url.path).rpartition("/")
    if url.scheme not in ("http", "https") or not url.hostname or not _DATABASE.fullmatch(database):
        raise _refused(text, allowed)
    if not re.fullmatch(r"(/[A-Za-z0-9_.-]+)*", prefix):
        raise _refused(text, allowed)
    secure = url.scheme == "https"
    return InfluxOutlet(secure, url.hostname, port or (443 if secure else 80), prefix, database)


def _port(text: str, port: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        raise _refused(text, "a port from 0 (one that is free) to 65535, as in prometheus:9464")
    return int(port)


def _refused(text: str, allowed: str, *, hint: str = "") -> InvalidOption:
    """Whoever put a secret into the text shall not find it in a log: what may hold one is not shown."""
    shown = re.sub(r"//.*@", "//…@", text)
    shown = re.sub(r"[?#].*", "?…", shown, flags=re.DOTALL) if text.startswith("influx") else shown
    return InvalidOption(option="metrics", given=shown, allowed=allowed, hint=hint)
