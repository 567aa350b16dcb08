"""The runner: order of repetitions, options for the engines, what is shown and what is written."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from penstock.errors import InvalidOption
from penstock_bench.commands import check_comparison, parse_settings
from penstock_bench.engines import RunOptions, open_engine, subject
from penstock_bench.meter.rows import Check, ProcessUsage, ResultRow, Results, results_schema
from penstock_bench.meter.runner import Spread, interleaved, measure, new_run, results_of
from penstock_bench.report.presentation import (
    check_line,
    comparison_tables,
    exactness,
    progress_view,
    row_lines,
    rows_table,
)

SCHEMA = Path(__file__).parents[3] / "benchmarks" / "results.schema.json"


def row(engine: str = "spark", p99_ms: float | None = 5.0, **more: object) -> ResultRow:
    return ResultRow(
        workload="yahoo",
        engine=engine,
        form="batch",
        rate=1_000.0,
        seconds=10.0,
        events=10_000,
        p50_ms=1.0,
        p99_ms=p99_ms,
        results=5,
        sustained=True,
        variant="sql",
        processes=[ProcessUsage(name="java", cpu_cores=0.5, pss_mb=300.0)],
        **more,  # type: ignore[arg-type]
    )


def test_engines_take_turns_and_each_is_first_once() -> None:
    engines = [open_engine(name) for name in ("plain", "spark", "flink")]
    order = [engine.name for engine in interleaved(engines, 3)]
    assert order == ["plain", "spark", "flink", "spark", "flink", "plain", "flink", "plain", "spark"]


def test_options_go_to_the_engines_that_have_them() -> None:
    engines = [open_engine(name) for name in ("spark:sql", "penstock:record", "flink:sql")]
    assert parse_settings(["trigger=1s", "flink.buffer-timeout=0s"], engines) == {
        "spark:sql": {"trigger": "1s"},
        "penstock:record": {},
        "flink:sql": {"buffer-timeout": "0s"},
    }


@pytest.mark.parametrize("given", ["trigger", "triger=1s", "flink.trigger=1s"])
def test_options_that_nobody_has_are_refused(given: str) -> None:
    with pytest.raises(InvalidOption):
        parse_settings([given], [open_engine("spark"), open_engine("flink")])


def test_a_measurement_has_the_distribution_of_its_latency() -> None:
    row, found = measure(open_engine("plain"), subject("yahoo"), 500.0, 1.0, RunOptions(warm_up_s=0.0), "test")
    assert found.found.exact
    assert row.cdf[-1] == (1.0, row.max_ms)
    assert row.mean_ms is not None
    assert row.cdf[0][1] <= row.mean_ms <= row.cdf[-1][1] * 1.04


def test_the_spread_of_repetitions() -> None:
    assert Spread.of([3.0, None, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert Spread.of([None]) is None


def test_runs_have_names_of_their_own() -> None:
    assert len({new_run() for _ in range(100)}) == 100


def test_an_output_that_is_not_exact_is_said_so() -> None:
    assert exactness(row(lost=0, duplicated=0)).startswith("exact")
    told = row(lost=2, reordered=1_000)
    assert exactness(told) == "NOT EXACT: lost 2, reordered 1,000"
    assert exactness(told) in "\n".join(row_lines(told))


def test_there_is_a_table_for_each_rate_with_a_line_for_each_engine() -> None:
    other = msgspec.structs.replace(row(), rate=2_000.0)
    first, second = comparison_tables([row(), row(p99_ms=7.0), row("flink", p99_ms=None), other])
    assert (first.row_count, second.row_count) == (2, 1)
    cells = [list(column.cells) for column in first.columns]
    assert cells[0] == ["spark:sql\n  least\n  largest", "flink:sql"]
    assert cells[2] == ["6.00\n5.00\n7.00", "–"]


def test_tables_fit_into_80_columns() -> None:
    large = {"p50_ms": 28_836.0, "p999_ms": 29_612.4, "max_ms": 29_612.4, "throughput_eps": 1_234_567.0}
    large |= {"cpu_cores": 1.97, "pss_mb": 12_345.6}
    runs = [msgspec.structs.replace(row("spark-realtime", p99_ms=29_612.4), **large) for _ in range(2)]
    console = Console(width=80, color_system=None)
    with console.capture() as shown:
        for table in comparison_tables(runs):
            console.print(table)
    assert "…" not in shown.get()
    assert "spark-realtime:sql" in shown.get()
    assert "29.6K" in shown.get()


def test_a_backlog_that_shrinks_does_not_grow() -> None:
    assert "shrank by 4.0% of what was offered" in "\n".join(row_lines(row(backlog_growth=-0.04)))
    assert "grew by 4.0% of what was offered" in "\n".join(row_lines(row(backlog_growth=0.04)))


def test_figures_of_the_meter_are_told_in_words() -> None:
    detail: dict[str, object] = {"p99_ms": 3.25, "rate_eps": 10_000, "how": "one loop"}
    check = Check(name="floor", value=0.7, unit="ms", target="below what is measured", met=True, detail=detail)
    assert check_line(check) == "floor: 0.70 ms, p99 3.25 ms, at 10,000 events/s\n  one loop"
    assert "NOT below what is measured" in check_line(msgspec.structs.replace(check, met=False))


def test_phases_are_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_view(Console(force_terminal=False)) as view:
        view.begin("plain:loop at 10/s")
        view.tell("measuring", 3.0)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "plain:loop at 10/s: measuring, 3 s" in shown.err


@pytest.mark.parametrize(
    ("engines", "rates", "repetitions", "option"),
    [
        (["plain", "plain:loop"], [1.0], 1, "--engine"),
        (["plain"], [1.0, 1.0], 1, "--rate"),
        (["plain"], [1.0], 0, "--repeat"),
    ],
)
def test_comparisons_that_mean_nothing_are_refused(
    engines: list[str], rates: list[float], repetitions: int, option: str
) -> None:
    with pytest.raises(InvalidOption) as refused:
        check_comparison([open_engine(each) for each in engines], rates, repetitions)
    assert refused.value.option == option


def test_results_say_what_they_were_made_with_and_read_back() -> None:
    results = results_of([row(run="r1")], [], RunOptions(warm_up_s=3.0), repetitions=2)
    told = results.header.settings
    assert "first 3 s" in str(told["warm_up"])
    assert told["repetitions"] == 2
    assert msgspec.json.decode(msgspec.json.encode(results), type=Results) == results


def test_the_published_schema_is_that_of_the_results() -> None:
    # After a change of the rows: python -m penstock_bench.meter.rows > benchmarks/results.schema.json
    assert json.loads(SCHEMA.read_text()) == results_schema()


def test_results_that_were_written_before_can_still_be_read() -> None:
    written = (SCHEMA.parent / "results" / "latest.json").read_bytes()
    assert msgspec.json.decode(written, type=Results).rows


def test_the_table_of_a_study_has_every_row() -> None:
    rows = [
        ResultRow(workload="yahoo", engine="penstock", form="record", rate=4_000, seconds=1, events=1, p50_ms=0.666),
        ResultRow(workload="yahoo", engine="spark", form="batch", variant="sql", rate=None, seconds=1, events=1),
    ]
    rows[0].lost, rows[0].duplicated, rows[1].sustained_eps = 2, 1, 569_559.0
    out = Console(width=130, record=True, file=io.StringIO())
    out.print(rows_table(rows))
    first, second = [line.split() for line in out.export_text().splitlines()[1:]]
    assert first == ["yahoo", "record", "4,000", "0.67", "3"]
    assert second == ["yahoo", "spark:sql", "570K"]
