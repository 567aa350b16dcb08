"""Windows and joins where Penstock is not installed: exact in any order that the time they are told allows."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from penstock_bench.foreign.programs.graph import Graph, stateful, targets
from penstock_bench.foreign.programs.loads import Burner
from penstock_bench.foreign.programs.messages import END_US, Message, line_time_us, parse
from penstock_bench.foreign.programs.stages import LEFT, RIGHT, Keys

PRIME, TTL_US = (1 << 31) - 1, 1_600
Arrival = tuple[int, Message]


def join(match: str) -> dict[str, Any]:
    return {"name": "pairs", "do": "join", "match": match, "ttl_us": TTL_US, "combine": [3, 5, 7], "inputs": []}


def arrivals(random: Random) -> list[Arrival]:
    """Messages of both sides with many equal times, values and keys."""
    return [
        (
            random.choice((LEFT, RIGHT)),
            Message(random.choice("ab"), random.choice("xyz"), random.randrange(0, 16_000, 400), i),
        )
        for i in range(random.randrange(120))
    ]


def run(step: dict[str, Any], given: list[Arrival], random: Random, slack_us: int) -> list[Message]:
    """Hand messages over up to ``slack_us`` out of order, and tell how far time has come at random moments."""
    found: list[Message] = []
    tested = Keys(step, found.append)
    order = sorted(given, key=lambda each: each[1].time_us + random.uniform(0, slack_us))
    for i, (side, message) in enumerate(order):
        if random.random() < 0.5:
            tested.advance(min(each.time_us for _, each in order[i:]))
        tested.put(side, message)
    tested.advance(END_US)
    return sorted(found)


def pair(left: Message, right: Message) -> Message:
    id_ = (3 * left.id % PRIME + 5 * right.id + 7) % PRIME
    return Message(left.key, left.value + right.value, max(left.time_us, right.time_us), id_)


def once_by_definition(given: list[Arrival]) -> list[Message]:
    """Take rows in order; each looks through all who wait, in the same order."""
    order = sorted(given, key=lambda each: (each[1].time_us, each[0], each[1].value, each[1].id))
    waiting: list[Arrival] = []
    pairs = []
    for side, message in order:
        for other in waiting:
            near = other[1].time_us >= message.time_us - TTL_US
            if other[0] != side and other[1].key == message.key and near:
                waiting.remove(other)
                pairs.append(pair(message, other[1]) if side == LEFT else pair(other[1], message))
                break
        else:
            waiting.append((side, message))
    return sorted(pairs)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("slack_us", [0, 600, 4_000])
def test_once_is_what_it_is_by_definition(seed: int, slack_us: int) -> None:
    random = Random(seed)
    given = arrivals(random)
    assert run(join("once"), given, random, slack_us) == once_by_definition(given)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("slack_us", [0, 600, 4_000])
def test_all_is_every_pair_that_is_near(seed: int, slack_us: int) -> None:
    random = Random(seed)
    given = arrivals(random)
    lefts, rights = ([message for at, message in given if at == side] for side in (LEFT, RIGHT))
    exact = [
        pair(left, right)
        for left, right in product(lefts, rights)
        if left.key == right.key and abs(left.time_us - right.time_us) <= TTL_US
    ]
    assert run(join("all"), given, random, slack_us) == sorted(exact)


@pytest.mark.parametrize("seed", range(20))
def test_windows_count_what_comes_out_of_order(seed: int) -> None:
    random = Random(seed)
    given = [(LEFT, message) for _, message in arrivals(random)]
    step = {"name": "w", "do": "window", "size_us": 2_400, "slide_us": 800, "combine": [3, 5, 7], "inputs": []}
    exact = []
    for start_us, key in product(range(-2_400, 16_800, 800), "ab"):
        ids = [each.id for _, each in given if each.key == key and start_us <= each.time_us < start_us + 2_400]
        if ids:
            id_ = (3 * min(ids) % PRIME + 5 * (start_us // 800) + 7) % PRIME
            exact.append(Message(key, str(len(ids)), start_us + 2_399, id_))
    assert run(step, given, random, 2_000) == sorted(exact)


@pytest.mark.parametrize("seed", range(20))
def test_sessions_are_those_of_a_sort_whatever_the_order(seed: int) -> None:
    random, gap_us = Random(seed), 900
    given = [(LEFT, message) for _, message in arrivals(random)]
    step = {"name": "w", "do": "session", "gap_us": gap_us, "combine": [3, 5, 7], "inputs": []}
    exact = []
    for key in "ab":
        sessions: list[list[Message]] = []
        for each in sorted((each for _, each in given if each.key == key), key=lambda each: each.time_us):
            if not sessions or each.time_us > sessions[-1][-1].time_us + gap_us:
                sessions.append([])
            sessions[-1].append(each)
        for held in sessions:
            id_ = (3 * min(each.id for each in held) % PRIME + 5 * held[0].time_us + 7) % PRIME
            exact.append(Message(key, str(len(held)), held[-1].time_us + gap_us, id_))
    assert len(exact) > 4
    assert run(step, given, random, 2_000) == sorted(exact)


@pytest.mark.parametrize("match", ["all", "once"])
def test_a_join_keeps_nothing_of_keys_that_are_silent(match: str) -> None:
    tested = Keys(join(match), lambda message: None)
    for i in range(100):
        tested.advance(400 * i)
        tested.put(LEFT, Message(f"key{i}", "x", 400 * i, i))
    tested.advance(100 * 400 + TTL_US + 3_000)
    assert not vars(tested)["_keys"]


def test_targets_are_the_next_steps_with_state() -> None:
    steps: list[dict[str, Any]] = [
        {"name": "f", "do": "filter", "inputs": [["s", 0]]},
        {"name": "w", "do": "window", "inputs": [["f", 0]]},
        {"name": "m", "do": "merge", "inputs": [["w", 0], ["s", 0]]},
        {"name": "j", "do": "join", "inputs": [["m", 0], ["f", 0]]},
    ]
    spec = {"steps": steps}
    assert [step["name"] for step in stateful(spec)] == ["w", "j"]
    assert targets(spec, ["s"]) == ["w", "j"]
    assert targets(spec, ["w"]) == ["j"]
    assert targets(spec, ["j"]) == []


def test_a_step_with_a_load_works_for_every_message_of_every_input() -> None:
    load = {"message_s": 0.0, "held_bytes": 0, "copied_bytes": 0, "file_bytes": 0, "written_bytes": 0}
    spec = {
        "sources": ["s"],
        "steps": [{**join("all"), "inputs": [["s", 0], ["s", 0]], "load": load}],
        "sinks": {"out": ["pairs", 0]},
    }
    burnt: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Burner, "burn", lambda self: burnt.append(1))
        graph = Graph(spec, lambda sink, message: None)
        for i in range(5):
            graph.put(Message("a", "x", i, i))
    assert len(burnt) == 10


def test_a_load_holds_memory_and_goes_round_in_its_file() -> None:
    burner = Burner(message_s=1e-6, held_bytes=1_000, copied_bytes=100, file_bytes=3_000, written_bytes=1_000)
    for _ in range(25):
        burner.burn()
    assert len(burner.held) == 1_000
    burner.file.seek(0, 2)
    assert burner.file.tell() == 3_000


def test_lines_are_read() -> None:
    assert parse(b"7\t12\tkey1\ta\tb") == Message("key1", "a\tb", 12, 7)
    assert line_time_us(b"7\t12\tkey1\ta\tb") == 12
