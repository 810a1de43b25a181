"""Acting on action values: the best action, or now and then any."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.policy.action_masks import nothing_legal, require_mask_shape
from rookery.policy.outputs_policy import OutputsPolicy


class EpsilonGreedyPolicy(OutputsPolicy):
    """Takes any legal action with probability `epsilon`, else that of the greatest output."""

    @property
    def epsilon(self) -> float:
        """Share of random actions; it travels with the weights."""
        return float(self.exploration[0])

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self.exploration[0] = value

    def _choose(
        self,
        outputs: npt.NDArray[np.float32],
        deterministic: bool,
        mask: npt.NDArray[np.bool_] | None,
    ) -> npt.NDArray[Any]:
        if mask is not None:
            _require_legal(self.layout, mask, len(outputs))
            outputs = np.where(mask, outputs, np.float32(-np.inf))
        action = outputs.argmax(axis=1)
        if not deterministic:
            at_random = self.rng.random(len(action)) < self.epsilon
            if mask is None:
                drawn = self.rng.integers(outputs.shape[1], size=len(action))
            else:
                # Of uniform numbers, each is as likely as any other to be the greatest.
                drawn = np.where(mask, self.rng.random(mask.shape), -1.0).argmax(axis=1)
            action = np.where(at_random, drawn, action)
        return action[:, None]


def _require_legal(layout: Any, mask: npt.NDArray[np.bool_], num_rows: int) -> None:
    require_mask_shape(layout, mask, num_rows)
    some = mask.any(axis=1)
    if not some.all():
        row = int(some.argmin())
        raise nothing_legal(row, mask[row].tolist())
