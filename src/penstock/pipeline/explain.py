"""A plan as text for people: units, operations with their forms, schemas and edges; `penstock explain` prints it."""

from __future__ import annotations

import textwrap

from penstock.durations import format_us
from penstock.operators import MAIN, BatchKind, ErrorPolicy
from penstock.operators.alternatives import Alternatives
from penstock.pipeline.plan import EdgeSpec, Mode, OpSpec, Plan, UnitSpec

_INDENT = " " * 6
_NAME_WIDTH_MAX = 28
_GLUE = "\xa0"
_FORMS = {
    BatchKind.VECTORISED: "record, batch (vectorised)",
    BatchKind.LOOP: "record, batch (loop)",
    BatchKind.NONE: "record",
    BatchKind.ONLY: "batch (Spark SQL)",
}


def explain_plan(plan: Plan, width: int = 100) -> str:
    """Describe a plan in lines of at most ``width`` characters, where names allow it."""
    return "\n".join(_Explanation(plan, width).lines())


class _Explanation:
    def __init__(self, plan: Plan, width: int) -> None:
        self._plan = plan
        self._width = max(width, 40)
        names = [name for unit in plan.units for name in (unit.name, *(op.name for op in unit.ops))]
        kinds = [op.operation.kind for unit in plan.units for op in unit.ops]
        kinds += [unit.source.kind for unit in plan.units if unit.source is not None]
        self._name_width = min(max(map(len, names)), _NAME_WIDTH_MAX)
        self._kind_width = max([len("merge"), *map(len, kinds)])

    def lines(self) -> list[str]:
        options = self._plan.options
        workers, most = _count(self._plan.workers, "worker"), self._plan.options.workers_most
        workers = f"{self._plan.workers} to {most} workers, by load" if most else workers
        found = [f"{options.name}: {workers}, a commit every {format_us(options.epoch_us)}, Spark on {options.master}"]
        if self._plan.replicas:
            found.append(f"{self._plan.replicas} replicas stand by for operations that workers cannot carry alone.")
        found.append("Each unit is a chain of operations that runs in one process, one chain per instance.")
        for unit in self._plan.units:
            found += ["", *self._unit(unit)]
        return found

    def _unit(self, unit: UnitSpec) -> list[str]:
        places = _count(unit.instances, "instance")
        read = f" reading {_count(unit.partitions, 'partition')}" if unit.source is not None else ""
        found = [f"unit {unit.id}, {places}{read}"]
        if unit.source is not None:
            found += self._step(unit.name, unit.source.kind, _plain_forms(unit, -1), "", unit.schema.ddl)
        elif not unit.ops or unit.name != unit.ops[0].name:
            found += self._step(unit.name, "merge", "record", "", unit.schema.ddl)
        found += [*self._timing(unit, 0), *self._edges(unit, -1)]
        for index in range(len(unit.ops)):
            found += self._operation(unit, index)
            found += [*self._timing(unit, index + 1), *self._edges(unit, index)]
        return found

    @staticmethod
    def _timing(unit: UnitSpec, index: int) -> list[str]:
        timing = unit.timing
        return [f"{_INDENT}event time: {timing.column}"] if timing is not None and timing.index == index else []

    def _operation(self, unit: UnitSpec, index: int) -> list[str]:
        op = unit.ops[index]
        operation = op.operation
        if op.sink is not None:
            return self._step(op.name, operation.kind, _plain_forms(unit, index), "", "")
        forms = _FORMS[operation.batch_kind]
        if op.on_error is not ErrorPolicy.FAIL:
            forms += f"; on error {op.on_error.value.replace('_', ' ')}"
        if op.replicas is not None:
            least, most = op.replicas
            forms += f"; {_count(most, 'replica') if least == most else f'{least} to {most} replicas'}"
        if operation.choice is not None:
            return self._alternatives(op, operation.choice)
        told = operation.describe()
        return self._step(
            op.name, operation.kind, forms, "" if told in (op.name, op.output.ddl) else told, op.output.ddl
        )

    def _alternatives(self, op: OpSpec, of: Alternatives) -> list[str]:
        found = self._step(op.name, op.operation.kind, _FORMS[op.operation.batch_kind], "", "")
        for each in of.alternatives:
            found += self._wrapped(each.describe(), f"{'●' if each.name == of.active else '○'} {each.name}: ")
        if of.prefer:
            target = f", within {format_us(of.latency_us)}" if of.latency_us is not None else ""
            found += self._wrapped(f"prefers {' to '.join(of.prefer)}{target}", "")
        return found + self._wrapped(op.output.ddl, "→ ")

    def _step(self, name: str, kind: str, forms: str, told: str, output: str) -> list[str]:
        found = [f"  {name:<{self._name_width}}  {kind:<{self._kind_width}}  {forms}"]
        if told:
            found += self._wrapped(told, "")
        if output:
            found += self._wrapped(output, "→ ")
        return found

    def _wrapped(self, text: str, lead: str) -> list[str]:
        # Lines break after commas only: the words of one column or expression stay together.
        kept = text.replace(" ", _GLUE).replace(f",{_GLUE}", ", ").replace(f";{_GLUE}", "; ")
        wrapped = textwrap.wrap(
            kept,
            self._width,
            initial_indent=_INDENT + lead,
            subsequent_indent=_INDENT + " " * len(lead),
            break_on_hyphens=False,
        )
        return [line.replace(_GLUE, " ") for line in wrapped]

    def _edges(self, unit: UnitSpec, index: int) -> list[str]:
        return [self._edge(unit, edge) for edge in self._plan.outputs(unit.id) if edge.op_index == index]

    def _edge(self, unit: UnitSpec, edge: EdgeSpec) -> str:
        target = self._plan.units[edge.consumer]
        how = edge.mode.value
        if edge.mode is Mode.SHUFFLE:
            how += f" by {', '.join(edge.user_keys)}"
        port = "" if edge.port == MAIN else f"{edge.port.replace('_', ' ')}: "
        first = target.ops[0].name if target.ops else target.name
        name = target.name if target.name == first or not target.ops else f"{target.name}, {first}"
        behind = f"; watermark {format_us(edge.delay_us)} behind event time" if edge.delay_us else ""
        return f"  ⇒ {port}{how} to unit {target.id} ({name}){behind}"


def _plain_forms(unit: UnitSpec, index: int) -> str:
    """The forms of a source or a sink: in batch form, tasks read their share, or prepare what is written."""
    return "record, batch" if index in unit.movable else "record"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
