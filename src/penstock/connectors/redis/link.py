"""Connections to Redis and its errors, without credentials; source, sink and table use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.connectors.extras import installed
from penstock.connectors.patience import Patience, sleep
from penstock.connectors.secrets import Secret, one_line
from penstock.errors import InvalidOption, PenstockError, SinkFailed, SourceFailed

CONNECT_S = 5.0
ANSWER_S = 10.0
_SCHEMES = ("redis", "rediss", "unix")
Answer = TypeVar("Answer")


def driver() -> Any:
    """The package redis, or what to install."""
    return installed("redis", "redis")


@dataclass(frozen=True)
class Place:
    """A server; what is shown of it has no credentials."""

    url: str = field(repr=False)
    what: str
    """The keys there, in a few words."""
    retry_s: float
    """How long the server is waited for when it is away."""

    def __post_init__(self) -> None:
        try:
            scheme, _ = urlsplit(self.url).scheme, urlsplit(self.url).port
        except (ValueError, TypeError, AttributeError):
            scheme = ""
        if scheme not in _SCHEMES:
            given = self.url.partition("://")[0] + "://…" if isinstance(self.url, str) and "://" in self.url else "…"
            raise InvalidOption(option="url", given=given, allowed="such as 'redis://:password@host:6379/0'")
        _ = self._secrets  # known from here on, also in the processes that it is sent to

    @cached_property
    def _secrets(self) -> tuple[str, ...]:
        parts = urlsplit(self.url)
        asked = parse_qs(parts.query).get("password", [])
        found = [parts.password or "", unquote(parts.password or ""), *asked]
        return tuple(Secret(each) for each in found if each)

    @property
    def address(self) -> str:
        """Host, port and number of the database."""
        parts = urlsplit(self.url)
        return f"{parts.hostname or ''}:{parts.port or 6379}{parts.path or '/0'}"

    @property
    def shown(self) -> str:
        """How errors and states name it."""
        return f"redis('{self.address}', {self.what})"

    def shown_error(self, error: BaseException) -> str:
        """An error of the driver on one line, without credentials."""
        return one_line(error, *self._secrets)

    def client(self, **more: Any) -> Any:
        """Open a client; it tries nothing again by itself, because not everything may be done twice."""
        redis = driver()
        retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        times = {"socket_connect_timeout": CONNECT_S, "socket_timeout": ANSWER_S}
        return redis.Redis.from_url(self.url, retry=retry, **times, **more)

    def check(self, kind: type[SinkFailed] | type[SourceFailed]) -> Any:
        """Return a client that the server has answered."""
        redis, client = driver(), self.client()
        try:
            client.ping()
        except redis.RedisError as error:
            words = str(error).lower()
            denied = isinstance(error, redis.AuthenticationError) or "auth" in words or "password" in words
            hint = "Check user and password." if denied else "Check host and port, and that the server runs."
            raise self.error(kind, f"cannot connect: {self.shown_error(error)}", hint) from None
        return client

    def error(self, kind: type[PenstockError], cause: str, hint: str = "", operation: str | None = None) -> Any:
        """The error of a place that is read, or written to."""
        if kind is SinkFailed:
            return SinkFailed(sink=self.shown, cause=cause, hint=hint, operation=operation)
        return SourceFailed(source=self.shown, cause=cause, hint=hint, operation=operation)

    def patiently(self, do: Callable[[], Answer], pause: Callable[[float], None] = sleep) -> Answer:
        """Do what may be done twice, again while the server is away; at most for `retry_s`."""
        redis, patience = driver(), Patience(self.retry_s)
        away = (redis.ConnectionError, redis.TimeoutError)
        while True:
            try:
                return do()
            except away as error:
                pause_s = None if isinstance(error, redis.AuthenticationError) else patience.pause_s()
                if pause_s is None:
                    raise
            pause(pause_s)
