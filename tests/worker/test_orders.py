"""A worker carries out orders correctly that are being written while it reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery.worker.orders import DONE, IN_MESSAGE, RESET, STEP, Order, OrderPart, Orders


@pytest.fixture
def orders() -> Orders:
    return Orders.in_memory(3, 1)


@pytest.fixture
def sides(orders: Orders) -> tuple[OrderPart, OrderPart]:
    """Return the orders of the caller and of the worker."""
    return orders.part(range(3), 0), orders.part(range(3), 0)


@pytest.mark.parametrize("seen", [[0], [0, 1], [2], [1, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("kind", [STEP, RESET])
def test_an_order_to_all_is_carried_out_once_whichever_numbers_are_seen_first(
    orders: Orders, sides: tuple[OrderPart, OrderPart], kind: int, seen: list[int]
) -> None:
    caller, worker = sides
    caller.ask(Order(kind, 0, 7))
    orders.asked[:] = np.isin(range(3), seen) * 7
    group = worker.next_group()
    assert group is not None and (group.number, group.kind, group.env_ids) == (7, kind, None)
    worker.answer(group, IN_MESSAGE)
    assert worker.next_group() is None
    orders.asked[:] = 7  # the last of the numbers come
    assert worker.next_group() is None
    assert not caller.is_busy() and orders.status.tolist() == [IN_MESSAGE] * 3


@pytest.mark.parametrize("seen", [[0], [2], [0, 2]], ids=str)
@pytest.mark.parametrize("with_numbers", [int, lambda number: np.array([number] * 2)])
def test_an_order_to_some_waits_until_all_of_its_numbers_are_seen(
    orders: Orders, sides: tuple[OrderPart, OrderPart], with_numbers: Any, seen: list[int]
) -> None:
    caller, worker = sides
    caller.ask(Order(RESET, 0, with_numbers(7), np.array([0, 2])))
    orders.asked[:] = np.isin(range(3), seen) * 7
    group = worker.next_group()
    assert (group is None) == (seen != [0, 2])
    orders.asked[[0, 2]] = 7
    group = group or worker.next_group()
    assert group is not None and (group.number, group.env_ids) == (7, [0, 2])
    worker.answer(group, DONE)
    assert worker.next_group() is None and not caller.is_busy()


@pytest.mark.parametrize("ask", ["turn_into_resets", "ask_again"])
def test_the_next_worker_sees_all_orders_of_a_lost_worker(
    orders: Orders, sides: tuple[OrderPart, OrderPart], ask: str
) -> None:
    caller, worker = sides
    caller.ask(Order(RESET, 0, 7))
    getattr(caller, ask)([1, 2], 8)
    caller.answer_for_lost([0])
    orders.asked[1] = 0  # has not been seen
    assert worker.next_group() is None
    orders.asked[1] = 8
    group = worker.next_group()
    assert group is not None and (group.number, group.kind, group.env_ids) == (8, RESET, [1, 2])


def test_orders_to_single_envs_are_carried_out_in_their_order(
    sides: tuple[OrderPart, OrderPart],
) -> None:
    caller, worker = sides
    caller.ask(Order(RESET, 0, 7))
    first = worker.next_group()
    assert first is not None
    worker.answer(first, DONE)
    caller.ask(Order(STEP, 0, np.array([8, 9]), np.array([2, 0])))
    taken = []
    while (group := worker.next_group()) is not None:
        taken.append((group.number, group.env_ids))
        worker.answer(group, DONE)
    assert taken == [(8, [2]), (9, [0])]
