"""Tables of the report as HTML: measurements, components, checks, recoveries, claims, settings. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

from penstock_bench.meter.rows import Check, Claim, Header, ResultRow
from penstock_bench.report.general import COMPONENTS
from penstock_bench.report.losses import Loss
from penstock_bench.report.words import UNKNOWN, figures, label, ms, number, spread


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
    groups: dict[tuple[str, str, float | None, str], list[ResultRow]] = {}
    for row in rows:
        kind = "max" if row.sustained_eps or row.capacity_eps else ""
        ours = f", {row.variant}" if row.engine == "penstock" and row.variant not in ("", row.form) else ""
        groups.setdefault((row.workload, label(row) + ours, row.rate, kind), []).append(row)
    shown, lines = figures("rate", "throughput_eps"), []
    heads = ["workload", "form or engine", "events/s", "runs", *shown.values(), "exact"]
    for (workload, key, rate, _), runs in groups.items():
        told = [spread((getattr(row, name) for row in runs), ms if "_ms" in name else number) for name in shown]
        lines.append([escape(workload), escape(key), number(rate), str(len(runs)), *told, _exact(runs)])
    return table(heads, lines, words=2)


def _exact(runs: Sequence[ResultRow]) -> str:
    if all(row.lost is None for row in runs):
        return UNKNOWN
    bad = sum(sum(row.faults.values()) for row in runs)
    return f'<span class="bad">{bad:,} wrong</span>' if bad else '<span class="good">yes</span>'


def notes(rows: Sequence[ResultRow]) -> str:
    """What the rows' notes say, each once."""
    found = dict.fromkeys(f"{row.workload}, {label(row)}: {row.note}" for row in rows if row.note)
    return "".join(f"<li>{escape(each)}</li>" for each in found)


def engines(rows: Sequence[ResultRow]) -> dict[str, object]:
    """Versions of the engines, and every setting of theirs that is not their default."""
    found: dict[str, object] = {}
    for row in rows:
        if row.version or (row.settings and row.engine != "penstock"):
            told = ", ".join(f"{name} = {_value(value)}" for name, value in row.settings.items())
            found[label(row)] = f"{row.version}; {told}".strip("; ")
    return found


def components(rows: Sequence[ResultRow]) -> str:
    """The components of latency as the papers' tables show them."""
    known = [row for row in rows if row.components_ms]
    lines = []
    for row in known:
        parts = [*(row.components_ms.get(each, 0.0) for each in COMPONENTS), sum(row.components_ms.values())]
        lines.append([escape(row.workload), escape(label(row)), number(row.rate), *map(ms, parts)])
    heads = ["workload", "form", "events/s", *(f"{each} ms" for each in (*COMPONENTS, "sum"))]
    return table(heads, lines, words=2) if known else ""


def checks(found: Sequence[Check]) -> str:
    """Figures with a target."""
    lines = []
    for each in found:
        value = (ms if each.unit.startswith("ms") else number)(each.value)
        lines.append([escape(_named(each)), value, escape(each.unit), escape(each.target), _met(each.met)])
    return table(["figure", "value", "unit", "target", "met"], lines, numbers=[1]) if found else ""


def _named(check: Check) -> str:
    rate_eps = check.detail.get("rate_eps")
    return f"{check.name} at {number(rate_eps)} events/s" if isinstance(rate_eps, int | float) else check.name


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
    by_place: dict[str, list[str]] = {}
    for each in found:
        by_place.setdefault(each.where, []).append(each.what)
    parts = (
        f"<h3>{escape(where)}</h3><ul>{''.join(f'<li>{escape(what)}</li>' for what in dict.fromkeys(told))}</ul>"
        for where, told in by_place.items()
    )
    return "".join(parts)


def header(found: Header, rows: Sequence[ResultRow] = ()) -> str:
    """Machine, versions and settings."""
    facts: dict[str, object] = {
        "machine": f"{found.machine}, {found.cores} cores, {found.memory_gb:g} GB",
        "penstock": found.penstock,
        "python": found.python,
        "spark": found.spark,
        "pyarrow": found.pyarrow,
        "java": found.java,
    }
    # A setting may have the name of a program whose version is told too.
    told = [*facts.items(), *found.settings.items(), *engines(rows).items()]
    return (
        "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(_value(value))}</dd>" for name, value in told) + "</dl>"
    )


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_value(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
