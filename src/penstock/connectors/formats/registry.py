"""The schema registry: schemas by number and by subject, over its HTTP protocol; what is written begins with a number.

A value is a zero byte, the schema's number in four bytes, and the encoded record.
"""

from __future__ import annotations

import base64
import http.client
import json
import struct
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from penstock.connectors.secrets import Secret, one_line
from penstock.errors import BadRecord, InvalidOption, KafkaFailed

RETRY_S = 10.0
"""How long a registry that is away is waited for."""
_ANSWER_S = 5.0
_BACK_OFF_S = 0.1
_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_HEAD = struct.Struct(">bI")
_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True)
class Registered:
    """A schema as the registry has it."""

    id: int
    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str


@dataclass(frozen=True)
class Registry:
    """A schema registry; what is shown of it has no credentials."""

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except (ValueError, TypeError, AttributeError):
            usable = False
        if not usable:
            allowed = "such as 'http://host:8081' or 'https://user:password@host'"
            raise InvalidOption(option="registry", given="…", allowed=allowed)
        _ = self._login  # its password is known from here on, also in the processes that it is sent to

    @property
    def shown(self) -> str:
        """How errors name it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"

    @cached_property
    def _login(self) -> tuple[str, ...]:
        parts = urlsplit(self.url)
        return unquote(parts.username or ""), Secret(unquote(parts.password or ""))

    def by_id(self, number: int) -> Registered:
        """Return the schema of a number; raises BadRecord where there is none."""
        found = self._ask("GET", f"/schemas/ids/{number}", absent=(404,))
        if found is None:
            raise BadRecord(f"its schema, number {number}, is not in the registry {self.shown}.")
        return Registered(number, found.get("schemaType", "AVRO"), found["schema"])

    def latest(self, subject: str) -> Registered:
        """Return the newest schema of a subject; raises where there is none."""
        found = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest", absent=(404,))
        if found is None:
            raise self._failed(
                f"it has no subject '{subject}'",
                "Register a schema, or give one. The subject of a topic's values is mostly '<topic>-value'.",
            )
        return Registered(found["id"], found.get("schemaType", "AVRO"), found["schema"])

    def register(self, subject: str, kind: str, text: str) -> int:
        """Have a schema registered, unless it is, and return its number."""
        body = {"schema": text, "schemaType": kind}
        found = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        assert found is not None
        return int(found["id"])

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, absent: tuple[int, ...] = ()
    ) -> dict[str, Any] | None:
        """Ask, again while it is away; everything that is asked may be asked twice."""
        deadline_s, pause_s = time.monotonic() + RETRY_S, _BACK_OFF_S
        while True:
            try:
                status, answer = self._once(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                cause = one_line(f"cannot connect: {type(error).__name__}: {error}", *self._login)
                final = isinstance(error, OSError) and "not known" in str(error)  # the host's name
            else:
                if status in absent:
                    return None
                try:
                    told = json.loads(answer)
                except ValueError:
                    told = None
                if status == 200 and isinstance(told, dict):
                    return told
                said = told.get("message", "") if isinstance(told, dict) else ""
                cause = f"it has answered {status} {one_line(said, *self._login)}".rstrip()
                final = status < 500
            if final or time.monotonic() + pause_s > deadline_s:
                raise self._failed(cause, _HINTS.get(cause.split()[3] if cause.startswith("it has") else "", ""))
            time.sleep(pause_s)
            pause_s *= 2

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_ANSWER_S)
        headers = {"Accept": f"{_TYPE}, application/json"}
        if any(self._login):
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(self._login).encode()).decode()
        if body is not None:
            headers["Content-Type"] = _TYPE
        try:
            whole = parts.path.rstrip("/") + path
            connection.request(method, whole, None if body is None else json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_ANSWER_BYTES_MAX)
        finally:
            connection.close()

    def _failed(self, cause: str, hint: str) -> KafkaFailed:
        return KafkaFailed(f"schema registry {self.shown}: {cause}.", hint=hint)


_HINTS = {
    "401": "Check user and password in registry=.",
    "403": "The user may not do that: ask for the right on the registry.",
    "409": "The schema is not compatible with those of the subject: change it, or name another subject.",
    "422": "The registry does not take this schema.",
}


def number_of(value: bytes) -> int:
    """The number of the schema that a value was written with."""
    if len(value) < _HEAD.size or value[0]:
        raise BadRecord("it does not begin with the number of a schema.", hint="Without registry= there is none.")
    number: int = _HEAD.unpack_from(value)[1]
    return number


def head(number: int) -> bytes:
    """What a value of a registered schema begins with."""
    return _HEAD.pack(0, number)


HEAD_BYTES = _HEAD.size
