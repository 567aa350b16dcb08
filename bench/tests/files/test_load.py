"""Workload files: what is accepted and what it means, and every mistake with the path of its field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock_bench.files import Description, WorkloadRefused, describe, load
from penstock_bench.files.layout import Place
from penstock_bench.files.program import specification
from penstock_bench.foreign.programs.stages import Window

ROOT = Path(__file__).parents[3]
COMMONS = "org.apache.commons.math3.distribution"
SOURCE: dict[str, Any] = {
    "key_dist": "uniform",
    "key_dist_params": {"num_keys": 10},
    "msg_dist": "constant",
    "msg_dist_params": {"value": 20},
    "rate_dist": "constant",
    "rate_dist_params": {"rate": 1000},
}
FILTER = {"operator": "filter", "input": "s1", "params": {"p": 0.5}}


def write(path: Path, **parts: Any) -> Path:
    document = {"sources": {"s1": SOURCE}, "transformations": {"t1": FILTER}, "sinks": ["t1"], **parts}
    path.write_text(json.dumps(document))
    return path


def loaded(tmp_path: Path, **parts: Any) -> Description:
    return load(write(tmp_path / "workload.json", **parts))


def refused(tmp_path: Path, **parts: Any) -> list[str]:
    with pytest.raises(WorkloadRefused) as caught:
        loaded(tmp_path, **parts)
    return [str(problem) for problem in caught.value.problems]


def source(**changes: Any) -> dict[str, Any]:
    return {"s1": {**SOURCE, **changes}}


def test_listing_4_1_of_the_thesis_is_read_as_it_stands() -> None:
    workload = load(ROOT / "benchmarks" / "workloads" / "listing-4.1.json")
    s1 = workload.sources["s1"]
    assert (s1.keys.count, s1.lengths.low, s1.lengths.count) == (10, 100, 901)
    assert s1.keys.shares[0] / s1.keys.shares[1] == pytest.approx(2**1.2)
    assert s1.schedule.segments[0].rate_eps == 1000
    assert workload.layout.order == ("t1", "t2")
    assert workload.layout.sinks == {"t2": Place("t2")}
    assert workload.layout.rates_eps["t2"] == (pytest.approx(500), pytest.approx(500))


def test_files_of_the_original_tool_are_read(tmp_path: Path) -> None:
    """Full class names, keys from 1 on, outputs by name, a join that is called like its sink."""
    workload = loaded(
        tmp_path,
        sources={
            "source1": {
                "key_dist": f"{COMMONS}.UniformIntegerDistribution",
                "key_dist_params": {"lower": 1, "upper": 100},
                "msg_dist": f"{COMMONS}.UniformIntegerDistribution",
                "msg_dist_params": {"lower": 10, "upper": 30},
                "rate_dist": f"{COMMONS}.UniformIntegerDistribution",
                "rate_dist_params": {"rate": 20000.0},
            },
            "source2": {
                "key_dist": f"{COMMONS}.ZipfDistribution",
                "key_dist_params": {"num_keys": 5, "exponent": 1.2},
                "msg_dist": f"{COMMONS}.ZipfDistribution",
                "msg_dist_params": {"num_keys": 30, "exponent": 2},
                "rate_dist": f"{COMMONS}.PoissonDistribution",
                "rate_dist_params": {"mean": 100},
            },
        },
        transformations={
            "split1": {
                "operator": "split",
                "input": "source1",
                "params": {"n": 2},
                "outputs": ["split1__1", "split1__2"],
            },
            "window1": {
                "operator": "window",
                "input": "split1__2",
                "params": {"type": "tumbling", "duration": "500ms"},
            },
            "merged": {"operator": "merge", "inputs": ["split1__1", "source2"]},
            "sink1": {"operator": "join", "inputs": ["merged", "window1"], "params": {"ttl": "1m"}},
        },
        sinks=["sink1"],
    )
    first, second = workload.sources.values()
    assert (first.keys.low, first.keys.count) == (0, 100)
    assert (second.keys.count, second.lengths.low, second.lengths.count) == (5, 1, 30)
    assert second.rate_eps == pytest.approx(100, rel=0.02)
    assert workload.layout.inputs["merged"] == (Place("split1", 0), Place("source2"))
    assert workload.layout.inputs["window1"] == (Place("split1", 1),)
    assert workload.layout.timing["window1"].size_us == 500_000
    assert workload.layout.timing["sink1"].ttl_us == 60_000_000


def test_outputs_of_a_split_have_names_of_their_own_if_none_are_given(tmp_path: Path) -> None:
    split = {"operator": "split", "input": "s1", "params": {"n": 3}}
    workload = loaded(tmp_path, transformations={"copies": split}, sinks=["copies__3", "copies__1"])
    assert workload.layout.sinks == {"copies__3": Place("copies", 2), "copies__1": Place("copies", 0)}


def test_an_output_may_name_the_sink_of_any_transformation(tmp_path: Path) -> None:
    workload = loaded(tmp_path, transformations={"t1": {**FILTER, "outputs": ["result"]}}, sinks=["result"])
    assert workload.layout.sinks == {"result": Place("t1")}


def test_lists_with_names_and_yaml_mean_the_same(tmp_path: Path) -> None:
    plain = loaded(tmp_path)
    listed = loaded(tmp_path, sources=[{"name": "s1", **SOURCE}], transformations=[{"name": "t1", **FILTER}])
    path = tmp_path / "workload.yaml"
    path.write_text(yaml.safe_dump(json.loads((tmp_path / "workload.json").read_text())))
    for other in (listed, load(path)):
        assert describe(other)[1:] == describe(plain)[1:]
        assert other.layout == plain.layout


def test_the_order_of_transformations_in_the_file_does_not_matter(tmp_path: Path) -> None:
    second = {"operator": "filter", "input": "t1", "params": {"p": 0.1}}
    workload = loaded(tmp_path, transformations={"t2": second, "t1": FILTER}, sinks=["t2"])
    assert workload.layout.order == ("t1", "t2")


def test_what_leads_to_no_sink_is_left_out_and_said(tmp_path: Path) -> None:
    workload = loaded(tmp_path, transformations={"t1": FILTER, "t2": FILTER})
    assert workload.layout.unused == ("t2",)
    assert "note: t2 leads to no sink and is left out" in describe(workload)


def test_a_join_that_makes_too_many_pairs_is_pointed_out(tmp_path: Path) -> None:
    document = json.loads((ROOT / "benchmarks" / "workloads" / "finch-pipeline.json").read_text())
    document["transformations"]["join1"]["params"]["match"] = "all"
    path = tmp_path / "all.json"
    path.write_text(json.dumps(document))
    told = describe(load(path))
    assert any("join1 makes about 37,500,000/s: give it match 'once'" in line for line in told)
    assert any("at most 5s apart, all pairs" in line and "37,500,000/s out" in line for line in told)


def test_a_join_makes_as_many_pairs_as_its_rarer_side_has_messages() -> None:
    workload = load(ROOT / "benchmarks" / "workloads" / "finch-pipeline.json")
    assert workload.layout.rates_eps["join1"] == (pytest.approx(17_500), pytest.approx(2_500))
    told = describe(workload)
    assert not any(line.startswith("note:") for line in told)
    assert any("each message in one pair" in line and "17,500/s in, at most 2,500/s out" in line for line in told)


def test_keys_that_one_side_lacks_make_no_pairs(tmp_path: Path) -> None:
    one = {**SOURCE, "key_dist": "constant", "key_dist_params": {"value": 1}}
    other = {**SOURCE, "key_dist": "constant", "key_dist_params": {"value": 3}}
    step = {"operator": "join", "inputs": ["s1", "s2"], "params": {"ttl": "5s", "match": "once"}}
    workload = loaded(tmp_path, sources={"s1": one, "s2": other}, transformations={"t1": step})
    assert workload.layout.rates_eps["t1"] == (pytest.approx(2_000), 0.0)


def test_the_probability_of_a_filter_is_that_of_dropping(tmp_path: Path) -> None:
    workload = loaded(tmp_path, transformations={"t1": {**FILTER, "params": {"p": 0.9}}})
    assert workload.layout.rates_eps["t1"] == (pytest.approx(1000), pytest.approx(100))
    assert any("p is the probability of dropping" in line for line in describe(workload))


@pytest.mark.parametrize(
    ("params", "starts"),
    [
        ({"type": "sliding", "duration": "10s", "slide": "4s"}, [0, 4, 8]),
        ({"type": "sliding", "duration": "10s"}, [0, 5]),
        ({"type": "tumbling", "duration": 10}, [0]),
    ],
)
def test_windows(tmp_path: Path, params: dict[str, Any], starts: list[int]) -> None:
    window = {"operator": "window", "input": "s1", "params": params}
    (step,) = specification(loaded(tmp_path, transformations={"t1": window}))["steps"]
    assert sorted(each // 1_000_000 for each in Window(step).starts_us(9_000_000)) == starts


def test_sessions_are_told_by_their_gap_and_foreseen_by_their_rates(tmp_path: Path) -> None:
    window = {"operator": "window", "input": "s1", "params": {"type": "session", "duration": "30ms"}}
    workload = loaded(tmp_path, transformations={"t1": window})
    timing = workload.layout.timing["t1"]
    assert (timing.is_session, timing.size_us) == (True, 30_000)
    came_eps, made_eps = workload.layout.rates_eps["t1"]
    assert 0 < made_eps < came_eps
    assert any("sessions, which end when none has come for 30ms" in line for line in describe(workload))
    (step,) = specification(workload)["steps"]
    assert (step["do"], step["gap_us"]) == ("session", 30_000)


@pytest.mark.parametrize("operator", ["tumbling_window", "sliding_window"])
def test_window_operators_of_either_name(tmp_path: Path, operator: str) -> None:
    window = {"operator": operator, "input": "s1", "params": {"duration": "2s"}}
    timing = loaded(tmp_path, transformations={"t1": window}).layout.timing["t1"]
    assert timing.slide_us == (2_000_000 if operator == "tumbling_window" else 1_000_000)


TRANSFORMATION_ERRORS: list[tuple[dict[str, Any], str]] = [
    (
        {**FILTER, "params": {"p": 1.5}},
        r"transformations.t1.params.p: 1.5 is not allowed. Allowed: probability of DROPP",
    ),
    ({**FILTER, "params": {"p": 1}}, "transformations.t1.params.p: 1 is not allowed"),
    ({**FILTER, "params": {"p": -0.1}}, "transformations.t1.params.p: -0.1 is not allowed"),
    ({**FILTER, "params": {"p": "0.5"}}, "transformations.t1.params.p: '0.5' is not allowed"),
    ({**FILTER, "params": {"prob": 0.5}}, "transformations.t1.params.prob: there is no field 'prob'"),
    ({**FILTER, "params": {"cpu_laod": 0.5}}, "Did you mean 'cpu_load'?"),
    ({**FILTER, "params": {"mem_load": 1.1}}, "transformations.t1.params.mem_load: 1.1 is not allowed"),
    ({**FILTER, "p": 0.5}, "transformations.t1.p: parameters stand in params: write transformations.t1.params.p"),
    ({**FILTER, "inptu": "s1"}, "transformations.t1.inptu: there is no field 'inptu'. Allowed: operator, name, input"),
    ({**FILTER, "operator": "filtre"}, "transformations.t1.operator: there is no operator 'filtre'"),
    ({**FILTER, "operator": "filtre"}, "Did you mean 'filter'?"),
    ({"input": "s1"}, "transformations.t1.operator: missing. Allowed: filter, split"),
    ({**FILTER, "input": "s2"}, "transformations.t1.input: there is no source or transformation 's2'. Allowed: s1, t1"),
    ({**FILTER, "input": "t1"}, "transformations.t1.input: it goes round in a circle: t1 → t1"),
    ({**FILTER, "inputs": ["s1"]}, "transformations.t1.inputs: there is an input beside it"),
    ({"operator": "filter"}, "transformations.t1.input: filter needs input, one name; 0 given"),
    (
        {"operator": "filter", "inputs": ["s1", "s1"]},
        "transformations.t1.inputs: filter needs input, one name; 2 given",
    ),
    ({"operator": "merge", "input": "s1"}, "transformations.t1.inputs: merge needs inputs, two names or more; 1 given"),
    ({"operator": "join", "inputs": ["s1"], "params": {"ttl": "5s"}}, "join needs inputs, two names; 1 given"),
    ({"operator": "join", "inputs": ["s1", "s1"], "params": {}}, "transformations.t1.params.ttl: missing"),
    ({"operator": "join", "inputs": ["s1", "s1"]}, "transformations.t1.params: missing"),
    (
        {"operator": "join", "inputs": ["s1", "s1"], "params": {"ttl": "5sec"}},
        "transformations.t1.params.ttl: '5sec' is not allowed. Allowed: a duration such as '500ms'",
    ),
    (
        {"operator": "join", "inputs": ["s1", "s1"], "params": {"ttl": "5s", "match": "onse"}},
        "transformations.t1.params.match: there is no match 'onse'. Allowed: all, once. Did you mean 'once'?",
    ),
    (
        {"operator": "join", "inputs": ["s1", "s1"], "params": {"ttl": "5s", "match": 1}},
        "transformations.t1.params.match: there is no match 1. Allowed: all, once.",
    ),
    (
        {"operator": "join", "inputs": ["s1", "s1"], "params": {"ttl": "5s"}, "match": "all"},
        "transformations.t1.match: parameters stand in params: write transformations.t1.params.match",
    ),
    ({"operator": "split", "input": "s1", "params": {"n": 0}}, "transformations.t1.params.n: 0 is not allowed"),
    ({"operator": "split", "input": "s1", "params": {"n": 2.5}}, "transformations.t1.params.n: 2.5 is not allowed"),
    (
        {"operator": "split", "input": "s1", "params": {"n": 2}, "outputs": ["a"]},
        "transformations.t1.outputs: 1 names are not allowed. Allowed: as many names as n says, 2",
    ),
    (
        {"operator": "split", "input": "s1", "params": {"n": 2}, "outputs": ["a", "s1"]},
        "transformations.t1.outputs: the name 's1' belongs to something else already",
    ),
    (
        {"operator": "split", "input": "s1", "params": {"n": 2}},
        "sinks[0]: 't1' is a split. Name one of its outputs: t1__1",
    ),
    ({"operator": "modify", "input": "s1", "params": {"rate_ratio": 0}}, "params.rate_ratio: 0 is not allowed"),
    (
        {"operator": "window", "input": "s1", "params": {"type": "hopping", "duration": "3s"}},
        "transformations.t1.params.type: there is no type 'hopping'. Allowed: tumbling, sliding, session",
    ),
    (
        {"operator": "window", "input": "s1", "params": {"type": "session", "duration": "3s", "slide": "1s"}},
        "transformations.t1.params.slide: only sliding windows have it",
    ),
    (
        {"operator": "window", "input": "s1", "params": {"duration": "1s", "slide": "1ms"}},
        "transformations.t1.params.slide: only sliding windows have it",
    ),
    (
        {"operator": "sliding_window", "input": "s1", "params": {"duration": "1s", "slide": "2s"}},
        "transformations.t1.params.slide: '2s' is not allowed. Allowed: at most the duration",
    ),
    ({"operator": "window", "input": "s1", "params": {}}, "transformations.t1.params.duration: missing"),
]


@pytest.mark.parametrize(("transformation", "problem"), TRANSFORMATION_ERRORS)
def test_mistakes_in_transformations(tmp_path: Path, transformation: dict[str, Any], problem: str) -> None:
    found = refused(tmp_path, transformations={"t1": transformation})
    assert any(problem in each for each in found), found


SOURCE_ERRORS: list[tuple[dict[str, Any], str]] = [
    (
        {"rate_dist_params": {"rate": 0}},
        "sources.s1.rate_dist_params.rate: 0 is not allowed. Allowed: messages per sec",
    ),
    ({"rate_dist_params": {}}, "sources.s1.rate_dist_params.rate: missing: constant needs it"),
    ({"rate_dist": "uniform", "rate_dist_params": {"lower": 0, "upper": 0}}, "sources.s1.rate_dist_params: "),
    ({"rate_dist": "burst", "rate_dist_params": {"base": 1}}, "sources.s1.rate_dist_params.peak: missing"),
    ({"rate_dist": "trace", "rate_dist_params": {"path": "none.csv"}}, "sources.s1.rate_dist_params.path: "),
    ({"rate_dist": "brust"}, "sources.s1.rate_dist: there is no distribution 'brust'"),
    ({"rate_dist": "brust"}, "Did you mean 'burst'?"),
    ({"rate_dist": "steps", "rate_dist_params": {"steps": []}}, "sources.s1.rate_dist_params.steps: [] is not allowed"),
    (
        {"rate_dist": "steps", "rate_dist_params": {"steps": [{"duration": "1s", "rate": 5}, {"duration": "1s"}]}},
        "sources.s1.rate_dist_params.steps[1].rate: missing",
    ),
    ({"key_dist": f"{COMMONS}.ZipfDistributio"}, "Did you mean 'ZipfDistribution'?"),
    ({"key_dist": "trace"}, "sources.s1.key_dist: there is no distribution 'trace'"),
    ({"key_dist": "zipf"}, "sources.s1.key_dist_params.exponent: missing: zipf needs it"),
    ({"key_dist_params": {"num_keys": 0}}, "sources.s1.key_dist_params.num_keys: 0 is not allowed"),
    ({"key_dist_params": {"exponent": 1}}, "sources.s1.key_dist_params.exponent: it is not a parameter of uniform"),
    ({"key_dist_params": {}}, "sources.s1.key_dist_params.lower: missing"),
    ({"key_dist_params": {"lower": 5, "upper": 4}}, "sources.s1.key_dist_params.upper: 4 is not allowed"),
    ({"num_keys": 11}, "sources.s1.num_keys: it is 11, but key_dist_params.num_keys is 10"),
    ({"msg_dist_params": {"value": 1_000_000}}, "sources.s1.msg_dist_params.value: 1000000 is not allowed"),
    ({"msg_dist": None}, "sources.s1.msg_dist: None is not allowed"),
    ({"rates": 5}, "sources.s1.rates: there is no field 'rates'"),
    ({"name": "s2"}, "sources.s1.name: it is 's2', but it stands under 's1'"),
]


@pytest.mark.parametrize(("changes", "problem"), SOURCE_ERRORS)
def test_mistakes_in_sources(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    found = refused(tmp_path, sources=source(**changes))
    assert any(
        problem.replace("'none.csv'", str(tmp_path)) in each.replace("'", "") or problem in each for each in found
    ), found


def test_entries_of_lists_are_named_by_their_place(tmp_path: Path) -> None:
    other = {"name": "t2", **FILTER, "params": {"p": 7}}
    found = refused(tmp_path, transformations=[{"name": "t1", **FILTER}, other, FILTER])
    assert found == [
        "transformations[2].name: missing: in a list every entry has a name.",
        "transformations[1].params.p: 7 is not allowed. Allowed: probability of DROPPING a message: from 0 up to, not "
        "including, 1.",
    ]


def test_a_circle_is_shown_in_the_direction_of_the_messages(tmp_path: Path) -> None:
    def step(name: str) -> dict[str, Any]:
        return {"operator": "filter", "input": name}

    found = refused(tmp_path, transformations={"t1": step("t3"), "t2": step("t1"), "t3": step("t2")})
    assert found == ["transformations.t1.input: it goes round in a circle: t1 → t2 → t3 → t1."]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "line 1, column 2: not valid JSON"),
        ("[]", "it must hold an object"),
        ('{"sources": {}, "sources": {}}', "'sources' stands twice in one object"),
        ('{"seed": NaN}', "NaN is not a number"),
        ('{"sinks": [], "sorces": {}}', "sorces: there is no field 'sorces'"),
        ('{"sinks": []}', "sources: missing."),
        ('{"sources": {}, "sinks": "t1"}', "sinks: 't1' is not allowed"),
        ('{"sources": {}, "sinks": []}', "sources: there must be at least one"),
        ('{"sources": 5, "sinks": []}', "sources: 5 is not allowed. Allowed: a map by name"),
        ('{"sources": {"a/b": {}}, "sinks": []}', "sources.a/b: 'a/b' is not allowed"),
        ('{"sources": {"a:b": {}}, "sinks": []}', "sources.a:b: 'a:b' is not allowed"),
        ('{"sources": {}, "sinks": [], "seed": -1}', "seed: -1 is not allowed. Allowed: seed of all"),
    ],
)
def test_files_that_are_no_workload(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "workload.json"
    path.write_text(text)
    with pytest.raises(WorkloadRefused) as caught:
        load(path)
    assert problem in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, problem in ((tmp_path / "none.json", "does not exist"), (tmp_path, "is a directory")):
        with pytest.raises(WorkloadRefused, match=problem):
            load(path)
    broken = tmp_path / "broken.yaml"
    broken.write_text("sources: {s1: [}\n")
    with pytest.raises(WorkloadRefused, match="not valid YAML"):
        load(broken)
    broken.write_text("sinks: [a]\nsinks: [b]\n")
    with pytest.raises(WorkloadRefused, match="'sinks' stands twice"):
        load(broken)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    found = refused(
        tmp_path,
        sources=source(rate_dist_params={"rate": 0}),
        transformations={"t1": {**FILTER, "params": {"p": 2}}, "t2": {"operator": "modfy"}},
    )
    assert len(found) == 3
