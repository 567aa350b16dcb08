"""Replicas that follow the load (PS, section V): the paper's tables, and its law beside ours, DS2 and a threshold.

Two kinds of rows. *model*: every record through queues in made-up time (`queueing`), the load at its own speed, all
tables. *engine*: a real job whose functions wait as the paper's do, the load sped up so that two cores carry it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.report.chart import Figure, Line, Lines
from penstock_bench.report.words import ms, number
from penstock_bench.studies.base import Desk, Study, Table, data_of, machine
from penstock_bench.studies.replica_jobs import POOL, TD, Replayed, replay
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
        scenes: list[Scene] = []

        def keep(scene: Scene) -> None:
            scenes.append(scene)
            desk.put("scenes", scenes)
            desk.say(f"         {_told(scene)}")

        main = traces.get(MAIN) or next(iter(traces.values()))
        for trace in (main,) if desk.options.short or desk.options.quick else traces.values():
            desk.tell(f"laws side by side, {trace.name} ({trace.origin}), model")
            for scene in side_by_side(load_of(trace, seconds, mean_eps=mean_eps)):
                keep(scene)
        load = load_of(main, seconds, mean_eps=mean_eps)
        for table, rows in paper_tables().items():
            if table in desk.choose(tuple(paper_tables()), SHORT_TABLES, SHORT_TABLES[-1:]):
                _simulate(desk, table, rows, load, keep)
        for scene in real_jobs(desk, main):
            keep(scene)
        if not (desk.options.short or desk.options.quick):
            for table, (name, over, rows) in other_tables().items():
                if name in traces:
                    _simulate(desk, table, rows, _other(table, traces[name], over, seconds), keep)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        scenes = data_of(results, "scenes", list[Scene])
        for where in (MODEL, ENGINE):
            found = {each.name: each for each in scenes if (each.table, each.load, each.where) == (LAWS, MAIN, where)}
            if OURS_NAME not in found or FIXED not in found:
                continue
            own, over = found[OURS_NAME], found[FIXED]
            times = own.p99_ms / over.p99_ms if over.p99_ms else 0.0
            at = f"{MAIN}, {where}"
            yield Check(f"{at}: saved", own.saved, "of r_over", f"≥ {SAVED_MIN}", own.saved >= SAVED_MIN)
            yield Check(f"{at}: p99 against over-provisioned", round(times, 2), "times", "≤ 2", times <= P99_MAX)
            left = 1.0 - own.processed + (own.dropped > 0)
            yield Check(f"{at}: not processed", left, "of the records", "0", left == 0)
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
        heads = ["row", "from", "saved", "paper", "degradation", "paper", "processed", "paper", "mean ms", "paper"]
        for table in dict.fromkeys(each.table for each in scenes if each.table != LAWS):
            lines = [_beside(each) for each in scenes if each.table == table]
            found.append((f"Table {table}", [*heads, "p99 ms"], lines))
        for load in dict.fromkeys(each.load for each in scenes if each.table == LAWS):
            lines = [_line(each) for each in scenes if (each.table, each.load) == (LAWS, load)]
            heads = ["law", "from", "saved", "replica-seconds", "mean ms", "p99 ms", "s over target", "changes"]
            found.append((f"Laws side by side, {load}", [*heads, "processed", "dropped"], lines))
        return found

    def figures(self, results: Results) -> list[Figure]:
        found = []
        scenes = [each for each in data_of(results, "scenes", list[Scene]) if each.table == LAWS and each.course]
        for load, where in dict.fromkeys((each.load, each.where) for each in scenes):
            lines = [
                Line(each.name, each.name, [at for at, _ in each.course], [n for _, n in each.course], markers=False)
                for each in scenes
                if (each.load, each.where) == (load, where)
            ]
            panel = Lines("Active replicas", "seconds", "replicas", lines)
            caption = f"The load '{load}', {where}."
            found.append(Figure(f"replicas-{load}-{where}", "Replicas over time", caption, [panel]))
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
    load = Replayed.of(trace, desk.choose(STRETCH_S, SHORT_S, QUICK_S), SPEED)
    runs: list[tuple[str, object, dict[str, str]]] = [
        (FIXED, POOL, {}),
        (OURS_NAME, (1, POOL), {"replica_interval": TD}),
        ("Penstock, td = 1 s", (1, POOL), {"replica_interval": "1s"}),
        ("Penstock, shuffle", (1, POOL), {"replica_interval": TD, "grouping": "shuffle"}),
        ("r = 4", POOL // 2, {}),
    ]
    target_ms = 0.0
    for name, replicas, options in runs[: desk.choose(len(runs), 2, 1)]:
        desk.tell(f"{name}, {load.trace.name}, {SPEED:g} times faster, {load.seconds:.0f} s, engine")
        scene = replay(name, load, replicas, target_ms, **options)
        target_ms = target_ms or P99_MAX * scene.p99_ms
        yield scene


def _simulate(desk: Desk, table: str, rows: Sequence[Run], load: Load, keep: object) -> None:
    desk.tell(f"table {table}, {load.name}, model")
    assert callable(keep)
    for run in rows:
        keep(run_of(run, load, table))


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


def _beside(scene: Scene) -> list[str]:
    own = [f"{scene.saved:.4f}", f"{scene.degradation:.4f}", f"{scene.processed:.4f}", ms(scene.mean_ms)]
    said = ["", "", "", ""]
    if (paper := scene.paper) is not None:
        said = [f"{paper.saved:.4f}", f"{paper.degradation:.4f}", f"{paper.processed:.4f}", ms(paper.latency_ms)]
    pairs = [each for pair in zip(own, said, strict=True) for each in pair]
    return [scene.name, scene.where, *pairs, ms(scene.p99_ms)]


def _line(scene: Scene) -> list[str]:
    figures = [f"{scene.saved:.4f}", number(scene.replica_s), ms(scene.mean_ms), ms(scene.p99_ms)]
    figures += [str(scene.over_s), str(scene.changes), f"{scene.processed:.4f}", str(scene.dropped)]
    return [scene.name, scene.where, *figures]
