"""How episodes end, as vector infos tell it in the same-step mode, and which a fault has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.trees import copy
from rookery.rollout import Tree
from rookery.rollout.join import numbers_of

_OF_FAULT = ("cause", "env_ids", "attempt")  # what `worker.recovery` tells of a fault


def ends_told(
    info: dict[str, Any], like: Tree, as_arrays: Callable[[Tree], Tree], keys: Sequence[str]
) -> Iterator[tuple[int, Tree, dict[str, float]]]:
    """The place, final observation and numbers of each episode that a vector info says is over.

    Args:
        info: of some envs.
        like: a batch of observations, for its structure.
        as_arrays: what rollouts hold of an observation.
        keys: names of the numbers that are asked for; NaN where an info holds none.
    """
    if "final_obs" not in info:
        return
    told = info.get("final_info", {})
    for place in np.flatnonzero(info["_final_obs"]).tolist():
        obs = copy(as_arrays(_of_env(info["final_obs"], place, like)))
        yield place, obs, numbers_told(told, place, keys)


def faults_told(info: dict[str, Any]) -> npt.NDArray[np.bool_] | None:
    """Whose step a fault has closed, bool ``[N]``, as a vector info says; None if nobody's.

    An env may well have a key ``fault`` or ``_fault`` of its own. A fault is known by its columns.
    """
    fault = info.get("fault")
    if not isinstance(fault, dict) or any(f"_{name}" not in fault for name in _OF_FAULT):
        return None
    told: npt.NDArray[np.bool_] = np.logical_and.reduce([fault[f"_{name}"] for name in _OF_FAULT])
    return told


def numbers_told(info: dict[str, Any], place: int, keys: Sequence[str]) -> dict[str, float]:
    """What one env's part of a vector info holds under some names; NaN where it holds none."""
    own = {
        key: info[key][place]
        for key in keys
        if key in info and bool(info.get(f"_{key}", np.ones(place + 1, np.bool_))[place])
    }
    return numbers_of(own, keys)


def _of_env(vectored: Any, place: int, like: Tree) -> Tree:
    """Pick one env's observation out of gymnasium's vector info.

    There a Dict observation is a dict of arrays over the envs (with ``_key`` masks beside them);
    any other is one element of an object array.
    """
    if isinstance(vectored, dict):
        return {key: _of_env(vectored[key], place, branch) for key, branch in like.items()}
    return vectored[place]
