"""State (Finch, section 5.2): its size against throughput, latency, snapshots and recovery; stores; skewed keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Bar, Bars, Figure, Line, Lines
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import BATCH, RECORD, Desk, Study, Table, data_of, machine
from penstock_bench.studies.keyed import FILL_EPS, Held, Store, counting, hold, variant

KEYS = (1_000, 10_000, 100_000, 1_000_000)
QUICK_KEYS = (1_000,)
STORE_KEYS = 100_000
"""Size at which stores and skews are compared."""
STORES = (Store.OFF, Store.DURABLE)
"""Compared with a local directory, which all sizes have."""
ZIPF = 1.0
UNIFORM, SKEWED = "uniform", f"Zipf {ZIPF:g}"
RATE_EPS, QUICK_RATE_EPS = 20_000.0, 2_000.0
SECONDS = 12.0
"""Of the calm time: longer than the ten epochs after which all of a state is written again."""
CARRY_S = 3.0
FREE_SHARE = 0.5
"""Throughput hardly depends on the state if the largest leaves this share of that of the smallest."""


class State(Study):
    """See the module."""

    name = "state"
    title = "The size of state"
    after = "Finch, section 5.2 (state, keyspace partitioning; named, not measured there)"
    method = (
        "A running count of 1,000 to a million keys, evenly drawn: what gets through under overload in record and "
        "batch form; then, with a state of that size, 20,000 events/s in record form: latency, size and time of the "
        "snapshots, which hold what has changed and a tenth of all key groups; then one worker is killed. At "
        "100,000 keys also without snapshots and with snapshots that are forced to disk, and with keys by Zipf's law "
        "instead of evenly drawn ones. Every output at a fixed rate is compared with the exact one."
    )

    def run(self, desk: Desk) -> None:
        quick, workers = desk.options.quick, desk.options.parallelism
        rate_eps, seconds = (QUICK_RATE_EPS if quick else RATE_EPS), desk.seconds(SECONDS)
        held: list[Held] = []

        def holding(keys: int, store: Store, kill: bool) -> None:
            desk.tell(f"{variant(keys, store)}, {number(rate_eps)}/s" + (", a worker killed" if kill else ""))
            row, found = hold(keys, rate_eps, seconds, workers, store=store, kill=kill)
            held.append(found)
            desk.put("held", held)
            desk.add(row)

        for keys in QUICK_KEYS if quick else KEYS:
            for form in (RECORD,) if quick else (RECORD, BATCH):
                desk.tell(f"{keys:,} keys under overload, {form}")
                desk.add(_carried(keys, None, form, desk))
            holding(keys, Store.LOCAL, kill=True)
        if quick:
            return
        for form in (RECORD, BATCH):
            desk.tell(f"{STORE_KEYS:,} keys by Zipf's law under overload, {form}")
            desk.add(_carried(STORE_KEYS, ZIPF, form, desk))
        for store in STORES:
            holding(STORE_KEYS, store, kill=False)

    def findings(self, results: Results) -> Iterator[Claim | Check]:
        where = machine(results)
        for form in (RECORD, BATCH):
            curve = _carried_by_keys(results, form)
            if len(curve) > 1:
                told = ", ".join(f"{number(keys)}: {number(eps)}/s" for keys, eps in curve)
                share = curve[-1][1] / curve[0][1]
                yield Claim(
                    f"Finch, section 5.2: state, throughput in {form} form",
                    "no figures, a question: how does performance change with the state? Taken as: the largest state "
                    "leaves at least half of the throughput",
                    f"by keys: {told}; the largest state leaves {share:.0%} of the smallest's (with few keys, more "
                    f"events are combined before the shuffle: that is in it too); {where}",
                    share >= FREE_SHARE,
                )
        yield from _about_snapshots(results)
        yield from _about_stores(results)
        for form in (RECORD, BATCH):
            even, skewed = (_overload(results, STORE_KEYS, keys, form) for keys in (UNIFORM, SKEWED))
            if even and skewed:
                yield Claim(
                    f"Finch, section 5.2: keyspace partitioning, {form} form",
                    "no figures, a question: what does partitioning by key cost? Section 4 has skewed keys",
                    f"{number(STORE_KEYS)} keys: {number(even)}/s evenly drawn, {number(skewed)}/s by Zipf's law "
                    f"({ratio(skewed, even)}); {where}",
                    None,
                )

    def tables(self, results: Results) -> list[Table]:
        lines = []
        for each in _held(results):
            row = _row(results, each)
            epochs, loss = each.epochs, each.loss
            if row is None:
                continue
            lines.append(
                [
                    f"{each.keys:,}, {each.store}",
                    *(ms(took) for took in (row.p50_ms, row.p99_ms, row.max_ms)),
                    number(row.cpu_cores),
                    *((ms(epochs.epoch_ms_p50), ms(epochs.epoch_ms_max)) if epochs else ("–", "–")),
                    *((number(epochs.bytes_p50), number(epochs.bytes_max)) if epochs else ("–", "–")),
                    number(each.restored_s),
                    *((number(loss.recovered_s), number(loss.caught_up_s)) if loss else ("–", "–")),
                ]
            )
        heads = ["keys, snapshots to", "p50 ms", "p99 ms", "max ms", "cores", "epoch ms, median", "epoch ms, max"]
        heads += ["bytes an epoch, median", "bytes, max", "restored s", "throughput back s", "caught up s"]
        return [("Latency, snapshots and recovery by size of state", heads, lines)] if lines else []

    def figures(self, results: Results) -> list[Figure]:
        held = [each for each in _held(results) if each.store == Store.LOCAL.value]
        panels: list[Lines] = []
        carried = [
            Line(form, form, [keys for keys, _ in curve], [eps for _, eps in curve])
            for form in (RECORD, BATCH)
            if (curve := _carried_by_keys(results, form))
        ]
        if carried:
            panels.append(Lines("Carried under overload", "keys", "events/s", carried, x_log=True))
        rows = [_Pair(each, row) for each in held if (row := _row(results, each)) is not None]
        latency = [_line("p50", "record", rows, "row.p50_ms"), _line("p99", "out", rows, "row.p99_ms")]
        size = [
            _line("an epoch, median", "record", rows, "held.epochs.bytes_p50"),
            _line("largest", "batch", rows, "held.epochs.bytes_max"),
        ]
        took = [
            _line("an epoch, median", "record", rows, "held.epochs.epoch_ms_p50"),
            _line("largest", "batch", rows, "held.epochs.epoch_ms_max"),
        ]
        back = [
            _line("instances built anew", "adaptive", rows, "held.restored_s"),
            _line("throughput back", "out", rows, "held.loss.recovered_s"),
        ]
        for title, unit, lines, log in (
            ("Latency, calm", "ms", latency, True),
            ("Snapshots: size", "bytes", size, True),
            ("Snapshots: time", "ms", took, False),
            ("After a kill", "seconds", back, False),
        ):
            known = [line for line in lines if line.x]
            if known:
                panels.append(Lines(title, "keys", unit, known, x_log=True, y_log=log))
        found = [Figure("state", "The size of state", "Running count, keys evenly drawn.", panels)] if panels else []
        return [*found, *_bars(results)]


class _Pair(NamedTuple):
    """A size of state with its row."""

    held: Held
    row: ResultRow


def _line(label: str, key: str, rows: list[_Pair], path: str) -> Line:
    """Draw a figure against the number of keys, where it is known; ``path`` says where it stands."""

    def value(found: Any) -> float | None:
        for name in path.split("."):
            found = None if found is None else getattr(found, name)
        return None if found is None else float(found)

    points = [(pair.held.keys, took) for pair in rows if (took := value(pair))]
    return Line(label, key, [keys for keys, _ in points], [took for _, took in points])


def _bars(results: Results) -> list[Figure]:
    skews = [
        Bar(f"{form}, {keys}", form, eps)
        for form in (RECORD, BATCH)
        for keys in (UNIFORM, SKEWED)
        if (eps := _overload(results, STORE_KEYS, keys, form))
    ]
    stores = [
        Bar(each.store, "record", row.p99_ms)
        for each in _held(results)
        if each.keys == STORE_KEYS and (row := _row(results, each)) is not None and row.p99_ms
    ]
    panels = []
    if skews:
        panels.append(Bars("Keys: carried under overload", "events/s", skews))
    if stores:
        panels.append(Bars("Snapshots: p99 while calm", "ms", stores))
    caption = f"{number(STORE_KEYS)} keys."
    return [Figure("state-stores", "Skewed keys and stores", caption, panels, columns=2)] if panels else []


def _about_snapshots(results: Results) -> Iterator[Claim]:
    held = [(each, each.epochs) for each in _held(results) if each.store == Store.LOCAL.value and each.epochs]
    if len(held) > 1:
        told = ", ".join(
            f"{number(each.keys)}: {number(epochs.bytes_p50)} (up to {number(epochs.bytes_max)}) bytes in "
            f"{ms(epochs.epoch_ms_p50)} (up to {ms(epochs.epoch_ms_max)}) ms"
            for each, epochs in held
        )
        latency = ", ".join(
            f"{number(each.keys)}: {ms(row.p99_ms)} ms" for each, _ in held if (row := _row(results, each)) is not None
        )
        yield Claim(
            "Finch, section 5.2: state, snapshots",
            "no figures, a question: what do backup mechanisms such as checkpoints and state logs cost?",
            f"snapshots of every second by keys: {told}; p99 meanwhile {latency}",
            None,
        )
    struck = [(each, each.loss) for each, _ in held if each.loss is not None]
    if len(struck) > 1:
        told = ", ".join(
            f"{number(each.keys)}: {number(each.restored_s)} s ({number(loss.recovered_s)} s)" for each, loss in struck
        )
        yield Claim(
            "Finch, figure 5.3 and section 5.2: state, recovery",
            "with state to rebuild, recovery takes longer (Samza, from its log; no sizes are given)",
            f"a worker killed; until its part was there again (until throughput is back), by keys: {told}",
            None,
        )


def _about_stores(results: Results) -> Iterator[Claim]:
    found = [
        f"{each.store}: p50 {ms(row.p50_ms)}, p99 {ms(row.p99_ms)} ms, {number(row.cpu_cores)} cores"
        for each in _held(results)
        if each.keys == STORE_KEYS and (row := _row(results, each)) is not None
    ]
    if len(found) > 1:
        yield Claim(
            "Finch, section 5.2: state, where it is kept",
            "no figures, a question: state in memory, on disk, or in a remote store?",
            f"always in the workers' memory; its snapshots, {number(STORE_KEYS)} keys at {number(RATE_EPS)}/s: "
            f"{'; '.join(found)}. A remote store was not measured",
            None,
        )


def _carried(keys: int, zipf: float | None, form: str, desk: Desk) -> ResultRow:
    # Long enough for the filling, at a rate that every form carries.
    row = desk.carry(counting(keys, zipf), form, CARRY_S, settle_s=2.0 + keys / FILL_EPS / 2)
    drawn = UNIFORM if zipf is None else SKEWED
    row.settings = {**row.settings, "keys": keys, "drawn": drawn}
    row.variant = f"{keys:,} keys, {drawn}"
    return row


def _overload(results: Results, keys: int, drawn: str, form: str) -> float | None:
    wanted = {"keys": keys, "drawn": drawn}
    found = [row.capacity_eps for row in results.rows if row.form == form and wanted.items() <= row.settings.items()]
    return found[-1] if found else None


def _carried_by_keys(results: Results, form: str) -> list[tuple[int, float]]:
    return [(keys, eps) for keys in sorted({*KEYS, *QUICK_KEYS}) if (eps := _overload(results, keys, UNIFORM, form))]


def _row(results: Results, held: Held) -> ResultRow | None:
    wanted = {"keys": held.keys, "store": held.store}
    found = [row for row in results.rows if row.p99_ms is not None and wanted.items() <= row.settings.items()]
    return found[-1] if found else None


def _held(results: Results) -> list[Held]:
    return data_of(results, "held", list[Held])
