"""A job's figures as plain text: one line while it runs without a terminal, and the last lines of a run."""

from __future__ import annotations

from penstock.control.monitor import Status
from penstock.dashboard.numbers import human, measure, span
from penstock.runtime.report import Latency, Report, Totals


def progress(status: Status, sources: set[str], sinks: set[str], measured: list[str]) -> str:
    """One line on a running job, given the names of its sources and sinks and where latency is taken."""
    read = [each for each in status.operations if each.name in sources]
    written = [each for each in status.operations if each.name in sinks]
    seen = [each for each in status.operations if each.name in measured and each.in_eps > 0 and each.p99_ms > 0]
    parts = [
        f"{status.job} {status.phase} {span(status.uptime_s)}",
        f"in {human(sum(each.records_in for each in read))} ({human(sum(each.in_eps for each in read))}/s)",
        f"out {human(sum(each.records_in for each in written))}",
        f"waiting {human(sum(each.queue_records for each in status.operations))}",
    ]
    if seen:
        p50_ms, p99_ms = max(each.p50_ms for each in seen), max(each.p99_ms for each in seen)
        parts.append(f"latency p50 {measure(p50_ms)} ms p99 {measure(p99_ms)} ms")
    if status.waiting:
        parts.append(f"waits for {'; '.join(status.waiting)}")
    return "  ".join(parts)


def last_lines(report: Report) -> list[str]:
    """The outcome of a finished job."""
    rate = f"   ({human(report.events_in / report.seconds)}/s)" if report.seconds else ""
    rows = [
        ("events in", f"{report.events_in:,}{rate}"),
        ("results out", f"{report.results_out:,}"),
        ("lost", f"{report.lost:,}"),
        ("duplicated", f"{report.duplicated:,}"),
        ("reordered", f"{report.reordered:,}"),
        ("late", f"{report.late:,}"),
        *([("skipped", f"{report.skipped:,}")] if report.skipped else []),
        *([("timed out", f"{report.timed_out:,}")] if report.timed_out else []),
        *([("over bound", f"{report.over_bound:,}")] if report.over_bound else []),
        ("dead letters", f"{report.dead_letters:,}"),
        ("latency", _latency(report.latency_ms)),
        *([("made of", "   ".join(parts))] if (parts := _components(report)) else []),
        ("switches", _switches(report)),
        ("seconds", f"{report.seconds:.1f}"),
        *([("in all runs", _total(report.total))] if report.total is not None and report.total.runs > 1 else []),
    ]
    return [f"{name:<13} {value}" for name, value in rows]


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "not measured: no records came"
    return f"p50 {measure(latency.p50)} ms   p99 {measure(latency.p99)} ms   max {measure(latency.max)} ms"


def _total(total: Totals) -> str:
    return (
        f"{total.events_in:,} in   {total.results_out:,} out   "
        f"{span(total.seconds)} since the first of {total.runs:,} starts"
    )


def _components(report: Report) -> list[str]:
    """The parts of the mean latency that are more than nothing."""
    return [f"{name} {measure(mean)} ms" for name, mean in report.components_ms.items() if mean >= 0.005]


def _switches(report: Report) -> str:
    advised = f"   {len(report.adaptation.advice):,} advised" if report.adaptation and report.adaptation.advice else ""
    if not report.switches:
        return f"0{advised}"
    longest = max(each.pause_ms for each in report.switches)
    return f"{len(report.switches):,}   (longest pause {measure(longest)} ms){advised}"
