"""The actor for networks with image encoders, through torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rookery.policy.base import Policy, PolicyStep
from rookery.policy.old_model import ActorCriticModel, rebuilt
from rookery.policy.torch_network import TorchNetwork
from rookery.policy.travel import stream
from rookery.rollout.tree import Tree


class TorchPolicy(Policy):
    """Acts through `TorchNetwork`; used where observations hold images."""

    def __init__(self, model: ActorCriticModel, seed: int = 0) -> None:
        self.model: ActorCriticModel = model
        self.rng = np.random.default_rng(seed)
        self._network = TorchNetwork(model)
        views = model.layout.views(model.parameters)
        self._log_std = views.get("log_std", np.empty(0, np.float32))

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuilt, (type(self), self.model, self.rng, self.version)

    def use_stream(self, index: int) -> None:
        self.rng = stream(self.rng, index)

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        outputs, value = self._forward(obs)
        head = self.model.head
        if deterministic:
            action = head.mode(outputs)
        else:
            action = head.sample(outputs, self._log_std, self.rng)
        evaluation = head.evaluate(outputs, self._log_std, head.encode(action))
        return PolicyStep(action, evaluation.log_prob, value)

    def value(self, obs: Tree) -> npt.NDArray[np.float32]:
        return self._forward(obs)[1]

    def to_env(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.model.head.to_env(action)

    def _forward(self, obs: Tree) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        with torch.inference_mode():
            outputs, value = self._network.tensors(self.model.encode(obs))
        return outputs.numpy(), value.numpy()
