"""On processors that reorder writes, both sides call a fence where the order of words matters."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from patience import PATIENCE_S

import rookery
from rookery.shared import block
from rookery.testing import Faulty
from rookery.worker import orders
from rookery.worker.orders import DONE, NO_SEED, RESET, SINGLY, STEP, Order, Orders

NUM_ENVS = 3


class Words(dict[str, Any]):
    """The words of orders, with a record of the words that were written."""

    def __init__(self) -> None:
        for name, (shape, dtype) in orders.columns(NUM_ENVS, 1).items():
            self[name] = np.zeros(shape, dtype)
        self._before = self._seen()

    def _seen(self) -> dict[str, bytes]:
        return {name: column.tobytes() for name, column in self.items() if "order." in name}

    def changed(self) -> set[str]:
        """Return the names of the words that were written since the last call."""
        now, before = self._seen(), self._before
        self._before = now
        return {name.removeprefix("order.") for name in now if now[name] != before[name]}


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> tuple[Words, list[set[str]]]:
    """Return words, and a list with the words that were written before each fence."""
    written: list[set[str]] = []
    words = Words()
    monkeypatch.setattr(orders, "make_fence", lambda: lambda: written.append(words.changed()))
    return words, written


@pytest.mark.parametrize("env_ids", [None, np.array([1]), np.array([0, 2])])
@pytest.mark.parametrize("kind", [STEP, RESET, STEP | SINGLY])
def test_announcing_words_are_written_after_a_fence_and_read_before_one(
    kind: int, env_ids: Any, fenced: tuple[Words, list[set[str]]]
) -> None:
    words, written = fenced
    part = Orders(words).part(range(NUM_ENVS), 0)
    words["order.kind"][:] = 99  # so that every write changes it
    words["order.status"][:] = 99
    words.changed()

    part.ask(Order(kind, 1, 5, env_ids, 7 if kind & RESET else NO_SEED))
    assert len(written) == 1
    assert {"kind", "buffer"} <= written[0] <= {"kind", "buffer", "seed"}
    assert words.changed() == {"asked"}

    group = part.next_group()
    assert group is not None and group.number == 5
    assert len(written) >= 2, "the worker read an order without a fence"

    written.clear()
    part.answer(group, DONE)
    assert len(written) == 1
    assert {"status"} <= written[0] <= {"status", "answered_at"}
    assert words.changed() == {"answered"}


def test_only_processors_that_keep_the_order_need_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "_KEEPS_ORDER", True)
    assert block.make_fence() is None
    monkeypatch.setattr(block, "_KEEPS_ORDER", False)
    fence = block.make_fence()
    assert fence is not None
    fence()


def _partial(venv: rookery.VectorEnv) -> None:
    venv.send(np.zeros(2, int))
    received = 0
    while received < 2:
        received += len(venv.recv(timeout=PATIENCE_S)[5])


@pytest.mark.parametrize("call", ["step", "partial"])
def test_the_caller_and_the_envs_both_fence_before_they_write_and_before_they_read(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers: Counter[str] = Counter()
    fence = lambda: callers.update([threading.current_thread().name])  # noqa: E731
    monkeypatch.setattr(orders, "make_fence", lambda: fence)
    with rookery.make_vec(Faulty, 2, "thread", 1) as venv:
        venv.reset()
        callers.clear()
        if call == "step":
            venv.step(np.zeros(2, int))
        else:
            _partial(venv)
        assert set(callers) == {threading.current_thread().name, "rookery-0"}
        assert min(callers.values()) >= 2, callers
