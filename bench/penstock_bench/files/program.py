"""A workload file as numbers that any engine can repeat: Penstock's pipeline, `exact` and all engines take it.

Also work that costs and gives nothing: cpu_load, mem_load and disk_load, which `build` puts before a transformation.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

from penstock.types import Record
from penstock_bench.files.layout import Place
from penstock_bench.files.load import Description
from penstock_bench.files.model import AnyTransformation, Filter, Join, Loads, Merge, Modify, Split
from penstock_bench.foreign.programs import loads as plain
from penstock_bench.foreign.programs.chance import PRIME

MEMORY_HELD_BYTES = 64 << 20  # what a transformation with mem_load 1 holds, in every process that runs it
MEMORY_COPIED_BYTES = 64 << 10  # what it reads and writes for every message, going round in what it holds
DISK_FILE_BYTES = 64 << 20  # size of the file that a transformation with disk_load 1 goes round in
DISK_WRITTEN_BYTES = 16 << 10  # what it writes for every message, and reads again


def costs(loads: Loads, rate_eps: float) -> dict[str, float | int]:
    """What one message costs, in the words of `Burner`; at ``rate_eps`` cpu_load is the share of a core kept busy."""
    copied_bytes = max(int(MEMORY_COPIED_BYTES * loads.mem_load), 1) if loads.mem_load else 0
    written_bytes = max(int(DISK_WRITTEN_BYTES * loads.disk_load), 1) if loads.disk_load else 0
    return {
        "message_s": loads.cpu_load / rate_eps,
        "held_bytes": max(int(MEMORY_HELD_BYTES * loads.mem_load), 2 * copied_bytes),
        "copied_bytes": copied_bytes,
        "file_bytes": max(int(DISK_FILE_BYTES * loads.disk_load), written_bytes),
        "written_bytes": written_bytes,
    }


class Burner(plain.Burner):
    """Passes messages on unchanged, at a cost."""

    __name__ = "load"

    def __call__(self, record: Record) -> Record:
        self.burn()
        return record

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.burn(batch.num_rows)
        return batch


def numbers(seed: int, label: str, count: int) -> list[int]:
    """Return ``count`` fixed numbers below the prime: 32-bit words of SHA-256 of ``seed/label``, at most eight."""
    digest = hashlib.sha256(f"{seed}/{label}".encode()).digest()
    return [int.from_bytes(digest[4 * i : 4 * i + 4], "little") % PRIME for i in range(count)]


def drawing(seed: int, name: str) -> list[int]:
    """The numbers of a transformation's draws: they tell nothing about those of another."""
    a, b, c = numbers(seed, name, 3)
    return [a or 1, b, c]


def limit(probability: float) -> int:
    """Return below what a draw must be for something that has this probability."""
    return round(probability * PRIME)


def relabelling(seed: int, name: str, copy: int) -> list[int]:
    """The numbers of a copy's ids; copy 0 keeps those that it has."""
    if copy == 0:
        return [1, 0]
    a, b = numbers(seed, f"{name}#{copy}", 2)
    return [a or 1, b]


def combining(seed: int, name: str) -> list[int]:
    """The numbers of the ids of what a transformation makes from two messages, or from a window."""
    a, b, c = numbers(seed, f"{name}#id", 3)
    return [a or 1, b or 1, c]


def specification(description: Description, *, loads: bool = True) -> dict[str, Any]:
    """What a program is told: plain values; without ``loads`` nothing costs more than its own work."""
    layout, steps = description.layout, []
    for name in layout.order:
        transformation = description.transformations[name]
        step: dict[str, Any] = {"name": name, "inputs": [_place(each) for each in layout.inputs[name]]}
        step |= _step(description, name, transformation)
        params: Loads = transformation.params
        if loads and (params.cpu_load or params.mem_load or params.disk_load):
            step["load"] = costs(params, layout.rates_eps[name][0])
        steps.append(step)
    return {
        "workload": "file",
        "sources": list(description.sources),
        "steps": steps,
        "sinks": {name: _place(place) for name, place in layout.sinks.items()},
    }


def _step(description: Description, name: str, transformation: AnyTransformation) -> dict[str, Any]:
    seed, layout = description.seed, description.layout
    match transformation:
        case Filter(params=params):
            return {"do": "filter", "draw": drawing(seed, name), "below": limit(params.p)}
        case Split(params=params):
            return {"do": "split", "ratio": params.ratio, "relabels": _relabels(seed, name, params.n)}
        case Modify(params=params):
            return modify_step(seed, name, params.size_ratio, params.rate_ratio)
        case Merge():
            return {"do": "merge"}
    combine, timing = combining(seed, name), layout.timing[name]
    if isinstance(transformation, Join):
        pairing = transformation.params.match.value
        return {"do": "join", "match": pairing, "ttl_us": timing.ttl_us, "combine": combine}
    if timing.is_session:
        return {"do": "session", "gap_us": timing.size_us, "combine": combine}
    return {"do": "window", "size_us": timing.size_us, "slide_us": timing.slide_us, "combine": combine}


def modify_step(seed: int, name: str, size_ratio: float, rate_ratio: float) -> dict[str, Any]:
    """Resize messages, and repeat each ``floor(rate_ratio)`` times and once more with the probability that is left."""
    whole = int(rate_ratio)
    step = {"do": "modify", "draw": drawing(seed, name), "ratio": size_ratio, "copies": whole}
    return step | {"below": limit(rate_ratio - whole), "relabels": _relabels(seed, name, whole + 1)}


def _relabels(seed: int, name: str, count: int) -> list[list[int]]:
    return [relabelling(seed, name, i) for i in range(count)]


def _place(place: Place) -> list[Any]:
    return [place.node, place.output]
