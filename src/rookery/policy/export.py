"""The policy as it is exported: from observations to actions, in one module."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rookery.policy.policy_module import PolicyModule
from rookery.rollout.tree import Tree


class DeterministicPolicy(nn.Module):
    """From observations to the most probable actions, as the env takes them: for export.

    `torch.export.export` takes it with any spaces, `torch.jit.trace` where observations and actions
    are one array each. A policy that remembers takes its memory as second argument and returns it
    as second result.

    Args:
        policy: whose parameters and statistics it shares.
    """

    def __init__(self, policy: PolicyModule) -> None:
        super().__init__()
        self.policy = policy
        for k, part in enumerate(policy.layout.parts):
            kinds = {"low": np.float32, "high": np.float32, "start": np.int64}
            for name, dtype in kinds.items():
                if hasattr(part.space, name):
                    table = torch.from_numpy(np.array(getattr(part.space, name), dtype))
                    self.register_buffer(f"{name}{k}", table, persistent=False)

    def forward(self, obs: Tree, memory: Tensor | None = None) -> Any:
        found = self.policy(obs, memory)
        rows = self.policy.distribution(found.outputs).mode()
        actions = iter([self._action(k, rows) for k in range(len(self.policy.layout.parts))])
        action = _build(self.policy.layout.space, actions)
        return action if found.memory is None else (action, found.memory)

    def _action(self, index: int, rows: Tensor) -> Tensor:
        """Turn rows of a part into its actions; see `ActionPart.decode` and `to_env`."""
        part = self.policy.layout.parts[index]
        rows = rows[:, part.columns]
        if part.kind == "categorical":
            choices = rows.long().reshape(-1, *part.space.shape)
            start: Tensor = getattr(self, f"start{index}")
            return choices + start
        action = rows.reshape(-1, *part.space.shape)
        if part.kind == "bernoulli":
            return action.to(torch.int8)
        low, high = getattr(self, f"low{index}"), getattr(self, f"high{index}")
        if part.kind == "squashed":
            action = low + (action + 1.0) * ((high - low) / 2)
        return torch.clamp(action, low, high)


def _build(space: spaces.Space[Any], leaves: Any) -> Tree:
    match space:
        case spaces.Dict():
            return {key: _build(branch, leaves) for key, branch in space.spaces.items()}
        case spaces.Tuple():
            return tuple(_build(branch, leaves) for branch in space.spaces)
        case _:
            return next(leaves)
