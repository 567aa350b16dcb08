"""Settings that all tests share: Hypothesis explores on a developer's machine and repeats itself in CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile("local", max_examples=100, **_SHARED)
settings.register_profile("ci", max_examples=100, derandomize=True, **_SHARED)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Any]:
    """A Redis for the whole run; its tests use keys of their own."""
    from services import redis

    yield from _serving(redis.missing(), redis.Redis)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A PostgreSQL for the whole run; its tests use tables of their own."""
    from services import postgres

    yield from _serving(postgres.missing(), postgres.Postgres)


def _serving(reason: str | None, start: Callable[[], Any]) -> Iterator[Any]:
    if reason is not None:
        pytest.skip(reason)
    server = start()
    yield server
    server.close()
