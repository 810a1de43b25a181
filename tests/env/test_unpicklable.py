from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

import pytest

from rookery.common.pickling import advice_for, find_unpicklable

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
    found = find_unpicklable(value, "x")
    assert found is not None
    assert found[0] == path and found[1] is LOCK


def test_what_can_travel_has_no_culprit() -> None:
    assert find_unpicklable({"a": [1, "b", print]}, "x") is None


def test_a_value_that_contains_itself_is_no_endless_search() -> None:
    loop: list[Any] = [LOCK]
    loop.insert(0, loop)
    found = find_unpicklable(loop, "x")
    assert found is not None and found[1] is LOCK


def _defined_in_main(source: str, **global_values: Any) -> dict[str, Any]:
    """What ``source`` defines, as a script defines it: it is pickled by value."""
    defined = {"__name__": "__main__", **global_values}
    exec(compile(source, "script.py", "exec"), defined)
    return defined


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("class X:\n def __init__(self): lock", "x.__init__ uses the global 'lock'"),
        ("class X:\n @staticmethod\n def f(): lock", "x.f uses the global 'lock'"),
        ("class X:\n @classmethod\n def f(cls): lock", "x.f uses the global 'lock'"),
        ("class X:\n @property\n def f(self): lock", "x.f uses the global 'lock'"),
        ("X = lambda: (lambda: lock)", "x uses the global 'lock'"),
        (
            "class Base:\n def f(self): lock\nclass X(Base): pass",
            "x (base class Base).f uses the global 'lock'",
        ),
        (
            "class Y:\n def f(self): lock\nX = Y()",
            "x (its class Y).f uses the global 'lock'",
        ),
    ],
)
def test_the_path_leads_through_all_code_that_is_pickled_by_value(source: str, path: str) -> None:
    found = find_unpicklable(_defined_in_main(source, lock=LOCK)["X"], "x")
    assert found == (path, LOCK)


def test_native_libraries_are_named_as_such_with_advice() -> None:
    library = ctypes.CDLL(None)
    for part in (library, library.getpid, ctypes.pointer(ctypes.c_int(1))):
        found = find_unpicklable(_defined_in_main("def x(): part", part=part)["x"], "x")
        assert found == ("x uses the global 'part'", part)
        assert "in the env's __init__, or in a module" in advice_for(part)
    assert advice_for(LOCK) == ""
