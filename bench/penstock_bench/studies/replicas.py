"""Replicas that follow the load (PS, section V): the paper's tables, and its law beside ours, DS2 and a threshold.

Two kinds of rows. *model*: every record through queues in made-up time (`queueing`), the load at its own speed, all
tables. *engine*: a real job whose functions wait as the paper's do, the load sped up so that two cores carry it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from penstock.pipeline.options import ReplicaLaw
from penstock_bench.meter.rows import Claim, Results
from penstock_bench.report.chart import Figure, Line, Lines, figure
from penstock_bench.report.words import grouped, ms, number
from penstock_bench.studies import replica_rows as rows
from penstock_bench.studies.base import Desk, Study
from penstock_bench.studies.findings import Column, Findings, Table, at_least, at_most, fields, table
from penstock_bench.studies.replica_jobs import POOL, TD, Replay, Replayed, replay
from penstock_bench.studies.replica_rows import ENGINE, FIXED, LAWS, MODEL, OURS_NAME, Load, Run, Scene, load_of, run_of
from penstock_bench.studies.traces import NAMES, RAW, SPEED, find_traces

SHORT_TABLES = ("IV", "VII", "VIII", "X")
SHORT_S = 1_080
"""Seconds of the recording that the short set's jobs replay."""
QUICK_S = 120
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
    """Four operations of equal service times, chosen so that the load's peak keeps 7.77 of 8 replicas of each busy,
    which follows from the paper's table VIII; it prints no service times. Rows marked 'model' are simulated record by
    record in made-up time, the load at its own speed: they have no costs but queues. Rows marked 'engine' are real jobs
    whose functions wait; the load is 30 times faster; r = 8 are all 32 replicas, each of which runs the whole chain. A
    restart takes 10 s and loses what is queued, as in DABS-Storm.
    """

    name = "replicas"
    title = "Replicas that follow the load"
    after = "PS, tables IV to XII"
    beside = POOL

    def run(self, desk: Desk) -> None:
        traces = {each.name: each for each in find_traces(desk.options.traces, (*NAMES, RAW))}
        whole, quick = not (desk.options.short or desk.options.quick), desk.options.quick
        seconds = QUICK_S if quick else rows.STRETCH_S
        mean_eps = rows.MEAN_EPS if whole else rows.MEAN_SHORT_EPS

        def keep(found: Iterable[Scene]) -> None:
            for scene in found:
                desk.append("scenes", scene, _told(scene))

        def simulate(name: str, runs: Iterable[Run], load: Load) -> None:
            desk.tell(f"table {name}, {load.name}, model")
            keep(run_of(run, load, name) for run in runs)

        def real(runs: Iterable[Replay], seconds: int) -> Iterator[Callable[..., Scene]]:
            load = Replayed.of(main, seconds)
            for run in runs:
                what = f"{run.name}, {main.name}, {SPEED:g} times faster, {load.seconds:.0f} s, engine"
                desk.tell(what if run.table == LAWS else f"table {run.table}, {what}")
                yield partial(replay, run, load)

        main = traces.get(MAIN) or next(iter(traces.values()))
        for trace in traces.values() if whole else (main,):
            desk.tell(f"laws side by side, {trace.name} ({trace.origin}), model")
            keep(side_by_side(load_of(trace, seconds, mean_eps=mean_eps)))
        load = load_of(main, seconds, mean_eps=mean_eps)
        for name, runs in rows.paper_tables().items():
            if whole or name in (SHORT_TABLES[-1:] if quick else SHORT_TABLES):
                simulate(name, runs, load)
        keep(_against_first(real(JOBS[: desk.choose(None, 2, 1)], desk.choose(rows.STRETCH_S, SHORT_S, QUICK_S))))
        if whole:
            keep(play() for play in real(DROPPING, DROPPING_S))
            for name, other in rows.other_tables().items():
                if other.load in traces:
                    simulate(name, other.rows, load_of(traces[other.load], seconds, other.over, other.graph))

    def findings(self, results: Results) -> Findings:
        scenes = results.data("scenes", list[Scene])
        runs = grouped(scenes, "table", "load", "where")
        for where in (MODEL, ENGINE):
            found = {each.name: each for each in runs.get((LAWS, MAIN, where), [])}
            if OURS_NAME not in found or FIXED not in found:
                continue
            own, over = found[OURS_NAME], found[FIXED]
            times = own.p99_ms / over.p99_ms if over.p99_ms else 0.0
            left = 1.0 - own.processed + (own.dropped > 0)
            at = f"{MAIN}, {where}"
            yield at_least(f"{at}: saved", own.saved, "of r_over", rows.SAVED_MIN, digits=4)
            yield at_most(f"{at}: p99 against over-provisioned", times, "times", rows.P99_MAX)
            yield at_most(f"{at}: not processed", left, "of the records", 0, digits=4)
            yield Claim(
                f"PS, table VIII, {where}",
                "0.5617 saved, 0.9987 processed, mean latency 2,099 ms against 154 ms with r = 8",
                f"{own.saved:.4f} saved, {own.processed:.4f} processed, mean {ms(own.mean_ms)} ms against "
                f"{ms(over.mean_ms)} ms, p99 {ms(own.p99_ms)} ms against {ms(over.p99_ms)} ms; {results.machine}",
                own.saved >= rows.SAVED_MIN and times <= rows.P99_MAX and left == 0,
            )
        for name, names, claimed, judged in _SHAPES:
            by_name = {each.name: each for each in reversed(scenes) if each.table == name}
            if all(each in by_name for each in names):
                told, holds = judged(*(by_name[each] for each in names))
                yield Claim(f"PS, table {name}", claimed, told, holds)

    def tables(self, results: Results) -> list[Table]:
        scenes = results.data("scenes", list[Scene])
        found: list[Table] = []
        tables = grouped(scenes, "table")
        side_by_side = tables.pop(LAWS, [])
        for name, own in tables.items():
            found += table(f"Table {name}", own, *_BESIDE)
        for load, own in grouped(side_by_side, "load").items():
            found += table(f"Laws side by side, {load}", own, *_LAWS)
        return found

    def figures(self, results: Results) -> list[Figure]:
        scenes = [each for each in results.data("scenes", list[Scene]) if each.table == LAWS and each.course]
        found = []
        for (load, where), own in grouped(scenes, "load", "where").items():
            lines = [
                Line.of(each.name, each.name, [(at, count) for at, count in each.course], markers=False) for each in own
            ]
            panel = Lines("Active replicas", "seconds", "replicas", lines)
            caption = f"The load '{load}', {where}."
            found += figure(f"replicas-{load}-{where}", "Replicas over time", caption, [panel])
        return found


def side_by_side(load: Load) -> Iterator[Scene]:
    return _against_first(partial(run_of, run, load, LAWS, drawn=run.name != FIXED) for run in rows.laws())


def _against_first(plays: Iterable[Callable[..., Scene]]) -> Iterator[Scene]:
    """Play runs; the over-provisioned one comes first, and the target of all others is twice its p99."""
    target_ms = 0.0
    for play in plays:
        scene = play(target_ms=target_ms)
        target_ms = target_ms or rows.P99_MAX * scene.p99_ms
        yield scene


_SHAPES: list[tuple[str, tuple[str, ...], str, Callable[..., tuple[str, bool]]]] = [
    (
        "IV",
        ("td = 30 s", "td = 180 s"),
        "a longer interval td makes latency longer: 2,099 ms at 30 s, 22,365 ms at 180 s",
        lambda short, long: (
            f"mean {ms(short.mean_ms)} ms at 30 s, {ms(long.mean_ms)} ms at 180 s; processed {short.processed:.4f} and "
            f"{long.processed:.4f} with t_out = 30 s (model)",
            short.mean_ms < long.mean_ms,
        ),
    ),
    (
        "V",
        ("t_out = 1 s", "t_out = 30 s"),
        "a short timeout saves latency (369 against 2,099 ms) and loses records (0.903 against 0.9987)",
        lambda early, late: (_latency_and_loss(early, late), early.mean_ms < late.mean_ms),
    ),
    (
        "VI",
        ("q_size = 100", "q_size = 100,000"),
        "a short queue saves latency (30 against 2,099 ms) and loses records (0.6835 against 0.9987)",
        lambda small, large: (_latency_and_loss(small, large), small.mean_ms <= large.mean_ms),
    ),
    (
        "VII",
        ("shuffle", "load balancing", "one line (Penstock's)"),
        "load balancing instead of shuffle: latency 60 % lower (the shuffle row repeats table IV's td = 60 s)",
        lambda shuffled, balanced, line: (
            f"mean {ms(balanced.mean_ms)} ms with algorithm 1 as printed, {ms(shuffled.mean_ms)} ms with shuffle, "
            f"{ms(line.mean_ms)} ms with one line for all replicas (model). Algorithm 1 sends everything to a replica "
            "that was just activated until its utilisation has caught up",
            balanced.mean_ms < shuffled.mean_ms,
        ),
    ),
    (
        "X",
        ("PSPS", "DABS (restarts)"),
        "restarting at each change loses 17 % of the records",
        lambda kept, restarted: (
            f"processed {kept.processed:.4f} without, {restarted.processed:.4f} with restarts (model)",
            restarted.processed < kept.processed,
        ),
    ),
]
"""What the paper says of its tables, held against rows of the model: table, rows, claim, and what is found of it."""


def _latency_and_loss(one: Scene, other: Scene) -> str:
    return (
        f"mean {ms(one.mean_ms)} against {ms(other.mean_ms)} ms, processed {one.processed:.4f} against "
        f"{other.processed:.4f} (model)"
    )


def _told(scene: Scene) -> str:
    return (
        f"{scene.name}: saved {scene.saved:.4f}, processed {scene.processed:.4f}, mean {ms(scene.mean_ms)} ms, p99 "
        f"{ms(scene.p99_ms)} ms, {number(scene.replica_s)} replica-seconds, {scene.changes} changes"
    )


_share = "{:.4f}".format


def _paper(write: Callable[[float], str], field: str) -> Column:
    return "paper", lambda scene: write(getattr(scene.paper, field)) if scene.paper is not None else ""


_BESIDE = [
    *fields(str, name="row", where="from"),
    *(
        column
        for name in ("saved", "degradation", "processed")
        for column in (*fields(_share, **{name: name}), _paper(_share, name))
    ),
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
