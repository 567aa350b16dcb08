"""The control channel: what it takes, what it refuses, who it listens to."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import penstock as ps
from penstock.control.events import (
    AlternativePinned,
    DegreeWanted,
    DrainRequested,
    FormsPinned,
    ScaleRequested,
    StopRequested,
)
from penstock.errors import InvalidOption, JobNotFound
from penstock.operators import Form
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import commands as c
from penstock.runtime import commands
from penstock.runtime.commands import Channel, checked, send, socket_path

SCHEMA = "id bigint"


@pytest.fixture(scope="module")
def plan() -> Plan:
    stream = ps.stream("in", ps.records([], schema=SCHEMA)).alternatives(
        "score", exact=lambda s: s.filter(ps.col("id") > 0), fast=lambda s: s
    )
    return Plan.of(stream.to(ps.memory()).graph(), Options.of(parallelism=1))


class Took:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seen: list[tuple[c.Command, str]] = []

    def __call__(self, command: c.Command, by: str) -> str:
        self.seen.append((command, by))
        return checked(self.plan, command, by)[1]


@pytest.fixture
def took(plan: Plan, tmp_path: Path) -> Iterator[tuple[Path, Took]]:
    status, took = tmp_path / "job-1.json", Took(plan)
    channel = Channel(socket_path(status), took)
    yield status, took
    channel.close()
    assert not socket_path(status).exists()


def test_a_command_reaches_the_job_with_who_has_sent_it(took: tuple[Path, Took]) -> None:
    status, taker = took
    assert send(status, "job", c.UseAlternative("score", "fast")) == "'score' uses 'fast' from here on"
    ((command, by),) = taker.seen
    assert command == c.UseAlternative("score", "fast")
    assert by.endswith(f"process {os.getpid()}")


def test_what_the_job_refuses_is_raised_where_it_was_asked_for(took: tuple[Path, Took]) -> None:
    with pytest.raises(InvalidOption, match=r"Allowed: exact, fast, auto.*Did you mean 'fast'"):
        send(took[0], "job", c.UseAlternative("score", "fsat"))


def test_only_the_owner_can_open_it(took: tuple[Path, Took]) -> None:
    assert stat.S_IMODE(socket_path(took[0]).stat().st_mode) == 0o600


def test_another_user_is_not_listened_to(took: tuple[Path, Took], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(JobNotFound, match=r"does not answer|cannot be reached"):
        send(took[0], "job", c.StopJob())
    assert not took[1].seen


@pytest.mark.parametrize(
    "sent", [b"", b"{}", b'{"type":"use","operation":1,"alternative":"x"}', b'{"type":"rm"}', b"\xff"]
)
def test_what_is_no_command_is_answered_and_does_nothing(took: tuple[Path, Took], sent: bytes) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(socket_path(took[0])))
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert c.decode_answer(client.recv(10_000)).code == "INVALID_COMMAND"
    assert not took[1].seen


def test_too_long_a_command_is_cut_off_and_the_next_one_is_heard(took: tuple[Path, Took]) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(socket_path(took[0])))
        with suppress(OSError):
            client.sendall(b"x" * (10 * c.COMMAND_BYTES_MAX))
            assert client.recv(1) == b""
    assert not took[1].seen
    assert "finishes" in send(took[0], "job", c.StopJob())


def test_a_job_that_has_just_ended_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobNotFound, match="'gone' cannot be reached"):
        send(tmp_path / "gone-1.json", "gone", c.StopJob())


def test_a_long_path_is_no_obstacle(plan: Plan, tmp_path: Path) -> None:
    place = tmp_path / ("x" * 80) / ("y" * 80)
    place.mkdir(parents=True)
    channel = Channel(socket_path(place / "job-1.json"), Took(plan))
    try:
        assert "ends now" in send(place / "job-1.json", "job", c.StopJob(at_once=True))
    finally:
        channel.close()


def test_commands_become_events(plan: Plan) -> None:
    assert checked(plan, c.UseAlternative("score", "auto"), "me")[0] == AlternativePinned("score", None, "me")
    assert checked(plan, c.SwitchForm(["score"], "batch"), "me")[0] == FormsPinned(("score",), Form.BATCH, "me")
    assert checked(plan, c.StopJob(), "me")[0] == DrainRequested("me")
    assert checked(plan, c.StopJob(at_once=True), "me")[0] == StopRequested("me")
    with pytest.raises(InvalidOption, match="Allowed: record, batch, auto"):
        checked(plan, c.SwitchForm(["score"], "fast"))
    with pytest.raises(InvalidOption, match="Allowed: score"):
        checked(plan, c.UseAlternative("in", "fast"))


def replicated(*replicas: int | tuple[int, int] | None, pool: int = 0, advise: bool = False) -> Plan:
    stream = ps.stream("in", ps.records([(1,)], schema=SCHEMA)).filter(ps.col("id") > 0)
    for at, each in enumerate(replicas):
        stream = stream.map(lambda r: (r.id,), schema=SCHEMA, name=f"model{at}", replicas=each)
    return Plan.of(stream.to(ps.memory()).graph(), Options.of(parallelism=1, replicas=pool, advise=advise))


def test_a_number_of_replicas_or_the_jobs_own() -> None:
    plan = replicated((2, 6), None)
    assert checked(plan, c.ReplicateOperation("model0", 4), "me") == (
        DegreeWanted("model0", 4, "me"), "'model0' is computed by 4 processes from here on"
    )  # fmt: skip
    assert checked(plan, c.ReplicateOperation("model0", "auto"), "me") == (
        DegreeWanted("model0", None, "me"), "'model0' is computed by as many processes as the job chooses from here on"
    )  # fmt: skip
    for bad in (1, 7, 0, -3, True, "many"):
        with pytest.raises(InvalidOption, match=r"Allowed: 2 to 6, .* pool of 6, or auto"):
            checked(plan, c.ReplicateOperation("model0", bad))
    with pytest.raises(InvalidOption, match=r"Allowed: 1 to 3, .* pool of 3, or auto"):
        checked(replicated((1, 6), pool=3), c.ReplicateOperation("model0", 4))
    with pytest.raises(InvalidOption, match=r"Allowed: 4, by its replicas="):
        checked(replicated(4), c.ReplicateOperation("model0", 3))
    told = checked(replicated((1, 6)), c.ReplicateOperation("model0", 1))[1]
    assert told == "'model0' is computed by each worker itself from here on"
    assert checked(replicated(1), c.ReplicateOperation("model0", 1))[0] == DegreeWanted("model0", 1)
    told = checked(replicated((1, 6), advise=True), c.ReplicateOperation("model0", 2))[1]
    assert told == "'model0' stays as it is: the job only advises"


@pytest.mark.parametrize(
    ("operation", "hint"),
    [("modle0", "Did you mean 'model0'"), ("model1", "asked for where it is made"), ("filter", "is made")],
)
def test_an_operation_without_replicas_is_refused(operation: str, hint: str) -> None:
    with pytest.raises(InvalidOption, match=rf"'?{operation}.*an operation with replicas=: model0.*{hint}"):
        checked(replicated((2, 6), None), c.ReplicateOperation(operation, 2))


def test_a_number_of_workers_or_the_jobs_own(plan: Plan) -> None:
    most = plan.options.parallelism
    assert checked(plan, c.ScaleJob(most), "me")[0] == ScaleRequested(most, "me")
    assert checked(plan, c.ScaleJob("auto"), "me")[0] == ScaleRequested(0, "me")
    for bad in (0, most + 1, "many"):
        with pytest.raises(InvalidOption, match="or auto"):
            checked(plan, c.ScaleJob(bad))
