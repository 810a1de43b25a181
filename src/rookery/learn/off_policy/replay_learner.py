"""The base class of the algorithms with a replay buffer, its update budget and target networks."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rookery.common.trees import Tree, merge_axes
from rookery.env.wrappers.action_mask import MASK_KEY
from rookery.learn.base import Learner, observe
from rookery.learn.optimizers import Adam, fill, to_host
from rookery.learn.parallel.peers import ALONE, Peers, any_of
from rookery.learn.placement import Placement
from rookery.learn.schedule import means
from rookery.learn.step_threads import StepThreads
from rookery.policy.base import EXPLORATION, MINIBATCHES, seed_for
from rookery.policy.exploring import ExploringPolicy
from rookery.policy.model import FlatParameters
from rookery.policy.torch.policy_module import PolicyModule
from rookery.rollout import Rollout
from rookery.rollout.replay import Replay, Transitions

M = TypeVar("M", bound=nn.Module)


class ReplayBatch(NamedTuple):
    """N transitions as tensors on the learner's device; see `rookery.rollout.replay.Transitions`.

    Attributes:
        place: int64 ``[N]``, numpy array of the positions in the replay buffer.
        obs: Normalised observations, ``[N, *obs]``.
        action: ``[N, K]``, as rows of the action layout, see `rookery.policy.actions`.
        reward: float32 ``[N]``, discounted sum of the next ``n_step`` rewards.
        next_obs: Normalised observations after these steps, ``[N, *obs]``.
        discount: float32 ``[N]``, factor of the value of ``next_obs``.
        weight: float32 ``[N]``, importance weights of prioritised replay.
        next_mask: bool ``[N, num_choices]``, legal actions at ``next_obs``; None without masks.
        path_obs: Normalised observations between the two, ``[(n_step - 1) * N, *obs]``; None
            unless the learner was created with ``with_path=True``.
        path_discount: float32 ``[n_step - 1, N]``, discounts of ``path_obs``; None without it.
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
    """A learner that stores experience in a replay buffer and samples batches from it.

    Subclasses define the gradient step and the exploration. Exploration is written into the
    policy's model, so that every copy of the policy receives it with the weights.

    Attributes:
        policy: The policy that acts.
        config: The settings.
        placement: The policy's module on the learner's device.
        actor: The module of ``placement``.
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
        self._threads = StepThreads(self.actor)

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        if self._replay.is_empty:
            self._budget.restart()  # the run may have been resumed without its replay buffer
        self._replay.add(rollout)
        observe(rollout, self.policy.model, self.peers)
        due = self._budget.spend(sum(self.peers.gather(rollout.num_transitions)))
        steps: list[dict[str, float]] = []
        if due and any_of(self.peers, len(self._replay)):
            with self.placement.learning():
                if not self._gradient_steps:
                    self._begin()
                for _ in range(due):
                    with self._threads.step():
                        steps.append(self._step(progress))
        skipped = sum(step.pop("skipped_gradient_steps") for step in steps)
        self._explore(progress)
        return {
            **means(steps),
            **self._settings(progress),
            "gradient_steps": float(self._gradient_steps),
            "skipped_gradient_steps": float(skipped),
        }

    def _begin(self) -> None:
        """Prepare for the first gradient step, after the policy may have received other weights."""

    @abstractmethod
    def _step(self, progress: float) -> dict[str, float]:
        """Take one gradient step; return metrics.

        The metric ``skipped_gradient_steps`` counts steps that were skipped because their loss or
        gradient was not finite.
        """

    @abstractmethod
    def _explore(self, progress: float) -> None:
        """Set the exploration of the policy for the next steps."""

    @abstractmethod
    def _settings(self, progress: float) -> dict[str, float]:
        """Return the present values of the schedules as metrics."""

    def _sample(self, beta: float = 1.0) -> ReplayBatch:
        """Sample this learner's part of a batch of transitions; see `Replay.sample`."""
        size, rank = self.peers.size, self.peers.rank
        count = (self.config.batch_size * (rank + 1)) // size
        count -= (self.config.batch_size * rank) // size
        return self._on_device(self._replay.sample(count, self._rng, beta))

    def _on_device(self, found: Transitions) -> ReplayBatch:
        tensors = self.placement.tensors
        mask, path = None, found.path_obs
        if self.policy.has_action_mask:
            rows = np.reshape(found.next_obs[MASK_KEY], (len(found.reward), -1))
            # Some envs have no legal action after a termination; the value there has factor 0.
            mask = (rows != 0) | (found.discount == 0.0)[:, None]
        return ReplayBatch(
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
        """Return the optimizers by name, for checkpoints."""

    @abstractmethod
    def _apart(self) -> Mapping[str, FlatParameters]:
        """Return all parameters outside the policy, such as those of target networks, by name."""

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
        if self.peers.rank:  # each learner samples from its own buffer
            return
        self._rng.bit_generator.state = state["rng"]
        # A generator of another device has a state of another shape; the noise then starts afresh.
        noise = torch.from_numpy(np.array(state["noise"]))
        if noise.shape == self._noise.get_state().shape:
            self._noise.set_state(noise)

    def replay_state(self) -> dict[str, Any] | None:
        return self._replay.state_dict() if self.config.save_replay else None

    def load_replay_state(self, state: dict[str, Any]) -> None:
        self._replay.load_state_dict(state)


class UpdateBudget:
    """Counter that keeps the gradient steps per env step constant for any number of envs.

    Fractions are carried over. With a ratio of 0.25 and 6 envs, steps of all envs give 1, 2, 1, 2
    gradient steps.

    Args:
        ratio: Gradient steps per env step.
        warmup_steps: Env steps at the start without gradient steps.
    """

    def __init__(self, ratio: float, warmup_steps: int) -> None:
        self._ratio = ratio
        self._warmup_steps = warmup_steps
        self._env_steps = self._spent = 0
        self._since = self._spent_before = 0  # since the last change of ratio or warm-up

    @property
    def is_warming_up(self) -> bool:
        """True while env steps give no gradient steps."""
        return self._env_steps < self._warmup_steps

    def spend(self, env_steps: int) -> int:
        """Add ``env_steps`` env steps; return the number of gradient steps to take now."""
        self._env_steps += env_steps
        earned = self._earned()
        due, self._spent = earned - self._spent, earned
        return due

    def _earned(self) -> int:
        """Return the gradient steps for all env steps so far."""
        begin = max(self._since, self._warmup_steps)
        return self._spent_before + math.floor(max(self._env_steps - begin, 0) * self._ratio)

    def restart(self) -> None:
        """Warm up again, because the experience from before is gone."""
        self._env_steps = self._spent = 0
        self._since = self._spent_before = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the counters as plain data."""
        return {
            "env_steps": self._env_steps,
            "spent": self._spent,
            "since": self._since,
            "spent_before": self._spent_before,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counters; a different ratio or warm-up applies from there on."""
        self._env_steps, self._spent = int(state["env_steps"]), int(state["spent"])
        # Checkpoints of 0.9.0 do not contain these two.
        self._since = int(state.get("since", 0))
        self._spent_before = int(state.get("spent_before", 0))
        if self._earned() != self._spent:
            self._since, self._spent_before = self._env_steps, self._spent


class Target(Generic[M]):
    """A target network: a copy of a module that follows it and is never differentiated.

    Args:
        module: The module to follow.
        flat: Parameters of the module.

    Attributes:
        module: The copy.
        flat: Parameters of the copy.
    """

    def __init__(self, module: M, flat: FlatParameters) -> None:
        self._followed = flat
        self.module: M = copy.deepcopy(module).requires_grad_(False).eval()
        self.flat = FlatParameters(self.module)

    def follow(self, rate: float) -> None:
        """Move the fraction ``rate`` of the way to the followed module; 1 copies it."""
        self.flat.tensor.lerp_(self._followed.tensor, rate)
