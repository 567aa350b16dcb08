"""Which worker has which column."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.control.placing import host_of, next_move, spread, taken_over

HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}


def test_neighbours_are_on_different_machines() -> None:
    assert spread(HOSTS, 4) == [0, 2, 1, 3]
    assert spread({0: "a", 1: "a", 2: "a", 3: "b"}, 4) == [0, 3, 1, 2]
    assert spread({0: "a", 1: "b"}, 5) == [0, 1, 0, 1, 0]
    assert spread({1: "a"}, 2) == [1, 1]


def test_a_machine_is_told_from_an_endpoint() -> None:
    assert host_of("tcp://[::1]:4000") == "[::1]"
    assert host_of("tcp://w0") == "tcp://w0", "without a port every worker counts as a machine"


def test_a_hot_column_gets_a_worker_of_its_own() -> None:
    loads = {0: 0.7, 1: 0.1, 2: 0.1, 3: 0.1}
    placement = [0, 0, 1, 1]
    moved = []
    while (found := next_move(placement, {0, 1}, {0, 1}, loads, {})) is not None:
        moved.append(found)
        placement[found[0]] = found[1]
    assert moved == [(1, 1)]
    assert placement == [0, 1, 1, 1]


def test_a_light_load_is_left_as_it_is() -> None:
    assert next_move([0, 0, 1, 1], {0, 1}, {0, 1}, {0: 0.2, 1: 0.2, 2: 0.0, 3: 0.0}, {}) is None
    assert next_move([0, 0, 1, 1], {0, 1}, {0, 1}, {0: 0.3, 1: 0.3, 2: 0.0, 3: 0.0}, {}) == (0, 1)


def test_what_joins_is_taken_from_another_machine_first() -> None:
    assert next_move([0, 0, 0], {0, 1, 2}, {0, 1, 2}, {}, {0: "a", 1: "a", 2: "b"}) == (0, 2)


def test_the_columns_of_a_lost_worker_go_to_who_has_few_and_to_other_machines() -> None:
    placement = [0, 1, 2, 3]
    taken_over(placement, 1, {0, 2, 3}, HOSTS)
    assert placement == [0, 0, 2, 3], "the machine of worker 0 has one column left, the other two"
    placement = [0, 0, 1, 2]
    taken_over(placement, 0, {1, 2}, {})
    assert sorted(placement) == [1, 1, 2, 2]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.integers(1, 4),
    st.data(),
)
def test_moves_come_to_an_end_and_everybody_has_something(
    loads: list[float], workers: int, data: st.DataObject
) -> None:
    placement = data.draw(st.lists(st.integers(0, 5), min_size=len(loads), max_size=len(loads)))
    wanted = set(range(workers))
    for _ in range(4 * len(loads) + 1):
        found = next_move(placement, wanted, wanted, dict(enumerate(loads)), {})
        if found is None:
            break
        column, new = found
        assert placement[column] != new
        placement[column] = new
    assert found is None
    assert set(placement) <= wanted
    assert len(set(placement)) == min(workers, len(loads))
