"""Replicas that follow the load (PS, section V): the paper's tables, and its law beside ours, DS2 and a threshold.

Two kinds of rows. *model*: every record through queues in made-up time (`queueing`), the load at its own speed, all
tables. *engine*: a real job whose functions wait as the paper's do, the load sped up so that two cores carry it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.pipeline.options import ReplicaLaw
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.report.chart import Figure, Line, Lines, figure
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import Column, Desk, Study, Table, at_least, at_most, data_of, fields, machine, table
from penstock_bench.studies.replica_jobs import POOL, TD, Replay, Replayed, replay
from penstock_bench.studies.replica_rows import (
    COMPLEX,
    ENGINE,
    FIXED,
    LAWS,
    MEAN_EPS,
    MEAN_SHORT_EPS,
    MODEL,
    OURS_NAME,
    P99_MAX,
    RESTART_S,
    SAVED_MIN,
    STRETCH_S,
    Load,
    Run,
    Scene,
    laws,
    load_of,
    other_tables,
    paper_tables,
    run_of,
)
from penstock_bench.studies.traces import NAMES, RAW, Trace, find_traces

SHORT_TABLES = ("IV", "VII", "VIII", "X")
SHORT_S = 1_080
"""Seconds of the recording that the short set's jobs replay."""
QUICK_S = 120
SPEED = 30.0
"""Jobs replay a load so many times faster than it was recorded."""
MAIN = "twitter"
_CHOOSES = (1, POOL)
JOBS = (
    Replay(FIXED, POOL),
    Replay(OURS_NAME, _CHOOSES, {"replica_interval": TD}),
    Replay("Penstock, td = 1 s", _CHOOSES, {"replica_interval": "1s"}),
    Replay("Penstock, shuffle", _CHOOSES, {"replica_interval": TD, "grouping": "shuffle"}),
    Replay("DS2", _CHOOSES, {"replica_interval": TD}, ReplicaLaw.DS2),
    Replay("threshold", _CHOOSES, {"replica_interval": TD}, ReplicaLaw.THRESHOLD),
    Replay("r = 4", POOL // 2),
    Replay("r = 1", POOL // 8),
)
DROPPING = (
    *(
        Replay(f"t_out = {each}", _CHOOSES, {"replica_interval": "1s", "event_timeout": each}, table="V")
        for each in ("100ms", "500ms")
    ),
    *(
        Replay(f"q_size = {each}", _CHOOSES, {"replica_interval": "1s", "queue_bound": each}, table="VI")
        for each in (10, 50)
    ),
)
"""Jobs that drop what waits for too long, or what is too much; td is the paper's, sped up like the load."""
DROPPING_S = 540
"""Seconds of the recording that they replay."""


class Replicas(Study):
    """See the module."""

    name = "replicas"
    title = "Replicas that follow the load"
    after = "PS, tables IV to XII"
    method = (
        "Four operations of equal service times, chosen so that the load's peak keeps 7.77 of 8 replicas of each busy, "
        "which follows from the paper's table VIII; it prints no service times. Rows marked 'model' are simulated "
        "record by record in made-up time, the load at its own speed: they have no costs but queues. Rows marked "
        f"'engine' are real jobs whose functions wait; the load is {SPEED:g} times faster; r = 8 are all {POOL} "
        "replicas, each of which runs the whole chain. "
        f"A restart takes {RESTART_S:g} s and loses what is queued, as in DABS-Storm."
    )
    beside = POOL

    def run(self, desk: Desk) -> None:
        traces = {each.name: each for each in find_traces(desk.options.traces, (*NAMES, RAW))}
        seconds = desk.choose(STRETCH_S, STRETCH_S, QUICK_S)
        mean_eps = desk.choose(MEAN_EPS, MEAN_SHORT_EPS, MEAN_SHORT_EPS)

        def keep(found: Iterable[Scene]) -> None:
            for scene in found:
                desk.append("scenes", scene)
                desk.say(f"         {_told(scene)}")

        def simulate(name: str, rows: Sequence[Run], load: Load) -> None:
            desk.tell(f"table {name}, {load.name}, model")
            keep(run_of(run, load, name) for run in rows)

        main = traces.get(MAIN) or next(iter(traces.values()))
        for trace in (main,) if desk.options.short or desk.options.quick else traces.values():
            desk.tell(f"laws side by side, {trace.name} ({trace.origin}), model")
            keep(side_by_side(load_of(trace, seconds, mean_eps=mean_eps)))
        load = load_of(main, seconds, mean_eps=mean_eps)
        for name, rows in paper_tables().items():
            if name in desk.choose(tuple(paper_tables()), SHORT_TABLES, SHORT_TABLES[-1:]):
                simulate(name, rows, load)
        keep(real_jobs(desk, main))
        if not (desk.options.short or desk.options.quick):
            for name, (trace_name, over, rows) in other_tables().items():
                if trace_name in traces:
                    simulate(name, rows, _other(name, traces[trace_name], over, seconds))

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        scenes = data_of(results, "scenes", list[Scene])
        for where in (MODEL, ENGINE):
            found = {each.name: each for each in scenes if (each.table, each.load, each.where) == (LAWS, MAIN, where)}
            if OURS_NAME not in found or FIXED not in found:
                continue
            own, over = found[OURS_NAME], found[FIXED]
            times = own.p99_ms / over.p99_ms if over.p99_ms else 0.0
            at = f"{MAIN}, {where}"
            yield at_least(f"{at}: saved", own.saved, "of r_over", SAVED_MIN, digits=4)
            yield at_most(f"{at}: p99 against over-provisioned", times, "times", P99_MAX)
            left = 1.0 - own.processed + (own.dropped > 0)
            yield at_most(f"{at}: not processed", left, "of the records", 0, digits=4)
            yield Claim(
                f"PS, table VIII, {where}",
                "0.5617 saved, 0.9987 processed, mean latency 2,099 ms against 154 ms with r = 8",
                f"{own.saved:.4f} saved, {own.processed:.4f} processed, mean {ms(own.mean_ms)} ms against "
                f"{ms(over.mean_ms)} ms, p99 {ms(own.p99_ms)} ms against {ms(over.p99_ms)} ms; {machine(results)}",
                own.saved >= SAVED_MIN and times <= P99_MAX and left == 0,
            )
        yield from _shapes(scenes)

    def tables(self, results: Results) -> list[Table]:
        scenes = data_of(results, "scenes", list[Scene])
        found: list[Table] = []
        for name in dict.fromkeys(each.table for each in scenes if each.table != LAWS):
            found += table(f"Table {name}", [each for each in scenes if each.table == name], *_BESIDE)
        for load in dict.fromkeys(each.load for each in scenes if each.table == LAWS):
            own = [each for each in scenes if (each.table, each.load) == (LAWS, load)]
            found += table(f"Laws side by side, {load}", own, *_LAWS)
        return found

    def figures(self, results: Results) -> list[Figure]:
        found = []
        scenes = [each for each in data_of(results, "scenes", list[Scene]) if each.table == LAWS and each.course]
        for load, where in dict.fromkeys((each.load, each.where) for each in scenes):
            lines = [
                Line.of(each.name, each.name, [(at, count) for at, count in each.course], markers=False)
                for each in scenes
                if (each.load, each.where) == (load, where)
            ]
            panel = Lines("Active replicas", "seconds", "replicas", lines)
            caption = f"The load '{load}', {where}."
            found += figure(f"replicas-{load}-{where}", "Replicas over time", caption, [panel])
        return found


def side_by_side(load: Load) -> Iterator[Scene]:
    """Every law on one load; the target of all is twice the p99 of the over-provisioned one, which comes first."""
    target_ms = 0.0
    for run in laws():
        scene = run_of(run, load, LAWS, target_ms, keep=run.name != FIXED)
        target_ms = target_ms or P99_MAX * scene.p99_ms
        yield scene


def real_jobs(desk: Desk, trace: Trace) -> Iterator[Scene]:
    """Jobs through one load; the over-provisioned one comes first, since the target follows from it."""
    target_ms = 0.0
    load = Replayed.of(trace, desk.choose(STRETCH_S, SHORT_S, QUICK_S), SPEED)
    for run in JOBS[: desk.choose(len(JOBS), 2, 1)]:
        desk.tell(f"{run.name}, {load.trace.name}, {SPEED:g} times faster, {load.seconds:.0f} s, engine")
        scene = replay(run, load, target_ms)
        target_ms = target_ms or P99_MAX * scene.p99_ms
        yield scene
    load = Replayed.of(trace, DROPPING_S, SPEED)
    for run in DROPPING[: desk.choose(len(DROPPING), 0, 0)]:
        desk.tell(f"table {run.table}, {run.name}, {load.trace.name}, {load.seconds:.0f} s, engine")
        yield replay(run, load)


def _other(table: str, trace: Trace, over: int, seconds: int) -> Load:
    if table == "XI":
        return load_of(trace, seconds, over // len(COMPLEX), COMPLEX)
    return load_of(trace, seconds, over // 4)


def _shapes(scenes: Sequence[Scene]) -> Iterator[Claim]:
    """What the paper says of its tables, held against the model."""

    def row(table: str, name: str) -> Scene | None:
        return next((each for each in scenes if (each.table, each.name) == (table, name)), None)

    short, long = row("IV", "td = 30 s"), row("IV", "td = 180 s")
    if short and long:
        yield Claim(
            "PS, table IV",
            "a longer interval td makes latency longer: 2,099 ms at 30 s, 22,365 ms at 180 s",
            f"mean {ms(short.mean_ms)} ms at 30 s, {ms(long.mean_ms)} ms at 180 s; processed {short.processed:.4f} and "
            f"{long.processed:.4f} with t_out = 30 s (model)",
            short.mean_ms < long.mean_ms,
        )
    early, late = row("V", "t_out = 1 s"), row("V", "t_out = 30 s")
    if early and late:
        yield Claim(
            "PS, table V",
            "a short timeout saves latency (369 against 2,099 ms) and loses records (0.903 against 0.9987)",
            f"mean {ms(early.mean_ms)} against {ms(late.mean_ms)} ms, processed {early.processed:.4f} against "
            f"{late.processed:.4f} (model)",
            early.mean_ms < late.mean_ms,
        )
    small, large = row("VI", "q_size = 100"), row("VI", "q_size = 100,000")
    if small and large:
        yield Claim(
            "PS, table VI",
            "a short queue saves latency (30 against 2,099 ms) and loses records (0.6835 against 0.9987)",
            f"mean {ms(small.mean_ms)} against {ms(large.mean_ms)} ms, processed {small.processed:.4f} against "
            f"{large.processed:.4f} (model)",
            small.mean_ms <= large.mean_ms,
        )
    shuffled, balanced, line = row("VII", "shuffle"), row("VII", "load balancing"), row("VII", "one line (Penstock's)")
    if shuffled and balanced and line:
        yield Claim(
            "PS, table VII",
            "load balancing instead of shuffle: latency 60 % lower (the shuffle row repeats table IV's td = 60 s)",
            f"mean {ms(balanced.mean_ms)} ms with algorithm 1 as printed, {ms(shuffled.mean_ms)} ms with shuffle, "
            f"{ms(line.mean_ms)} ms with one line for all replicas (model). Algorithm 1 sends everything to a replica "
            "that was just activated until its utilisation has caught up",
            balanced.mean_ms < shuffled.mean_ms,
        )
    kept, restarted = row("X", "PSPS"), row("X", "DABS (restarts)")
    if kept and restarted:
        yield Claim(
            "PS, table X",
            "restarting at each change loses 17 % of the records",
            f"processed {kept.processed:.4f} without, {restarted.processed:.4f} with restarts (model)",
            restarted.processed < kept.processed,
        )


def _told(scene: Scene) -> str:
    return (
        f"{scene.name}: saved {scene.saved:.4f}, processed {scene.processed:.4f}, mean {ms(scene.mean_ms)} ms, p99 "
        f"{ms(scene.p99_ms)} ms, {number(scene.replica_s)} replica-seconds, {scene.changes} changes"
    )


def _share(value: float) -> str:
    return f"{value:.4f}"


def _paper(write: Callable[[float], str], field: str) -> Column:
    return "paper", lambda scene: write(getattr(scene.paper, field)) if scene.paper is not None else ""


_BESIDE = [
    *fields(str, name="row", where="from"),
    *fields(_share, saved="saved"),
    _paper(_share, "saved"),
    *fields(_share, degradation="degradation"),
    _paper(_share, "degradation"),
    *fields(_share, processed="processed"),
    _paper(_share, "processed"),
    *fields(ms, mean_ms="mean ms"),
    _paper(ms, "latency_ms"),
    *fields(ms, p99_ms="p99 ms"),
]
_LAWS = [
    *fields(str, name="law", where="from"),
    *fields(_share, saved="saved"),
    *fields(number, replica_s="replica-seconds"),
    *fields(ms, mean_ms="mean ms", p99_ms="p99 ms"),
    *fields(str, over_s="s over target", changes="changes"),
    *fields(_share, processed="processed"),
    *fields(str, dropped="dropped"),
]
