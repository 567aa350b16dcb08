"""Tables of the report as HTML: measurements, components, checks, recoveries, claims, settings. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

from penstock_bench.meter.rows import Check, Claim, Header, ResultRow
from penstock_bench.report.general import COMPONENTS
from penstock_bench.report.losses import Loss
from penstock_bench.report.words import UNKNOWN, figures, grouped, label, ms, number, spread


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1, numbers: Collection[int] | None = None
) -> str:
    """Build a table whose first ``words`` columns are words, the others, or those given, numbers; cells are HTML."""
    right = range(words, len(heads)) if numbers is None else numbers
    kinds = [' class="n"' if i in right else "" for i in range(len(heads))]
    top = "".join(f"<th{kind}>{escape(head)}</th>" for kind, head in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def measurements(rows: Sequence[ResultRow]) -> str:
    """Every measurement; repetitions as their median with the least and the largest."""

    def named(row: ResultRow) -> str:
        ours = row.engine == "penstock" and row.variant not in ("", row.form)
        return f"{label(row)}, {row.variant}" if ours else label(row)

    shown, lines = figures("rate", "throughput_eps"), []
    for (workload, key, rate, _), runs in grouped(rows, "workload", named, "rate", _is_maximum).items():
        told = [spread((getattr(row, name) for row in runs), ms if "_ms" in name else number) for name in shown]
        lines.append([escape(workload), escape(key), number(rate), str(len(runs)), *told, _exact(runs)])
    heads = ["workload", "form or engine", "events/s", "runs", *shown.values(), "exact"]
    return table(heads, lines, words=2)


def _is_maximum(row: ResultRow) -> bool:
    return bool(row.sustained_eps or row.capacity_eps)


def _exact(runs: Sequence[ResultRow]) -> str:
    if all(row.lost is None for row in runs):
        return UNKNOWN
    bad = sum(sum(row.faults.values()) for row in runs)
    return f'<span class="bad">{bad:,} wrong</span>' if bad else '<span class="good">yes</span>'


def items(words: Iterable[str]) -> str:
    """Items of a list."""
    return "".join(f"<li>{escape(each)}</li>" for each in words)


def notes(rows: Sequence[ResultRow]) -> str:
    """What the rows' notes say, each once."""
    return items(dict.fromkeys(f"{row.workload}, {label(row)}: {row.note}" for row in rows if row.note))


def engines(rows: Sequence[ResultRow]) -> dict[str, object]:
    """Versions of the engines, and every setting of theirs that is not their default."""
    return {
        label(row): f"{row.version}; {_value(row.settings)}".strip("; ")
        for row in rows
        if row.version or (row.settings and row.engine != "penstock")
    }


def components(rows: Sequence[ResultRow]) -> str:
    """The components of latency as the papers' tables show them."""
    lines = []
    for row in (row for row in rows if row.components_ms):
        parts = [*(row.components_ms.get(each, 0.0) for each in COMPONENTS), sum(row.components_ms.values())]
        lines.append([escape(row.workload), escape(label(row)), number(row.rate), *map(ms, parts)])
    heads = ["workload", "form", "events/s", *(f"{each} ms" for each in (*COMPONENTS, "sum"))]
    return table(heads, lines, words=2) if lines else ""


def checks(found: Sequence[Check]) -> str:
    """Figures with a target."""
    lines = []
    for each in found:
        rate_eps = each.detail.get("rate_eps")
        name = f"{each.name} at {number(rate_eps)} events/s" if isinstance(rate_eps, int | float) else each.name
        value = (ms if each.unit.startswith("ms") else number)(each.value)
        lines.append([escape(name), value, escape(each.unit), escape(each.target), _met(each.met)])
    return table(["figure", "value", "unit", "target", "met"], lines, numbers=[1]) if found else ""


def _met(met: bool | None) -> str:
    return {True: '<span class="good">yes</span>', False: '<span class="bad">no</span>', None: UNKNOWN}[met]


def claims(found: Sequence[Claim]) -> str:
    """What papers claim beside what was measured."""
    lines = [[escape(c.source), escape(c.claimed), escape(c.measured), _met(c.holds)] for c in found]
    return table(["paper", "claimed, on what", "measured here", "holds"], lines, numbers=()) if found else ""


def losses(found: Sequence[Loss]) -> str:
    """The list of what is worse than it should be."""
    if not found:
        return (
            "<p>Nothing was found: no target was missed, and where the adaptive form was measured, no other form or "
            "engine was better by more than a tenth.</p>"
        )
    by_place: dict[str, dict[str, None]] = {}
    for where, what in found:
        by_place.setdefault(where, {})[what] = None
    return "".join(f"<h3>{escape(where)}</h3><ul>{items(told)}</ul>" for where, told in by_place.items())


def header(found: Header, rows: Sequence[ResultRow] = ()) -> str:
    """Machine, versions and settings."""
    facts = {"machine": f"{found.machine}, {found.cores} cores, {found.memory_gb:g} GB"}
    facts |= {name: getattr(found, name) for name in ("penstock", "python", "spark", "pyarrow", "java")}
    # A setting may have the name of a program whose version is told too.
    told = [*facts.items(), *found.settings.items(), *engines(rows).items()]
    terms = (f"<dt>{escape(name)}</dt><dd>{escape(_value(value))}</dd>" for name, value in told)
    return f"<dl>{''.join(terms)}</dl>"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_value(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
