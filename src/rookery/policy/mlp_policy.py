"""The fast actor: an MLP policy that acts in numpy, without torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.policy import mlp
from rookery.policy.base import SplitPolicy
from rookery.policy.old_model import ActorCriticModel, rebuilt
from rookery.policy.travel import stream
from rookery.rollout.tree import Tree

# Rows per pass over a whole rollout. For more than 64 rows by 64 x 64 OpenBLAS wakes a second
# thread, which then spins for milliseconds on a core that the envs' workers need. Larger passes
# would save 0.2 us a row.
CHUNK = 64


class MLPPolicy(SplitPolicy):
    """Acts on vector observations with views of the parameters that a learner writes.

    A torch call costs 2-5 us before any arithmetic, so acting through torch eager takes
    150-250 us for 16 envs; this takes about 20.
    """

    def __init__(self, model: ActorCriticModel, seed: int = 0) -> None:
        self.model: ActorCriticModel = model
        self.rng = np.random.default_rng(seed)
        views = model.layout.views(model.parameters)
        self._towers = mlp.Towers.of(views)
        self._log_std = views.get("log_std", np.empty(0, np.float32))
        self._workspace = mlp.Workspace.allocate(self._towers, CHUNK)
        self._activation = mlp.ACTIVATIONS[model.spec.activation]

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuilt, (type(self), self.model, self.rng, self.version)

    def use_stream(self, index: int) -> None:
        self.rng = stream(self.rng, index)

    def sample(self, obs: Tree, deterministic: bool = False) -> npt.NDArray[Any]:
        vector = self.model.encode(obs).vector
        outputs = mlp.act(self._towers, self._activation, vector)
        if deterministic:
            return self.model.head.mode(outputs)
        return self.model.head.sample(outputs, self._log_std, self.rng)

    def assess(
        self, obs: Tree, action: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        outputs, value = self._forward(obs)
        head = self.model.head
        return head.evaluate(outputs, self._log_std, head.encode(action)).log_prob, value

    def value(self, obs: Tree) -> npt.NDArray[np.float32]:
        return self._forward(obs)[1]

    def to_env(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.model.head.to_env(action)

    def _forward(self, obs: Tree) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        vector = self.model.encode(obs).vector
        outputs = np.empty((len(vector), self.model.head.num_outputs), np.float32)
        value = np.empty(len(vector), np.float32)
        for start in range(0, len(vector), CHUNK):
            rows = slice(start, start + CHUNK)
            part = vector[rows]
            workspace = self._workspace
            if len(part) != CHUNK:
                workspace = mlp.Workspace.allocate(self._towers, len(part))
            outputs[rows], value[rows], _ = mlp.forward(
                self._towers, self._activation, part, workspace
            )
        return outputs, value
