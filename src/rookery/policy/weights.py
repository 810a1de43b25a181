"""The weights of one network in shared memory, which a learner writes and actors read.

Publishing weights copies one flat array. A reader gets a complete set of weights or an error, never
a mixture of two sets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rookery.shared.block import ColumnSizes

_PATIENCE_S = 5.0
_PAUSE_S = 1e-4
_WRITING = -1


class Weights(Protocol):
    """Weights that a learner changes in place and an actor's copy loads.

    Attributes:
        parameters: float32 ``[size]``, all parameters.
    """

    parameters: npt.NDArray[np.float32]

    def extras(self) -> npt.NDArray[np.float64]:
        """Return other numbers that actors need, such as statistics: float64 ``[E]``."""

    def set_extras(self, extras: npt.NDArray[np.float64]) -> None:
        """Load the result of `extras`, in place."""


class WeightStore:
    """Two slots for a set of weights, written alternately.

    Sets are numbered, and set ``s`` is in slot ``s % 2``. The writer marks a slot, fills it, signs
    it with the number of the set and then publishes the number as the newest. A reader copies the
    newest slot. It accepts the copy only if the signature did not change meanwhile and the checksum
    agrees. This detects a slot that was overwritten during the copy, and stores that become visible
    out of order, as on ARM, against which Python offers no barrier.

    Args:
        views: an array for each of :meth:`columns`, zeroed before the first use.
    """

    def __init__(self, views: Mapping[str, npt.NDArray[Any]]) -> None:
        self._parameters = views["weights.parameters"]
        self._extras = views["weights.extras"]
        self._signatures: Any = views["weights.signatures"]
        self._newest: Any = views["weights.newest"]
        self._taken = self._version = 0  # of the set that was last read

    @staticmethod
    def columns(model: Weights | None) -> ColumnSizes:
        """Return the columns that a store for ``model`` needs; None is a policy without weights."""
        parameters, extras = _contents(model)
        return {
            "weights.parameters": ((2, len(parameters)), np.dtype(np.float32)),
            "weights.extras": ((2, len(extras)), np.dtype(np.float64)),
            "weights.signatures": ((2, 3), np.dtype(np.int64)),  # number, version, checksum
            "weights.newest": ((1,), np.dtype(np.int64)),
        }

    def publish(self, model: Weights | None, version: int) -> None:
        """Publish the current weights of ``model``; only one process may call this."""
        number = int(self._newest[0]) + 1
        slot = number % 2
        contents = _contents(model)
        self._signatures[slot, 0] = _WRITING
        self._parameters[slot], self._extras[slot] = contents
        self._signatures[slot] = number, version, _checksum(number, version, *contents)
        self._newest[0] = number

    def read(self, model: Weights | None) -> int:
        """Load the newest weights into ``model``.

        Returns:
            The version of the weights.

        Raises:
            RuntimeError: no complete set could be read within 5 s.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while not self._read_once(model):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"no complete set of weights could be read within {_PATIENCE_S:g} s, because "
                    "new weights are published too often; publish less often"
                )
            time.sleep(_PAUSE_S)
        return self._version

    def _read_once(self, model: Weights | None) -> bool:
        number = int(self._newest[0])
        if number == self._taken:
            return True
        slot = number % 2
        before, version, checksum = self._signatures[slot].tolist()
        parameters, extras = self._parameters[slot].copy(), self._extras[slot].copy()
        if not before == number == self._signatures[slot, 0]:
            return False
        if _checksum(number, version, parameters, extras) != checksum:
            return False
        if model is not None:
            model.parameters[...] = parameters
            model.set_extras(extras)
        self._taken, self._version = number, version
        return True


def _contents(model: Weights | None) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    if model is None:
        return np.empty(0, np.float32), np.empty(0)
    return model.parameters, model.extras()


def _checksum(
    number: int,
    version: int,
    parameters: npt.NDArray[np.float32],
    extras: npt.NDArray[np.float64],
) -> int:
    """Sum all words of a set as integers, which takes 4 us for 9,000 parameters."""
    total = int(parameters.view(np.uint32).sum(dtype=np.uint64))
    if len(extras):
        total += int(extras.view(np.uint64).sum(dtype=np.uint64))
    return (total + 3 * number + 5 * version) % 2**63
