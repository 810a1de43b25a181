"""Pickles for the journey."""

from __future__ import annotations

import linecache
import sys
import types
from typing import Any

import cloudpickle
import pytest

from rookery.common.pickling import by_value


class Nested:
    """Pickles something else while it is pickled, as a vector env that is collected then does."""

    def __reduce__(self) -> Any:
        return bytes, (by_value("inner"),)


def test_pickling_may_happen_while_something_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__mp_main__", types.ModuleType("__mp_main__"))
    assert cloudpickle.loads(cloudpickle.loads(by_value(Nested()))) == "inner"
    assert not cloudpickle.list_registry_pickle_by_value()


def test_code_keeps_its_file_name_whatever_cloudpickle_makes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = cloudpickle.Pickler.dispatch_table
    reduced = table[types.CodeType]

    def without_file_name(code: types.CodeType) -> Any:  # as cloudpickle 3.1.3 does
        make, arguments = reduced(code)
        return make, (*arguments[:10], "<dynamic-code>", *arguments[11:])

    monkeypatch.setitem(table, types.CodeType, without_file_name)
    function = cloudpickle.loads(by_value(lambda: lambda: None))
    assert function.__code__.co_filename == function().__code__.co_filename == __file__


def test_source_that_no_file_has_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    name, source = "<ipython-input-1-0123abcd>", "def function():\n    return 1\n"
    defined: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), defined)
    entry = (len(source), None, source.splitlines(keepends=True), name)
    monkeypatch.setitem(linecache.cache, name, entry)
    data = by_value(defined["function"])
    del linecache.cache[name]
    cloudpickle.loads(data)
    linecache.checkcache(name)
    assert linecache.getline(name, 2) == "    return 1\n"
