"""Which Spark sessions of the user's host a job, which do not, and what is to be set."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import CheckpointNotShared, InvalidOption, SessionRefused, SparkFailed
from penstock.pipeline.options import Forms
from penstock.pipeline.plan import Plan
from penstock.runtime import spark
from penstock.runtime.job import plan_of
from penstock.runtime.sessions import SessionFacts, judged, task_failures_max
from penstock.runtime.sharing import leave_sign, look_for_sign, remove_sign
from penstock.spark.sessions import local_master


def plan(**options: Any) -> Plan:
    numbers = ps.stream("numbers", ps.records([(1,)], schema="n bigint"))
    return plan_of(numbers.map(lambda r: (r.n,), schema="n bigint", name="same").to(ps.memory()), **options)


def facts(**changes: Any) -> SessionFacts:
    good: dict[str, Any] = {
        "master": "local[8,10000]",
        "cores": 8,
        "cores_max": 8,
        "speculates": False,
        "task_failures_max": 10_000,
        "authenticates": False,
    }
    return SessionFacts(**(good | changes))


def test_a_session_with_cores_for_all_is_used_as_it_is() -> None:
    fitting, note = judged(plan(parallelism=3), facts())
    assert (fitting.options.slots, fitting.options.forms, note) == (3, Forms.ADAPTIVE, "")


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_a_session_that_was_started_for_queries_hosts_a_job_of_the_same_program(cores: int) -> None:
    """`ps.bootstrap` starts one, and `ps.run` comes after it."""
    master = local_master(cores)
    threads, losses = map(int, master.removeprefix("local[").removesuffix("]").split(","))
    given = facts(master=master, cores=threads, cores_max=threads, task_failures_max=losses)
    fitting, note = judged(plan(parallelism=cores), given)
    assert (fitting.options.slots, fitting.options.forms, note) == (cores, Forms.ADAPTIVE, "")


def test_slots_leave_a_core_to_the_sessions_other_jobs() -> None:
    fitting, note = judged(plan(parallelism=5), facts())
    assert (fitting.options.slots, note) == (2, "")


def test_without_a_core_for_slots_everything_stays_in_record_form_and_that_is_said() -> None:
    fitting, note = judged(plan(parallelism=7), facts())
    assert fitting.options.forms is Forms.RECORD
    assert "none of them for slots" in note


@pytest.mark.parametrize(
    ("options", "changes", "told"),
    [
        ({"parallelism": 2}, {"cores": 2, "cores_max": 2}, "it has 2 cores, and 3 are needed"),
        ({"parallelism": 2}, {"cores": 2, "cores_max": 2}, 'parallelism=1 or a session with "local[3,10000]"'),
        ({"parallelism": 1}, {"cores": 1, "cores_max": 1}, 'take a session with "local[2,10000]"'),
        ({"parallelism": 7, "forms": "batch"}, {}, "one for a slot of the batch form"),
        ({"parallelism": 7, "pin": {"same": "batch"}}, {}, "one for a slot of the batch form"),
        ({}, {"speculates": True}, "spark.speculation=false"),
        ({}, {"task_failures_max": 1}, 'master "local[N,10000]"'),
        ({}, {"master": "yarn", "authenticates": True, "task_failures_max": 4}, "spark.task.maxFailures=10000"),
        ({}, {"master": "spark://a:1"}, "spark.authenticate"),
        ({"master": "spark://a:1"}, {}, "leave master= away"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_set(
    options: dict[str, Any], changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(SessionRefused) as raised:
        judged(plan(**({"parallelism": 2} | options)), facts(**changes))
    assert told in str(raised.value)


def test_everything_is_said_at_once() -> None:
    with pytest.raises(SessionRefused) as raised:
        judged(plan(parallelism=8), facts(speculates=True, task_failures_max=1))
    assert all(told in str(raised.value) for told in ("8 cores", "speculation", "local[N,10000]"))


def test_a_session_that_may_grow_is_used() -> None:
    cluster = {"master": "yarn", "authenticates": True}
    fitting, _ = judged(plan(parallelism=4), facts(cores=2, cores_max=None, **cluster))
    assert fitting.options.slots == 0, "as many as workers"
    with pytest.raises(SessionRefused, match="it has 4 cores, and 5 are needed"):
        judged(plan(parallelism=4), facts(cores=2, cores_max=4, **cluster))


def test_a_cluster_without_a_secret_is_used_where_the_user_says_so() -> None:
    judged(plan(parallelism=2), facts(master="spark://a:1"), unauthenticated=True)


@pytest.mark.parametrize(
    ("master", "setting", "failures"),
    [("local", None, 1), ("local[4]", "9", 1), ("local[*, 7]", None, 7), ("yarn", None, 4), ("yarn", "50", 50)],
)
def test_after_how_many_losses_spark_gives_up(master: str, setting: str | None, failures: int) -> None:
    assert task_failures_max(master, setting) == failures


def test_a_local_master_without_a_core_for_the_batch_form() -> None:
    with pytest.raises(InvalidOption, match="at least 3 slots: one for each worker, and one for the batch form"):
        plan(parallelism=2, master="local[2]", forms="batch")
    plan(parallelism=2, master="local[2]")
    plan(parallelism=2, master="local[3]", forms="batch")


def test_a_standalone_cluster_needs_a_secret_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_SPARK_SECRET", raising=False)
    monkeypatch.delenv("PENSTOCK_SPARK_UNAUTHENTICATED", raising=False)
    with pytest.raises(SparkFailed, match=r"set PENSTOCK_SPARK_SECRET to it; or.* PENSTOCK_SPARK_UNAUTHENTICATED=1"):
        spark._authentication("spark://a:1")
    monkeypatch.setenv("PENSTOCK_SPARK_UNAUTHENTICATED", "1")
    assert spark._authentication("spark://a:1") == {}
    monkeypatch.setenv("PENSTOCK_SPARK_SECRET", "s")
    assert spark._authentication("spark://a:1")["spark.authenticate.secret"] == "s"


@pytest.mark.parametrize("variable", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "sc://localhost")
    with pytest.raises(SessionRefused, match="Spark Connect"):
        spark.open_session("local", 1, "job")


@pytest.mark.parametrize(
    "text",
    [
        "Traceback …\nModuleNotFoundError: No module named 'penstock'\n\tat org.apache",
        'x\njava.io.IOException: Cannot run program "python3.9": error=2',
        "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9",
    ],
)
def test_an_error_of_another_python_names_the_variable(text: str) -> None:
    assert "PYSPARK_PYTHON" in spark.telling_line(text)
    assert "PYSPARK_PYTHON" not in spark.telling_line("ValueError: no")


def test_a_directory_that_a_worker_does_not_see_is_named(tmp_path) -> None:
    sign = leave_sign(str(tmp_path / "checkpoint"))
    assert look_for_sign(sign, needed=True)
    remove_sign(sign)
    with pytest.raises(CheckpointNotShared, match=str(tmp_path / "checkpoint")):
        look_for_sign(sign, needed=True)
    assert not look_for_sign(sign, needed=False)
    assert leave_sign("memory://somewhere") == ""
    assert look_for_sign("", needed=True)
