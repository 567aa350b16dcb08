"""State (Finch, section 5.2): its size against throughput, latency, snapshots and recovery; stores; skewed keys."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_bench.meter.rows import Claim, Results
from penstock_bench.report.chart import Bar, Bars, Figure, Line, Lines, figure
from penstock_bench.report.words import ms, number, ratio
from penstock_bench.studies.base import BATCH, RECORD, Desk, Study
from penstock_bench.studies.findings import Findings, Paired, Table, curve, fields, listed, paired, table
from penstock_bench.studies.keyed import FILL_EPS, Held, Store, counting, hold, variant

KEYS, QUICK_KEYS = (1_000, 10_000, 100_000, 1_000_000), (1_000,)
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
    """A running count of 1,000 to a million keys, evenly drawn: what gets through under overload in record and batch
    form; then, with a state of that size, 20,000 events/s in record form: latency, size and time of the snapshots,
    which hold what has changed and a tenth of all key groups; then one worker is killed. At 100,000 keys also without
    snapshots and with snapshots that are forced to disk, and with keys by Zipf's law instead of evenly drawn ones.
    Every output at a fixed rate is compared with the exact one.
    """

    name = "state"
    title = "The size of state"
    after = "Finch, section 5.2 (state, keyspace partitioning; named, not measured there)"

    def run(self, desk: Desk) -> None:
        quick, workers = desk.options.quick, desk.options.parallelism
        rate_eps, seconds = (QUICK_RATE_EPS if quick else RATE_EPS), desk.seconds(SECONDS)

        def carrying(keys: int, zipf: float | None) -> None:
            drawn = UNIFORM if zipf is None else SKEWED
            for form in (RECORD,) if quick else (RECORD, BATCH):
                # Long enough for the filling, at a rate that every form carries.
                settle_s, settings = 2.0 + keys / FILL_EPS / 2, {"keys": keys, "drawn": drawn}
                desk.overload(
                    counting(keys, zipf), form, CARRY_S, f"{keys:,} keys, {drawn}", settings, settle_s=settle_s
                )

        def holding(keys: int, store: Store, kill: bool) -> None:
            desk.tell(f"{variant(keys, store)}, {number(rate_eps)}/s" + (", a worker killed" if kill else ""))
            row, found = hold(keys, rate_eps, seconds, workers, store, kill)
            desk.append("held", found)
            desk.add(row)

        for keys in QUICK_KEYS if quick else KEYS:
            carrying(keys, None)
            holding(keys, Store.LOCAL, kill=True)
        if not quick:
            carrying(STORE_KEYS, ZIPF)
            for store in STORES:
                holding(STORE_KEYS, store, kill=False)

    def findings(self, results: Results) -> Findings:
        for form in (RECORD, BATCH):
            carried = _carried(results, form)
            if len(carried) > 1:
                told = listed((number(keys), f"{number(eps)}/s") for keys, eps in carried.items())
                share = carried[max(carried)] / carried[min(carried)]
                yield Claim(
                    f"Finch, section 5.2: state, throughput in {form} form",
                    "no figures, a question: how does performance change with the state? Taken as: the largest state "
                    "leaves at least half of the throughput",
                    f"by keys: {told}; the largest state leaves {share:.0%} of the smallest's (with few keys, more "
                    f"events are combined before the shuffle: that is in it too); {results.machine}",
                    share >= FREE_SHARE,
                )
        yield from _about_snapshots(results)
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
        for form in (RECORD, BATCH):
            even, skewed = (_carried(results, form, drawn).get(STORE_KEYS) for drawn in (UNIFORM, SKEWED))
            if even and skewed:
                yield Claim(
                    f"Finch, section 5.2: keyspace partitioning, {form} form",
                    "no figures, a question: what does partitioning by key cost? Section 4 has skewed keys",
                    f"{number(STORE_KEYS)} keys: {number(even)}/s evenly drawn, {number(skewed)}/s by Zipf's law "
                    f"({ratio(skewed, even)}); {results.machine}",
                    None,
                )

    def tables(self, results: Results) -> list[Table]:
        return table(
            "Latency, snapshots and recovery by size of state",
            _pairs(results),
            ("keys, snapshots to", lambda pair: f"{pair.found.keys:,}, {pair.found.store}"),
            *fields(ms, row__p50_ms="p50 ms", row__p99_ms="p99 ms", row__max_ms="max ms"),
            *fields(number, row__cpu_cores="cores"),
            *fields(ms, found__epochs__epoch_ms_p50="epoch ms, median", found__epochs__epoch_ms_max="epoch ms, max"),
            *fields(number, found__epochs__bytes_p50="bytes an epoch, median", found__epochs__bytes_max="bytes, max"),
            *fields(number, found__restored_s="restored s"),
            *fields(number, found__loss__recovered_s="throughput back s", found__loss__caught_up_s="caught up s"),
        )

    def figures(self, results: Results) -> list[Figure]:
        local = [pair for pair in _pairs(results) if pair.found.store == Store.LOCAL.value]

        def panel(title: str, unit: str, *lines: tuple[str, str, str], y_log: bool = False) -> Lines:
            drawn = [curve(label, key, local, "found__keys", path) for label, key, path in lines]
            return Lines(title, "keys", unit, drawn, x_log=True, y_log=y_log)

        carried = [Line.of(form, form, _carried(results, form).items()) for form in (RECORD, BATCH)]
        median, most = ("an epoch, median", "record"), ("largest", "batch")
        sizes = (*median, "found__epochs__bytes_p50"), (*most, "found__epochs__bytes_max")
        times = (*median, "found__epochs__epoch_ms_p50"), (*most, "found__epochs__epoch_ms_max")
        back = ("throughput back", "out", "found__loss__recovered_s")
        panels = [
            Lines("Carried under overload", "keys", "events/s", carried, x_log=True),
            panel("Latency, calm", "ms", ("p50", "record", "row__p50_ms"), ("p99", "out", "row__p99_ms"), y_log=True),
            panel("Snapshots: size", "bytes", *sizes, y_log=True),
            panel("Snapshots: time", "ms", *times),
            panel("After a kill", "seconds", ("instances built anew", "adaptive", "found__restored_s"), back),
        ]
        return [*figure("state", self.title, "Running count, keys evenly drawn.", panels), *_bars(results)]


def _bars(results: Results) -> list[Figure]:
    skews = [
        Bar(f"{form}, {drawn}", form, eps)
        for form in (RECORD, BATCH)
        for drawn in (UNIFORM, SKEWED)
        if (eps := _carried(results, form, drawn).get(STORE_KEYS))
    ]
    stores = [Bar(held.store, "record", row.p99_ms) for held, row in _pairs(results, STORE_KEYS) if row.p99_ms]
    panels = [Bars("Keys: carried under overload", "events/s", skews), Bars("Snapshots: p99 while calm", "ms", stores)]
    return figure("state-stores", "Skewed keys and stores", f"{number(STORE_KEYS)} keys.", panels, columns=2)


def _about_snapshots(results: Results) -> Iterator[Claim]:
    local = [pair for pair in _pairs(results) if pair.found.store == Store.LOCAL.value]
    held = [(number(each.keys), each, row, each.epochs) for each, row in local if each.epochs]
    if len(held) > 1:
        told = listed(
            (
                keys,
                f"{number(epochs.bytes_p50)} (up to {number(epochs.bytes_max)}) bytes in {ms(epochs.epoch_ms_p50)} "
                f"(up to {ms(epochs.epoch_ms_max)}) ms",
            )
            for keys, _, _, epochs in held
        )
        yield Claim(
            "Finch, section 5.2: state, snapshots",
            "no figures, a question: what do backup mechanisms such as checkpoints and state logs cost?",
            f"snapshots of every second by keys: {told}; p99 meanwhile "
            f"{listed((keys, f'{ms(row.p99_ms)} ms') for keys, _, row, _ in held)}",
            None,
        )
    struck = [(keys, each.restored_s, each.loss.recovered_s) for keys, each, _, _ in held if each.loss is not None]
    if len(struck) > 1:
        told = listed((keys, f"{number(restored_s)} s ({number(back_s)} s)") for keys, restored_s, back_s in struck)
        yield Claim(
            "Finch, figure 5.3 and section 5.2: state, recovery",
            "with state to rebuild, recovery takes longer (Samza, from its log; no sizes are given)",
            f"a worker killed; until its part was there again (until throughput is back), by keys: {told}",
            None,
        )


def _carried(results: Results, form: str, drawn: str = UNIFORM) -> dict[int, float]:
    """By number of keys, ascending: what was carried."""
    rows = results.rows_of(form=form, having="capacity_eps", drawn=drawn)
    return dict(sorted((int(str(row.settings["keys"])), row.capacity_eps or 0.0) for row in rows))


def _pairs(results: Results, keys: int | None = None) -> list[Paired[Held]]:
    """What was held, all or with so many keys, where its row is there."""
    held = (each for each in results.data("held", list[Held]) if keys in (None, each.keys))
    return paired(results, held, "keys", "store")
