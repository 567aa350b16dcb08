"""The half of a join before the shuffle: brings a side to the schema of both; keeps nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.checks import OneOf
from penstock.errors import BadRecord, InvalidOption
from penstock.operators.base import BatchForm, BatchResult, Operation, Operator
from penstock.operators.errors import Errors
from penstock.operators.loop import compile_loop
from penstock.types import Schema, attribute

if TYPE_CHECKING:
    from penstock.operators.keyed.join import Join


class Side(Enum):
    """Where a record of a join comes from."""

    LEFT = "left"
    RIGHT = "right"


class JoinHow(Enum):
    """Which records of a join are sent on without a partner: none, those of one side, or all."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    def keeps(self, side: Side) -> bool:
        """Whether a side's records without a partner are sent on."""
        return self is JoinHow.FULL or self.value == side.value

    @property
    def keeps_left(self) -> bool:
        """Whether those of the left side are."""
        return self.keeps(Side.LEFT)

    @property
    def keeps_right(self) -> bool:
        """Whether those of the right side are."""
        return self.keeps(Side.RIGHT)

    @staticmethod
    def read(given: object) -> JoinHow:
        """Read the option; Spark's other words for them are known."""
        word = str(given).lower().replace("_", "")
        if word in _WITHOUT:
            raise InvalidOption(option="how", given=given, allowed=f"{_ALL}.{_WITHOUT[word]}".rstrip("."))
        return OneOf(JoinHow).read("how", _SPARK_WORDS.get(word, word if isinstance(given, str) else given))


_ALL = ", ".join(how.value for how in JoinHow)
_SPARK_WORDS = {"outer": "full", "fullouter": "full", "leftouter": "left", "rightouter": "right"}
_ANTI = ' Use how="left", and filter(…) those whose partner is null.'
_WITHOUT = {
    **dict.fromkeys(("semi", "leftsemi", "cross"), ""),
    **dict.fromkeys(("anti", "leftanti"), _ANTI),
}
"""Joins of Spark's that are not there, and what does their work."""


def _no_time(column: str) -> None:
    raise BadRecord(f"the join's time column '{column}' is null.")


@dataclass(frozen=True)
class Tag(Operation):
    """Before the shuffle: brings one side to the schema of both, and leaves out what can match nothing."""

    of: Join
    left: Schema
    right: Schema
    side: Side
    kind = "tag"

    @property
    def _time(self) -> str:
        return self.of.left_time if self.side is Side.LEFT else self.of.right_time

    @property
    def _needed(self) -> list[str]:
        """Key columns whose nulls are left out here: a null equals nothing, but an outer side is shown anyway."""
        if self.of.how.keeps(self.side):
            return []
        schema = self.left if self.side is Side.LEFT else self.right
        return [key for key in self.of.keys if schema.field(key).nullable]

    def bind(self, schema: Schema) -> Schema:
        del schema
        return self.of.tagged(self.left, self.right)

    def build(self, schema: Schema, errors: Errors) -> Operator:
        output = self.bind(schema)
        own = [f"r.{attribute(field.name)}" for field in self.of.plain_columns(schema, self.side)]
        nulls = ["None"] * (len(output) - 2 - len(self.of.keys) - len(own))
        right = self.side is Side.RIGHT
        values = [
            str(right),
            *(f"r.{attribute(key)}" for key in self.of.keys),
            "t",
            *(nulls + own if right else own + nulls),
        ]
        body = [f"t = r.{attribute(self._time)}", f"if t is None: no_time({self._time!r})"]
        body += [f"if r.{attribute(key)} is None: continue" for key in self._needed]
        body.append(f"append(U({', '.join(values)}))")
        process = compile_loop(errors.operation, body, {"U": output.record_type, "no_time": _no_time}, errors)
        return Operator(process, schema=schema, output=output, vectorised=self._vectorised(schema, output))

    def _vectorised(self, schema: Schema, output: Schema) -> BatchForm:
        time, needed, keys = self._time, self._needed, self.of.keys
        own = [field.name for field in self.of.plain_columns(schema, self.side)]
        right = self.side is Side.RIGHT
        others = output.fields[2 + len(keys) :]
        others = others[: len(others) - len(own)] if right else others[len(own) :]

        def vectorised(batch: pa.RecordBatch) -> BatchResult:
            if batch.column(time).null_count:
                raise BadRecord("a join's time is null.")
            for key in needed:
                if batch.column(key).null_count:
                    batch = batch.filter(pc.is_valid(batch.column(key)))
            count = batch.num_rows
            mine = [batch.column(name) for name in own]
            nulls = [pa.nulls(count, field.type.arrow) for field in others]
            tags = [pa.array(np.full(count, right)), *(batch.column(key) for key in keys), batch.column(time)]
            columns = [*tags, *(nulls + mine if right else mine + nulls)]
            return BatchResult(pa.RecordBatch.from_arrays(columns, schema=output.arrow))

        return vectorised

    def describe(self) -> str:
        return f"{self.side.value} side by {', '.join(self.of.keys)}, time {self._time}"
