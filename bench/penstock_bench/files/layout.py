"""How the parts of a workload file are connected: references resolved, cycles refused, rates foreseen; for `load`.

`build` and `exact` follow the same layout, so that what is run and what is expected of it cannot differ in shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.durations import parse_us
from penstock.errors import InvalidOption
from penstock.operators import OVERLAP_MAX, Pairing
from penstock_bench.files.model import (
    AnyTransformation,
    Filter,
    Join,
    Merge,
    Modify,
    SlidingParams,
    SlidingWindow,
    Split,
    TumblingParams,
    WindowParams,
    WindowType,
)
from penstock_bench.files.problems import Problem, not_allowed, unknown_word
from penstock_bench.files.sources import SourcePlan


@dataclass(frozen=True, slots=True)
class WindowTiming:
    """Windows of one size, one starting every ``slide_us``; they overlap where that is less than the size.

    A session's size is its gap, and it may start at any time.
    """

    size_us: int
    slide_us: int
    lateness_us: int
    is_session: bool = False


def timing_of(transformation: AnyTransformation, path: str, problems: list[Problem]) -> WindowTiming | int | None:
    """Return a window's timing, a join's time to live in microseconds, or None where there is nothing to time."""
    params, at = transformation.params, f"{path}.params"
    if isinstance(transformation, Join):
        return _us(transformation.params.ttl, f"{at}.ttl", problems)
    if not isinstance(params, TumblingParams):
        return None
    size_us = _us(params.duration, f"{at}.duration", problems)
    lateness_us = _us(params.lateness, f"{at}.lateness", problems, allow_zero=True)
    slide_us = size_us
    sliding = isinstance(transformation, SlidingWindow)
    if isinstance(params, WindowParams):
        sliding = params.type is WindowType.SLIDING
        if params.type is WindowType.SESSION and params.slide is None:
            return WindowTiming(size_us, 1, lateness_us, is_session=True)
        if not sliding and params.slide is not None:
            problems.append(Problem(f"{at}.slide", "only sliding windows have it. Did you mean type 'sliding'?"))
    if sliding and isinstance(params, SlidingParams):
        slide_us = size_us // 2 if params.slide is None else _us(params.slide, f"{at}.slide", problems)
        if size_us and slide_us and not size_us <= slide_us * OVERLAP_MAX <= size_us * OVERLAP_MAX:
            allowed = f"at most the duration, and at least a {OVERLAP_MAX}th of it"
            problems.append(not_allowed(f"{at}.slide", params.slide, allowed))
    return WindowTiming(size_us, slide_us, lateness_us)


def _us(value: str | float, path: str, problems: list[Problem], allow_zero: bool = False) -> int:
    """Read a duration; 0 where it cannot be read, which is among the problems then."""
    try:
        return parse_us(value, option=path, allow_zero=allow_zero)
    except InvalidOption as error:
        problems.append(not_allowed(path, value, error.hint.removeprefix("Allowed: ").rstrip(".")))
        return 0


Rates = npt.NDArray[np.float64]
"""Messages per second of every key."""
Transformations = Mapping[str, tuple[str, AnyTransformation]]
"""With the path at which each stands in the file."""


@dataclass(frozen=True, slots=True)
class Place:
    """An output of a source or a transformation; only a split has more than output 0."""

    node: str
    output: int = 0


@dataclass(frozen=True)
class Layout:
    """The graph of a workload.

    Attributes
    ----------
    order : tuple of str
        Transformations that lead to a sink, each after those it reads.
    inputs : dict
        What each of them reads.
    sinks : dict
        Where the streams that are the result come from.
    timing : dict
        Windows, and times to live of joins in microseconds.
    rates_eps : dict
        Messages per second into a transformation and out of each of its outputs, at the sources' mean rates; at most
        so many out of a join that uses messages up. Sources have no input.
    unused : tuple of str
        Sources and transformations that lead to no sink; they are left out.
    """

    order: tuple[str, ...]
    inputs: dict[str, tuple[Place, ...]]
    sinks: dict[str, Place]
    timing: dict[str, WindowTiming | int]
    rates_eps: dict[str, tuple[float, float]]
    unused: tuple[str, ...]

    def window(self, name: str) -> WindowTiming:
        """Return the timing of a window."""
        timing = self.timing[name]
        assert isinstance(timing, WindowTiming)
        return timing

    def ttl_us(self, name: str) -> int:
        """Return the time to live of a join."""
        timing = self.timing[name]
        assert isinstance(timing, int)
        return timing


def output_names(name: str, transformation: AnyTransformation) -> list[str]:
    """Return what the outputs are called: as the file says, else ``split1__1``, ``split1__2`` … of a split."""
    if not isinstance(transformation, Split):
        return [name, *(transformation.outputs or ())]
    return transformation.outputs or [f"{name}__{i}" for i in range(1, transformation.params.n + 1)]


def lay_out(
    sources: Mapping[str, SourcePlan],
    transformations: Transformations,
    sinks: list[str],
    problems: list[Problem],
) -> Layout | None:
    """Connect the parts; what is wrong is added to the problems."""
    streams = _streams(sources, transformations, problems)
    timing = {}
    inputs: dict[str, tuple[Place, ...]] = {}
    for name, (path, transformation) in transformations.items():
        found = timing_of(transformation, path, problems)
        if found is not None:
            timing[name] = found
        inputs[name] = _inputs(transformation, path, streams, transformations, problems)
    ends = {}
    for i, name in enumerate(sinks):
        place = _find(name, f"sinks[{i}]", streams, transformations, problems)
        if place is not None:
            ends[name] = place
    if not sinks:
        problems.append(Problem("sinks", "there must be at least one."))
    if problems:
        return None
    order = _order(inputs, transformations, problems)
    if problems:
        return None
    used = {place.node for place in ends.values()}
    for name in reversed(order):
        if name in used:
            used |= {place.node for place in inputs[name]}
    rates = _rates(sources, {name: each for name, (_, each) in transformations.items()}, order, inputs, timing)
    return Layout(
        tuple(name for name in order if name in used),
        inputs,
        ends,
        timing,
        rates,
        tuple(name for name in (*sources, *transformations) if name not in used),
    )


def _streams(
    sources: Mapping[str, SourcePlan], transformations: Transformations, problems: list[Problem]
) -> dict[str, Place]:
    """Return where every name that can be referred to comes from."""
    streams = {name: Place(name) for name in sources}
    for name, (path, transformation) in transformations.items():
        outputs, several = transformation.outputs, isinstance(transformation, Split)
        wanted = transformation.params.n if isinstance(transformation, Split) else 1
        if outputs is not None and len(outputs) != wanted:
            what = f"as many names as n says, {wanted}" if several else "one name"
            problems.append(Problem(f"{path}.outputs", f"{len(outputs)} names are not allowed. Allowed: {what}."))
        for i, output in enumerate(dict.fromkeys([name, *output_names(name, transformation)])):
            if output in streams or (output != name and output in transformations):
                where = f"{path}.outputs" if output != name else path
                problems.append(Problem(where, f"the name '{output}' belongs to something else already."))
            elif not several:
                streams[output] = Place(name)
            elif i:
                streams[output] = Place(name, i - 1)
        if outputs is not None and len(set(outputs)) < len(outputs):
            problems.append(Problem(f"{path}.outputs", "two outputs have the same name."))
    return streams


def _find(
    name: str, path: str, streams: Mapping[str, Place], transformations: Transformations, problems: list[Problem]
) -> Place | None:
    if name in streams:
        return streams[name]
    if name in transformations:
        outputs = ", ".join(output_names(name, transformations[name][1]))
        problems.append(Problem(path, f"'{name}' is a split. Name one of its outputs: {outputs}."))
    else:
        problems.append(unknown_word(path, "source or transformation", name, streams))
    return None


def _inputs(
    transformation: AnyTransformation,
    path: str,
    streams: Mapping[str, Place],
    transformations: Transformations,
    problems: list[Problem],
) -> tuple[Place, ...]:
    one, several = transformation.input, transformation.inputs
    operator = transformation.__struct_config__.tag
    if one is not None and several is not None:
        problems.append(Problem(f"{path}.inputs", "there is an input beside it. Give either input or inputs."))
        return ()
    names = [(f"{path}.input", one)] if one is not None else []
    names += [(f"{path}.inputs[{i}]", name) for i, name in enumerate(several or ())]
    least, most = (2, 2) if isinstance(transformation, Join) else (1, 1)
    if isinstance(transformation, Merge):
        least, most = 2, len(streams) + len(names)
    if not least <= len(names) <= most:
        wanted = "inputs, two names" if most == 2 else "inputs, two names or more" if least == 2 else "input, one name"
        field = "inputs" if least == 2 or several is not None else "input"
        problems.append(Problem(f"{path}.{field}", f"{operator} needs {wanted}; {len(names)} given."))
    found = [_find(name, at, streams, transformations, problems) for at, name in names if name is not None]
    return tuple(place for place in found if place is not None)


def _order(
    inputs: Mapping[str, tuple[Place, ...]], transformations: Transformations, problems: list[Problem]
) -> list[str]:
    """Return the transformations, each after those it reads."""
    done: dict[str, None] = {}
    for first in inputs:
        # Depth first with a list of our own: a file may be deeper than Python's stack.
        trail = [first]
        while trail:
            name = trail[-1]
            unread = (place.node for place in inputs[name] if place.node in inputs and place.node not in done)
            ahead = next(unread, None)
            if ahead is None:
                done[trail.pop()] = None
            elif ahead in trail:
                circle = [*trail[trail.index(ahead) :], ahead]
                path = transformations[ahead][0]
                problems.append(Problem(f"{path}.input", f"it goes round in a circle: {' → '.join(reversed(circle))}."))
                return []
            else:
                trail.append(ahead)
    return list(done)


def _rates(
    sources: Mapping[str, SourcePlan],
    transformations: Mapping[str, AnyTransformation],
    order: list[str],
    inputs: Mapping[str, tuple[Place, ...]],
    timing: Mapping[str, WindowTiming | int],
) -> dict[str, tuple[float, float]]:
    """Foresee the rates of every key, and with them those of all keys together."""
    made: dict[str, Rates] = {}
    rates: dict[str, tuple[float, float]] = {}
    for name, source in sources.items():
        keys = np.zeros(source.keys.low + source.keys.count)
        keys[source.keys.low :] = source.keys.shares * source.rate_eps
        made[name] = keys
        rates[name] = 0.0, source.rate_eps
    for name in order:
        read = [made[place.node] for place in inputs[name]]
        made[name] = _out(transformations[name], read, timing.get(name))
        rates[name] = float(sum(each.sum() for each in read)), float(made[name].sum())
    return rates


def _out(transformation: AnyTransformation, read: list[Rates], timing: WindowTiming | int | None) -> Rates:
    match transformation:
        case Filter(params=params):
            return read[0] * (1.0 - params.p)
        case Modify(params=params):
            return read[0] * params.rate_ratio
        case Merge():
            return _together(read, np.add)
        case Join(params=params) if params.match is Pairing.ONCE:
            # How many find a partner depends on how the sides go together; those of the rarer side at most.
            return _together(read, np.minimum)
        case Join():
            assert isinstance(timing, int)
            # Every message meets those of its key that came up to a time to live before or after it.
            return _together(read, np.multiply) * (2 * timing / 1e6)
        case Split():
            return read[0]
    assert isinstance(timing, WindowTiming)
    if timing.is_session:
        # One ends with every message behind which nothing comes for as long as the gap.
        ending: Rates = read[0] * np.exp(-read[0] * (timing.size_us / 1e6))
        return ending
    # A window has a result if there is a message in it.
    filled = -np.expm1(-read[0] * (timing.size_us / 1e6))
    windows_eps: Rates = filled * (1e6 / timing.slide_us)
    return windows_eps


def _together(read: list[Rates], how: Callable[[Rates, Rates], Rates]) -> Rates:
    size = max(map(len, read))
    total = np.pad(read[0], (0, size - len(read[0])))
    for each in read[1:]:
        total = how(total, np.pad(each, (0, size - len(each))))
    return total
