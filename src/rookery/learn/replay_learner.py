"""What learners from replay share: experience, when to learn, and how a step reaches the actors."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rookery.learn.base import Learner
from rookery.learn.budget import UpdateBudget
from rookery.learn.config import Config
from rookery.learn.descent import NotFiniteError, fill, to_host
from rookery.learn.schedule import means
from rookery.learn.streams import stream_seed
from rookery.policy.encoders import to_tensors
from rookery.policy.flat import FlatParameters
from rookery.policy.outputs_policy import OutputsPolicy
from rookery.policy.placement import torch_device
from rookery.policy.policy_module import PolicyModule
from rookery.rollout import Rollout
from rookery.rollout.replay import Replay, Transitions
from rookery.rollout.tree import Tree, merge_axes, take, tree_map


class Batch(NamedTuple):
    """N transitions as tensors on the learner's device; see `Transitions`.

    Attributes:
        place: int64 ``[N]``, a numpy array.
        obs: normalised, ``[N, *obs]``.
        action: ``[N, K]``, encoded.
        reward: float32 ``[N]``.
        next_obs: normalised, ``[N, *obs]``.
        discount: float32 ``[N]``.
        weight: float32 ``[N]``.
        next_mask: bool ``[N, num_choices]`` or None.
        path_obs: normalised, ``[(n_step - 1) * N, *obs]`` or None.
        path_discount: float32 ``[n_step - 1, N]`` or None.
    """

    place: Any
    obs: Tree
    action: Tensor
    reward: Tensor
    next_obs: Tree
    discount: Tensor
    weight: Tensor
    next_mask: Tensor | None
    path_obs: Tree | None
    path_discount: Tensor | None


class ReplayLearner(Learner):
    """A learner that keeps what was experienced, and draws from it.

    Subclasses say what a gradient step is, and how to explore.

    Attributes:
        policy: who acts; its model carries weights and exploration to all its copies.
        config: the settings.
        actor: the policy's module on the learner's device. On the cpu it is the model's own.
        parameters: those of ``actor``.
    """

    reads_values = False
    keeps_replay = True
    collectors: ClassVar[tuple[str, ...]] = ("caller", "workers", "async")
    log_steps = 1000

    config: Any
    actor: PolicyModule

    def __init__(
        self,
        policy: OutputsPolicy,
        config: Config,
        num_envs: int,
        seed: int,
        *,
        priority_exponent: float | None = None,
        with_path: bool = False,
    ) -> None:
        self.policy, self.config = policy, config
        self.device = torch_device(self.config.device)
        self._model = model = policy.model
        self.parameters: FlatParameters = model.flat
        if self.device.type != "cpu":
            self.parameters = FlatParameters(copy.deepcopy(model.module).to(self.device))
        self.actor = self.parameters.module  # type: ignore[assignment]
        self._replay = Replay(
            self.config.replay_rows(num_envs),
            num_envs,
            gamma=self.config.gamma,
            n_step=self.config.n_step,
            priority_exponent=priority_exponent,
            with_path=with_path,
        )
        self._budget = UpdateBudget(self.config.updates_per_step, self.config.warmup_steps)
        self._rng = np.random.default_rng(stream_seed(seed, "batches"))
        self._noise = torch.Generator(self.device).manual_seed(stream_seed(seed, "noise"))
        self._gradient_steps = self._skipped_steps = 0

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        if not len(self._replay) and self._gradient_steps:
            self._budget.begin_anew()  # the run was resumed without its replay
        self._replay.add(rollout)
        self._observe(rollout)
        due = self._budget.spend(rollout.num_transitions)
        steps = self._take_steps(due if len(self._replay) else 0, progress)
        counts = {
            "gradient_steps": float(self._gradient_steps),
            "skipped_gradient_steps": float(self._skipped_steps),
        }
        return {**steps, **self._explore(progress), **counts}

    def _take_steps(self, count: int, progress: float) -> dict[str, float]:
        """Take gradient steps, leaving those out that are not finite; return their metrics."""
        if not count:
            return {}
        skipped, metrics = self._skipped_steps, []
        self._load_model()
        for _ in range(count):
            try:
                metrics.append(self._step(progress))
            except NotFiniteError:
                self._skipped_steps += 1
            else:
                self._gradient_steps += 1
        self._give_to_model()
        if self._skipped_steps - skipped == count:  # for whoever watches over the run
            return {"value_loss": math.nan}
        return means(_numbers(metrics))

    @abstractmethod
    def _step(self, progress: float) -> dict[str, Any]:
        """Take one gradient step; return metrics, numbers or tensors of one number.

        Raises:
            NotFiniteError: a loss or a gradient is not finite.
        """

    @abstractmethod
    def _explore(self, progress: float) -> dict[str, float]:
        """Set how the policy is to explore from now on; return metrics of it."""

    def _batch(self, beta: float = 1.0) -> Batch:
        """Draw a batch of transitions."""
        found = self._replay.sample(self.config.batch_size, self._rng, beta)
        return self._on_device(found)

    def _on_device(self, found: Transitions) -> Batch:
        path_obs = None
        if found.path_obs is not None:
            path_obs = self._obs(merge_axes(found.path_obs))
        return Batch(
            found.place,
            self._obs(found.obs),
            self._tensor(self.actor.layout.encode(found.action)),
            self._tensor(found.reward),
            self._obs(found.next_obs),
            self._tensor(found.discount),
            self._tensor(found.weight),
            None if found.next_mask is None else self._tensor(found.next_mask),
            path_obs,
            None if found.path_discount is None else self._tensor(found.path_discount),
        )

    def _obs(self, obs: Tree) -> Tree:
        return self.actor.normalize(to_tensors(obs, self.device))

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _observe(self, rollout: Rollout) -> None:
        """Merge the rollout's valid observations into the statistics, if there are any."""
        normalizer = self._model.module.normalizer
        if normalizer is not None:
            normalizer.observe(take(merge_axes(rollout.obs), rollout.valid.ravel()))

    def _load_model(self) -> None:
        """Bring what acts to the device, where it is learned apart from the model."""
        if self.parameters is not self._model.flat:
            fill(self.parameters.tensor, self._model.parameters)
            pairs = zip(self.actor.buffers(), self._model.module.buffers(), strict=True)
            for own, theirs in pairs:
                own.copy_(theirs)

    def _give_to_model(self) -> None:
        """Bring what was learned to those who act: one copy."""
        if self.parameters is not self._model.flat:
            self._model.flat.tensor.copy_(self.parameters.tensor)

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        return {
            "budget": self._budget.state_dict(),
            "rng": self._rng.bit_generator.state,
            "noise": self._noise.get_state().numpy(),
            "gradient_steps": self._gradient_steps,
            "skipped_steps": self._skipped_steps,
            **{name: part.state_dict() for name, part in self._descents().items()},
            **{name: to_host(part.tensor) for name, part in self._apart().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._budget.load_state_dict(state["budget"])
        self._rng.bit_generator.state = state["rng"]
        # A generator of another device counts in another way; its noise is begun anew.
        noise = torch.from_numpy(np.array(state["noise"]))
        if noise.shape == self._noise.get_state().shape:
            self._noise.set_state(noise)
        self._gradient_steps = int(state["gradient_steps"])
        self._skipped_steps = int(state["skipped_steps"])
        for name, part in self._descents().items():
            part.load_state_dict(state[name])
        for name, part in self._apart().items():
            fill(part.tensor, state[name])

    @abstractmethod
    def _descents(self) -> Mapping[str, Any]:
        """The optimisers, by name."""

    @abstractmethod
    def _apart(self) -> Mapping[str, FlatParameters]:
        """Parameters that are not the policy's, such as those of targets, by name."""

    def replay_state(self) -> dict[str, Any] | None:
        return self._replay.state_dict() if self.config.save_replay else None

    def load_replay_state(self, state: dict[str, Any]) -> None:
        self._replay.load_state_dict(state)


def _numbers(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Bring tensors of one number each to the host, all at once."""
    tensors = [value for row in rows for value in row.values() if isinstance(value, Tensor)]
    found = iter(torch.stack(tensors).tolist() if tensors else [])
    return [
        {k: next(found) if isinstance(value, Tensor) else value for k, value in row.items()}
        for row in rows
    ]
