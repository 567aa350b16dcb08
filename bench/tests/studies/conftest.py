"""Results as each study writes them, made up: small enough to read, with everything that its figures show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.control.changes import ChangeReport
from penstock.control.rescaling import MoveReport
from penstock.demo.series import BurstFigures, Course, Sample, Scene
from penstock_bench.meter.job import Step
from penstock_bench.meter.rows import Header, OperationRow, ResultRow, Results, StudyNotes
from penstock_bench.studies import STUDIES
from penstock_bench.studies.alternatives import DOWN, SAME, SIMPLE, STATE, UP, Exchanged
from penstock_bench.studies.dynamism import Moment as Look
from penstock_bench.studies.dynamism import Replay
from penstock_bench.studies.elasticity import Course as Elastic
from penstock_bench.studies.elasticity import End, Happened
from penstock_bench.studies.elasticity import Look as Seen
from penstock_bench.studies.groups import Point, Tuned
from penstock_bench.studies.isolation import Case, Shared
from penstock_bench.studies.keyed import Epochs, Held, Store, variant
from penstock_bench.studies.kills import Gaps, Loss, Moment, Outcome
from penstock_bench.studies.replica_rows import ENGINE, FIXED, LAWS, MODEL, OURS_NAME, paper_tables
from penstock_bench.studies.replica_rows import Scene as Replicated
from penstock_bench.studies.state import KEYS, SKEWED, STORE_KEYS, UNIFORM

FORMS = ("record", "adaptive", "batch")
P50_MS = {"record": 1.0, "adaptive": 1.1, "batch": 60.0}


def make_header() -> Header:
    return Header(
        penstock="0.1.0",
        python="3.11.7",
        spark="4.3.0",
        pyarrow="26.0",
        java="17",
        machine="Linux x86_64",
        cores=2,
        memory_gb=24.0,
        settings={"parallelism": 2},
    )


def at_rate(form: str, rate: float, workload: str = "yahoo", **fields: Any) -> ResultRow:
    """A run at a rate: above 500,000/s the record form falls behind, and the adaptive one is in batch form."""
    behind = form == "record" and rate > 500_000
    inside = form == "batch" or (form == "adaptive" and rate > 500_000)
    p50_ms = 3_000.0 if behind else 60.0 if inside else P50_MS[form]
    parts = {"out": p50_ms * 0.8 if behind else 0.0, "wait": p50_ms * 0.5 if inside else 0.0, "schedule": 0.0}
    parts |= {"process": 0.1, "transmit": round(p50_ms - sum(parts.values()) - 0.1, 3)}
    operations = [
        OperationRow(
            name=name,
            form="batch" if inside and name != "count" else "record",
            latency_ms=p50_ms / 3,
            components_ms={"process": p50_ms / 3},
        )
        for name in ("events", "parse_json", "count")
    ]
    row = ResultRow(
        workload=workload,
        engine="penstock",
        form=form,
        rate=rate,
        seconds=6.0,
        events=int(6 * rate),
        p50_ms=p50_ms,
        p90_ms=2 * p50_ms,
        p99_ms=3 * p50_ms,
        p999_ms=4 * p50_ms,
        max_ms=5 * p50_ms,
        mean_ms=p50_ms,
        cpu_cores=1.0,
        pss_mb=900.0,
        lost=0,
        duplicated=0,
        reordered=0,
        sustained=not behind,
        cdf=[(0.01, p50_ms / 2), (0.5, p50_ms), (0.99, 3 * p50_ms), (1.0, 5 * p50_ms)],
        components_ms=parts,
        operations=operations,
    )
    return msgspec.structs.replace(row, **fields)


def carried(form: str, eps: float, workload: str = "yahoo", **fields: Any) -> ResultRow:
    row = ResultRow(workload=workload, engine="penstock", form=form, rate=4e6, seconds=5.0, events=1, capacity_eps=eps)
    return msgspec.structs.replace(row, **fields)


def step(rate: float, mean_ms: float | None, *, batch: float = 0.0, kept_up: bool = True) -> Step:
    p99_ms = None if mean_ms is None else 3 * mean_ms
    return Step(rate, mean_ms, p99_ms, mean_ms, 0 if kept_up else int(rate), kept_up, {"work": batch})


def course(form: str, scene: Scene) -> Course:
    samples = [
        Sample(
            at_s=at / 2,
            offered_eps=scene.rate_eps(at / 2),
            handled_eps=scene.rate_eps(at / 2),
            backlog_records=1000 if scene.word(at / 2) == "burst" else 0,
            queue_records=0,
            p50_ms=1.0,
            p99_ms=2.0,
            forms={"events": form, "score": form},
            components_ms={},
        )
        for at in range(int(2 * scene.seconds))
    ]
    switches = [
        ChangeReport(
            at_s=scene.calm_s + 0.4,
            operations=["events", "score"],
            to="batch",
            pause_ms=5.0,
            total_ms=90.0,
            carried_records=120,
            reason="queue",
            inputs={"queue": 9.0},
        )
    ]
    figures = BurstFigures(
        forms=form,
        p50_ms=1.0,
        p99_ms=2.0,
        max_ms=3.0,
        calm_p99_ms=2.0,
        burst_p99_ms={"record": 4_000.0, "adaptive": 300.0, "batch": 400.0}[form],
        backlog_max=1000,
        drained_s=1.0,
        normal_s=2.0,
        switches=1 if form == "adaptive" else 0,
        pause_ms_max=5.0,
    )
    return Course(figures, samples, switches if form == "adaptive" else [])


def _short_rows() -> list[ResultRow]:
    spark = {"engine": "spark", "rate": None}
    beside = [at_rate("adaptive", 4e3, "yahoo, engines"), at_rate("batch", 4e3, "yahoo, engines", engine="spark")]
    scored = [carried(form, eps, "scoring") for form, eps in (("record", 1e5), ("adaptive", 2e6), ("batch", 2e6))]
    counted = [carried("batch", 2e6, "wordcount")]
    theirs = [carried("batch", 4e5, "wordcount", **spark)]
    return [*_rows("rates"), *_rows("throughput"), *beside, *scored, *counted, *theirs]


def _rows(name: str) -> list[ResultRow]:
    if name == "short":
        return _short_rows()
    rates = {"rates": (4e3, 20e3, 800e3), "components": (4e3, 40e3, 800e3), "operations": (20e3, 76e3, 800e3)}
    if name in rates:
        words = [("record", 5e3, 0.9), ("record", 50e3, 4.0), ("adaptive", 5e3, 1.0), ("adaptive", 50e3, 3.0)]
        sentences = [at_rate(form, rate, "wordcount", mean_ms=mean_ms) for form, rate, mean_ms in words]
        return [at_rate(form, rate) for rate in rates[name] for form in FORMS] + sentences * (name == "rates")
    if name == "throughput":
        eps = {"record": 500e3, "adaptive": 1.5e6, "batch": 1.48e6}
        rows = [carried(form, eps[form] * (1 + run / 50)) for form in FORMS for run in range(3)]
        best = [carried(form, 0, capacity_eps=None, rate=None, sustained_eps=eps[form] * 0.9) for form in FORMS]
        return [*rows, *best, carried("batch", 300e3, engine="spark", rate=None)]
    if name == "scale":
        pairs = [(form, workers) for workers in (1, 2, 4) for form in ("record", "batch")]
        rows = [carried(form, 300e3 * min(workers, 2), settings={"workers": workers}) for form, workers in pairs]
        rows += [at_rate("adaptive", 20e3, settings={"workers": workers}) for workers in (1, 2, 4, 8)]
        return [*rows, at_rate("adaptive", 5e3, "shuffles", settings={"workers": 2})]
    if name == "state":
        return _state_rows()
    if name == "isolation":
        rows = [at_rate("adaptive", 4e3, settings={"case": case.value}, variant=case.value) for case in Case]
        return [carried("batch", 1.5e6), *rows]
    if name == "dynamism":
        pairs = [(trace, form) for trace in ("twitter", "dns") for form in FORMS]
        p99_ms = {"record": 4_000.0, "adaptive": 300.0, "batch": 400.0}
        rows = [
            at_rate(form, 6e4, f"scoring-{trace}", settings={"trace": trace}, p99_ms=p99_ms[form])
            for trace, form in pairs
        ]
        return [carried("record", 1e5, "scoring"), *rows]
    return []


def _state_rows() -> list[ResultRow]:
    drawn = [(keys, UNIFORM) for keys in KEYS] + [(STORE_KEYS, SKEWED)]
    eps = {"record": 400e3, "batch": 900e3}
    rows = [
        carried(
            form, eps[form] * (0.8 if kind == SKEWED else 1.0), "keyed-count", settings={"keys": keys, "drawn": kind}
        )
        for keys, kind in drawn
        for form in eps
    ]
    kept = [(keys, Store.LOCAL) for keys in KEYS] + [(STORE_KEYS, Store.OFF), (STORE_KEYS, Store.DURABLE)]
    return rows + [
        at_rate(
            "record",
            20e3,
            "keyed-count",
            settings={"keys": keys, "store": store.value},
            variant=variant(keys, store),
            p99_ms=1.0 + keys / 1e5,
        )
        for keys, store in kept
    ]


def held(keys: int, store: Store) -> Held:
    """A state that was held, and struck if its snapshots go to a local directory."""
    loss = Loss(12.0, 1, 0.3, 0.9 + keys / 1e6, 1.0, 1.2, 700.0, 900.0) if store is Store.LOCAL else None
    epochs = None if store is Store.OFF else Epochs(20.0, 30.0 + keys / 1e4, 12_000, 12_000 + 8 * keys)
    return Held(keys, store.value, epochs, loss, 0.8 if loss else None)


def replayed(trace: str, form: str) -> Replay:
    """A run through a load: two seconds high, two low."""
    looks = [Look(at / 2, 1e5, 5_000 if at < 4 else 0, 40.0) for at in range(1, 8)]
    rates = [2e5] * 20 + [1e4] * 20
    switches, share = (2, 0.4) if form == "adaptive" else (1, 1.0) if form == "batch" else (0, 0.0)
    return Replay(trace, "recorded", form, 80, 30.0, 2e5, 6e4, 5_000, share, switches, 5.0, 900, rates, looks)


def exchanged(name: str, rate: float) -> Exchanged:
    """A scenario in which two exchanges went well."""
    return Exchanged(name, rate, 2, [0.5, 9.0], [3.0, 4.0], 3.0, [0.1, 0.2], 0, 0, 0, 0, 0.0)


def _switched() -> list[ChangeReport]:
    """Five changes of form; the first one waits for Spark."""
    pauses_ms = {"batch": (900.0, 12.0, 14.0), "record": (2.0, 3.0)}
    return [
        ChangeReport(
            at_s=float(i),
            operations=["events", "count"],
            to=to,
            pause_ms=pause_ms,
            total_ms=90.0,
            carried_records=40,
            reason="ordered",
            inputs={},
        )
        for to, own in pauses_ms.items()
        for i, pause_ms in enumerate(own)
    ]


def _data(name: str) -> dict[str, object]:
    if name == "short":
        losses = [Loss(5.0 + 4 * i, 1, 0.6, 0.8, 0.9, 1.2, 700.0, 900.0, 0.9) for i in range(6)]
        outcome = Outcome(2, 3.0, 2e4, losses, [], True, Gaps([20.0], [15.0]))
        kills = {"outcomes": {"windowed": outcome}}
        return {**_data("burst"), **_data("groups"), **kills, "hand_overs": _switched()}
    if name == "burst":
        scene = Scene(8e3, 200e3, 4.0, 3.0, 5.0)
        return {"bursts": [{"scene": scene, "courses": [course(form, scene) for form in FORMS]}]}
    if name == "switch-point":
        loads = (0.5, 0.9, 1.25, 2.0)
        record = [step(load * 1e5, 1.0 if load < 1 else 900.0 * load) for load in loads]
        batch = [step(load * 1e5, 60.0, batch=1.0) for load in loads]
        adaptive = [step(load * 1e5, 1.0 if load < 1 else 70.0, batch=float(load > 1)) for load in loads]
        steps = {"20": {"record": record, "batch": batch, "adaptive": adaptive}}
        return {"capacity-20": 1e5, "steps": steps, "hand_overs": _switched()}
    if name == "groups":
        kinds = (("one stage", "light"), ("one stage", "heavy"), ("with a shuffle", "light"))
        points = [
            Point(*kind, size, 20 + 100 / size, 0.9 / size, 100 / size) for kind in kinds for size in (1, 25, 100)
        ]
        tuned = [Tuned(interval, at, 8 + at, 0.2 / at) for interval in ("50ms", "100ms") for at in range(1, 6)]
        return {"points": points, "tuned": tuned}
    if name == "latency-target":
        slow = [step(2e4, 0.5), step(2e5, 1.0), step(7e5, 900.0, kept_up=False)]
        fast = [step(2e4, 20.0), step(2e5, 25.0), step(7e5, 30.0)]
        return {"steps": {"record": slow, "adaptive": [*slow[:2], fast[2]], "batch": fast}}
    if name == "failure":
        losses = [Loss(5.0 + 7 * i, size, 0.6 / size, 0.8, 0.9, 1.2, 700.0, 900.0) for i, size in enumerate((1, 2, 3))]
        moments = [Moment(at / 10, 1.0, 900.0 if 50 < at < 59 else 3.0) for at in range(300)]
        return {"outcomes": {shape: Outcome(4, 3.0, 2e4, losses, moments) for shape in ("stateless", "windowed")}}
    if name == "elasticity":
        looks = [Seen(at_s=i / 2, records=9, p50_ms=1.0, p99_ms=3.0, workers=1, processes=1) for i in range(20)]
        moves = [MoveReport(4.0, 1, 0, 1, 30.0, 80.0, 2_000, "2 workers are wanted")]
        happened = [Happened(2.0, "a machine is added"), Happened(4.0, "two workers")]
        return {"course": Elastic(looks, happened, End(moves, True, 9_000))}
    if name == "state":
        kept = [(keys, Store.LOCAL) for keys in KEYS] + [(STORE_KEYS, Store.OFF), (STORE_KEYS, Store.DURABLE)]
        return {"held": [held(keys, store) for keys, store in kept]}
    if name == "isolation":
        busy = {Case.IDLE: 0.0, Case.RECORD: 300e3, Case.BATCH: 1.2e6, Case.SHARED: 1.1e6}
        return {
            "neighbours": [Shared(case.value, eps, 0.0 if case is Case.SHARED else 1.2) for case, eps in busy.items()]
        }
    if name == "alternatives":
        found = [exchanged(*each) for each in ((SAME, 1e3), (SAME, 2e4), (UP, 1e3), (DOWN, 1e3), (STATE, 2e4))]
        simple = exchanged(SIMPLE, 1e3)
        simple.pause_ms, simple.reordered, simple.disturbed_s = [], 420, 0.8
        return {"scenes": [*found, simple]}
    if name == "replicas":
        laws = [
            replicated(LAWS, row, where, p99_ms)
            for where in (MODEL, ENGINE)
            for row, p99_ms in ((FIXED, 110.0), (OURS_NAME, 150.0))
        ]
        rows = []
        for table, runs in paper_tables().items():
            for run in runs:
                row = replicated(table, run.name, MODEL, 500.0)
                if run.paper is not None:
                    row.mean_ms, row.processed = run.paper.latency_ms, run.paper.processed
                rows.append(row)
        return {"scenes": [*laws, *rows]}
    if name == "dynamism":
        return {"replays": [replayed(trace, form) for trace in ("twitter", "dns") for form in FORMS]}
    return {}


def replicated(table: str, name: str, where: str, p99_ms: float) -> Replicated:
    saved = 0.0 if name == FIXED else 0.58
    course = [[0.0, 4.0], [1.0, 9.0], [2.0, 6.0]] if name == OURS_NAME else []
    return Replicated(table, name, "twitter", where, saved, 0.01, 1.0, 0, 105.0, p99_ms, 900.0, 0, 20, course=course)


@pytest.fixture
def made() -> Callable[[str], Results]:
    """By the name of a study: results as it would write them, judged."""

    def make(name: str) -> Results:
        study = STUDIES[name]
        notes = StudyNotes(name=name, title=study.title, method=study.method, complete=True, quick=False)
        notes.data = msgspec.to_builtins(_data(name))
        results = Results(header=make_header(), rows=_rows(name), checks=[], study=notes)
        notes.claims, results.checks = study.judge(results)
        # What a file holds, and nothing that only memory has.
        return msgspec.json.decode(msgspec.json.encode(results), type=Results)

    return make
