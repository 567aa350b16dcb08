"""The file format as types: sources, transformations, sinks; `load` fills them.

Run as a program it prints the JSON Schema of workload files, as published in benchmarks/workload.schema.json.

Descriptions are part of the format: the JSON Schema says them about a field, and errors say them as what is allowed.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from penstock.operators import Pairing

KEYS_MAX = 1_000_000
LENGTH_MAX = 100_000
RATIO_MAX = 1_000
OUTPUTS_MAX = 64
RATE_MAX = 1_000_000_000

_CLASS = r"(org\.apache\.commons\.math3\.distribution\.)?"
_WORDS = rf"{_CLASS}(UniformInteger|Zipf|Normal|Poisson)Distribution|uniform|zipf|normal|poisson|constant"
_SEED = "seed of all that is random: a whole number from 0 below 2**31"
_DROP = "probability of DROPPING a message: from 0 up to, not including, 1"
_DURATION = r"^\s*\d+(\.\d+)?\s*(us|ms|s|m|h|d)\s*$"

Ratio = Annotated[float, Meta(gt=0, le=RATIO_MAX, description=f"a number above 0, at most {RATIO_MAX}")]
Exponent = Annotated[float, Meta(gt=0, le=100, description="exponent of Zipf's law: a number above 0, at most 100")]
Keys = Annotated[int, Meta(ge=1, le=KEYS_MAX, description=f"number of keys: 1 to {KEYS_MAX}")]
Mean = Annotated[float, Meta(gt=0, le=1e9, description="the mean: a number above 0")]
Deviation = Annotated[float, Meta(gt=0, le=1e9, description="the standard deviation: a number above 0")]
Bound = Annotated[int, Meta(ge=0, le=1_000_000_000, description="a whole number from 0")]
Rate = Annotated[float, Meta(gt=0, le=1e9, description="messages per second: a number above 0")]
Level = Annotated[float, Meta(ge=0, le=1e9, description="messages per second: a number from 0")]
Factor = Annotated[float, Meta(ge=1e-6, le=1e6, description="a factor from 1e-6 to 1e6")]
Name = Annotated[str, Meta(description="the name of a source, a transformation or an output")]
Seed = Annotated[int, Meta(ge=0, lt=1 << 31, description=_SEED)]
CsvPath = Annotated[str, Meta(description="a CSV file with the columns time,value, relative to this file")]
Drop = Annotated[float, Meta(ge=0, lt=1, description=_DROP)]
Outputs = Annotated[int, Meta(ge=1, le=OUTPUTS_MAX, description=f"number of outputs: 1 to {OUTPUTS_MAX}")]
Cpu = Annotated[float, Meta(ge=0, le=1, description="share of a core at the file's rates: a number from 0 to 1")]
Memory = Annotated[float, Meta(ge=0, le=1, description="share of 64 MiB held and of 64 KiB copied per message: 0 to 1")]
Disk = Annotated[float, Meta(ge=0, le=1, description="share of 16 KiB written and read per message: 0 to 1")]


def _text(pattern: str, *description: str, **schema: int) -> Meta:
    return Meta(description="".join(description), extra_json_schema={"pattern": pattern, **schema})


_ABOVE = _text(_DURATION, "a duration above 0: '500ms', '5s', '1m', or a number of seconds", exclusiveMinimum=0)
_FROM = _text(_DURATION, "a duration from 0: '0s', '500ms', '5s', or a number of seconds", minimum=0)
Duration = Annotated[str | float, _ABOVE]
Pause = Annotated[str | float, _FROM]
_DRAWN = _text(
    f"^({_WORDS})$",
    "uniform, zipf, normal, poisson, constant, or a class of Apache Commons Math, as ZipfDistribution",
)
_SCHEDULED = _text(
    f"^({_WORDS}|trace|burst|steps)$",
    "constant, trace, burst, steps, or the distribution of the number of messages in a second: ",
    "uniform, zipf, normal, poisson, or a class of Apache Commons Math such as UniformIntegerDistribution",
)
DrawnName = Annotated[str, _DRAWN]
RateName = Annotated[str, _SCHEDULED]


class _Strict(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Fields that nobody knows are refused: a misspelt one would be ignored silently."""


class _DrawnParams(_Strict, kw_only=True):
    """Parameters that distributions have; which ones belong to which distribution is in docs/workloads.md."""

    num_keys: Keys | None = None
    """How the original tool names the number of elements of any Zipf distribution."""
    exponent: Exponent | None = None
    lower: Bound | None = None
    upper: Bound | None = None
    mean: Mean | None = None
    sd: Deviation | None = None


class KeyParams(_DrawnParams, kw_only=True):
    """Parameters of a distribution of keys."""

    value: Bound | None = None


class LengthParams(KeyParams, kw_only=True):
    """Parameters of a distribution of message lengths, in letters."""

    num_elements: Keys | None = None


class Step(_Strict, kw_only=True):
    """A stretch of a step schedule."""

    duration: Duration
    rate: Level


class RateParams(_DrawnParams, kw_only=True):
    """Parameters of a rate; a plain ``rate`` makes it constant, whatever the distribution."""

    rate: Rate | None = None
    num_elements: Keys | None = None
    path: CsvPath | None = None
    scale: Factor | None = None
    speed: Factor | None = None
    base: Level | None = None
    peak: Level | None = None
    every: Duration | None = None
    length: Duration | None = None
    first: Pause | None = None
    steps: Annotated[list[Step], Meta(min_length=1, max_length=10_000, description="a list of steps")] | None = None


class Source(_Strict, kw_only=True):
    """A generator of messages: key ``keyX``, value ``timestamp,random[a-z]{N}``."""

    name: Name | None = None
    num_keys: Keys | None = None
    key_dist: DrawnName
    key_dist_params: KeyParams = msgspec.field(default_factory=KeyParams)
    msg_dist: DrawnName
    msg_dist_params: LengthParams = msgspec.field(default_factory=LengthParams)
    rate_dist: RateName
    rate_dist_params: RateParams = msgspec.field(default_factory=RateParams)


class Loads(_Strict, kw_only=True):
    """What any transformation may cost beside its own work, for every message that comes in."""

    cpu_load: Cpu = 0.0
    mem_load: Memory = 0.0
    disk_load: Disk = 0.0


class FilterParams(Loads, kw_only=True):
    """Drop some messages."""

    p: Drop = 0.5


class SplitParams(Loads, kw_only=True):
    """Copy every message to several outputs."""

    n: Outputs
    ratio: Ratio = 1.0


class ModifyParams(Loads, kw_only=True):
    """Change the size of messages, or how many there are."""

    size_ratio: Ratio = 1.0
    rate_ratio: Ratio = 1.0


class MergeParams(Loads, kw_only=True):
    """Bring streams together."""


class JoinParams(Loads, kw_only=True):
    """Match messages of two streams by key: each once, as messages that have joined are used up, or all pairs."""

    ttl: Duration
    match: Annotated[Pairing, Meta(description="once or all")] = Pairing.ONCE


class WindowType(Enum):
    """How windows follow each other."""

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSION = "session"


class TumblingParams(Loads, kw_only=True):
    """Count messages of each key in windows that do not overlap."""

    duration: Duration
    lateness: Pause = 0.0


class SlidingParams(TumblingParams, kw_only=True):
    """Count messages of each key in windows that overlap; one starts every ``slide``, by default half the duration."""

    slide: Duration | None = None


class WindowParams(SlidingParams, kw_only=True):
    """Count messages of each key in windows of any type; the duration of a session is the gap that ends it."""

    type: Annotated[WindowType, Meta(description="tumbling, sliding or session")] = WindowType.TUMBLING


class Transformation(_Strict, kw_only=True, tag_field="operator"):
    """What all transformations have."""

    name: Name | None = None
    input: Name | None = None
    inputs: list[Name] | None = None
    outputs: list[Name] | None = None


class Filter(Transformation, kw_only=True, tag="filter"):
    """filter(p): drop messages with probability p."""

    params: FilterParams = msgspec.field(default_factory=FilterParams)


class Split(Transformation, kw_only=True, tag="split"):
    """split(n, ratio): every message to n outputs, resized by ratio."""

    params: SplitParams


class Modify(Transformation, kw_only=True, tag="modify"):
    """modify(size_ratio, rate_ratio): resize messages, repeat or drop them."""

    params: ModifyParams = msgspec.field(default_factory=ModifyParams)


class Merge(Transformation, kw_only=True, tag="merge"):
    """merge: messages of all inputs."""

    params: MergeParams = msgspec.field(default_factory=MergeParams)


class Join(Transformation, kw_only=True, tag="join"):
    """join(ttl, match): pairs of messages of one key, from two inputs."""

    params: JoinParams


class Window(Transformation, kw_only=True, tag="window"):
    """window(type, duration, slide): messages of each key, counted."""

    params: WindowParams


class TumblingWindow(Transformation, kw_only=True, tag="tumbling_window"):
    """tumbling_window(duration): a window of type tumbling."""

    params: TumblingParams


class SlidingWindow(Transformation, kw_only=True, tag="sliding_window"):
    """sliding_window(duration, slide): a window of type sliding."""

    params: SlidingParams


AnyTransformation = Filter | Split | Modify | Merge | Join | Window | TumblingWindow | SlidingWindow
OPERATORS: dict[str, type[AnyTransformation]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyTransformation)
}


class Head(_Strict, kw_only=True):
    """The plain values of a file."""

    schema_: str | None = msgspec.field(default=None, name="$schema")
    title: Annotated[str, Meta(max_length=200, description="one line on what it does")] | None = None
    seed: Seed = 0


class Document(Head, kw_only=True):
    """A workload file. Sources and transformations are maps by name, or lists whose elements have a ``name``."""

    sources: dict[str, Source] | list[Source]
    transformations: dict[str, AnyTransformation] | list[AnyTransformation] = msgspec.field(default_factory=dict)
    sinks: Annotated[list[Name], Meta(min_length=1, description="names of the streams that are the result")]


def workload_schema() -> dict[str, Any]:
    """Return the schema: what `load` accepts, but for the connections between the parts."""
    made = msgspec.json.schema(Document)
    ref = made.pop("$ref")
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": "Penstock workload file", **made, "$ref": ref}


def schema_text() -> str:
    return msgspec.json.format(msgspec.json.encode(workload_schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
