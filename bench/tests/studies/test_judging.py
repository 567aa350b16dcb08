"""Studies hold what was measured against the papers, also when only a part was measured; claims can fail."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.control.changes import ChangeReport
from penstock_bench.meter.job import Step
from penstock_bench.meter.rows import Check, Claim, Results
from penstock_bench.studies import STUDIES
from penstock_bench.studies.alternatives import scene_of
from penstock_bench.studies.kills import Gaps, Outcome
from penstock_bench.studies.switch_point import Case, cases, crossover
from penstock_bench.studies.throughput import reached_eps

Made = Callable[[str], Results]


def claim_about(results: Results, words: str) -> Claim:
    assert results.study is not None
    claims, _ = STUDIES[results.study.name].judge(results)
    return next(claim for claim in claims if words in claim.source)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_puts_the_claim_beside_the_measurement(name: str, made: Made) -> None:
    results = made(name)
    assert results.study is not None
    assert results.study.claims
    for claim in results.study.claims:
        assert claim.source.split(",")[0] in ("DO", "QE", "PS", "Drizzle", "Finch")
        assert claim.claimed
        assert any(letter.isdigit() for letter in claim.measured)
        assert claim.holds is not False


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_was_interrupted_before_its_first_measurement_is_judged_too(name: str, made: Made) -> None:
    results = made(name)
    assert results.study is not None
    results.rows, results.checks, results.study.data = [], [], {}
    assert STUDIES[name].judge(results) == ([], [])
    assert STUDIES[name].figures(results) == []


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_was_interrupted_half_way_is_judged_and_drawn(name: str, made: Made) -> None:
    results = made(name)
    assert results.study is not None
    results.rows = results.rows[: len(results.rows) // 2]
    for key, value in results.study.data.items():
        if isinstance(value, list):
            results.study.data[key] = value[: len(value) // 2]
        if isinstance(value, dict):
            results.study.data[key] = dict(list(value.items())[:1])
    STUDIES[name].judge(results)
    STUDIES[name].figures(results)


@pytest.mark.parametrize("name", STUDIES)
def test_the_method_of_a_study_is_told_in_one_paragraph(name: str) -> None:
    method = STUDIES[name].method
    assert method.endswith(".")
    assert " ".join(method.split()) == method
    assert len(method) > 100


def test_latency_that_is_normal_at_once_after_a_kill_meets_its_target(made: Made) -> None:
    results = made("failure")
    assert results.study is not None
    outcomes = msgspec.convert(results.study.data["outcomes"], dict[str, Outcome])
    name = "windowed: latency normal again, slowest of 3 kills"
    for normal_s, value in ((0.0, 1.2), (None, -1.0)):
        outcomes["windowed"].losses[0].normal_s = normal_s
        results.study.data["outcomes"] = msgspec.to_builtins(outcomes)
        found = checks_of(results)[name]
        assert (found.value, found.met) == (value, normal_s is not None)


def test_a_batch_form_that_is_hardly_slower_refutes_the_speedup_at_low_rates(made: Made) -> None:
    results = made("rates")
    assert claim_about(results, "low rate").holds
    for row in results.rows:
        if row.form == "batch":
            row.p50_ms = 4.0
    assert claim_about(results, "low rate").holds is False


def test_waiting_in_the_adaptive_form_at_a_low_rate_refutes_table_1(made: Made) -> None:
    results = made("components")
    assert claim_about(results, "table 1").holds
    for row in results.rows:
        if row.form == "adaptive":
            row.components_ms["wait"] = 50.0
    assert claim_about(results, "table 1").holds is False


def test_components_that_do_not_add_up_are_a_missed_check(made: Made) -> None:
    results = made("components")
    assert all(check.met for check in results.checks)
    results.rows[0].components_ms["process"] += 5.0
    _, checks = STUDIES["components"].judge(results)
    assert [check.met for check in checks].count(False) == 1


def test_throughput_is_judged_by_medians(made: Made) -> None:
    results = made("throughput")
    assert claim_about(results, "record engines").holds
    assert "3x" in claim_about(results, "record engines").measured
    assert "of Structured Streaming's best (300K/s)" in claim_about(results, "micro-batches").measured
    for row in results.rows:
        if row.form == "record" and row.capacity_eps:
            row.capacity_eps = 1e6
    assert claim_about(results, "record engines").holds is False


def test_a_burst_without_a_switch_does_not_bear_figure_11_out(made: Made) -> None:
    results = made("burst")
    assert results.study is not None
    bursts = msgspec.convert(results.study.data["bursts"], list[dict[str, Any]])
    for course in bursts[0]["courses"]:
        course["switches"] = []
    results.study.data["bursts"] = bursts
    assert claim_about(results, "figure 11").holds is False


def test_the_rate_within_a_target_ends_at_the_first_step_over_it() -> None:
    def step(rate: float, p99_ms: float | None, kept_up: bool = True) -> Step:
        return Step(rate, p99_ms, p99_ms, p99_ms, 0, kept_up, {})

    steps = [step(1, 2.0), step(2, 4.0), step(3, 9.0), step(4, 3.0)]
    assert reached_eps(steps, 5.0) == 2
    assert reached_eps(steps, 9.0) == 4
    assert reached_eps(steps, 1.0) == 0
    assert reached_eps([step(1, 2.0), step(2, 2.0, kept_up=False)], 5.0) == 1
    assert reached_eps([step(1, 2.0), step(2, None)], 5.0) == 1


def test_cells_near_the_crossover_do_not_count(made: Made) -> None:
    results = made("switch-point")
    found = cases(results)
    assert [(case.load, case.better, case.chosen) for case in found] == [
        (0.5, "record", "record"),
        (0.9, "record", "record"),
        (1.25, "batch", "batch"),
        (2.0, "batch", "batch"),
    ]
    cross = crossover(found)
    assert cross is not None
    assert 0.9 < cross < 1.25
    assert [case.near for case in found] == [abs(case.load / cross - 1) <= 0.1 for case in found]
    assert results.checks[0].value == 1.0


def test_a_wrong_choice_is_counted_and_told(made: Made) -> None:
    results = made("switch-point")
    assert results.study is not None
    steps = msgspec.convert(results.study.data["steps"], dict[str, dict[str, list[Step]]])
    steps["20"]["adaptive"][-1].batch["work"] = 0.2
    results.study.data["steps"] = msgspec.to_builtins(steps)
    claims, checks = STUDIES["switch-point"].judge(results)
    counted = [case for case in cases(results) if not case.near]
    assert checks[0].value == round((len(counted) - 1) / len(counted), 4)
    assert not checks[0].met
    assert "20 µs at 2: record, batch better" in claims[0].measured
    assert checks[0].detail["wrong but no slower"] == 0
    steps["20"]["adaptive"][-1].mean_ms = 40.0
    results.study.data["steps"] = msgspec.to_builtins(steps)
    _, checks = STUDIES["switch-point"].judge(results)
    assert checks[0].detail["wrong but no slower"] == 1
    assert not checks[0].met


def test_pauses_of_changes_of_form_are_told_in_both_directions(made: Made) -> None:
    results = made("switch-point")
    found = checks_of(results)
    assert {name: check.value for name, check in found.items() if "hand-over" in name} == {
        "hand-over: pause, p99": 14.0,
        "hand-over: whole switch, warm, p99": 90.0,
        "hand-over to batch form: pause, p99": 14.0,
        "hand-over back to record form: pause, p99": 3.0,
    }
    assert all(check.met for check in found.values())
    assert found["hand-over to batch form: pause, p99"].detail == {"changes": 2, "p50_ms": 12.0, "longest_ms": 14.0}
    ((_, heads, lines),) = STUDIES["switch-point"].tables(results)
    assert [dict(zip(heads, line, strict=True))["pause max ms"] for line in lines] == ["14", "3"]
    assert results.study is not None
    results.study.data["hand_overs"][-1]["pause_ms"] = 20.5
    missed = [name for name, check in checks_of(results).items() if not check.met]
    assert missed == ["hand-over: pause, p99", "hand-over back to record form: pause, p99"]


def test_a_form_from_which_nothing_came_is_the_worse_one() -> None:
    silent = Case(20.0, 1.5, 1.0, None, 60.0, 60.0, "batch", "batch")
    calm = Case(20.0, 1.0, 1.0, 1.0, 60.0, 1.0, "record", "record")
    assert crossover([calm, silent]) == pytest.approx(1.5**0.5)
    assert crossover([calm, calm]) is None


def test_word_counts_whose_latency_does_not_grow_refute_figure_5_5(made: Made) -> None:
    results = made("rates")
    claim = claim_about(results, "figure 5.5")
    assert claim.holds
    assert "record 5K/s: 0.9 ms, 50K/s: 4 ms" in claim.measured
    for row in results.rows:
        row.mean_ms = 1.0
    assert claim_about(results, "figure 5.5").holds is False


def test_a_state_that_takes_most_of_the_throughput_is_told(made: Made) -> None:
    results = made("state")
    assert claim_about(results, "throughput in record form").holds
    assert "0.8x" in claim_about(results, "keyspace partitioning, batch").measured
    for row in results.rows:
        if row.capacity_eps and row.settings["keys"] == 1_000_000:
            row.capacity_eps /= 4
    assert claim_about(results, "throughput in record form").holds is False


def test_the_state_study_tells_what_was_not_measured_by_a_dash(made: Made) -> None:
    ((_, heads, lines),) = STUDIES["state"].tables(made("state"))
    assert all(len(line) == len(heads) for line in lines)
    off = next(line for line in lines if "no snapshots" in line[0])
    assert off[5:] == ["–"] * 7


def test_a_job_that_falls_behind_beside_another_is_starved(made: Made) -> None:
    results = made("isolation")
    assert claim_about(results, "starvation").holds
    results.rows[3].sustained = False
    assert claim_about(results, "starvation").holds is False
    assert "3 of 4 cases" in claim_about(results, "calm job").measured


def test_a_neighbour_that_gets_next_to_nothing_is_starved(made: Made) -> None:
    results = made("isolation")
    assert results.study is not None
    neighbours = msgspec.convert(results.study.data["neighbours"], list[dict[str, Any]])
    neighbours[2]["eps"] = 1_000.0
    results.study.data["neighbours"] = neighbours
    assert claim_about(results, "starvation").holds is False


def test_an_adaptive_form_that_is_no_better_than_records_does_not_follow_a_load(made: Made) -> None:
    results = made("dynamism")
    assert claim_about(results, "dynamism, dns").holds
    for row in results.rows:
        if row.settings.get("trace") == "dns" and row.form == "adaptive":
            row.p99_ms = 4_000.0
    assert claim_about(results, "dynamism, dns").holds is False
    assert claim_about(results, "dynamism, twitter").holds


def test_a_lost_event_refutes_that_nothing_is_lost(made: Made) -> None:
    results = made("dynamism")
    assert claim_about(results, "lost on the way").holds
    results.rows[-1].lost = 1
    assert claim_about(results, "lost on the way").holds is False


def checks_of(results: Results) -> dict[str, Check]:
    assert results.study is not None
    return {check.name: check for check in STUDIES[results.study.name].judge(results)[1]}


def test_the_short_set_holds_rows_of_one_run_against_each_other(made: Made) -> None:
    found = checks_of(made("short"))
    assert found["yahoo: carried in batch form against Structured Streaming's best"].value == 5.131
    assert found["wordcount: carried in the better form against Structured Streaming"].value == 5.0
    assert found["scoring: carried in batch form against record form"].value == 20.0
    assert found["yahoo: carried in adaptive form against batch form"].met
    assert found["yahoo at 4,000/s: p99 in adaptive form against record form"].value == 1.1
    assert found["yahoo at 4,000/s: p99 in batch form against adaptive form"].met
    assert not found["yahoo: sustained in batch form"].met, "1.3 million"
    assert "grep: carried in the better form against Structured Streaming" not in found, "it was not measured"


def test_engines_are_compared_as_they_were_measured_from_outside(made: Made) -> None:
    results, name = made("short"), "yahoo at 4,000/s: p50 of Structured Streaming against adaptive form"
    assert checks_of(results)[name].value == round(60.0 / 1.1, 3)
    for row in results.rows:
        if row.workload == "yahoo":
            row.p50_ms = 0.1  # what a job says of itself is another meter's word
    assert checks_of(results)[name].value == round(60.0 / 1.1, 3)


def test_the_short_set_tells_what_a_reader_sees_of_kills(made: Made) -> None:
    results = made("short")
    names = {
        "output resumes after a worker is killed, p95": 0.9,
        "latency is normal again after a worker is killed, p95": 1.2,
        "longest gap in a branch that the killed worker has no part in": 20.0,
    }
    found = checks_of(results)
    assert {name: found[name].value for name in names} == names
    assert all(found[name].met for name in names)
    assert results.study is not None
    outcomes = msgspec.convert(results.study.data["outcomes"], dict[str, Outcome])
    outcomes["windowed"].losses[3].resumed_s = outcomes["windowed"].losses[3].normal_s = None
    outcomes["windowed"].aside = Gaps([120.0], [15.0])
    results.study.data["outcomes"] = msgspec.to_builtins(outcomes)
    found = checks_of(results)
    assert not any(found[name].met for name in names)


def test_a_burst_is_judged_by_its_worst_moment_and_by_how_soon_it_is_calm(made: Made) -> None:
    results = made("short")
    worst, calm = (
        "scoring, burst, adaptive: worst p99 of half a second",
        "scoring, burst, adaptive: p99 under 10 ms again",
    )
    found = checks_of(results)
    assert (found[worst].value, found[worst].met) == (2.0, True)
    assert (found[calm].value, found[calm].met) == (0.0, True)
    assert results.study is not None
    bursts = msgspec.convert(results.study.data["bursts"], list[dict[str, Any]])
    for course in bursts[0]["courses"]:
        for sample in course["samples"]:
            if 4.0 <= sample["at_s"] < 10.0:
                sample["p99_ms"] = 1_500.0
    results.study.data["bursts"] = bursts
    found = checks_of(results)
    assert (found[worst].value, found[worst].met) == (1_500.0, False)
    assert (found[calm].value, found[calm].met) == (3.0, False)
    assert found[worst.replace("adaptive", "record")].met, "the target is the adaptive form's"


def test_an_exchange_that_takes_long_or_loses_a_record_misses_its_target(made: Made) -> None:
    results = made("alternatives")
    assert all(check.met for check in results.checks)
    assert claim_about(results, "same speed").holds
    assert results.study is not None
    scene = results.study.data["scenes"][0]
    scene["pause_ms"], scene["missing"], scene["dip_percent"] = [0.5, 70.0], 1, [3.0, 3.0]
    claims, checks = STUDIES["alternatives"].judge(results)
    missed = [check.name for check in checks if not check.met]
    assert missed == [
        "same speed, 1K/s: longest pause",
        "same speed, 1K/s: missing, duplicated, reordered",
        "same speed, 1K/s: throughput dip",
    ]
    assert [claim.source for claim in claims if not claim.holds] == ["QE, section 5: same speed"]


def test_what_the_stamps_of_an_exchange_say() -> None:
    def row(number: int, at_ms: float) -> dict[str, object]:
        return {"number": number, "by": "one", "at_us": round(1000 * at_ms)}

    switch = ChangeReport(
        at_s=0.05, operations=["score"], to="two", pause_ms=1.0, total_ms=0.0, carried_records=0, reason="", inputs={}
    )
    rows = [row(0, 10), row(2, 20), row(4, 30), row(3, 60), row(1, 70), row(1, 80)]
    report = SimpleNamespace(switches=[switch], offsets={"events": [3, 3]}, began_us=0)
    scene = scene_of("same speed", 100.0, rows, report)
    assert (scene.missing, scene.duplicated, scene.reordered) == (1, 1, 2)
    assert scene.gap_ms == [30.0]
    assert scene.dip_percent == [0.0]
    counted = [{**row(n, n), "key": 1, "n": n + 1 + (n > 1)} for n in range(3)]
    report = SimpleNamespace(switches=[], offsets={"events": [3]}, began_us=0)
    assert scene_of("100K keys", 100.0, counted, report).reordered == 1


def test_what_workers_and_shuffles_cost_is_held_against_targets(made: Made) -> None:
    results = made("scale")
    checks = STUDIES["scale"].judge(results)[1]
    assert len(checks) == 3
    assert all(check.met for check in checks)
    for row in results.rows:
        row.p99_ms = 10.1 if row.workload == "shuffles" else 6.1
        row.cpu_cores = 1.6 if row.settings["workers"] == 2 else 1.0
    assert not any(check.met for check in STUDIES["scale"].judge(results)[1])
