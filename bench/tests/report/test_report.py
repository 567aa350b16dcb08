"""The report: from rows to figures and tables, what is left out, and where we lose."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib as mpl
import msgspec
import numpy as np
import pytest

from penstock.errors import InvalidOption
from penstock.metrics import Histogram
from penstock_bench.engines.registry import engine_class, engine_names
from penstock_bench.kafka.engines import ENGINES
from penstock_bench.meter.rows import Check, Header, ResultRow, Results, cdf_of, mean_ms_of
from penstock_bench.page import NothingToReport, load, write
from penstock_bench.report import draw, general, tables
from penstock_bench.report.chart import Bar, Bars, Figure, Line, Lines, Stack
from penstock_bench.report.losses import losses
from penstock_bench.report.theme import RC, Looks, css_variables
from penstock_bench.report.words import FORMS, in_order, label, ms, number, spread

ROOT = Path(__file__).parents[3]
HEADER = Header(
    penstock="0.1.0",
    python="3.11",
    spark="4.3.0",
    pyarrow="26",
    java="17 <b>",
    machine="Linux",
    cores=2,
    memory_gb=24.0,
    settings={"epoch": "1s", "spark": {"shuffle": 2}},
)


def row(form: str = "adaptive", rate: float | None = 4_000, engine: str = "penstock", **fields: object) -> ResultRow:
    known: dict[str, object] = {"p50_ms": 1.0, "p99_ms": 3.0, "lost": 0, "duplicated": 0, "reordered": 0}
    return ResultRow(workload="yahoo", engine=engine, form=form, rate=rate, seconds=1.0, events=1, **(known | fields))  # type: ignore[arg-type]


def results(*rows: ResultRow, checks: list[Check] | None = None) -> Results:
    return Results(header=HEADER, rows=list(rows), checks=checks or [])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(None, "–"), (0.0, "0"), (0.0451, "0.045"), (1.25, "1.25"), (12.34, "12.3"), (450.0, "450"), (-2.5, "-2.5")],
        *[(999.6, "1000"), (4_000.0, "4K"), (1_500_000.0, "1.5M"), (12_340.0, "12.3K"), (100_000.0, "100K")],
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_milliseconds_and_spreads() -> None:
    assert ms(12_345.6) == "12,346"
    assert ms(1.5) == "1.5"
    assert spread([3.0, 1.0, 2.0]) == "2 [1 … 3]"
    assert spread([2.0, None]) == "2"
    assert spread([None]) == "–"


def test_labels_and_their_order() -> None:
    assert label(row("batch")) == "batch"
    assert label(row("batch", engine="spark", variant="sql")) == "spark:sql"
    assert label(row("adaptive", variant="immediate")) == "penstock:immediate"
    assert in_order(["spark:sql", "batch", "record", "batch"]) == ["record", "batch", "spark:sql"]


def seen_as(colour: str, matrix: list[list[float]]) -> np.ndarray:
    """The colour in CIE Lab, as seen through a matrix of Machado, Oliveira and Fernandes (2009)."""
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.clip(np.array(matrix) @ np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4), 0, 1)
    to_xyz = [[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0178, 0.1095, 0.8729]]
    f = np.cbrt(np.array(to_xyz) @ linear + 1e-9)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


SEEN = {
    "usual": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
}


@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_every_engine_has_a_colour_and_a_marker_of_its_own_also_for_the_colour_blind(seen: list[list[float]]) -> None:
    looks, names = Looks(), ["record", "batch", *dict.fromkeys([*engine_names(), *ENGINES])]
    assert len({looks[name].marker for name in names}) == len(names)
    for one, other in itertools.combinations(names, 2):
        apart = np.linalg.norm(seen_as(looks[one].colour, seen) - seen_as(looks[other].colour, seen))
        assert apart > 9, f"{one} and {other}: {apart:.1f}"  # a difference of 2.3 is just noticed


def test_variants_have_the_colour_of_their_engine_and_differ_by_their_dashes() -> None:
    looks = Looks()
    for name, engine in [*((name, engine_class(name)) for name in engine_names()), *ENGINES.items()]:
        found = [looks[f"{name}:{variant}"] for variant in engine.variants if variant not in FORMS]
        assert len(set(found)) == len(found)
        assert {each.colour for each in found} <= {looks[name].colour}


def test_a_name_looks_the_same_in_every_figure_and_strangers_are_told_apart() -> None:
    strangers = [f"stranger {i}" for i in range(7)]
    looks = Looks()
    assert len({looks[name] for name in [*strangers, "adaptive", "spark"]}) == 9
    assert all(Looks()[name] == Looks()[name] for name in [*strangers, "flink:sql"])
    assert all(look.colour in css_variables() for look in looks.values())


def test_latency_over_rate_takes_the_median_and_the_range_of_repetitions() -> None:
    rows = [row(rate=rate, p99_ms=p99) for rate in (1_000.0, 2_000.0) for p99 in (3.0, 5.0, 4.0)]
    rows.append(row(rate=2_000.0, form="record", sustained=False))
    rows.append(row(rate=2_000.0, p99_ms=900.0, note="6 workers killed, one every 4 s"))
    (figure,) = general.latency_over_rate(rows, "x")
    p50, p99 = figure.panels
    assert isinstance(p99, Lines)
    record, adaptive = p99.lines
    assert (adaptive.label, list(adaptive.x), list(adaptive.y)) == ("adaptive", [1_000.0, 2_000.0], [4.0, 4.0])
    assert (list(adaptive.low), list(adaptive.high)) == ([3.0, 3.0], [5.0, 5.0])
    assert list(record.hollow) == [True]
    assert "p50" in p50.title


def test_one_rate_is_no_curve() -> None:
    assert general.latency_over_rate([row(), row("record")], "x") == []


def test_the_distribution_of_a_histogram() -> None:
    histogram = Histogram()
    for value in range(1, 101):
        histogram.record(value * 10)
    cdf = dict(cdf_of(histogram))
    assert cdf[0.5] == pytest.approx(0.5, rel=0.04)
    assert cdf[1.0] == 1.0
    assert mean_ms_of(histogram) == pytest.approx(0.505, rel=0.04)
    assert cdf_of(Histogram()) == []
    assert mean_ms_of(Histogram()) is None


def test_distributions_show_the_lowest_a_middle_and_the_highest_rate() -> None:
    rows = [row(rate=rate, cdf=[(0.5, 1.0), (1.0, 2.0)]) for rate in (1e3, 2e3, 3e3, 4e3, 5e3)]
    (figure,) = general.distributions(rows, "x")
    assert [panel.title for panel in figure.panels] == ["1K events/s", "3K events/s", "5K events/s"]


def test_components_stack_up_to_the_latency() -> None:
    parts = {"out": 0.0, "wait": 1.0, "schedule": 2.0, "process": 3.0, "transmit": 4.0}
    (figure,) = general.components([row(components_ms=parts)], "x")
    (panel,) = figure.panels
    assert isinstance(panel, Stack)
    assert sum(values[0] for values in panel.parts.values()) == 10.0


def test_throughput_bars_have_the_spread_of_their_runs() -> None:
    rows = [row("batch", None, capacity_eps=eps) for eps in (10.0, 30.0, 20.0)]
    (figure,) = general.throughput(rows, "x")
    (panel,) = figure.panels
    assert isinstance(panel, Bars)
    (bar,) = panel.bars
    assert (bar.value, bar.low, bar.high, bar.runs) == (20.0, 10.0, 30.0, 3)


def test_where_we_lose() -> None:
    check = Check(name="start", value=9.0, unit="s", target="5", met=False)
    found = losses(
        results(
            row(p99_ms=30.0, cpu_cores=1.0),
            row("record", p99_ms=3.0, cpu_cores=0.95),
            row("batch", engine="flink", variant="sql", p99_ms=50.0, cpu_cores=0.5),
            row(rate=9_000, lost=2),
            checks=[check],
        )
    )
    assert [each.what for each in found] == [
        "yahoo, adaptive, 9K events/s: the output was not exact: lost 2",
        "start: 9 s, wanted 5",
        "yahoo at 4K events/s: p99 30 ms in adaptive form, 3 ms with record",
        "yahoo at 4K events/s: CPU 1 cores in adaptive form, 0.5 cores with flink:sql",
    ]


def test_nothing_is_lost_where_nothing_is_worse() -> None:
    assert losses(results(row(p99_ms=3.0), row("record", p99_ms=3.0))) == []
    assert "Nothing was found" in tables.losses([])


def test_what_comes_from_files_is_escaped() -> None:
    assert "&lt;b&gt;" in tables.header(HEADER)
    assert "<b>" not in tables.measurements([row(form="<b>")])


def test_settings_of_engines_are_told() -> None:
    told = tables.header(HEADER, [row("batch", engine="spark", version="4.3.0", settings={"trigger": "0 s"})])
    assert "4.3.0; trigger = 0 s" in told
    assert "shuffle = 2" in told


def test_other_json_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(msgspec.json.encode(results(row())))
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "broken.json").write_text("{")
    found, skipped = load(tmp_path)
    assert [each.slug for each in found] == ["good"]
    assert [each.split(":")[0] for each in skipped] == ["broken.json", "other.json"]


def test_figures_of_several_rates_are_told_apart() -> None:
    check = Check(name="floor", value=1.0, unit="ms", target="low", met=True, detail={"rate_eps": 3_000})
    assert "floor at 3K events/s" in tables.checks([check])


def test_nothing_is_made_where_there_is_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(NothingToReport):
        write(tmp_path, tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(msgspec.json.encode(results(row())))
    with pytest.raises(InvalidOption, match="--out"):
        write(tmp_path, tmp_path / "good.json")


def test_a_place_without_results_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(NothingToReport, match="does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(NothingToReport, match=r"no JSON file.*--json"):
        load(tmp_path)
    (tmp_path / "cut.json").write_text('{"header": ')
    with pytest.raises(NothingToReport, match="none of its JSON files is one") as refused:
        load(tmp_path)
    assert "cut.json: Input data was truncated" in str(refused.value)
    with pytest.raises(NothingToReport, match="is not a directory"):
        load(tmp_path / "cut.json")


def test_results_that_older_versions_wrote_can_still_be_reported(tmp_path: Path) -> None:
    source = ROOT / "benchmarks" / "results" / "studies" / "rates.json"
    assert b'"rss_mb"' in source.read_bytes()
    (tmp_path / "rates.json").write_bytes(source.read_bytes())
    page, figures, skipped = write(tmp_path, tmp_path / "out")
    assert figures
    assert not skipped
    assert "Latency at fixed rates" in page.read_text()


def test_panels_with_words_of_their_own_have_legends_of_their_own() -> None:
    def panel(*labels: str) -> Lines:
        return Lines(labels[0], "x", "y", [Line(label, label, [1.0, 2.0], [1.0, 2.0]) for label in labels])

    apart = draw._draw(Figure("apart", "Apart", "", [panel("record", "batch"), panel("p50", "p99")]))
    assert not apart.legends
    assert [[each.get_text() for each in axes.get_legend().get_texts()] for axes in apart.axes] == [
        ["record", "batch"],
        ["p50", "p99"],
    ]
    shared = draw._draw(Figure("shared", "Shared", "", [panel("record", "batch"), panel("record")]))
    assert len(shared.legends) == 1
    assert not any(axes.get_legend() for axes in shared.axes)


def test_a_legend_of_many_engines_is_not_wider_than_its_figure() -> None:
    names = [f"{name}:{next(iter(engine.variants))}" for name, engine in ENGINES.items()]
    lines = [Line(name, name, [1.0, 2.0], [1.0, 2.0]) for name in names]
    with mpl.rc_context(RC):
        drawn = draw._draw(Figure("many", "Many", "", [Lines(each, "x", "y", lines) for each in ("p50", "p99")]))
        drawn.draw_without_rendering()
    (legend,) = drawn.legends
    assert len(legend.get_texts()) == len(names)
    assert legend.get_window_extent().x1 <= drawn.bbox.x1


def at(workload: str, form: str, rate: float) -> ResultRow:
    row = ResultRow(workload=workload, engine="penstock", form=form, rate=rate, seconds=1.0, events=1, p50_ms=1.0)
    row.p99_ms, row.cdf = 2.0, [(0.5, 1.0), (1.0, 2.0)]
    return row


def test_latency_over_rate_needs_several_rates_of_one_form() -> None:
    alone = [at("grep", "record", 4e3), at("grep", "adaptive", 1e5)]
    assert general.latency_over_rate(alone, "x") == []
    (several,) = general.latency_over_rate([*alone, at("yahoo", "record", 4e3), at("yahoo", "record", 2e4)], "x")
    assert [panel.title for panel in several.panels] == ["yahoo: p50", "yahoo: p99"]


def test_names_of_figures_can_be_referred_to() -> None:
    (figure,) = general.distributions([at("yahoo, engines", "record", 4e3)], "latest")
    assert figure.slug == "latest-yahoo-engines"


def test_a_bar_alone_is_no_thicker_than_others() -> None:
    drawn = draw._draw(Figure("one", "One", "", [Bars("one", "x", [Bar("a", "record", 1.0)])]))
    low, high = drawn.axes[0].get_ylim()
    assert abs(high - low) == draw.FEW_BARS
