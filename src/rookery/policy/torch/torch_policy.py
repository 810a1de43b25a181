"""The policy that acts with any torch module."""

from __future__ import annotations

import zlib
from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from rookery.common.trees import Tree, num_rows
from rookery.policy.base import ACTIONS, seed_for
from rookery.policy.model import Model
from rookery.policy.network_policy import NetworkPolicy
from rookery.policy.torch.encoders import to_tensors
from rookery.policy.torch.policy_module import PolicyModule
from rookery.rollout.text import holds_text, text_as_arrays

Floats: TypeAlias = npt.NDArray[np.float32]


class TorchPolicy(NetworkPolicy):
    """A policy that acts with a torch module, which any optimizer may train.

    It works in every collector. Copies in workers receive new parameters: before every rollout,
    collectors check whether parameters or buffers changed, and increase ``version`` if they did.
    The policy acts on the module's device, copies in workers act on the CPU.

    Args:
        module: maps observations ``[N, *obs]``, tensors in the env's form, to outputs
            ``[N, num_outputs]`` for the distribution of actions, or to outputs and values ``[N]``;
            or a `PolicyModule`. For a recurrent module, see ``network`` of `PolicyModule`.
        observation_space: observation space of one env.
        action_space: action space of one env.
        seed: seed of the drawn actions.

    Attributes:
        module: the `PolicyModule` around the given module. ``module.parameters()`` are the
            parameters to optimize, with the standard deviations of continuous actions.
            ``module.distribution`` makes the distribution of actions from outputs.

    Raises:
        ConfigError: the module has the wrong inputs or outputs.
        SpaceError: no distribution supports the action space.
    """

    def __init__(
        self,
        module: nn.Module,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int = 0,
    ) -> None:
        if not isinstance(module, PolicyModule):
            given = module
            module = PolicyModule(observation_space, action_space, network=lambda *_: given)
        rng = np.random.default_rng(seed_for(seed, ACTIONS))
        self._take(Model(module), observation_space, rng)

    @classmethod
    def of(cls, model: Model, observation_space: spaces.Space[Any], rng: Any) -> TorchPolicy:
        """Make a policy from a model of a `PolicyModule`."""
        policy = cls.__new__(cls)
        policy._take(model, observation_space, rng)
        return policy

    def _take(self, model: Model, observation_space: spaces.Space[Any], rng: Any) -> None:
        self.module: PolicyModule = model.module  # type: ignore[assignment]
        module = self.module
        super().__init__(model, observation_space, module.layout, module.memory_width, rng)
        # Finding it takes 10 us. Parameters remain the same objects when a module is moved.
        self._first_parameter = next(module.parameters())
        self._has_text = holds_text(observation_space)
        self._seen = self.version, self._checksum()

    def __reduce__(self) -> tuple[Any, ...]:
        self.model.gather()
        acting = self.version, self.memory, self.noise_state
        return _rebuilt, (self.model, self.observation_space, self.rng, *acting)

    def current_version(self) -> int:
        self.model.gather()
        checksum = self._checksum()
        version, before = self._seen
        if checksum != before and version == self.version:  # otherwise the learner has increased it
            self.version += 1
        self._seen = self.version, checksum
        return self.version

    def _checksum(self) -> int:
        return zlib.crc32(self.model.extras(), zlib.crc32(self.model.parameters))

    def _predict(self, obs: Tree) -> tuple[Floats, Floats, Floats | None]:
        module = self.module
        if self._has_text:
            obs = text_as_arrays(self.observation_space, obs)
        device = self._first_parameter.device
        memory = None
        if self.is_recurrent:
            memory = torch.from_numpy(self._memory_of(num_rows(obs))).to(device)
        was_training = module.training
        if was_training:  # acting must not change batch statistics
            module.eval()
        with torch.inference_mode():
            found = module(to_tensors(obs, device), memory)
        if was_training:
            module.train()
        outputs, value, memory = found
        after = None if memory is None else memory.cpu().numpy()
        return outputs.cpu().numpy(), value.cpu().numpy(), after

    def _log_std(self) -> Floats:
        log_std = self.module.head.log_std
        if log_std is None:
            return np.empty(0, np.float32)
        found: Floats = log_std.detach().cpu().numpy()
        return found


def _rebuilt(
    model: Model, observation_space: Any, rng: Any, version: int, memory: Any, noise_state: Any
) -> TorchPolicy:
    policy = TorchPolicy.of(model, observation_space, rng)
    policy.version, policy.memory, policy.noise_state = version, memory, noise_state
    policy.current_version()
    return policy
