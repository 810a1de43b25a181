"""start_method="fork" inherits everything, and warns if that is risky."""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

import pytest

import rookery
from rookery.testing import Faulty


def _make(**options: Any) -> rookery.VectorEnv:
    return rookery.make_vec(Faulty, 2, backend="process", start_method="fork", **options)


# Python 3.12 and newer warn, too, where they are asked to.
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forking_while_other_threads_run_warns() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="busy-body")
    thread.start()
    try:
        with pytest.warns(RuntimeWarning, match="other threads run .busy-body"):
            _make().close()
    finally:
        stop.set()
        thread.join()


def test_forking_after_cuda_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = types.SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    with pytest.raises(rookery.ConfigError, match="CUDA does not survive a fork"):
        _make()


def test_arguments_that_cannot_be_pickled_are_inherited() -> None:
    with open(__file__) as file, _make(env_kwargs={"fail": file}) as venv:
        venv.reset()
        assert venv.call("double", 2) == (4, 4)
