"""Errors name objects that cannot be pickled, and the vector env stays usable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rookery
from rookery import PicklingError
from rookery.testing import Faulty


class Locked(Faulty):
    """Hands out a lock wherever it can."""

    def __init__(self) -> None:
        super().__init__()
        self.tells = self.ends = False

    def step(self, action: Any) -> Any:
        obs, reward, _, _, _ = super().step(action)
        info = {"parts": {"lock": threading.Lock()}} if self.tells else {}
        return obs, reward, self.ends, False, info

    def lock(self) -> Any:
        return {"lock": threading.Lock()} if self.seed else None


CALLS: dict[str, tuple[Callable[[rookery.VectorEnv], Any], str]] = {
    "call": (
        lambda v: v.call("lock", [threading.Lock()]),
        r"call: args\[0\]\[0\] \(_thread.lock\)",
    ),
    "keyword": (lambda v: v.call("lock", x=threading.Lock()), "call: argument 'x' .*lock"),
    "set_attr": (lambda v: v.set_attr("label", threading.Lock()), "set_attr: the value of 'label'"),
    "apply": (lambda v: v.apply(threading.Lock().acquire), "apply: the function"),
    "reset": (lambda v: v.reset(options={"x": threading.Lock()}), r"reset: options\['x'\]"),
    "result": (lambda v: v.call("lock"), r"Env 1: what call of 'lock' .*result\['lock'\]"),
    "apply's": (lambda v: v.apply(lambda env: env.lock()), r"Env 1: what apply .*result\['lock'\]"),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_it_is_named_with_its_call_and_a_way_out(call: str) -> None:
    make, words = CALLS[call]
    with rookery.make_vec(Locked, 2, "process", num_workers=1) as venv:
        venv.reset(seed=[0, 1])
        with pytest.raises(PicklingError, match=f"(?s){words}.*backend='serial'"):
            make(venv)
        assert venv.step(np.zeros(2, int))[0][:, 0].tolist() == [1, 1]


@pytest.mark.parametrize("ends", [False, True])
def test_in_an_info_it_is_named_with_its_path(ends: bool) -> None:
    with rookery.make_vec(Locked, 2, "process", num_workers=1, autoreset_mode="same_step") as venv:
        venv.reset()
        venv.set_attr("tells", [False, True])
        venv.set_attr("ends", ends)
        path = r"final\['final_info'\]\['parts'\]" if ends else r"info\['parts'\]"
        with pytest.raises(
            rookery.EnvFailed, match=rf"Env 1 .*{path}\['lock'\] is a lock.*backend='thread'"
        ) as caught:
            venv.step(np.zeros(2, int))
        assert isinstance(caught.value, PicklingError)
        assert caught.value.env_ids == (1,)
