"""How the parts of a workload file are connected: references resolved, cycles refused, rates foreseen; for `load`.

`build` and `exact` follow the same layout, so that what is run and what is expected of it cannot differ in shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.durations import parse_us
from penstock.errors import InvalidOption
from penstock.operators import OVERLAP_MAX, Pairing
from penstock_bench.files import model
from penstock_bench.files.problems import Problem, not_allowed, unknown_word
from penstock_bench.files.sources import SourcePlan

Rates = npt.NDArray[np.float64]  # messages per second of every key
Transformations = Mapping[str, tuple[str, model.AnyTransformation]]  # with the path at which each stands in the file


@dataclass(frozen=True, slots=True)
class Timing:
    """The durations of a join, or of a window."""

    ttl_us: int = 0
    size_us: int = 0  # of a session: its gap
    slide_us: int = 0  # from one window's start to the next; they overlap where that is less than the size
    lateness_us: int = 0
    is_session: bool = False


def timing_of(transformation: model.AnyTransformation, path: str, problems: list[Problem]) -> Timing:
    """Read durations; one that cannot be read is 0, and among the problems."""
    params, at = transformation.params, f"{path}.params"

    def us(field: str, allow_zero: bool = False) -> int:
        value = getattr(params, field)
        try:
            return parse_us(value, option=field, allow_zero=allow_zero)
        except InvalidOption as error:
            allowed = error.hint.removeprefix("Allowed: ").rstrip(".")
            problems.append(not_allowed(f"{at}.{field}", value, allowed))
            return 0

    if isinstance(transformation, model.Join):
        return Timing(ttl_us=us("ttl"))
    if not isinstance(params, model.TumblingParams):
        return Timing()
    size_us, lateness_us = us("duration"), us("lateness", allow_zero=True)
    kind = model.WindowType.SLIDING if isinstance(params, model.SlidingParams) else model.WindowType.TUMBLING
    kind = params.type if isinstance(params, model.WindowParams) else kind
    slide = params.slide if isinstance(params, model.SlidingParams) else None
    if kind is not model.WindowType.SLIDING:
        if slide is not None:
            problems.append(Problem(f"{at}.slide", "only sliding windows have it. Did you mean type 'sliding'?"))
        is_session = kind is model.WindowType.SESSION
        return Timing(0, size_us, 1 if is_session else size_us, lateness_us, is_session)
    slide_us = size_us // 2 if slide is None else us("slide")
    if size_us and slide_us and not size_us <= slide_us * OVERLAP_MAX <= size_us * OVERLAP_MAX:
        allowed = f"at most the duration, and at least a {OVERLAP_MAX}th of it"
        problems.append(not_allowed(f"{at}.slide", slide, allowed))
    return Timing(0, size_us, slide_us, lateness_us)


@dataclass(frozen=True, slots=True)
class Place:
    """An output of a source or a transformation; only a split has more than output 0."""

    node: str
    output: int = 0


@dataclass(frozen=True)
class Layout:
    """The graph of a workload."""

    order: tuple[str, ...]  # transformations that lead to a sink, each after those it reads
    inputs: dict[str, tuple[Place, ...]]
    sinks: dict[str, Place]
    timing: dict[str, Timing]
    rates_eps: dict[str, tuple[float, float]]
    """Messages per second into a transformation and out of each of its outputs, at the sources' mean rates; at most
    so many out of a join that uses messages up. Sources have no input."""
    unused: tuple[str, ...]  # sources and transformations that lead to no sink; they are left out


def output_names(name: str, transformation: model.AnyTransformation) -> list[str]:
    """Return what the outputs are called: as the file says, else ``split1__1``, ``split1__2`` … of a split."""
    if not isinstance(transformation, model.Split):
        return [name, *(transformation.outputs or ())]
    return transformation.outputs or [f"{name}__{i}" for i in range(1, transformation.params.n + 1)]


def lay_out(
    sources: Mapping[str, SourcePlan], transformations: Transformations, sinks: list[str], problems: list[Problem]
) -> Layout | None:
    """Connect the parts; what is wrong is added to the problems."""
    parts = _Parts(sources, transformations, problems)
    timing: dict[str, Timing] = {}
    inputs: dict[str, tuple[Place, ...]] = {}
    for name, (path, each) in transformations.items():
        timing[name] = timing_of(each, path, problems)
        inputs[name] = parts.inputs(path, each)
    found = ((name, parts.find(name, f"sinks[{i}]")) for i, name in enumerate(sinks))
    ends = {name: place for name, place in found if place is not None}
    if not sinks:
        problems.append(Problem("sinks", "there must be at least one."))
    order = [] if problems else parts.order(inputs)
    if problems:
        return None
    used = {place.node for place in ends.values()}
    for name in reversed(order):
        if name in used:
            used |= {place.node for place in inputs[name]}
    # The rates of every key are foreseen, and with them those of all keys together.
    made: dict[str, Rates] = {}
    rates: dict[str, tuple[float, float]] = {}
    for name, source in sources.items():
        made[name] = np.concatenate([np.zeros(source.keys.low), source.keys.shares * source.rate_eps])
        rates[name] = 0.0, source.rate_eps
    for name in order:
        read = [made[place.node] for place in inputs[name]]
        made[name] = _out(transformations[name][1], read, timing[name])
        rates[name] = float(sum(each.sum() for each in read)), float(made[name].sum())
    unused = tuple(name for name in (*sources, *transformations) if name not in used)
    return Layout(tuple(name for name in order if name in used), inputs, ends, timing, rates, unused)


class _Parts:
    """The parts of a file while they are connected."""

    def __init__(self, sources: Iterable[str], transformations: Transformations, problems: list[Problem]) -> None:
        self._transformations, self._problems = transformations, problems
        # Where every name that can be referred to comes from.
        self._streams = {name: Place(name) for name in sources}
        for name, (path, transformation) in transformations.items():
            self._name_outputs(name, path, transformation)

    def _problem(self, path: str, what: str) -> None:
        self._problems.append(Problem(path, what))

    def _name_outputs(self, name: str, path: str, transformation: model.AnyTransformation) -> None:
        outputs, several = transformation.outputs, isinstance(transformation, model.Split)
        wanted = transformation.params.n if isinstance(transformation, model.Split) else 1
        if outputs is not None and len(outputs) != wanted:
            what = f"as many names as n says, {wanted}" if several else "one name"
            self._problem(f"{path}.outputs", f"{len(outputs)} names are not allowed. Allowed: {what}.")
        for i, output in enumerate(dict.fromkeys([name, *output_names(name, transformation)])):
            if output in self._streams or (output != name and output in self._transformations):
                where = f"{path}.outputs" if output != name else path
                self._problem(where, f"the name '{output}' belongs to something else already.")
            elif i or not several:
                self._streams[output] = Place(name, i - 1 if several else 0)
        if outputs is not None and len(set(outputs)) < len(outputs):
            self._problem(f"{path}.outputs", "two outputs have the same name.")

    def find(self, name: str, path: str) -> Place | None:
        """Return where messages of a name come from."""
        if name in self._transformations and name not in self._streams:
            outputs = ", ".join(output_names(name, self._transformations[name][1]))
            self._problem(path, f"'{name}' is a split. Name one of its outputs: {outputs}.")
        elif name not in self._streams:
            self._problems.append(unknown_word(path, "source or transformation", name, self._streams))
        return self._streams.get(name)

    def inputs(self, path: str, transformation: model.AnyTransformation) -> tuple[Place, ...]:
        one, several = transformation.input, transformation.inputs
        if one is not None and several is not None:
            self._problem(f"{path}.inputs", "there is an input beside it. Give either input or inputs.")
            return ()
        names = [(f"{path}.input", one)] if one is not None else []
        names += [(f"{path}.inputs[{i}]", name) for i, name in enumerate(several or ())]
        least, most, wanted = 1, 1, "input, one name"
        if isinstance(transformation, model.Join):
            least, most, wanted = 2, 2, "inputs, two names"
        elif isinstance(transformation, model.Merge):
            least, most, wanted = 2, max(2, len(names)), "inputs, two names or more"
        if not least <= len(names) <= most:
            field = "inputs" if least == 2 or several is not None else "input"
            operator = transformation.__struct_config__.tag
            self._problem(f"{path}.{field}", f"{operator} needs {wanted}; {len(names)} given.")
        found = [self.find(name, at) for at, name in names]
        return tuple(place for place in found if place is not None)

    def order(self, inputs: Mapping[str, tuple[Place, ...]]) -> list[str]:
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
                    circle = " → ".join([ahead, *reversed(trail[trail.index(ahead) :])])
                    self._problem(f"{self._transformations[ahead][0]}.input", f"it goes round in a circle: {circle}.")
                    return []
                else:
                    trail.append(ahead)
        return list(done)


def _out(transformation: model.AnyTransformation, read: list[Rates], timing: Timing) -> Rates:
    match transformation:
        case model.Filter(params=params):
            return read[0] * (1.0 - params.p)
        case model.Modify(params=params):
            return read[0] * params.rate_ratio
        case model.Merge():
            return _together(read, np.add)
        case model.Join(params=params) if params.match is Pairing.ONCE:
            # How many find a partner depends on how the sides go together; those of the rarer side at most.
            return _together(read, np.minimum)
        case model.Join():
            # Every message meets those of its key that came up to a time to live before or after it.
            return _together(read, np.multiply) * (2 * timing.ttl_us / 1e6)
        case model.Split():
            return read[0]
    made: Rates
    if timing.is_session:
        # One ends with every message behind which nothing comes for as long as the gap.
        made = read[0] * np.exp(-read[0] * (timing.size_us / 1e6))
    else:
        # A window has a result if there is a message in it.
        made = -np.expm1(-read[0] * (timing.size_us / 1e6)) * (1e6 / timing.slide_us)
    return made


def _together(read: list[Rates], how: np.ufunc) -> Rates:
    size = max(map(len, read))
    return np.asarray(how.reduce([np.pad(each, (0, size - len(each))) for each in read]))
