"""A workload file as numbers that a program in any engine can repeat; `exact` and the engines' subjects take it."""

from __future__ import annotations

from typing import Any

from penstock_bench.files.chance import combining, drawing, limit, relabelling
from penstock_bench.files.layout import Place
from penstock_bench.files.load import Description
from penstock_bench.files.loads import costly, costs
from penstock_bench.files.model import AnyTransformation, Filter, Join, Merge, Modify, Split


def specification(description: Description, *, loads: bool = True) -> dict[str, Any]:
    """What a program is told: plain values; without ``loads`` nothing costs more than its own work."""
    layout, steps = description.layout, []
    for name in layout.order:
        transformation = description.transformations[name]
        step: dict[str, Any] = {"name": name, "inputs": [_place(each) for each in layout.inputs[name]]}
        step |= _step(description, name, transformation)
        if loads and costly(transformation.params):
            step["load"] = costs(transformation.params, layout.rates_eps[name][0])
        steps.append(step)
    return {
        "workload": "file",
        "sources": list(description.sources),
        "steps": steps,
        "sinks": {name: _place(place) for name, place in layout.sinks.items()},
    }


def _step(description: Description, name: str, transformation: AnyTransformation) -> dict[str, Any]:
    """What a transformation does, with all its numbers worked out."""
    seed, layout = description.seed, description.layout
    match transformation:
        case Filter(params=params):
            return {"do": "filter", "draw": drawing(seed, name), "below": limit(params.p)}
        case Split(params=params):
            return {"do": "split", "ratio": params.ratio, "relabels": _relabels(seed, name, params.n)}
        case Modify(params=params):
            whole = int(params.rate_ratio)
            return {
                "do": "modify",
                "draw": drawing(seed, name),
                "ratio": params.size_ratio,
                "copies": whole,
                "below": limit(params.rate_ratio - whole),
                "relabels": _relabels(seed, name, whole + 1),
            }
        case Merge():
            return {"do": "merge"}
    combine = combining(seed, name)
    if isinstance(transformation, Join):
        pairing = transformation.params.match.value
        return {"do": "join", "match": pairing, "ttl_us": layout.ttl_us(name), "combine": combine}
    timing = layout.window(name)
    if timing.is_session:
        return {"do": "session", "gap_us": timing.size_us, "combine": combine}
    return {"do": "window", "size_us": timing.size_us, "slide_us": timing.slide_us, "combine": combine}


def _relabels(seed: int, name: str, count: int) -> list[list[int]]:
    return [relabelling(seed, name, i) for i in range(count)]


def _place(place: Place) -> list[Any]:
    return [place.node, place.output]
