"""Pickles for the journey."""

from __future__ import annotations

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
