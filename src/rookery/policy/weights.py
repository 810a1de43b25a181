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

from rookery.shared import Column

_PATIENCE_S = 5.0
_PAUSE_S = 1e-4
_WRITING = -1


class Weights(Protocol):
    """What a learner changes in place, and what an actor's copy takes over.

    Attributes:
        parameters: float32 ``[size]``.
    """

    parameters: npt.NDArray[np.float32]

    def extras(self) -> npt.NDArray[np.float64]:
        """What travels beside the parameters, such as statistics: float64 ``[E]``."""

    def set_extras(self, extras: npt.NDArray[np.float64]) -> None:
        """Take over what `extras` gave, in place."""


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
        self._extras = views["weights.extras"]
        self._signatures: Any = views["weights.signatures"]
        self._newest: Any = views["weights.newest"]
        self._taken = self._version = 0  # of the set that was read last

    @staticmethod
    def columns(model: Weights | None) -> dict[str, Column]:
        """The arrays that a store for ``model`` needs; None is a policy that never changes."""
        parameters, extras = _contents(model)
        return {
            "weights.parameters": Column((2, len(parameters)), np.dtype(np.float32)),
            "weights.extras": Column((2, len(extras)), np.dtype(np.float64)),
            "weights.signatures": Column((2, 3), np.dtype(np.int64)),  # number, version, checksum
            "weights.newest": Column((1,), np.dtype(np.int64)),
        }

    def publish(self, model: Weights | None, version: int) -> None:
        """Make the present weights of ``model`` the newest; there is one publisher."""
        number = int(self._newest[0]) + 1
        place = number % 2
        contents = _contents(model)
        self._signatures[place, 0] = _WRITING
        self._parameters[place], self._extras[place] = contents
        self._signatures[place] = number, version, _checksum(number, version, *contents)
        self._newest[0] = number

    def read(self, model: Weights | None) -> int:
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

    def _read_once(self, model: Weights | None) -> bool:
        number = int(self._newest[0])
        if number == self._taken:
            return True
        place = number % 2
        before, version, checksum = self._signatures[place].tolist()
        parameters, extras = self._parameters[place].copy(), self._extras[place].copy()
        if not before == number == self._signatures[place, 0]:
            return False
        if _checksum(number, version, parameters, extras) != checksum:
            return False
        _install(model, parameters, extras)
        self._taken, self._version = number, version
        return True


def _contents(model: Weights | None) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    if model is None:
        return np.empty(0, np.float32), np.empty(0)
    return model.parameters, model.extras()


def _install(
    model: Weights | None, parameters: npt.NDArray[np.float32], extras: npt.NDArray[np.float64]
) -> None:
    if model is not None:
        model.parameters[...] = parameters
        model.set_extras(extras)


def _checksum(
    number: int,
    version: int,
    parameters: npt.NDArray[np.float32],
    extras: npt.NDArray[np.float64],
) -> int:
    """Sum of all bits as numbers: 4 us for 9 000 parameters."""
    total = int(parameters.view(np.uint32).sum(dtype=np.uint64))
    if len(extras):
        total += int(extras.view(np.uint64).sum(dtype=np.uint64))
    return (total + 3 * number + 5 * version) % 2**63
