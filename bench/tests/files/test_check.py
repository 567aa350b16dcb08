"""`penstock bench check`, and the JSON Schema that is published beside the workloads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.cli.outcome import Exit
from penstock_bench.files.distributions import Kind
from penstock_bench.files.load import load
from penstock_bench.files.model import OPERATORS, Document, schema_text, workload_schema
from penstock_bench.files.problems import WorkloadRefused

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "benchmarks" / "workloads").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_check_says_what_a_file_describes(path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "check", str(path)])
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_text())
    for name in (*document["sources"], *document["transformations"], *document["sinks"]):
        assert re.search(rf"^  {name} ", result.output, re.MULTILINE)


def test_check_of_listing_4_1() -> None:
    result = CliRunner().invoke(app, ["bench", "check", str(ROOT / "benchmarks" / "workloads" / "listing-4.1.json")])
    lines = [" ".join(line.split()) for line in result.output.splitlines()[1:]]
    assert lines == [
        "sources",
        "s1 keys key0 to key9 (Zipf over 10, exponent 1.2), messages of 550 letters on average (uniform 100 to 1,000) "
        "1,000/s",
        "transformations",
        "t1 filter of s1: drops 0.5 of the messages (p is the probability of dropping) 1,000/s in, 500/s out",
        "t2 modify of t1: size x 0.5, messages x 1 500/s in, 500/s out",
        "sinks",
        "t2 500/s",
    ]


def test_check_finds_undefined_names_beside_other_mistakes(tmp_path: Path) -> None:
    document = json.loads((ROOT / "benchmarks" / "workloads" / "finch-pipeline.json").read_text())
    document["transformations"]["filter1"] |= {"operator": "fliter", "input": "nobody"}
    document["sinks"] = ["join2"]
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(document))
    with pytest.raises(WorkloadRefused) as refused:
        load(path)
    # split1__2 and filter1 are there, whatever is wrong with filter1 itself.
    assert sorted(each.path for each in refused.value.problems) == [
        "sinks[0]",
        "transformations.filter1.input",
        "transformations.filter1.operator",
    ]
    assert "Did you mean 'join1'?" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.json", " \n", "'a.json': it is empty; it must hold an object"),
        ("a.yaml", "", "'a.yaml': it is empty; it must hold an object"),
        ("a.json", "sources:\n", "not valid JSON: Expecting value. If it is YAML, call it .yaml or .yml."),
        ("a.yaml", "sources: {s1: [}\n", "'a.yaml': line 1, column 16: not valid YAML: expected the node content"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_line(
    name: str, text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    with pytest.raises(WorkloadRefused) as refused:
        load(name)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_check_refuses_with_the_path_and_the_nearest_word(tmp_path: Path) -> None:
    document = json.loads((ROOT / "benchmarks" / "workloads" / "listing-4.1.json").read_text())
    document["transformations"]["t1"]["params"]["p"] = 1.5
    document["transformations"]["t2"]["operator"] = "modfiy"
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(document))
    result = CliRunner().invoke(app, ["bench", "check", str(path)])
    assert result.exit_code == Exit.REFUSED
    assert "[WORKLOAD_FILE]" in result.output
    assert "transformations.t1.params.p: 1.5 is not allowed" in result.output
    assert "transformations.t2.operator: there is no operator 'modfiy'" in result.output
    assert "Did you mean 'modify'?" in result.output


def test_check_needs_no_java() -> None:
    program = [sys.executable, "-c", "from penstock.cli import main; main()", "bench", "check", str(FILES[0])]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env={"PATH": "", "JAVA_HOME": "none"})
    assert "sinks" in done.stdout.splitlines()


def test_the_published_schema_is_that_of_the_model() -> None:
    published = ROOT / "benchmarks" / "workload.schema.json"
    assert published.read_text() == schema_text(), f"renew {published.name}: run penstock_bench.files.model"


def test_the_schema_has_all_operators_and_distributions() -> None:
    definitions = workload_schema()["$defs"]
    shapes = [each["properties"] for each in definitions.values() if "operator" in each.get("properties", {})]
    assert {each["operator"]["enum"][0] for each in shapes} == set(OPERATORS)
    pattern = definitions["Source"]["properties"]["rate_dist"]["pattern"]
    for kind in Kind:
        assert re.search(pattern, kind.value)
    assert re.search(pattern, "org.apache.commons.math3.distribution.ZipfDistribution")
    assert not re.search(pattern, "ZipfDistributions")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_published_workloads_fit_the_model_as_it_stands(path: Path) -> None:
    msgspec.json.decode(path.read_bytes(), type=Document)


def test_the_document_names_files_that_exist_and_shows_one_that_works(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "workloads.md").read_text()
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z0-9_.-]+)`", text):
        assert (ROOT / name).exists(), name
    example = tmp_path / "example.yaml"
    example.write_text(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    result = CliRunner().invoke(app, ["bench", "check", str(example)])
    assert result.exit_code == 0, result.output
    assert "bursts from 1,000/s to 20,000/s" in result.output
    assert all(f"`{word}`" in text for word in (*OPERATORS, *(kind.value for kind in Kind)))
