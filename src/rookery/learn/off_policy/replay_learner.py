"""What learners from replay share: experience, when to learn from it, and batches on the device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rookery.common.trees import Tree, merge_axes
from rookery.env.wrappers.action_mask import MASK_KEY
from rookery.learn.base import Learner, observe
from rookery.learn.off_policy.budget import UpdateBudget
from rookery.learn.off_policy.target import fill, to_host
from rookery.learn.optimizers import Adam
from rookery.learn.parallel.peers import ALONE, Peers, any_of
from rookery.learn.placement import Placement
from rookery.learn.schedule import means
from rookery.policy.base import EXPLORATION, MINIBATCHES, seed_for
from rookery.policy.exploring import ExploringPolicy
from rookery.policy.model import FlatParameters
from rookery.policy.torch.policy_module import PolicyModule
from rookery.rollout import Rollout
from rookery.rollout.replay import Replay, Transitions


class Batch(NamedTuple):
    """N transitions as tensors on the learner's device; see `Transitions`.

    Attributes:
        place: int64 ``[N]``, an array.
        obs: normalised, ``[N, *obs]``.
        action: rows ``[N, K]``, see `rookery.policy.actions`.
        reward: float32 ``[N]``.
        next_obs: normalised, ``[N, *obs]``.
        discount: float32 ``[N]``.
        weight: float32 ``[N]``.
        next_mask: bool ``[N, num_choices]``; None where actions are not masked.
        path_obs: normalised, ``[(n_step - 1) * N, *obs]``; None where nobody asked.
        path_discount: float32 ``[n_step - 1, N]``; likewise.
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

    Subclasses say what a gradient step is, and how to explore. Exploration is written into the
    policy's model, so that it reaches every copy of the policy with the weights.

    Attributes:
        policy: who acts.
        config: the settings.
        placement: the policy's module where it is learned.
        actor: that module.
    """

    reads_values = False
    keeps_replay = True
    collectors = ("caller", "workers", "async")
    log_steps = 1000

    config: Any

    def __init__(
        self,
        policy: ExploringPolicy,
        config: Any,
        num_envs: int,
        seed: int,
        peers: Peers = ALONE,
        *,
        priority_exponent: float | None = None,
        with_path: bool = False,
    ) -> None:
        self.policy, self.config, self.peers = policy, config, peers
        self.placement: Placement[PolicyModule] = Placement(policy.model, config.device)
        self.actor = self.placement.module
        self._replay = Replay(
            config.replay_rows(num_envs),
            num_envs,
            gamma=config.gamma,
            n_step=config.n_step,
            priority_exponent=priority_exponent,
            with_path=with_path,
        )
        self._budget = UpdateBudget(config.updates_per_step, config.warmup_steps)
        apart = [peers.rank] if peers.rank else []
        self._rng = np.random.default_rng(seed_for(seed, MINIBATCHES, *apart))
        device = self.placement.device
        self._noise = torch.Generator(device)
        self._noise.manual_seed(seed_for(seed, EXPLORATION, *apart))
        self._gradient_steps = 0

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        if self._replay.is_empty:
            self._budget.begin_anew()  # perhaps the run was resumed without its replay
        self._replay.add(rollout)
        observe(rollout, self.policy.model, self.peers)
        due = self._budget.spend(sum(self.peers.gather(rollout.num_transitions)))
        steps = []
        if due and any_of(self.peers, len(self._replay)):
            with self.placement.learning():
                if not self._gradient_steps:
                    self._begin()
                steps = [self._step(progress) for _ in range(due)]
        skipped = sum(step.pop("skipped_gradient_steps") for step in steps)
        self._explore(progress)
        return {
            **means(steps),
            **self._settings(progress),
            "gradient_steps": float(self._gradient_steps),
            "skipped_gradient_steps": float(skipped),
        }

    def _begin(self) -> None:
        """Prepare for the first gradient step: weights may have been given to the policy before."""

    @abstractmethod
    def _step(self, progress: float) -> dict[str, float]:
        """Take one gradient step; return metrics.

        ``skipped_gradient_steps`` among them counts those left out as they were not finite.
        """

    @abstractmethod
    def _explore(self, progress: float) -> None:
        """Set how the policy is to explore from now on."""

    @abstractmethod
    def _settings(self, progress: float) -> dict[str, float]:
        """Where the schedules stand, as metrics."""

    def _sample(self, beta: float = 1.0) -> Batch:
        """Draw one's own part of a batch of transitions; see `Replay.sample`."""
        size, rank = self.peers.size, self.peers.rank
        count = (self.config.batch_size * (rank + 1)) // size
        count -= (self.config.batch_size * rank) // size
        return self._on_device(self._replay.sample(count, self._rng, beta))

    def _on_device(self, found: Transitions) -> Batch:
        tensors = self.placement.tensors
        mask, path = None, found.path_obs
        if self.policy.has_action_mask:
            rows = np.reshape(found.next_obs[MASK_KEY], (len(found.reward), -1))
            # After a termination some envs show none; the value there counts nothing.
            mask = (rows != 0) | (found.discount == 0.0)[:, None]
        return Batch(
            found.place,
            self.actor.normalize(tensors(found.obs)),
            tensors(self.actor.layout.unpack(found.action)),
            tensors(found.reward),
            self.actor.normalize(tensors(found.next_obs)),
            tensors(found.discount),
            tensors(found.weight),
            None if mask is None else tensors(mask),
            None if path is None else self.actor.normalize(tensors(merge_axes(path))),
            None if path is None else tensors(found.path_discount),
        )

    # ---------------------------------------------------------------- saving

    @abstractmethod
    def _optimizers(self) -> Mapping[str, Adam]:
        """By name, for checkpoints."""

    @abstractmethod
    def _apart(self) -> Mapping[str, FlatParameters]:
        """Parameters that are not the policy's, such as those of targets, by name."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "budget": self._budget.state_dict(),
            "rng": self._rng.bit_generator.state,
            "noise": self._noise.get_state().numpy(),
            "gradient_steps": self._gradient_steps,
            **{name: part.state_dict() for name, part in self._optimizers().items()},
            **{name: to_host(part.tensor) for name, part in self._apart().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._budget.load_state_dict(state["budget"])
        self._gradient_steps = int(state["gradient_steps"])
        for name, optimizer in self._optimizers().items():
            optimizer.load_state_dict(state[name])
        for name, part in self._apart().items():
            fill(part.tensor, state[name])
        if self.peers.rank:  # each draws from its own replay
            return
        self._rng.bit_generator.state = state["rng"]
        # The state of another device's generator has another form; then noise begins anew.
        noise = torch.from_numpy(np.array(state["noise"]))
        if noise.shape == self._noise.get_state().shape:
            self._noise.set_state(noise)

    def replay_state(self) -> dict[str, Any] | None:
        return self._replay.state_dict() if self.config.save_replay else None

    def load_replay_state(self, state: dict[str, Any]) -> None:
        self._replay.load_state_dict(state)
