"""The arrays of two machines are kept alike."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rookery.cluster.mirror import Mirror
from rookery.shared.arrays import BatchSpaces
from rookery.worker import orders
from rookery.worker.orders import DONE, IN_ROWS, RESET, SINGLY, STEP, Order, Orders

_SPACES = BatchSpaces(
    gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (3,)), "b": gym.spaces.Discrete(5)}),
    gym.spaces.Discrete(2),
    num_envs=6,
    num_buffers=2,
)
_OWN = range(2, 5)


class _Side:
    """The arrays of one machine, and the mirror of worker 1's rows."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        columns = {**_SPACES.columns(), **orders.columns(6, 2)}
        self.views: dict[str, Any] = {}
        for name, (shape, dtype) in columns.items():
            is_order = name.startswith(("order", "worker"))
            values = 0 if is_order else random.integers(0, 2, shape)
            self.views[name] = np.full(shape, values, dtype)
        self.orders = Orders(self.views)
        self.mirror = Mirror(self.views, self.orders.part(_OWN, 1), 1)

    def rows(self, *names: str) -> list[Any]:
        return [self.views[name][2:5].tolist() for name in names]


@pytest.fixture
def sides() -> tuple[_Side, _Side]:
    caller, node = _Side(0), _Side(1)
    node.mirror.load(caller.mirror.snapshot())
    return caller, node


def test_a_board_becomes_what_another_was_but_for_the_envs_of_others(sides) -> None:
    caller, node = sides
    names = list(_SPACES.columns())
    assert caller.rows(*names) == node.rows(*names)
    assert (caller.views["obs0.0"][:2] != node.views["obs0.0"][:2]).any()
    assert caller.mirror.orders() is None and not node.mirror.has_answers()


def test_an_order_travels_once_with_its_actions(sides) -> None:
    caller, node = sides
    caller.views["action.0"][2:5] = 7
    caller.mirror.part.ask(Order(STEP, 1, 4))
    sent = caller.mirror.orders()
    assert sent is not None and sent.places.tolist() == [0, 1, 2]
    caller.mirror.sent(sent)
    assert caller.mirror.orders() is None
    node.mirror.take_orders(sent)
    group = node.mirror.part.next_group()
    assert group is not None and (group.number, group.buffer, group.env_ids) == (4, 1, None)
    assert (node.views["action.0"][2:5] == 7).all()


def test_orders_to_some_envs_and_their_answers_leave_the_others_alone(sides) -> None:
    caller, node = sides
    caller.mirror.part.ask(Order(RESET | SINGLY, 0, 8, np.array([2, 4]), np.array([5, 6])))
    node.mirror.take_orders(caller.mirror.orders())
    group = node.mirror.part.next_group()
    assert group is not None and group.env_ids == [2, 4]
    assert node.mirror.part.seeds(group) == [5, 6]
    before = caller.views["obs0.0"].copy()
    node.views["obs0.0"][:] = 9.0
    node.mirror.part.answer(group, DONE)
    assert node.mirror.has_answers()
    (answers,) = node.mirror.answers()
    assert not node.mirror.has_answers() and node.mirror.answers() == []
    caller.mirror.take_answers(answers)
    assert caller.mirror.part.busy_ids() == []
    assert (caller.views["obs0.0"][[2, 4]] == 9.0).all()
    np.testing.assert_array_equal(caller.views["obs0.0"][[0, 1, 3, 5]], before[[0, 1, 3, 5]])


@pytest.mark.parametrize(("status", "is_same"), [(DONE, False), (IN_ROWS, True)])
def test_the_used_part_of_the_row_buffer_is_sent_if_it_was_used(sides, status, is_same) -> None:
    caller, node = sides
    caller.mirror.part.ask(Order(STEP, 0, 3))
    node.mirror.take_orders(caller.mirror.orders())
    node.views["tail_used0"][2:5] = 2, 0, 17
    node.views["tail0"][2:5] = 77
    caller.views["tail0"][2:5] = 1
    node.mirror.part.answer(node.mirror.part.next_group(), status)
    (answers,) = node.mirror.answers()
    caller.mirror.take_answers(answers)
    assert (caller.views["tail0"][2:5, :17] == 77).all() == is_same
    assert (caller.views["tail0"][2:5, 17:] == 1).all()


def test_envs_that_were_asked_apart_are_answered_apart(sides) -> None:
    caller, node = sides
    numbers = caller.orders.numbers(3)
    caller.mirror.part.ask(Order(STEP | SINGLY, 1, numbers, np.array([4, 3, 2])))
    node.mirror.take_orders(caller.mirror.orders())
    for _ in range(2):
        node.mirror.part.answer(node.mirror.part.next_group(), DONE)
    for answers in node.mirror.answers():
        caller.mirror.take_answers(answers)
    assert caller.mirror.part.busy_ids() == [2]
    assert caller.mirror.part.answered_at[:].tolist()[0] == 0.0


def test_what_is_counted_travels_where_it_has_changed(sides) -> None:
    caller, node = sides
    node.views["watch.steps"][3, 1] += 5
    node.mirror.part.progress[1] = 12
    node.mirror.part.busy_s[0] = 0.5
    words = node.mirror.words()
    assert {name: places.tolist() for name, (places, _) in words.counters.items()} == {
        "watch.steps": [1]
    }
    caller.mirror.take_words(words)
    assert caller.rows("watch.steps") == node.rows("watch.steps")
    assert caller.mirror.part.progress[1] == 12 and caller.mirror.part.busy_s[0] == 0.5
    assert node.mirror.words().counters == {}


def test_an_order_that_was_answered_for_a_lost_worker_is_not_sent(sides) -> None:
    caller, _ = sides
    caller.mirror.part.ask(Order(STEP, 0, 2))
    caller.mirror.part.answer_for_lost(list(_OWN))
    assert caller.mirror.orders() is None


def test_an_env_that_has_nothing_to_tell_says_so_beside_one_that_has(sides) -> None:
    caller, node = sides
    caller.views["form0"][2:5] = 3  # of an earlier step
    caller.mirror.part.ask(Order(STEP, 0, 3))
    node.mirror.take_orders(caller.mirror.orders())
    node.views["form0"][2:5] = 0
    node.mirror.part.answer(node.mirror.part.next_group(), DONE)
    for answers in node.mirror.answers():
        caller.mirror.take_answers(answers)
    assert caller.views["form0"][2:5].tolist() == [0, 0, 0]
