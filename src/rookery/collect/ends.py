"""Reading of episode ends and faults from the infos of a vector env in same-step mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.trees import copy
from rookery.rollout import Tree
from rookery.rollout.rollout import numbers_of

_OF_FAULT = ("cause", "env_ids", "attempt")  # keys of a fault, see `worker.lifecycle`


def ends_told(
    info: dict[str, Any], like: Tree, as_arrays: Callable[[Tree], Tree], keys: Sequence[str]
) -> Iterator[tuple[int, Tree, dict[str, float]]]:
    """Yield index, final observation and numbers of each episode that ended.

    Args:
        info: merged info of a step.
        like: a batch of observations with the same structure.
        as_arrays: converts an observation to its form in rollouts.
        keys: keys of the numbers to read; a missing number becomes NaN.
    """
    if "final_obs" not in info:
        return
    final_info = info.get("final_info", {})
    for place in np.flatnonzero(info["_final_obs"]).tolist():
        obs = copy(as_arrays(_of_env(info["final_obs"], place, like)))
        yield place, obs, numbers_told(final_info, place, keys)


def faults_told(info: dict[str, Any]) -> npt.NDArray[np.bool_] | None:
    """Return a mask bool ``[N]`` of envs whose step ended with a fault; None without faults.

    An env may use the keys ``fault`` or ``_fault`` itself, so this also checks the keys inside.
    """
    fault = info.get("fault")
    if not isinstance(fault, dict) or any(f"_{name}" not in fault for name in _OF_FAULT):
        return None
    mask: npt.NDArray[np.bool_] = np.logical_and.reduce([fault[f"_{name}"] for name in _OF_FAULT])
    return mask


def numbers_told(info: dict[str, Any], place: int, keys: Sequence[str]) -> dict[str, float]:
    """Return numbers of one env from a merged info; a missing number becomes NaN."""
    found = {
        key: info[key][place]
        for key in keys
        if key in info and bool(info.get(f"_{key}", np.ones(place + 1, np.bool_))[place])
    }
    return numbers_of(found, keys)


def _of_env(vectored: Any, place: int, like: Tree) -> Tree:
    """Return one env's observation from a merged info.

    A Dict observation is stored as a dict of arrays over the envs, any other as an element of an
    object array.
    """
    if isinstance(vectored, dict):
        return {key: _of_env(vectored[key], place, branch) for key, branch in like.items()}
    return vectored[place]
