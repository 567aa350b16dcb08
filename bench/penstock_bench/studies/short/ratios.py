"""Ratios between rows of one run: machines differ from day to day, two rows of one run much less."""

from __future__ import annotations

from penstock.pipeline.options import Forms
from penstock_bench.meter.rows import Check, ResultRow, Results

RECORD, BATCH, ADAPTIVE = Forms.RECORD.value, Forms.BATCH.value, Forms.ADAPTIVE.value


def compared(results: Results) -> list[Check]:
    """Compare forms with each other, and with the peer, as far as the run has measured them."""
    return [each for each in (*_throughput(results.rows), *_calm(results.rows)) if each is not None]


def _throughput(rows: list[ResultRow]) -> list[Check | None]:
    sustained: dict[tuple[str, str, str], float] = {}
    for r in rows:
        if r.sustained_eps:
            place = r.workload, r.engine, r.form
            sustained[place] = max(sustained.get(place, 0.0), r.sustained_eps)
    carried = {(r.workload, r.form): r.capacity_eps for r in rows if r.capacity_eps}
    best: dict[tuple[str, str], float] = {}
    for (workload, engine, _), eps in sustained.items():
        best[workload, engine] = max(best.get((workload, engine), 0.0), eps)
    batch = sustained.get(("yahoo", "penstock", BATCH))
    return [
        _check("yahoo: sustained in batch form", batch, "events/s", "at least 1,500,000", 1_500_000),
        _ratio(
            "yahoo: sustained in batch form against Structured Streaming's best",
            batch,
            best.get(("yahoo", "spark")),
            4.0,
        ),
        *(
            _ratio(
                f"{workload}: sustained in the better form against Structured Streaming",
                best.get((workload, "penstock")),
                best.get((workload, "spark")),
                1.0,
            )
            for workload in ("wordcount", "grep")
        ),
        _ratio(
            "yahoo: carried in adaptive form against batch form",
            carried.get(("yahoo", ADAPTIVE)),
            carried.get(("yahoo", BATCH)),
            0.95,
        ),
        _ratio(
            "scoring: carried in batch form against record form",
            carried.get(("scoring", BATCH)),
            carried.get(("scoring", RECORD)),
            10.0,
        ),
    ]


def _calm(rows: list[ResultRow]) -> list[Check | None]:
    p50 = {(r.engine, r.form, r.rate): r.p50_ms for r in rows if r.workload == "yahoo" and r.p50_ms and r.rate}
    p99 = {(r.engine, r.form, r.rate): r.p99_ms for r in rows if r.workload == "yahoo" and r.p50_ms and r.rate}
    found: list[Check | None] = []
    for rate in (4_000.0, 20_000.0):
        record, adaptive, batch = (p99.get(("penstock", form, rate)) for form in (RECORD, ADAPTIVE, BATCH))
        at = f"yahoo at {rate:,.0f}/s"
        if record and adaptive:
            share = adaptive / record
            name = f"{at}: p99 in adaptive form against record form"
            target = "at most 1.1"
            found.append(Check(name=name, value=round(share, 3), unit="times", target=target, met=share <= 1.1))
        found.append(_ratio(f"{at}: p99 in batch form against adaptive form", batch, adaptive, 5.0))
    theirs = next((ms for (engine, _, rate), ms in p50.items() if engine == "spark" and rate == 4_000.0), None)
    found.append(
        _ratio(
            "yahoo at 4,000/s: p50 of Structured Streaming against adaptive form",
            theirs,
            p50.get(("penstock", ADAPTIVE, 4_000.0)),
            5.0,
        )
    )
    return found


def _check(name: str, value: float | None, unit: str, target: str, least: float) -> Check | None:
    if value is None:
        return None
    return Check(name=name, value=round(value), unit=unit, target=target, met=value >= least)


def _ratio(name: str, value: float | None, base: float | None, least: float) -> Check | None:
    if not value or not base:
        return None
    share = value / base
    return Check(name=name, value=round(share, 3), unit="times", target=f"at least {least:g}", met=share >= least)
