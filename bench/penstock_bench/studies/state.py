"""State (Finch, section 5.2): its size against throughput, latency, snapshots and recovery; stores; skewed keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock_bench.meter.rows import Check, Claim, ResultRow, Results
from penstock_bench.report.chart import Bar, Bars, Figure, Line, Lines, figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import BATCH, RECORD, Desk, Study, Table, data_of, fields, machine, pick, table
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

        def holding(keys: int, store: Store, kill: bool) -> None:
            desk.tell(f"{variant(keys, store)}, {number(rate_eps)}/s" + (", a worker killed" if kill else ""))
            row, found = hold(keys, rate_eps, seconds, workers, store=store, kill=kill)
            desk.append("held", found)
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
        return table(
            "Latency, snapshots and recovery by size of state",
            _pairs(results),
            ("keys, snapshots to", lambda pair: f"{pair.held.keys:,}, {pair.held.store}"),
            *fields(ms, row__p50_ms="p50 ms", row__p99_ms="p99 ms", row__max_ms="max ms"),
            *fields(number, row__cpu_cores="cores"),
            *fields(ms, held__epochs__epoch_ms_p50="epoch ms, median", held__epochs__epoch_ms_max="epoch ms, max"),
            *fields(number, held__epochs__bytes_p50="bytes an epoch, median", held__epochs__bytes_max="bytes, max"),
            *fields(number, held__restored_s="restored s"),
            *fields(number, held__loss__recovered_s="throughput back s", held__loss__caught_up_s="caught up s"),
        )

    def figures(self, results: Results) -> list[Figure]:
        carried = [Line.of(form, form, _carried_by_keys(results, form)) for form in (RECORD, BATCH)]
        panels = [Lines("Carried under overload", "keys", "events/s", carried, x_log=True)]
        rows = [pair for pair in _pairs(results) if pair.held.store == Store.LOCAL.value]
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
            panels.append(Lines(title, "keys", unit, lines, x_log=True, y_log=log))
        return [*figure("state", self.title, "Running count, keys evenly drawn.", panels), *_bars(results)]


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

    return Line.of(label, key, [(pair.held.keys, value(pair) or None) for pair in rows])


def _bars(results: Results) -> list[Figure]:
    skews = [
        Bar(f"{form}, {keys}", form, eps)
        for form in (RECORD, BATCH)
        for keys in (UNIFORM, SKEWED)
        if (eps := _overload(results, STORE_KEYS, keys, form))
    ]
    stores = [Bar(held.store, "record", row.p99_ms) for held, row in _pairs(results, STORE_KEYS) if row.p99_ms]
    panels = [Bars("Keys: carried under overload", "events/s", skews), Bars("Snapshots: p99 while calm", "ms", stores)]
    return figure("state-stores", "Skewed keys and stores", f"{number(STORE_KEYS)} keys.", panels, columns=2)


def _about_snapshots(results: Results) -> Iterator[Claim]:
    local = [pair for pair in _pairs(results) if pair.held.store == Store.LOCAL.value]
    held = [(each, row, each.epochs) for each, row in local if each.epochs]
    if len(held) > 1:
        told = ", ".join(
            f"{number(each.keys)}: {number(epochs.bytes_p50)} (up to {number(epochs.bytes_max)}) bytes in "
            f"{ms(epochs.epoch_ms_p50)} (up to {ms(epochs.epoch_ms_max)}) ms"
            for each, _, epochs in held
        )
        latency = ", ".join(f"{number(each.keys)}: {ms(row.p99_ms)} ms" for each, row, _ in held)
        yield Claim(
            "Finch, section 5.2: state, snapshots",
            "no figures, a question: what do backup mechanisms such as checkpoints and state logs cost?",
            f"snapshots of every second by keys: {told}; p99 meanwhile {latency}",
            None,
        )
    struck = [(each, each.loss) for each, _, _ in held if each.loss is not None]
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
        f"{held.store}: p50 {ms(row.p50_ms)}, p99 {ms(row.p99_ms)} ms, {number(row.cpu_cores)} cores"
        for held, row in _pairs(results, STORE_KEYS)
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
    found = pick(results, form=form, having="capacity_eps", keys=keys, drawn=drawn)
    return found.capacity_eps if found is not None else None


def _carried_by_keys(results: Results, form: str) -> list[tuple[int, float]]:
    return [(keys, eps) for keys in sorted({*KEYS, *QUICK_KEYS}) if (eps := _overload(results, keys, UNIFORM, form))]


def _pairs(results: Results, keys: int | None = None) -> list[_Pair]:
    """What was held, all or with so many keys, where its row is there."""
    held = [each for each in data_of(results, "held", list[Held]) if keys in (None, each.keys)]
    pairs = [(each, pick(results, keys=each.keys, store=each.store)) for each in held]
    return [_Pair(each, row) for each, row in pairs if row is not None]
