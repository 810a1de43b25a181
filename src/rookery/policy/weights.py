"""WeightStore: one network's weights in shared memory, written by a learner, read by its actors.

The only thing that flows back from learning to acting passes through here. Publishing is one copy
of one flat array; whoever reads gets a whole set or an error, never a mixture of two.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rookery.memory import Column
from rookery.rollout.normalize import RunningMoments

_PATIENCE_S = 5.0
_PAUSE_S = 1e-4
_WRITING = -1


class Model(Protocol):
    """What a learner changes in place."""

    parameters: npt.NDArray[np.float32]
    normalizer: RunningMoments | None


class WeightStore:
    """Two places for a set of weights, written in turn.

    The places are numbered by a growing sequence: set ``s`` lies in place ``s % 2``. A writer marks
    a place, fills it, signs it with its number, and names the number as the newest. A reader copies
    the newest place and believes the copy only if the signature was the same before and after and
    the checksum agrees. So a reader that was overtaken notices, and so does one on a machine that
    lets stores be seen out of order (ARM), which Python has no barrier against.

    Args:
        views: an array for each of :meth:`columns`, zeroed before the first use.
    """

    def __init__(self, views: Mapping[str, npt.NDArray[Any]]) -> None:
        self._parameters = views["weights.parameters"]
        self._moments = views["weights.moments"]
        self._signatures: Any = views["weights.signatures"]
        self._newest: Any = views["weights.newest"]
        self._taken = self._version = 0  # of the set that was read last

    @staticmethod
    def columns(model: Model | None) -> dict[str, Column]:
        """The arrays that a store for ``model`` needs; None is a policy that never changes."""
        parameters, moments = _contents(model)
        return {
            "weights.parameters": Column((2, len(parameters)), np.dtype(np.float32)),
            "weights.moments": Column((2, len(moments)), np.dtype(np.float64)),
            "weights.signatures": Column((2, 3), np.dtype(np.int64)),  # number, version, checksum
            "weights.newest": Column((1,), np.dtype(np.int64)),
        }

    def publish(self, model: Model | None, version: int) -> None:
        """Make the present weights of ``model`` the newest; there is one publisher."""
        number = int(self._newest[0]) + 1
        place = number % 2
        contents = _contents(model)
        self._signatures[place, 0] = _WRITING
        self._parameters[place], self._moments[place] = contents
        self._signatures[place] = number, version, _checksum(number, version, *contents)
        self._newest[0] = number

    def read(self, model: Model | None) -> int:
        """Bring ``model`` up to date with the newest weights.

        Returns:
            Their version.

        Raises:
            RuntimeError: when nothing was published, or no whole set could be read in 5 s.
        """
        if not self._newest[0]:
            raise RuntimeError("no weights were published yet")
        deadline = time.monotonic() + _PATIENCE_S
        while not self._read_once(model):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"no whole set of weights could be read within {_PATIENCE_S:g} s, because they "
                    "are published again and again while they are read; publish less often"
                )
            time.sleep(_PAUSE_S)
        return self._version

    def _read_once(self, model: Model | None) -> bool:
        number = int(self._newest[0])
        if number == self._taken:
            return True
        place = number % 2
        before, version, checksum = self._signatures[place].tolist()
        parameters, moments = self._parameters[place].copy(), self._moments[place].copy()
        if not before == number == self._signatures[place, 0]:
            return False
        if _checksum(number, version, parameters, moments) != checksum:
            return False
        _install(model, parameters, moments)
        self._taken, self._version = number, version
        return True


def _contents(model: Model | None) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Parameters, and count, mean and squares of the normaliser, one flat array each."""
    if model is None:
        return np.empty(0, np.float32), np.empty(0)
    if model.normalizer is None:
        return model.parameters, np.empty(0)
    state = model.normalizer.state_dict()
    return model.parameters, np.concatenate([[state["count"]], state["mean"], state["squares"]])


def _install(
    model: Model | None, parameters: npt.NDArray[np.float32], moments: npt.NDArray[np.float64]
) -> None:
    if model is None:
        return
    model.parameters[...] = parameters
    if model.normalizer is not None:
        mean, squares = np.split(moments[1:], 2)
        model.normalizer.load_state_dict({"count": moments[0], "mean": mean, "squares": squares})


def _checksum(
    number: int,
    version: int,
    parameters: npt.NDArray[np.float32],
    moments: npt.NDArray[np.float64],
) -> int:
    """Sum of all bits as numbers: 4 us for 9 000 parameters."""
    total = int(parameters.view(np.uint32).sum(dtype=np.uint64))
    if len(moments):
        total += int(moments.view(np.uint64).sum(dtype=np.uint64))
    return (total + 3 * number + 5 * version) % 2**63
