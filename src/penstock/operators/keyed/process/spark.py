"""PySpark's `StatefulProcessor` (transformWithState) as a process function: its class runs unchanged.

States are those that its ``init`` asks the handle for: once where the pipeline is built, to know them, and once on
every worker. Times are naive and in UTC, as of a Spark session whose time zone is UTC.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from importlib import import_module
from typing import Any

import msgspec

from penstock.errors import InvalidOption, PenstockError, SchemaError, TypeMismatch
from penstock.operators.keyed.process.declared import State
from penstock.operators.keyed.process.function import Context, Process
from penstock.types import Record, Schema, TypeKind, record_dict

_EPOCH = datetime(1970, 1, 1)
_DAY = date(1970, 1, 1)
_encode = msgspec.msgpack.Encoder().encode


class TimeMode(Enum):
    """What timers follow, in Spark's words."""

    NONE = "None"
    PROCESSING_TIME = "ProcessingTime"
    EVENT_TIME = "EventTime"


class Rows(Enum):
    """What a processor takes and gives."""

    ROW = "row"
    PANDAS = "pandas"


@dataclass(frozen=True)
class _Asked:
    """A state that ``init`` has asked for."""

    kind: str
    name: str
    schemas: tuple[Schema, ...]
    ttl_ms: int | None


class _Times:
    """Turns records' times into Python's and back, by schema."""

    def __init__(self, schema: Schema) -> None:
        self.names = schema.names
        self._out = [_PYTHON.get(each.type.kind) for each in schema.fields]
        self._in = [_KEPT.get(each.type.kind) for each in schema.fields]
        self._is_plain = not any(self._out)

    def shown(self, values: Any) -> list[Any]:
        """Values as Spark shows them."""
        if self._is_plain:
            return list(values)
        pairs = zip(values, self._out, strict=True)
        return [each if turn is None or each is None else turn(each) for each, turn in pairs]

    def kept(self, values: Any, name: str) -> list[Any]:
        """Values as they are kept; raises TypeError for what does not fit."""
        if not isinstance(values, tuple | list) or len(values) != len(self.names):
            raise TypeError(f"state '{name}' takes a tuple of {len(self.names)} values, not {values!r}")
        if self._is_plain:
            return list(values)
        pairs = zip(values, self._in, strict=True)
        return [each if turn is None else turn(each) for each, turn in pairs]


def _time_shown(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)


def _time_kept(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return (naive - _EPOCH) // timedelta(microseconds=1)


def _date_kept(value: Any) -> Any:
    return (value - _DAY).days if isinstance(value, date) and not isinstance(value, datetime) else value


_PYTHON: dict[TypeKind, Callable[[Any], Any]] = {
    TypeKind.TIMESTAMP: _time_shown,
    TypeKind.DATE: lambda days: _DAY + timedelta(days=days),
}
_KEPT: dict[TypeKind, Callable[[Any], Any]] = {TypeKind.TIMESTAMP: _time_kept, TypeKind.DATE: _date_kept}


def schema_of(given: Any, name: str) -> Schema:
    """A state's schema, given as DDL or as a StructType."""
    text = given
    if hasattr(given, "fields"):
        text = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in given.fields)
    try:
        return Schema.parse(text)
    except SchemaError as error:
        raise TypeMismatch(what=f"state '{name}': {error.what}", hint=error.hint) from None


class _Recorder:
    """The handle where the pipeline is built: takes note of what ``init`` asks for."""

    def __init__(self) -> None:
        self.asked: dict[str, _Asked] = {}

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._ask("value", stateName, (schema,), ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._ask("list", stateName, (schema,), ttlDurationMs)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: int | None = None
    ) -> Any:  # fmt: skip
        return self._ask("map", stateName, (userKeySchema, valueSchema), ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:
        """A state that ``init`` no longer asks for is left out of the next snapshot."""

    def _ask(self, kind: str, name: str, schemas: tuple[Any, ...], ttl_ms: int | None) -> Any:
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise TypeMismatch(what=f"{name!r} cannot be the name of a state.", hint="Use letters, digits and _.")
        parsed = tuple(schema_of(each, name) for each in schemas)
        self.asked[name] = _Asked(kind, name, parsed, ttl_ms)
        return self._made(self.asked[name])

    def _made(self, asked: _Asked) -> Any:
        return object()


class _Handle(_Recorder):
    """The handle on a worker: what it gives reaches the key that is being handled."""

    def __init__(self, mode: TimeMode) -> None:
        super().__init__()
        self.mode = mode
        self.ctx: Context | None = None
        self.held: Any = None

    @property
    def now_ms(self) -> int:
        """The clock."""
        assert self.ctx is not None
        return self.ctx.now_us // 1000

    def _made(self, asked: _Asked) -> Any:
        return {"value": _ValueState, "list": _ListState, "map": _MapState}[asked.kind](self, asked)

    def _timers(self) -> tuple[Context, Any]:
        if self.mode is TimeMode.NONE or self.ctx is None:
            raise PenstockError('there are no timers with time_mode="None", and none in init().')
        table = self.ctx._operator.table
        return self.ctx, table.timers if self.mode is TimeMode.EVENT_TIME else table.clock_timers

    def registerTimer(self, expiryTimestampMs: int) -> None:
        ctx, timers = self._timers()
        at_us = int(expiryTimestampMs) * 1000
        if self.mode is TimeMode.EVENT_TIME and at_us <= ctx.watermark_us:
            raise ValueError(f"timer {expiryTimestampMs} is not after the watermark, {ctx.watermark_us // 1000}")
        if not ctx.ending:  # the stream is over: what would come after it does not come
            timers.set(ctx.key, at_us)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        ctx, timers = self._timers()
        timers.cancel(ctx.key, int(expiryTimestampMs) * 1000)

    def listTimers(self) -> Iterator[int]:
        ctx, timers = self._timers()
        return iter([each // 1000 for each in sorted(timers.held.get(ctx.key, ()))])


class _OneState:
    """What the states of a processor share: where they are kept, and for how long."""

    def __init__(self, handle: _Handle, asked: _Asked) -> None:
        row = import_module("pyspark.sql").Row  # where a processor runs, PySpark is
        self._handle = handle
        self._name = asked.name
        self._ttl_ms = asked.ttl_ms
        self._times = [_Times(each) for each in asked.schemas]
        self._rows = [row(*each.names) for each in asked.schemas]

    @property
    def _kept(self) -> Any:
        if self._handle.ctx is None:
            raise PenstockError(f"state '{self._name}' is only there while rows or timers are handled.")
        return getattr(self._handle.held, self._name)

    @_kept.setter
    def _kept(self, value: Any) -> None:
        setattr(self._handle.held, self._name, value)

    def _expiry(self) -> int | None:
        return None if self._ttl_ms is None else self._handle.now_ms + self._ttl_ms

    def _lives(self, entry: Any) -> bool:
        return entry[0] is None or entry[0] > self._handle.now_ms

    def _shown(self, values: Any, of: int = 0) -> Any:
        return self._rows[of](*self._times[of].shown(values))

    def clear(self) -> None:
        """Forget it."""
        if self._handle.ctx is not None:
            self._kept = None


class _ValueState(_OneState):
    def exists(self) -> bool:
        return self.get() is not None

    def get(self) -> Any:
        kept = self._kept
        return self._shown(kept[1]) if kept is not None and self._lives(kept) else None

    def update(self, newValue: Any) -> None:
        self._kept = [self._expiry(), self._times[0].kept(newValue, self._name)]


class _ListState(_OneState):
    def _living(self) -> list[Any]:
        return [each for each in self._kept or () if self._lives(each)]

    def exists(self) -> bool:
        return bool(self._living())

    def get(self) -> Iterator[Any]:
        return iter([self._shown(each[1]) for each in self._living()])

    def put(self, newState: list[Any]) -> None:
        self._kept = [[self._expiry(), self._times[0].kept(each, self._name)] for each in newState]

    def appendValue(self, newState: Any) -> None:
        self.appendList([newState])

    def appendList(self, newState: list[Any]) -> None:
        added = [[self._expiry(), self._times[0].kept(each, self._name)] for each in newState]
        self._kept = self._living() + added if self._ttl_ms is not None else [*(self._kept or ()), *added]


class _MapState(_OneState):
    def _id(self, key: Any) -> bytes:
        return _encode(self._times[0].kept(key, self._name))

    def _entry(self, key: Any) -> Any:
        entry = (self._kept or {}).get(self._id(key))
        return entry if entry is not None and self._lives(entry) else None

    def _living(self) -> list[Any]:
        return [each for each in (self._kept or {}).values() if self._lives(each)]

    def exists(self) -> bool:
        return bool(self._living())

    def getValue(self, key: Any) -> Any:
        entry = self._entry(key)
        return None if entry is None else self._shown(entry[2], 1)

    def containsKey(self, key: Any) -> bool:
        return self._entry(key) is not None

    def updateValue(self, key: Any, value: Any) -> None:
        if self._kept is None:
            self._kept = {}
        kept_key, kept_value = self._times[0].kept(key, self._name), self._times[1].kept(value, self._name)
        self._kept[_encode(kept_key)] = [self._expiry(), kept_key, kept_value]

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        return iter([(self._shown(each[1]), self._shown(each[2], 1)) for each in self._living()])

    def keys(self) -> Iterator[Any]:
        return iter([key for key, _ in self.iterator()])

    def values(self) -> Iterator[Any]:
        return iter([value for _, value in self.iterator()])

    def removeKey(self, key: Any) -> None:
        if self._kept:
            self._kept.pop(self._id(key), None)


class SparkProcess(Process):
    """A processor of PySpark's as a process function.

    Parameters
    ----------
    schema, output, keys : Schema, Schema, tuple of str
        What comes in, what goes out, and the key's columns.
    """

    def __init__(
        self, processor: Any, schema: Schema, output: Schema, keys: tuple[str, ...], mode: TimeMode, rows: Rows
    ) -> None:
        self._processor = processor
        self._input, self._output = schema, output
        self._mode, self._form = mode, rows
        if rows is Rows.PANDAS:
            _pandas()  # found missing here, and not on a worker
        self._key_schema = Schema(tuple(schema.field(name) for name in keys))
        recorder = _Recorder()
        try:
            _copied(processor).init(recorder)
        except PenstockError:
            raise
        except Exception as error:
            what = f"init() of {type(processor).__name__} has failed: {type(error).__name__}: {error}."
            raise TypeMismatch(what=what) from error
        for each in recorder.asked.values():
            if each.ttl_ms is not None and mode is not TimeMode.PROCESSING_TIME:
                allowed = 'with time_mode="ProcessingTime", as in Spark'
                raise InvalidOption(option=f"ttlDurationMs of '{each.name}'", given=each.ttl_ms, allowed=allowed)
            ttl_us = None if each.ttl_ms is None else each.ttl_ms * 1000
            text = f"{each.kind} ({') of ('.join(schema.ddl for schema in each.schemas)})"
            setattr(self, each.name, State(_TYPES[each.kind], None, ttl_us, text))
        self._names = tuple(recorder.asked)

    def open(self) -> None:
        self._spark = import_module("pyspark.sql.streaming.stateful_processor")
        self._handle = _Handle(self._mode)
        self._processor = _copied(self._processor)
        self._processor.init(self._handle)
        self._row = import_module("pyspark.sql").Row(*self._input.names)
        self._times, self._key_times = _Times(self._input), _Times(self._key_schema)
        self._result_times = _Times(self._output)

    def on_batch(self, records: list[Record], ctx: Context) -> Iterator[Any]:
        """Hand a key its rows."""
        rows = [self._times.shown(record_dict(each).values()) for each in records]
        given: Iterator[Any] = iter([self._row(*each) for each in rows])
        if self._form is Rows.PANDAS:
            given = iter([_pandas().DataFrame(rows, columns=list(self._input.names))])
        return self._results(ctx, lambda key, times: self._processor.handleInputRows(key, given, times))

    def on_timer(self, at_us: int, ctx: Context) -> Iterator[Any]:
        info = self._spark.ExpiredTimerInfo(at_us // 1000)
        return self._results(ctx, lambda key, times: self._processor.handleExpiredTimer(key, times, info))

    def on_clock(self, at_us: int, ctx: Context) -> Iterator[Any]:
        return self.on_timer(at_us, ctx)

    def _results(self, ctx: Context, call: Callable[[Any, Any], Any]) -> Iterator[Any]:
        handle = self._handle
        handle.ctx, handle.held = ctx, self
        several = isinstance(ctx.key, tuple)
        key = tuple(self._key_times.shown(ctx.key if several else [ctx.key]))
        watermark_ms = ctx.watermark_us // 1000 if self._mode is TimeMode.EVENT_TIME else -1
        now_ms = handle.now_ms if self._mode is TimeMode.PROCESSING_TIME else -1
        try:
            for each in call(key, self._spark.TimerValues(now_ms, max(watermark_ms, 0))) or ():
                if self._form is Rows.PANDAS:
                    for values in each[list(self._output.names)].itertuples(index=False, name=None):
                        yield self._result_times.kept(tuple(map(_plain, values)), "result")
                else:
                    yield self._record(each)
        finally:
            handle.ctx = handle.held = None
        table = ctx._operator.table
        waits = ctx.key in table.timers.held or ctx.key in table.clock_timers.held
        if not waits and all(getattr(self, name) is None for name in self._names):
            table.forget(ctx.key)

    def _record(self, row: Any) -> Any:
        """A row as values in the order of the output's columns; rows that name theirs may have another order."""
        named = row.asDict() if getattr(row, "__fields__", None) else {}
        values = [named[name] for name in self._output.names] if named.keys() == set(self._output.names) else row
        return self._result_times.kept(values, "result")

    def close(self) -> None:
        self._processor.close()


def _plain(value: Any) -> Any:
    """A value of pandas as Python's; what is missing (NaN, NaT, NA) is null."""
    if value is None or isinstance(value, str | bool | int | bytes | list | tuple):
        return value
    if type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return None
    return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value


_TYPES = {
    "value": tuple[int | None, list[Any]] | None,
    "list": list[tuple[int | None, list[Any]]] | None,
    "map": dict[bytes, tuple[int | None, list[Any], list[Any]]] | None,
}


def _pandas() -> Any:
    try:
        return import_module("pandas")
    except ImportError as error:
        raise TypeMismatch(what="pandas is not installed.", hint="Install it, or give a processor of rows.") from error


def _copied(processor: Any) -> Any:
    """A processor of an instance's own."""
    try:
        return copy.deepcopy(processor)
    except Exception:
        return copy.copy(processor)


def is_processor(given: Any) -> bool:
    """Whether it is one of PySpark's processors."""
    return callable(getattr(given, "init", None)) and callable(getattr(given, "handleInputRows", None))
