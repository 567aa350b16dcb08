"""Real servers for tests, examples and `make services`: each on a free loopback port, with a directory of its own."""

from __future__ import annotations

import atexit
import importlib
import sys

KINDS = {"redis": "Redis", "postgres": "Postgres", "kafka": "Kafka"}


def started(name: str) -> str:
    """Start a server that ends with this program, and return its address; end the program if it cannot be had."""
    module = importlib.import_module(f"services.{name}")
    if (reason := module.missing()) is not None:
        sys.exit(f"{name} {reason}")
    server = getattr(module, KINDS[name])()
    atexit.register(server.close)
    return address_of(server)


def address_of(server: object) -> str:
    """Where a server is, credentials included."""
    return next(str(getattr(server, each)) for each in ("dsn", "url", "address") if hasattr(server, each))
