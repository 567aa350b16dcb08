"""The webhook sink: committed rows are posted to a URL, with a key by which the receiver knows what it has already."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from penstock.checks import Whole
from penstock.connectors.background import BackgroundWriter, Epochs
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.connectors.patience import RETRY, Patience, retry_s
from penstock.connectors.plain import check_json
from penstock.connectors.secrets import Secret, redacted
from penstock.connectors.texts import json_writer
from penstock.durations import parse_us
from penstock.errors import InvalidOption, SinkFailed, TypeMismatch
from penstock.types import Schema, TypeKind

_IS_SECRET = re.compile(r"auth|token|secret|key|password|cookie|signature", re.IGNORECASE)
_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))


def shown(url: str) -> str:
    """How errors name a receiver: without what may be secret."""
    return f"webhook('{redacted(url.partition('?')[0])}')"


class Webhook(Sink):
    """A sink that posts rows; build it with :func:`webhook`."""

    is_movable = False  # parts are numbered in the order of the rows

    def __init__(self, url: str, headers: dict[str, str], rows_max: int, timeout_s: float, retry_s: float) -> None:
        self._url = url
        self._headers = headers
        self._rows_max = rows_max
        self._timeout_s = timeout_s
        self._retry_s = retry_s

    @property
    def kind(self) -> str:
        return "webhook"

    def check(self, schema: Schema) -> None:
        check_json(schema)
        binary = [each.name for each in schema.fields if each.type.kind is TypeKind.BINARY]
        if binary:
            raise TypeMismatch(what=f"column '{binary[0]}' is binary, which JSON cannot hold.")
        to = urlsplit(self._url)
        try:
            socket.getaddrinfo(to.hostname, to.port)
        except OSError as error:
            cause = f"host '{to.hostname}' is not known: {error.strerror}"
            raise SinkFailed(sink=shown(self._url), cause=cause, hint="Check the host's name.") from None

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        return _WebhookWriter(self._url, self._headers, self._rows_max, self._timeout_s, self._retry_s, schema, context)


class _WebhookWriter(BackgroundWriter):
    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        rows_max: int,
        timeout_s: float,
        retry_s: float,
        schema: Schema,
        context: WriterContext,
    ) -> None:
        super().__init__(schema, context.operation)
        self._to: SplitResult = urlsplit(url)
        self.shown = shown(url)
        self._secrets = tuple(headers.values())
        self._headers = headers
        self._rows_max = rows_max
        self._timeout_s = timeout_s
        self.retry_s = retry_s
        self._encode = json_writer(schema)
        self._owner = f"{context.job_id}/{context.operation}/{context.instance}"
        self._connection: Any = None

    def publish(self, ready: Epochs) -> None:
        for prepared, rows in ready:
            for part, first in enumerate(range(0, len(rows), self._rows_max)):
                body = b"".join(self._encode(row) + b"\n" for row in rows[first : first + self._rows_max])
                # The rows of an epoch, their order and so their parts are the same whenever it is committed.
                self._post(body, f"{self._owner}/{prepared}/{part}")

    def _post(self, body: bytes, key: str) -> None:
        headers = {"Content-Type": "application/x-ndjson", **self._headers, "Idempotency-Key": key}
        patience = Patience(self.retry_s)
        while True:
            wanted_s = 0.0
            try:
                status, wanted_s = self._once(body, headers)
                if 200 <= status < 300:
                    return
                cause = f"it has answered {status}"
                if status not in _AGAIN:
                    raise self._failed(cause)
            except (OSError, http.client.HTTPException) as error:
                self.disconnect()
                cause = redacted(f"{type(error).__name__}: {error}", *self._secrets)
            pause_s = patience.pause_s(wanted_s)
            if pause_s is None:
                raise self._failed(f"{cause}, and has not taken the rows for {self.retry_s:g} s")
            self.pause(pause_s)

    def _once(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, float]:
        """Post once; return the status, and how long the receiver asks to wait."""
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._to.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._to.hostname or "", self._to.port, timeout=self._timeout_s)
        path = (self._to.path or "/") + (f"?{self._to.query}" if self._to.query else "")
        self._connection.request("POST", path, body, dict(headers))
        answer = self._connection.getresponse()
        answer.read()
        after = answer.headers.get("Retry-After", "")
        return answer.status, float(after) if after.isdecimal() else 0.0

    def _failed(self, cause: str) -> SinkFailed:
        hint = "What was not taken is posted again, with the same key, when the job is resumed from its checkpoint."
        return SinkFailed(sink=self.shown, cause=cause, hint=hint, operation=self._operation)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def webhook(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    rows: int = 500,
    timeout: str | float = "5s",
    retry: str | float = RETRY,
) -> Webhook:
    """Post committed rows to a URL, as lines of JSON.

    At least once: a part is posted again where no answer came, also after a crash. It then has the same rows and the
    same header ``Idempotency-Key`` (job, sink, instance, epoch and part), so that a receiver which remembers keys takes
    each row exactly once. The parts of an instance come in order.

    Parameters
    ----------
    url : str
        ``http://`` or ``https://``. Errors show it without credentials and without what stands behind ``?``.
    headers : mapping
        More headers, such as ``{"Authorization": "Bearer …"}``; never shown.
    rows : int
        At most so many rows in one request.
    timeout : str or number
        How long an answer is waited for.
    retry : str or number
        How long a request is tried again, with growing pauses, after no answer, 408, 425, 429 or 5xx; then the job
        fails. Any other answer but 2xx fails it at once. What is to be posted waits meanwhile, within bounds: then the
        job waits too.

    Examples
    --------
    >>> alerts.to(ps.webhook("https://hooks.example.org/alerts", headers={"Authorization": TOKEN}))  # doctest: +SKIP
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, AttributeError, TypeError):
        usable = False
    if not usable or parts.username is not None:
        given = redacted(url).partition("?")[0]
        raise InvalidOption(option="url", given=given, allowed="http:// or https://, credentials in headers=")
    more = dict(headers or {})
    for name, value in more.items():
        if not isinstance(name, str) or not isinstance(value, str) or any(c in name + value for c in "\r\n"):
            raise InvalidOption(option="headers", given=str(name), allowed="names and values that are text on one line")
    more = {name: Secret(value) if _IS_SECRET.search(name) else value for name, value in more.items()}
    timeout_s = parse_us(timeout, option="timeout") / 1e6
    return Webhook(url, more, Whole(1, 100_000).read("rows", rows), timeout_s, retry_s(retry))
