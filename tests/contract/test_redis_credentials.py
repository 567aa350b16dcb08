"""Passwords of a real Redis and PostgreSQL are in nothing that people read: plans, errors, reports, dead letters."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.errors import (
    BadRecord,
    PenstockError,
    SinkFailed,
)
from penstock.pipeline.explain import explain_plan
from penstock.runtime.job import plan_of
from penstock.runtime.progress import Progress
from penstock.testing import Harness
from penstock.testing.cluster import Cluster
from services.postgres import PASSWORD as POSTGRES_PASSWORD
from services.redis import PASSWORD


def test_no_credentials_in_what_is_shown_and_stored_of_a_job(redis_server: Any, postgres_server: Any) -> None:
    postgres_server.execute("CREATE TABLE IF NOT EXISTS shown (id bigint PRIMARY KEY, v text)")
    place = ps.postgres(postgres_server.dsn, "shown", key="id")
    stream = ps.stream("in", place).select("id", "v")
    stream = stream.select("id").lookup(ps.table(place, key="id"), on="id")
    looked = stream.lookup(
        ps.redis_table(redis_server.url, schema="id bigint, r string", key="id"), on="id", how="left"
    )
    web = ps.webhook("https://localhost/p?key=webhook-secret", headers={"Authorization": "webhook-secret"})
    posted = ps.stream("posted", ps.http(port=1, spool="s", token="http-secret-token")).to(ps.memory())
    written = looked.to(ps.postgres(postgres_server.dsn, "shown_out", key="id"))
    pipeline = written + looked.to(ps.redis(redis_server.url, key="id")) + looked.to(web) + posted
    plan = plan_of(pipeline, parallelism=2)
    nodes = pipeline.graph().nodes
    states = {name: sink.state() for name, sink in plan.sinks.items()}
    text = explain_plan(plan, 100) + repr(plan) + repr(nodes) + repr(states) + repr(place) + repr(web)
    for secret in (PASSWORD, POSTGRES_PASSWORD, "webhook-secret", "http-secret-token"):
        assert secret not in text
    assert "127.0.0.1" in text


LEAKS = (
    "cannot reach {dsn}",
    "cannot reach {url}, nor {dsn}",
    "host=db password={redis} user=x",
    "{{'host': 'db', 'password': '{postgres}'}}",
    "tried {redis} and {postgres}",
)
"""What a client that users call may raise: addresses, settings, and bare passwords of the job's own places."""


@pytest.fixture
def leaking(redis_server: Any, postgres_server: Any) -> list[str]:
    ps.postgres(postgres_server.dsn, "leaks")
    ps.redis(redis_server.url, key="id")
    given = {"dsn": postgres_server.dsn, "url": redis_server.url, "redis": PASSWORD, "postgres": POSTGRES_PASSWORD}
    return [text.format(**given) for text in LEAKS]


def check_clean(*texts: object) -> None:
    for text in texts:
        assert PASSWORD not in str(text)
        assert POSTGRES_PASSWORD not in str(text)


def numbered(count: int) -> ps.Stream:
    return ps.stream("numbers", ps.records([(n,) for n in range(count)], schema="n bigint", partitions=2))


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("kind", [ConnectionError, BadRecord])
def test_dead_letters_show_no_credentials(leaking: list[str], form: str, kind: type[Exception]) -> None:
    def later(row: Any) -> Any:
        raise kind(leaking[row.n % len(leaking)])

    stream = numbered(10).map(later, schema="n bigint", on_error="dead_letter")
    harness = Harness(stream.to(ps.memory(), dead_letters=ps.memory()), parallelism=2)
    if form == "batch":
        harness.switch("batch")
    harness.run()
    letters = harness.dead_letters()
    assert len(letters) == 10
    assert sum("***" in str(letter["error"]) for letter in letters) == 10
    check_clean(letters)


@pytest.mark.parametrize("form", ["record", "batch"])
@pytest.mark.parametrize("kind", [ConnectionError, SinkFailed])
@pytest.mark.parametrize("which", range(len(LEAKS)))
def test_errors_and_reports_of_a_failed_job_show_no_credentials(
    leaking: list[str], form: str, kind: type[Exception], which: int
) -> None:
    text = leaking[which]

    def connect(row: Any) -> Any:
        raise SinkFailed(sink="theirs", cause=text, hint=text) if kind is SinkFailed else kind(text)

    def rows() -> Any:
        yield connect(None)

    pipelines = [
        numbered(5).map(connect, schema="n bigint").to(ps.memory()),
        numbered(5).to(ps.foreach(connect)),
        ps.stream("theirs", ps.from_iterator(rows, schema="n bigint")).to(ps.memory()),
    ]
    for pipeline in pipelines[: 1 if form == "batch" else None]:
        plan = plan_of(pipeline, parallelism=2)
        cluster = Cluster(plan)
        if form == "batch":
            cluster.add_slot(0)
            for unit in plan.units:
                if unit.movable:
                    cluster.switch(unit.id, unit.movable[0], unit.movable[-1])
        with pytest.raises(PenstockError) as caught:
            cluster.run_until(1 << 62)
        error = caught.value
        told = Progress("job", "failed", 0.0, 1, 0, 0, [], [], str(error))
        json = msgspec.json.encode(told)
        assert b"***" in json
        check_clean(error, error.what, error.hint, repr(error), getattr(error, "user_traceback", ""), json, told)


def test_a_worker_knows_what_is_secret_from_the_plan_alone(redis_server: Any, postgres_server: Any) -> None:
    place = ps.postgres(postgres_server.dsn, "known", key="n")
    web = ps.webhook("https://localhost/p", headers={"Authorization": "Bearer webhook-secret", "X-Kind": "of-the-job"})
    stream = numbered(1)
    pipeline = stream.to(place) + stream.to(ps.redis(redis_server.url, key="n")) + stream.to(web)
    pipeline += ps.stream("posted", ps.http(port=1, spool="s", token="http-secret-token")).to(ps.memory())
    packed = cloudpickle.dumps(plan_of(pipeline, parallelism=2))
    secrets = [PASSWORD, POSTGRES_PASSWORD, "webhook-secret", "http-secret-token"]
    program = (
        "import sys, pickle; from penstock.redaction import redacted; pickle.load(sys.stdin.buffer); "
        f"print(redacted({' '.join([*secrets, 'of-the-job'])!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], input=packed, capture_output=True, check=True)
    assert done.stdout.decode().split() == ["***"] * len(secrets) + ["of-the-job"]
