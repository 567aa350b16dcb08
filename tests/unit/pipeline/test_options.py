"""Options of a job: what is taken, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidOption
from penstock.operators import Form
from penstock.pipeline.options import Forms, Options


def test_good_options() -> None:
    options = Options.of(name="a-1.b_c", parallelism=4, master="local[4]", epoch="10ms", idle=0.5, queue_records=1)
    assert (options.epoch_us, options.idle_us, options.queue_records) == (10_000, 500_000, 1)
    assert 1 <= Options.of().parallelism <= 8


def test_workers_are_a_number_or_the_least_and_the_most() -> None:
    fixed, bounds = Options.of(workers=2, parallelism=4), Options.of(workers=(2, 6))
    assert (fixed.workers, fixed.workers_most, fixed.parallelism) == (2, 0, 4)
    assert (bounds.workers, bounds.workers_most, bounds.parallelism) == (2, 6, 6)
    assert Options.of(workers="2-6", parallelism=8) == Options.of(workers=(2, 6), parallelism=8)
    with pytest.raises(InvalidOption, match="1 to 4, which is the parallelism"):
        Options.of(workers=(2, 6), parallelism=4)
    with pytest.raises(InvalidOption, match="at least 6 slots"):
        Options.of(workers=(2, 6), master="local[5]")


def test_forms_and_what_belongs_to_them() -> None:
    options = Options.of(
        forms="record", pin={"score": "batch", "parse": "record"}, advise=True, interval="1ms", slots=3, group_size=20
    )
    assert (options.forms, options.forms.pin) == (Forms.RECORD, Form.RECORD)
    assert options.pins == (("score", Form.BATCH), ("parse", Form.RECORD))
    assert (options.advise, options.interval_us, options.slots, options.group_size) == (True, 1_000, 3, 20)
    default = Options.of()
    assert (default.forms, default.forms.pin, default.pins, default.advise) == (Forms.ADAPTIVE, None, (), False)
    assert (default.slots, default.group_size) == (0, 0), "as many as workers, and tuned"


@pytest.mark.parametrize("form", ["both", "", None, "adaptive", 5])
def test_a_pin_names_the_operation_and_the_forms(form: Any) -> None:
    with pytest.raises(InvalidOption, match="record, batch") as error:
        Options.of(pin={"score": form})
    assert error.value.option == "pin['score']"


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,3]", "spark://h:7077", "yarn", "k8s://x"])
def test_masters(master: str) -> None:
    assert Options.of(master=master, parallelism=1).master == master


def test_a_local_master_needs_a_slot_for_every_worker() -> None:
    with pytest.raises(InvalidOption, match="at least 3 slots"):
        Options.of(master="local[2]", parallelism=3)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("name", value) for value in ("", "a b", "-a", "a/b", "x" * 65, None, 5, "a\n")),
        *(("parallelism", value) for value in (0, -1, 257, 1.0, "2", True)),
        *(("master", value) for value in ("", "locl", "local[]", "local[x]", "spark://", 5, "local[2] ")),
        *(("shrink_after", value) for value in (0, "1s", "1999ms", "never")),
        *(("epoch", value) for value in (0, -1, "9ms", "1", "soon", float("nan"), float("inf"), None, "400d", True)),
        *(("idle", value) for value in (0, "0s", "-1s", [])),
        *(("queue_records", value) for value in (0, -5, 1.5, "9", 10_000_001, True)),
        *(("forms", value) for value in ("", "Batch", "recrod", None, 5, [])),
        *(("pin", value) for value in ("score", ["score"], 5)),
        *(("advise", value) for value in ("no", 1, None)),
        *(("interval", value) for value in (0, "0.9ms", "11s", "often", None, True)),
        *(("slots", value) for value in (0, -1, 1001, 2.0, "2", True)),
        *(("group_size", value) for value in (0, -1, 1001, 2.0, "2", True)),
        *(
            ("workers", value)
            for value in (0, -1, 257, 1.5, True, "", "x", "6-2", "0-2", (2,) * 3, (), (6, 2), (1, "2"))
        ),
        *(("worker_interval", value) for value in (0, "99ms", "2h", "often", None)),
    ],
)
def test_bad_options(option: str, value: Any) -> None:
    with pytest.raises(InvalidOption) as error:
        Options.of(**{option: value})
    assert error.value.option == option
    assert "Allowed" in str(error.value)
