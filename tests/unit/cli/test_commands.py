"""The commands without Spark: what they print, how they refuse, which exit code they give."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

import penstock
from penstock.cli import add_plugins, app
from penstock.cli.outcome import Exit, JsonOut, told
from penstock.control.monitor import OperationFigures, Status, WorkerFigures
from penstock.errors import InvalidOption
from penstock.operators import Form
from penstock.pipeline.options import Forms
from penstock.pipeline.plan import Plan
from penstock.runtime import job
from penstock.runtime.status import StatusFile

PIPELINE = """
import penstock as ps
p = ps.stream("rows", ps.records([(1,)], schema="n bigint")).to(ps.memory())
"""


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("Spark must not be started")

    monkeypatch.setattr(job, "open_fitted", refuse)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("PENSTOCK_DEBUG", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(PIPELINE)
    return path


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_version() -> None:
    result = call("--version")
    assert (result.exit_code, result.output) == (0, f"penstock {penstock.__version__}\n")


@pytest.mark.parametrize("command", ["run", "demo", "chaos", "top", "explain"])
def test_every_command_has_help(command: str) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_explain_shows_the_plan(file: Path) -> None:
    result = call("explain", file, "--parallelism", 3)
    assert result.exit_code == 0
    assert result.output.startswith("job: 3 workers")


def test_refusals_have_exit_code_2_and_no_traceback_of_ours(tmp_path: Path) -> None:
    result = call("run", tmp_path / "missing.py")
    assert result.exit_code == Exit.REFUSED
    assert result.stderr.startswith("[PIPELINE_FILE] ")
    assert "Traceback" not in result.stderr


def test_a_fault_in_the_file_shows_the_users_traceback_below(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("raise ValueError('mine')\n")
    result = call("run", path)
    assert result.exit_code == Exit.REFUSED
    first, second, *_, last = result.stderr.splitlines()
    assert first.startswith("[PIPELINE_FILE] ")
    assert second == "Traceback (most recent call last):"
    assert last == "ValueError: mine"


@pytest.mark.parametrize(
    "options",
    [
        ["--for", "soon"],
        ["--for", "0s"],
        ["--parallelism", "0"],
        ["--master", "nowhere"],
        ["--epoch", "1us"],
        ["--name", "a/b"],
        ["--json", "no/such/directory/out.json"],
        ["--dead-letters", __file__],
        ["--forms", "both"],
        ["--pin", "rows"],
        ["--pin", "rows=fast"],
        ["--pin", "nobody=batch"],
        ["--pin", "rows=batch", "--pin", "rows=record"],
        ["--interval", "1us"],
        ["--slots", "0"],
        ["--group-size", "0"],
    ],
)
def test_bad_options_are_refused_before_the_start(file: Path, options: list[str]) -> None:
    result = call("run", file, *options)
    assert result.exit_code == Exit.REFUSED
    assert result.stderr.startswith("[INVALID_OPTION] ")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--forms", "adaptve"], ["forms", "adaptive, record, batch", "Did you mean 'adaptive'?"]),
        (["--pin", "rows=bacth"], ["pin['rows']", "record, batch", "Did you mean 'batch'?"]),
        (["--pin", "row=batch"], ["operation", "rows, to_memory", "Did you mean 'rows'?"]),
        (["--pin", "rows"], ["--pin", "OPERATION=FORM"]),
    ],
)
def test_refusals_name_the_option_what_is_allowed_and_the_nearest_word(
    file: Path, options: list[str], named: list[str]
) -> None:
    shown = call("run", file, *options).stderr
    assert all(each in shown for each in named), shown


def test_options_of_the_forms_reach_the_plan(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []

    def refuse(plan: Any, *_: object, **__: object) -> None:
        plans.append(plan.options)
        raise typer.Exit(0)

    monkeypatch.setattr(sys.modules["penstock.cli.run"], "execute", refuse)
    file.write_text(PIPELINE + "ps.run(p, pin={'to_memory': 'record', 'rows': 'record'})\n")
    given = ["--forms", "batch", "--pin", "rows=batch", "--advise", "--interval", "20ms", "--slots", 3]
    assert call("run", file, *given, "--group-size", 7).exit_code == 0
    (options,) = plans
    assert options.forms is Forms.BATCH
    assert dict(options.pins) == {"to_memory": Form.RECORD, "rows": Form.BATCH}
    assert (options.advise, options.interval_us, options.slots, options.group_size) == (True, 20_000, 3, 7)


@pytest.mark.parametrize(
    "options", [["--for", "x"], ["--kill-every", "10ms"], ["--kill-every", "0s"], ["--parallelism", "0"]]
)
def test_chaos_refuses_absurd_options(file: Path, options: list[str]) -> None:
    result = call("chaos", file, *options)
    assert result.exit_code == Exit.REFUSED
    assert result.stderr.startswith("[INVALID_OPTION] ")


def test_chaos_kills_nobody_on_other_machines(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(PIPELINE + "ps.run(p, master='spark://elsewhere:7077')\n")
    result = call("chaos", path)
    assert result.exit_code == Exit.REFUSED
    assert "master" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--peak", "-1"],
        ["--base", "0"],
        ["--base", "nan"],
        ["--base", "9000", "--peak", "9000"],
        ["--seconds", "0.5"],
        ["--parallelism", "-2"],
        ["--out", __file__],
    ],
)
def test_the_demo_refuses_absurd_options(options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("demo", *options)
    assert result.exit_code == Exit.REFUSED
    assert result.stderr.startswith("[INVALID_OPTION] ")


def test_top_without_a_job_says_what_to_do() -> None:
    result = call("top")
    assert result.exit_code == Exit.FAILED
    assert "penstock demo" in result.stderr


def test_top_once_prints_a_frame_of_the_named_job() -> None:
    figures = OperationFigures(
        "filter", "filter", "record", 2, 20_000.0, 6_600.0, 0.33, 7, 1.25, 0.5, 2.5, 100, 33, 1, 0, 0, 0, 0.5, 2.5, 9.0
    )
    for name in ("one", "two"):
        StatusFile(name).write(
            Status(name, "running", os.getpid(), 0, 65.0, 3, 4.5, [figures], [WorkerFigures(0, 1, 0.5, 100.0)])
        )
    result = call("top", "two", "--once")
    assert result.exit_code == 0
    assert "penstock two" in result.output
    assert "up 1m 05s" in result.output
    assert "20.0K" in result.output


def test_json_out_leaves_nothing_behind_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    out = JsonOut(path)
    assert not path.exists()
    out.write({"a": 1})
    assert msgspec.json.decode(path.read_bytes()) == {"a": 1}


def test_json_out_keeps_an_older_file_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    JsonOut(path)
    assert path.read_text() == "old"


def test_json_out_takes_a_dash_for_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    out = JsonOut(Path("-"))
    out.keep({"a": 0})
    out.write({"a": 1})
    assert out.standard
    assert msgspec.json.decode(capsys.readouterr().out) == {"a": 1}
    assert list(tmp_path.iterdir()) == []


def test_json_out_keeps_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    JsonOut(path).keep({"a": 1})
    assert msgspec.json.decode(path.read_bytes()) == {"a": 1}


def test_an_option_that_is_found_wrong_late_is_wrong_usage_all_the_same() -> None:
    with pytest.raises(typer.Exit) as ended, told(Exit.FAILED):
        raise InvalidOption(option="trigger", given="abc", allowed="a duration")
    assert ended.value.exit_code == Exit.REFUSED


@pytest.mark.parametrize("command", [[], ["bench"]])
def test_lists_of_commands_are_not_cut_off(command: list[str]) -> None:
    assert "..." not in call(*command, "--help").output.partition("Commands:")[2]


@pytest.mark.parametrize("given", [[], ["--help"], ["run", "yahoo", "--rate", "20000"]])
def test_without_the_benchmark_tool_one_line_says_how_to_install_it(given: list[str]) -> None:
    alone = typer.Typer(rich_markup_mode=None)
    alone.command()(lambda: None)
    add_plugins(alone, [])
    done = CliRunner().invoke(alone, ["bench", *given])
    assert done.exit_code == Exit.REFUSED
    assert done.output == ("penstock bench is a package of its own; install it with: pip install penstock-bench\n")


def test_json_out_refuses_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="directory"):
        JsonOut(tmp_path)


def test_debugging_lets_errors_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError), told(Exit.REFUSED):
        _ = 1 / 0


def test_our_own_faults_are_told_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, told(Exit.REFUSED):
        _ = 1 / 0
    assert caught.value.exit_code == Exit.FAILED
    assert capsys.readouterr().err.startswith("internal error: ZeroDivisionError")


def test_with_json_on_standard_output_everything_else_is_on_standard_error(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(PIPELINE.replace("ps.memory()", "ps.console()") + "print('loaded')\n")

    def execute(plan: Plan, seconds: float | None, *, view: bool) -> dict[str, int]:
        (sink,) = plan.sinks.values()
        schema = plan.units[0].schema
        sink.deliver([schema.record_type(7)], schema)
        print("by a function")
        return {"events_in": 1}

    module = sys.modules["penstock.cli.run"]
    monkeypatch.setattr(module, "execute", execute)
    monkeypatch.setattr(module, "last_lines", lambda report: ["the end"])
    result = call("run", file, "--json", "-")
    assert result.exit_code == 0, result.output
    assert msgspec.json.decode(result.stdout) == {"events_in": 1}
    assert result.stderr.splitlines() == ["loaded", "n=7", "by a function", "the end"]
    plain = call("run", file)
    assert plain.stdout.splitlines() == ["loaded", "n=7", "by a function", "the end"]


def test_a_number_of_replicas_needs_a_job_that_runs() -> None:
    refused = call("replicate", "nowhere", "classify", 4)
    assert refused.exit_code == Exit.FAILED
    assert "'nowhere'" in refused.output
