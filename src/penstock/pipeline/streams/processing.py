"""Verbs that call a user's class with state for the records of each key, and the streams that come of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from penstock.checks import OneOf
from penstock.errors import InvalidOption, PenstockError, TypeMismatch
from penstock.operators import DEAD_LETTERS, LATE, MAIN, Process, Processing
from penstock.operators.keyed.process.spark import Rows, SparkProcess, TimeMode, is_processor, schema_of
from penstock.pipeline.streams.base import Builder, declared_time
from penstock.pipeline.streams.stream import Stream
from penstock.types import Schema


class ProcessVerbs(Builder):
    """What a keyed stream can do with a user's class."""

    def process(
        self,
        function: Process | type[Process],
        *,
        schema: str | Schema,
        outputs: Mapping[str, str | Schema] | None = None,
        time: str | None = None,
        order: str = "arrival",
        name: str | None = None,
        on_error: str = "fail",
    ) -> Processed:
        """Call a class for the records of each key; it keeps state, sets timers, and has any number of outputs.

        Parameters
        ----------
        function : Process
            A subclass of :class:`penstock.Process`, or an object of one.
        schema : str
            Schema of what its handlers yield, in Spark's DDL.
        outputs : mapping
            Schemas of further outputs by name; ``ctx.output(name, …)`` fills them, ``.output(name)`` is the stream.
        time : str
            The timestamp column that timers follow. Left out, it is the one that :meth:`with_watermark` has declared,
            if there is one. A record behind the watermark of its own partition is late: counted, not handled, and to
            be had as ``.late``.
        order : {"arrival", "time"}
            With ``"arrival"`` a record is handled when it comes, and timers fire when the watermark passes them. With
            ``"time"`` records and timers are handled in the order of event time (at one time timers first, then records
            by their columns), once the watermark has passed them: later, and the same in every run.

        Examples
        --------
        >>> class Pairs(ps.Process):                                          # doctest: +SKIP
        ...     waiting = ps.state.list(str)
        ...     def on_record(self, record, ctx):
        ...         self.waiting.append(record.item)
        ...         if len(self.waiting) == 2:
        ...             yield record.user, *self.waiting
        ...             ctx.forget()
        >>> bought.key_by("user").process(Pairs, schema="user string, first string, second string")  # doctest: +SKIP
        """
        made = function() if isinstance(function, type) and issubclass(function, Process) else function
        label = name or type(made).__name__.lower()
        if not isinstance(made, Process):
            raise TypeMismatch(
                what=f"{function!r} is not a process function.", operation=label, hint="Derive a class from ps.Process."
            )
        by_time = OneOf(Order).read("order", order, operation=label) is Order.TIME
        return self._process(made, schema, outputs, time, name, on_error, label, by_time=by_time)

    def transform_with_state(
        self,
        processor: Any,
        *,
        schema: Any,
        time_mode: str = "None",
        time: str | None = None,
        name: str | None = None,
        on_error: str = "fail",
    ) -> Processed:
        """Run a `StatefulProcessor` of PySpark's, as it is, on rows.

        Parameters
        ----------
        processor : StatefulProcessor
            An object; its ``init`` is also called here, on a copy, to know its states.
        schema : str or StructType
            Schema of the rows that it yields.
        time_mode : {"None", "ProcessingTime", "EventTime"}
            What its timers follow; with ``"EventTime"`` late rows are dropped, and to be had as ``.late``.
        time : str
            The timestamp column, where :meth:`with_watermark` has not declared one.

        The rows that it is given at once are those of its key that happen to come together: one, or many. Timestamps
        are naive and in UTC. An initial state is not supported.

        Examples
        --------
        >>> trips.key_by("car").transform_with_state(Stops(), schema="car string, stops int")  # doctest: +SKIP
        """
        return self._run_processor(processor, schema, time_mode, time, name, on_error, Rows.ROW)

    def transform_with_state_in_pandas(
        self,
        processor: Any,
        *,
        schema: Any,
        time_mode: str = "None",
        time: str | None = None,
        name: str | None = None,
        on_error: str = "fail",
    ) -> Processed:
        """Run a `StatefulProcessor` of PySpark's that takes and yields pandas data frames."""
        return self._run_processor(processor, schema, time_mode, time, name, on_error, Rows.PANDAS)

    def _run_processor(
        self,
        processor: Any,
        schema: Any,
        time_mode: str,
        time: str | None,
        name: str | None,
        on_error: str,
        rows: Rows,
    ) -> Processed:
        kind = processor if isinstance(processor, type) else type(processor)
        label = name or kind.__name__.lower()
        try:
            if isinstance(processor, type) or not is_processor(processor):
                what = f"{processor!r} is not a StatefulProcessor."
                raise TypeMismatch(what=what, hint="Give an object of one, such as MyProcessor().")
            mode = OneOf(TimeMode).read("time_mode", time_mode)
            column = None
            if mode is TimeMode.EVENT_TIME:
                column = time if time is not None else declared_time(self._from, self.schema)
                if column is None:
                    allowed = "None or ProcessingTime, as no event time is declared (with_watermark, or time=…)"
                    raise InvalidOption(option="time_mode", given=time_mode, allowed=allowed)
            output = schema_of(schema, "result")
            made = SparkProcess(processor, self.schema, output, self._keys, mode, rows)
        except PenstockError as error:
            raise error.at(label) from None
        return self._process(made, output, None, column, name, on_error, label, title=kind.__name__, guess=False)

    def _process(
        self,
        made: Process,
        schema: str | Schema,
        outputs: Mapping[str, str | Schema] | None,
        time: str | None,
        name: str | None,
        on_error: str,
        label: str,
        *,
        by_time: bool = False,
        title: str = "",
        guess: bool = True,
    ) -> Processed:
        if not any(getattr(type(made), each, None) is not getattr(Process, each, None) for each in _HANDLERS):
            what = f"{type(made).__name__} has neither on_record nor on_batch."
            raise TypeMismatch(what=what, operation=label)
        try:
            ports = tuple((port, Schema.parse(each)) for port, each in (outputs or {}).items())
            for port, _ in ports:
                if port in (MAIN, LATE, DEAD_LETTERS) or not port.isidentifier():
                    allowed = f"names other than {MAIN}, {LATE} and {DEAD_LETTERS}"
                    raise InvalidOption(option="outputs", given=port, allowed=allowed)
            column = time if time is not None or not guess else declared_time(self._from, self.schema)
            if by_time and column is None:
                allowed = "arrival, as no event time is declared (with_watermark, or time=…)"
                raise InvalidOption(option="order", given="time", allowed=allowed)
            operation = Processing(made, self._keys, Schema.parse(schema), ports, column, by_time, title)
            operation.layout  # noqa: B018 (names that cannot be states are refused here)
        except PenstockError as error:
            raise error.at(label) from None
        stream = self._unkeyed._then(operation, name, on_error)
        return Processed(stream if name else stream._renamed(label), operation, self.schema)


_HANDLERS = ("on_record", "on_batch")


class Order(Enum):
    """In which order a process function is given records and timers."""

    ARRIVAL = "arrival"
    TIME = "time"


class Processed(Stream):
    """What a process function yields, with its other outputs beside it."""

    def __init__(self, stream: Stream, operation: Processing, schema: Schema) -> None:
        super().__init__(stream._from, MAIN, operation.output)
        self._operation = operation
        self._input_schema = schema

    def output(self, name: str) -> Stream:
        """Another output, by its name in ``outputs=``."""
        ports = dict(self._operation.outputs)
        if name not in ports:
            raise InvalidOption(
                option="output", given=name, allowed=", ".join(ports) or "nothing", operation=self._from.node.name
            )
        return self._stream(self._from, name, ports[name])

    @property
    def late(self) -> Stream:
        """The records that came behind the watermark of their partition, whole."""
        if self._operation.time is None:
            raise TypeMismatch(what="without event time no record is late.", operation=self._from.node.name)
        return self._stream(self._from, LATE, self._input_schema)
