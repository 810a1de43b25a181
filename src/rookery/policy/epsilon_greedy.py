"""Acting on action values: the best action, or now and then any."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree
from rookery.policy.action_masks import shown_mask
from rookery.policy.exploring import ExploringPolicy


class EpsilonGreedyPolicy(ExploringPolicy):
    """Takes any legal action with probability `epsilon`, else that of the greatest value."""

    @property
    def epsilon(self) -> float:
        """Share of random actions."""
        return float(self.exploration[0])

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self.exploration[0] = value

    def _explore(self, obs: Tree) -> npt.NDArray[Any]:
        rows = self.layout.unpack(self._drawn(obs, True))
        at_random = self.rng.random(len(rows)) < self.epsilon
        if not self.shows_mask:
            drawn = self.rng.integers(self.layout.num_choices, size=len(rows))
        else:
            mask = shown_mask(obs)
            # Of several uniform numbers, each is as likely as any other to be the greatest.
            drawn = np.where(mask, self.rng.random(mask.shape), -1.0).argmax(axis=1)
        return self.layout.pack(np.where(at_random[:, None], drawn[:, None], rows))
