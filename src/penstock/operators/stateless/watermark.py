"""The declaration of a stream's event time; nothing runs for it, the planner reads it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.durations import format_us
from penstock.operators.base import Operation
from penstock.operators.keyed.windows import check_time
from penstock.types import Schema


@dataclass(frozen=True)
class Watermark(Operation):
    """The watermark trails the largest time of ``column`` in each source partition by ``delay_us``."""

    column: str
    delay_us: int
    kind = "with_watermark"

    def bind(self, schema: Schema) -> Schema:
        check_time(schema, self.column, "the watermark's time column")
        return schema

    def column_of(self, column: str, schema: Schema) -> str:
        del schema
        return column

    @property
    def declared_time(self) -> tuple[str, int]:
        return self.column, self.delay_us

    def describe(self) -> str:
        return f"{self.column}, {format_us(self.delay_us) if self.delay_us else '0'}"
