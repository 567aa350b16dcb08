"""The input is made beforehand and sent as it was made: every line once, in order, not before it is due."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from penstock.errors import InvalidOption
from penstock_bench.engines.feeder import SEND_RECORDS_MAX, Lines
from penstock_bench.engines.inputs import prepare
from penstock_bench.engines.program import Program
from penstock_bench.engines.subjects import subject
from penstock_bench.meter.errors import EngineFailed
from penstock_bench.meter.stamped import read_outputs

EVENT_START_US = 1_700_000_000_000_000


@pytest.mark.parametrize("name", ["yahoo", "wordcount", "grep"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_lines_are_sent_as_they_were_made(tmp_path: Path, name: str, partitions: int) -> None:
    wanted = subject(name)
    source = wanted.input(100_000.0, None, total=20_000)
    prepare(wanted, source, EVENT_START_US, tmp_path, partitions)
    made = [wanted.line(record) for record in source.records(0, 20_000, EVENT_START_US)]
    for p in range(partitions):
        lines, got = Lines(tmp_path, p), list[bytes]()

        def take(first: int, ends: list[int], lines: Lines = lines, got: list[bytes] = got) -> None:
            assert 0 < len(ends) <= SEND_RECORDS_MAX
            got.append(lines.data[first : ends[-1]])

        lines.send(take, start_us=0)
        assert b"".join(got).splitlines() == made[p::partitions]
        assert lines.sent == len(made[p::partitions])


def test_nothing_is_sent_before_it_is_due(tmp_path: Path) -> None:
    wanted = subject("grep")
    prepare(wanted, wanted.input(1_000.0, None, total=200), EVENT_START_US, tmp_path, 1)
    start_us = time.time_ns() // 1000
    lags_us = Lines(tmp_path, 0).send(lambda first, ends: None, start_us)
    assert time.time_ns() // 1000 >= start_us + 199_000
    assert min(lags_us) >= 0


def test_an_input_without_an_end_is_refused(tmp_path: Path) -> None:
    wanted = subject("grep")
    with pytest.raises(InvalidOption, match="sources with a rate that end"):
        prepare(wanted, wanted.input(1_000.0, None), EVENT_START_US, tmp_path, 1)


def test_outputs_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "out-a.log").write_bytes(b'5\t["x",1]\n7\t["x",2]\n')
    (tmp_path / "out-b.log").write_bytes(b'6\t["y",1]\n7\t["y",2]\n')
    assert [(each.out_us, each.values) for each in read_outputs(tmp_path)] == [
        (5, ["x", 1]),
        (6, ["y", 1]),
        (7, ["x", 2]),
        (7, ["y", 2]),
    ]


def program(tmp_path: Path, text: str) -> Program:
    return Program("test", [sys.executable, "-c", text], tmp_path / "log", messages=True)


def test_a_program_is_heard_and_ended(tmp_path: Path) -> None:
    with program(tmp_path, "import sys; print('hello'); print('{\"port\": 7}', flush=True); sys.stdin.read()") as one:
        assert one.message("port", 30.0) == 7
        assert not one.ended
    assert one.ended
    assert one.log() == "hello\n"


def test_a_program_that_fails_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    told = pytest.raises(EngineFailed, match=r"(?s)engine 'test' ended with exit code 1.*no such port")
    with program(tmp_path, "raise SystemExit('no such port')") as one, told:
        one.message("port", 30.0)


def test_a_program_that_says_nothing_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with program(tmp_path, "import sys; sys.stdin.read()") as one:
        with pytest.raises(EngineFailed, match=r"gave no 'port' within 0\.2 s"):
            one.message("port", 0.2)
        assert not one.wait(0.01)


def test_who_is_waited_for_says_why_the_other_is_silent(tmp_path: Path) -> None:
    silent = Program("test", [sys.executable, "-c", "import sys; sys.stdin.read()"], tmp_path / "silent", messages=True)
    text = "import sys; print('no executor yet', flush=True); sys.stdin.read()"
    with silent, Program("slow", [sys.executable, "-c", text], tmp_path / "slow") as slow:
        while "no executor yet" not in slow.log():
            time.sleep(0.01)
        with pytest.raises(EngineFailed, match="no executor yet"):
            silent.message("start_us", 0.1, slow)
