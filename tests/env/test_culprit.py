from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

from rookery.common.unpicklable import find_culprit

LOCK = threading.Lock()


class Server:
    def __init__(self) -> None:
        self.name = "server"
        self.contexts = {"main": [1, LOCK]}


class Slotted:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = LOCK


class Bound:
    def __init__(self) -> None:
        self.lock = LOCK

    def method(self) -> None: ...


def _closing_over() -> Any:
    lock = LOCK
    return lambda: lock


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (LOCK, "x"),
        ({"a": [0, (LOCK,)]}, "x['a'][1][0]"),
        (Server(), "x.contexts['main'][1]"),
        (Slotted(), "x.lock"),
        (functools.partial(print, 1, end=LOCK), "x.keywords['end']"),
        (functools.partial(_closing_over(), 1), "x.func closes over 'lock'"),
        (_closing_over(), "x closes over 'lock'"),
        (Bound().method, "x.__self__.lock"),
        (type("Local", (), {"lock": LOCK}), "x.lock"),
        (lambda lock=LOCK: lock, "x (default 0)"),
        (lambda *, lock=LOCK: lock, "x (default of 'lock')"),
        ({LOCK}, "x (an element)"),
    ],
)
def test_the_path_leads_to_what_cannot_travel(value: Any, path: str) -> None:
    found = find_culprit(value, "x")
    assert found is not None
    assert found[0] == path and found[1] is LOCK


def test_what_can_travel_has_no_culprit() -> None:
    assert find_culprit({"a": [1, "b", print]}, "x") is None


def test_a_value_that_contains_itself_is_no_endless_search() -> None:
    loop: list[Any] = [LOCK]
    loop.insert(0, loop)
    found = find_culprit(loop, "x")
    assert found is not None and found[1] is LOCK
