"""Where the scripts beside this one keep what they have measured: a file of ``results``, with the machine it was on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from penstock.demo.chaos import quantile
from penstock_bench.meter.rows import Check, Results, make_header

RESULTS = Path(__file__).parent / "results"


def keep(name: str, settings: dict[str, Any], checks: Sequence[Check], figures: dict[str, Any]) -> None:
    """Write figures as JSON and say where; as results like those of studies."""
    header = make_header({"command": " ".join(sys.argv), **settings})
    found = msgspec.to_builtins(Results(header=header, rows=[], checks=list(checks)))
    path = RESULTS / f"{name}.json"
    path.write_text(msgspec.json.format(msgspec.json.encode({**found, **figures}), indent=1).decode() + "\n")
    sys.stdout.write(f"kept in {path.name}\n")


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and largest of some values, and how many there are."""
    ascending = sorted(values)
    if not ascending:
        return {"count": 0}
    return {
        "count": len(ascending),
        "median": round(median(ascending), 3),
        "p95": round(quantile(ascending, 0.95), 3),
        "max": round(ascending[-1], 3),
    }
