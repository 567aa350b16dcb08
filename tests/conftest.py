"""Settings that all tests share: Hypothesis explores on a developer's machine and repeats itself in CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile("local", max_examples=100, **_SHARED)
settings.register_profile("ci", max_examples=100, derandomize=True, **_SHARED)
settings.load_profile("ci" if os.environ.get("CI") else "local")
