"""What every sink must do: show an epoch once it is committed, once, whichever process is lost at which line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from penstock.connectors.base import End, Sink
from penstock.connectors.memory import records
from penstock.errors import PenstockError
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.pipeline.streams.stream import stream
from penstock.testing.cluster import Cluster
from penstock.testing.conformance.columns import SCHEMA, differing, row_of, supported
from penstock.testing.conformance.engine import OPERATION, Run
from penstock.testing.conformance.report import Conformance, check_hidden, check_identity, check_refused, until
from penstock.types import Record, Schema, attribute

HUGE = 500_000
_FORMS = ("record", "batch", "staged")
Seen = Iterable[Mapping[str, object]]


def check_sink(
    sink: Sink | End | Callable[[], Sink | End],
    read: Callable[[], Seen],
    *,
    exactly_once: bool = True,
    at_commit: bool = True,
    keyed: bool = False,
    resumes: bool = True,
    refused: Sink | End | None = None,
    secrets: Sequence[str] = (),
    timeout_s: float = 60.0,
) -> Conformance:
    """Check that a sink keeps its promises when processes are lost.

    It gets rows of ``id bigint, text string, number double, flag boolean, `user id` string``; every ``id`` once, so
    that all checks share one place. Columns of other types (float, decimal, timestamp, date, arrays, maps, structs)
    are there too where `Sink.check` does not refuse them.

    Parameters
    ----------
    sink : Sink, or a function that returns one
        What to check. A function is called for every run of a job, always for the same place, which may hold rows of an
        earlier run.
    read : callable
        Returns the rows that everybody can see there now, as dicts; at least ``id`` and ``text`` are compared, and
        what other columns they have: values of Python or of JSON, or their text.
    exactly_once : bool
        Whether each row is there once; else at least once.
    at_commit : bool
        Whether nothing is to be seen before the commit.
    keyed : bool
        Whether a row replaces the one with the same ``id``.
    resumes : bool
        Whether what was written outlives the program, so that another run can go on.
    refused : Sink, optional
        One that cannot work (a place that cannot be written to): `check` must refuse it.
    secrets : sequence of str
        Credentials that the sink was given; none may be shown anywhere.
    timeout_s : float
        How long rows may take to be seen after their commit.

    Returns
    -------
    Conformance
        What was checked, and what was left out.

    Examples
    --------
    >>> check_sink(lambda: ps.files(out, existing="append"), lambda: read_lines(out))       # doctest: +SKIP
    """
    __tracebackhide__ = True
    made = sink if callable(sink) and not isinstance(sink, Sink | End) else lambda: sink
    suite = _SinkSuite(lambda: _sink(made()), read, exactly_once, at_commit, timeout_s)
    report = suite.run(keyed=keyed, resumes=resumes, secrets=secrets)
    if refused is not None:
        with report.check("what cannot work is refused before anything starts"):
            check_refused(lambda: _sink(refused).check(Schema.parse(SCHEMA)), secrets)
    return report


def _sink(given: object) -> Sink:
    found = given.sink() if isinstance(given, End) else given
    assert isinstance(found, Sink), f"{found!r} is no Sink"
    return found


class _SinkSuite:
    def __init__(
        self, make: Callable[[], Sink], read: Callable[[], Seen], exactly_once: bool, at_commit: bool, timeout_s: float
    ) -> None:
        self._make = make
        self._read = read
        self._exactly_once = exactly_once
        self._at_commit = at_commit
        self._timeout_s = timeout_s
        self._schema, refused = supported(make)
        self._ids = count(max((self._id(each) for each in read()), default=0) + 1)
        self._texts: dict[int, str | None] = {}
        self._expected: Counter[int] = Counter()
        """Ids that must be there by now."""
        self.report = Conformance(str(make().kind))
        self.report.left_out.update(refused)

    @staticmethod
    def _id(row: Mapping[str, object]) -> int:
        assert "id" in row, f"read() gave {row}, without 'id'"
        return int(str(row["id"]))

    def _rows(self, count: int = 3, text: str | None = "text") -> list[Record]:
        rows = []
        for _ in range(count):
            number = next(self._ids)
            self._texts[number] = text
            rows.append(row_of(self._schema, number, text))
        return rows

    def _job(self, *, instances: int = 1) -> Run:
        return Run(self._make, self._schema, _new_id(), instances=instances)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def _seen(self) -> Counter[int]:
        return Counter(each for row in self._read() if (each := self._id(row)) in self._texts)

    def _shows(self, rows: Sequence[Record]) -> None:
        """Check that these rows can be seen now, and all from before, and no others."""
        self._expected.update(_ids(rows))
        self._is_right()

    def _is_right(self) -> None:
        def right() -> bool:
            seen = self._seen()
            return seen == self._expected if self._exactly_once else not self._expected - seen

        until(right, self._timeout_s)
        seen = self._seen()
        lost, more = self._expected - seen, seen - self._expected
        assert not lost, f"{lost.total()} rows are not there, such as id {min(lost)}"
        if self._exactly_once:
            assert not more, f"{more.total()} rows are there that should not be, such as id {min(more)}"
        else:
            unknown = set(more) - set(self._expected)
            assert not unknown or not self._at_commit, (
                f"rows are there that were never committed: {sorted(unknown)[:3]}"
            )

    def _hides(self, rows: Sequence[Record]) -> None:
        if self._at_commit:
            early = self._seen() & Counter(_ids(rows))
            assert not early, f"id {min(early)} can be seen before its epoch is committed"

    # --- the checks ---------------------------------------------------------------------------------------------------

    def run(self, *, keyed: bool, resumes: bool, secrets: Sequence[str]) -> Conformance:
        __tracebackhide__ = True
        report, sink = self.report, self._make()
        with report.check("it says what it is, and can be sent to workers"):
            check_identity(sink, sink.kind, secrets)
            state = sink.state()
            check_hidden(secrets, {"state()": repr(state), "place": str(sink.place)})
        for name, check in {
            "rows are seen when their epoch is committed, and not before": self._visible,
            "all forms write the same": self._forms,
            "empty, large and odd values arrive": self._values,
            "epochs may be empty, and several may wait": self._empty,
            "a commit that comes twice changes nothing": self._twice,
            "several instances write": self._instances,
            "a process is lost between prepare and commit": self._lost_prepared,
            "a process is lost before its epoch is recorded": self._lost_unrecorded,
            "a process that was only slow adds nothing": self._orphan,
            "a process that was replaced and goes on with its epoch adds nothing": self._goes_on,
            "another job of the same name adds all of its rows": self._second,
        }.items():
            with report.check(name):
                check()
        if keyed:
            with report.check("a process that was only slow overwrites nothing"):
                self._orphan_overwrites()
        if resumes:
            with report.check("a job is resumed"):
                self._resumed()
            with report.check("what was prepared is published when a job is resumed"):
                self._resumed_prepared()
            if self._exactly_once:
                with report.check("an older checkpoint is refused, or changes nothing"):
                    self._older()
        else:
            report.left_out["a job is resumed"] = "what it has written ends with the program"
        with report.check("a job that loses its workers writes every row"):
            self._whole_job()
        return report

    def _visible(self) -> None:
        job, rows = self._job(), self._rows()
        job.write(rows)
        self._hides(rows)
        job.prepare(1)
        self._hides(rows)
        job.record(1)
        job.commit(1)
        self._shows(rows)
        for writer in job.writers:
            assert isinstance(writer.is_full, bool), "is_full is no bool"
            assert isinstance(writer.is_blocked, bool), "is_blocked is no bool"
        open_rows = self._rows()
        if self._at_commit:
            job.write(open_rows)
        job.end()
        self._is_right()

    def _forms(self) -> None:
        job = self._job()
        for epoch, form in enumerate(_FORMS, 1):
            rows = self._rows()
            job.write(rows, form=form)
            job.epoch(epoch)
            self._shows(rows)
        job.end()

    def _values(self) -> None:
        job = self._job()
        texts: list[str | None] = ["", None, "x" * HUGE, "näïve 🦆\t\"quoted\", 'too'\\", "two\nlines"]
        rows = [row for text in texts for row in self._rows(1, text)]
        odd = next(self._ids)
        self._texts[odd] = "odd"
        rows.append(self._schema.coerce({"id": odd, "text": "odd", "number": -0.0, "flag": None}))
        job.epoch(1, rows)
        self._shows(rows)
        found = {self._id(row): row for row in self._read()}
        for number, each in zip(_ids(rows), rows, strict=True):
            wrong = differing(self._schema, each, {"text": None, **found[number]})
            assert wrong is None, wrong
        job.end()

    def _empty(self) -> None:
        job, first, second = self._job(), self._rows(), self._rows()
        job.epoch(1)
        job.write(first)
        job.prepare(2)
        job.record(2)
        job.write(second)
        job.prepare(3)
        job.commit(2)
        self._hides(second)
        job.record(3)
        job.commit(3)
        job.epoch(4)
        self._shows([*first, *second])
        job.end()

    def _twice(self) -> None:
        job, rows = self._job(), self._rows()
        job.epoch(1, rows)
        for writer in job.writers:
            assert not writer.commit(1), "the second commit gives rows out again"
        job.epoch(2)
        self._shows(rows)
        job.end()

    def _instances(self) -> None:
        job = self._job(instances=2)
        both = [self._rows(), self._rows()]
        for instance, rows in enumerate(both):
            job.write(rows, instance)
        job.epoch(1)
        self._shows([*both[0], *both[1]])
        more = self._rows()
        job.write(more, 1)
        job.epoch(2)
        self._shows(more)
        job.end()

    def _lost_prepared(self) -> None:
        job, first, rows, last = self._job(), self._rows(), self._rows(), self._rows()
        job.epoch(1, first)
        job.write(rows)
        job.prepare(2)
        job.record(2)
        job.replace().close()
        self._shows([*first, *rows])
        job.replace().close()
        job.epoch(3, last)
        job.replace().close()
        self._shows(last)
        job.end()
        self._is_right()

    def _lost_unrecorded(self) -> None:
        job, lost, first = self._job(), self._rows(), self._rows()
        job.write(lost)
        job.prepare(1)
        orphan = job.replace()
        job.epoch(1, first if self._at_commit else [*lost, *first])
        again, other = self._rows(), self._rows()
        job.write(again)
        job.prepare(2)
        second = job.replace()
        job.epoch(2, [*again, *other])
        expected = [*first, *again, *other] if self._at_commit else [*lost, *first, *again, *other]
        self._shows(expected)
        job.end()
        for each in (orphan, second):
            with suppress(PenstockError):
                each.close()
        self._is_right()

    def _orphan(self) -> None:
        """The old process has just been told to commit, stands still, and goes on when its successor has."""
        job, rows, more = self._job(), self._rows(), self._rows()
        job.write(rows)
        job.prepare(1)
        job.record(1)
        orphan = job.replace()
        job.epoch(2, more)
        with suppress(PenstockError):
            orphan.commit(1)
        with suppress(PenstockError):
            orphan.close()
        self._shows([*rows, *more])
        job.end()
        self._is_right()

    def _goes_on(self) -> None:
        """The old process does not know that it was replaced: it prepares the epoch that its successor has."""
        job, rows, more, stale = self._job(), self._rows(), self._rows(), self._rows()
        job.epoch(1, rows)
        orphan = job.replace()
        job.write(more)
        job.prepare(2)
        if self._at_commit:
            with suppress(PenstockError):
                orphan.write(stale)
                orphan.prepare(2)
                orphan.snapshot(2)
                for upload in orphan.uploads():
                    upload()
        job.record(2)
        job.commit(2)
        self._shows([*rows, *more])
        with suppress(PenstockError):
            orphan.close()
        job.end()
        self._is_right()

    def _orphan_overwrites(self) -> None:
        job, (row,) = self._job(), self._rows(1, "old")
        job.write([row])
        job.prepare(1)
        job.record(1)
        orphan = job.replace()
        number = _ids([row])[0]
        self._texts[number] = "new"
        job.epoch(2, [self._schema.coerce({"id": number, "text": "new", "number": 0.0, "flag": True})])
        with suppress(PenstockError):
            orphan.commit(1)
            orphan.close()
        self._shows([row])

        def is_new() -> bool:
            return any(each["text"] == "new" for each in self._read() if self._id(each) == number)

        until(is_new, self._timeout_s)  # a commit may go on beside the records
        job.end()
        assert is_new(), "an older row has taken the place of a newer one"

    def _second(self) -> None:
        for _ in range(2):
            job, rows = self._job(), self._rows()
            job.epoch(1, rows)
            job.end()
            self._shows(rows)

    def _resumed(self) -> None:
        job, rows = self._job(), self._rows()
        job.epoch(1, rows)
        job.end()
        again = Run(self._make, self._schema, job.job_id, resumed=job)
        more = self._rows()
        again.epoch(2, more)
        again.end()
        self._shows([*rows, *more])

    def _resumed_prepared(self) -> None:
        job, rows = self._job(), self._rows()
        job.epoch(1, self._rows(0))
        job.write(rows)
        job.prepare(2)
        job.record(2)
        job.die()
        again = Run(self._make, self._schema, job.job_id, resumed=job)
        again.end()
        self._shows(rows)

    def _older(self) -> None:
        job, first, second = self._job(), self._rows(), self._rows()
        job.epoch(1, first)
        job.epoch(2, second)
        job.end()
        self._shows([*first, *second])
        with suppress(PenstockError):
            again = Run(self._make, self._schema, job.job_id, resumed=job, epoch=1)
            again.epoch(2, second)
            again.end()
        self._is_right()

    def _whole_job(self) -> None:
        rows = self._rows(40)
        pipeline = stream("in", records(rows, schema=self._schema, partitions=2)).to(self._make(), name=OPERATION)
        options = Options.of(name="conformance", parallelism=2, epoch="10ms", queue_records=4)
        plan = Plan.of(pipeline.graph(), options)
        cluster = Cluster(replace(plan, job_id=_new_id()))
        try:
            for steps in (5, 20, 40):
                cluster.run_until(1 << 62, steps=steps)
                if not cluster.ended:
                    cluster.crash(0)
                    cluster.crash(1)
            cluster.run_until(1 << 62)
        finally:
            cluster.close()
        self._shows(rows)


def _new_id() -> str:
    """As a job that begins with nothing draws it."""
    return os.urandom(8).hex()


def _ids(rows: Sequence[Record]) -> list[int]:
    return [int(getattr(row, attribute("id"))) for row in rows]
