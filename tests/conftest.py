"""Settings that all tests share: Hypothesis repeats itself, so that what fails fails again; EXAMPLES=new explores."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile("new", max_examples=100, **_SHARED)
settings.register_profile("same", max_examples=100, derandomize=True, **_SHARED)
settings.load_profile("new" if os.environ.get("EXAMPLES") == "new" else "same")
