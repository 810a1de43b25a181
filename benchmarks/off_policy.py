"""Off-policy training: env steps per second once gradient steps run.

The same work everywhere: envs, gradient steps per env step, batches, networks of the same shape,
target networks, episode returns and TensorBoard logs. The first gradient steps are not measured:
JAX compiles in them, and rookery chooses its number of threads.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.cases import CORES, LIMIT, Case
from benchmarks.clocks import Effort, Sample, busy_processes, steps_per_second
from benchmarks.environments import MAKERS

_WARMUP_STEPS = 512  # env steps with random actions and without gradient steps
_REPLAY_SIZE = 200_000
_UNMEASURED_S, _MEASURED_S = 4.0, 8.0
_MOST_STEPS = 1_000_000  # more than any contender takes in that time


class Clock:
    """Measures the rate of a training run, beginning some time after its first gradient step."""

    def __init__(self, effort: Effort) -> None:
        self._unmeasured_s, self._measured_s = (0.5, 0.5) if effort.quick else (
            _UNMEASURED_S, _MEASURED_S,
        )  # fmt: skip
        self._first_s: float | None = None
        self._begin: tuple[float, int] | None = None
        self.rate: float | None = None

    def goes_on(self, env_steps: int) -> bool:
        """Note the env steps so far; return False once the measurement is complete."""
        now = time.perf_counter()
        if env_steps <= _WARMUP_STEPS:
            return True
        if self._first_s is None:
            self._first_s = now
        if self._begin is None:
            if now - self._first_s >= self._unmeasured_s:
                self._begin = now, env_steps
            return True
        began, steps = self._begin
        if now - began < self._measured_s:
            return True
        self.rate = (env_steps - steps) / (now - began)
        return False


def measure(case: Case, contender: str, effort: Effort, seed: int) -> Sample:
    """Train until the clock has measured enough."""
    with busy_processes(case.busy_processes), tempfile.TemporaryDirectory() as folder:
        if contender == LIMIT:
            return {"value": _limit(case, effort)}
        clock = Clock(effort)
        CONTENDERS[contender](case, clock, seed + 1, folder)
    if clock.rate is None:
        raise SystemExit("the run ended before it was measured")
    return {"value": clock.rate}


# Passes of one network per gradient step, each of the cost of a forward pass. A backward pass costs
# two, or one where only the gradients of the inputs, or of the weights, are needed.
_PASSES = {
    "sac": 1 + 2 + 2 * 3 + 1 + 2 * 2 + 2,
    "td3": 1 + 2 + 2 * 3 + (1 + 2 + 2) / 2,  # the actor improves in every second step
}


def _limit(case: Case, effort: Effort) -> float:
    """Return the env steps per second if gradient steps consisted of products of 256 x 256 only."""
    import torch

    rows, width = case.settings["batch_size"], case.settings["hidden_sizes"][0]
    a, b = torch.rand(rows, width), torch.rand(width, width)
    result = torch.empty(rows, width)

    def work() -> int:
        for _ in range(100):
            torch.mm(a, b, out=result)
        return 100

    best = 0.0
    for threads in range(1, CORES + 1):
        torch.set_num_threads(threads)
        steps_per_second(work, effort.warmup_s)
        best = max(best, steps_per_second(work, effort.measure_s))
    env: Any = MAKERS[case.env]()
    inputs, outputs = env.observation_space.shape[0], env.action_space.shape[0]
    env.close()
    weights = (inputs + outputs) * width + width * width  # of a critic; an actor has about as many
    per_update = _PASSES[case.settings["algo"]] * weights / (width * width)
    return best / per_update / case.settings["updates_per_step"]


def _rookery(case: Case, clock: Clock, seed: int, folder: str, own: bool = False) -> None:
    import rookery

    told = case.settings
    common: dict[str, Any] = {
        name: told[name]
        for name in ("num_steps", "updates_per_step", "batch_size", "hidden_sizes", "learning_rate")
    }
    common |= {"warmup_steps": _WARMUP_STEPS, "replay_size": _REPLAY_SIZE}
    made = {
        "sac": lambda: rookery.SACConfig(**common),
        "td3": lambda: rookery.TD3Config(**common),
        "dqn": lambda: rookery.DQNConfig(**common, activation="relu", double=False, dueling=False),
    }
    options: dict[str, Any] = {"network": _own_network(told)} if own else {}
    with rookery.Trainer(
        told["env_id"],
        algo=made[told["algo"]](),
        preset="none",
        num_envs=case.num_envs,
        total_steps=_MOST_STEPS,
        seed=seed,
        run_dir=f"{folder}/run",
        **options,
    ) as trainer:
        for _ in trainer:
            if not clock.goes_on(trainer.steps):
                break


def _own_network(told: Any) -> Any:
    """Return a network as a user would write it: an actor, or action values."""
    from torch import nn

    def make(observation_space: Any, action_space: Any) -> nn.Module:
        sizes = [observation_space.shape[0], *told["hidden_sizes"]]
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        count = action_space.n if told["algo"] == "dqn" else 2 * action_space.shape[0]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], int(count)))

    return make


def _sb3(
    case: Case, clock: Clock, seed: int, folder: str, library: str, threads: int | None = None
) -> None:
    """Train with SB3, or with SBX, which has the same interface."""
    from stable_baselines3.common import env_util
    from stable_baselines3.common.callbacks import BaseCallback

    if threads is not None:
        import torch

        torch.set_num_threads(threads)

    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return clock.goes_on(self.num_timesteps)

    told = case.settings
    options: dict[str, Any] = {}
    if told["algo"] == "dqn":
        options["target_update_interval"] = 1000
    model = getattr(importlib.import_module(library), told["algo"].upper())(
        "MlpPolicy",
        env_util.make_vec_env(told["env_id"], n_envs=case.num_envs, seed=seed),
        learning_rate=told["learning_rate"],
        buffer_size=_REPLAY_SIZE,
        learning_starts=_WARMUP_STEPS,
        batch_size=told["batch_size"],
        train_freq=told["num_steps"],
        gradient_steps=round(told["num_steps"] * case.num_envs * told["updates_per_step"]),
        policy_kwargs={"net_arch": list(told["hidden_sizes"])},
        tensorboard_log=folder,
        seed=seed,
        device="cpu",
        **options,
    )
    model.learn(_MOST_STEPS, Stop())
    model.env.close()


def _tianshou(case: Case, clock: Clock, seed: int, folder: str) -> None:
    import torch
    from tianshou import env as venvs
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils import TensorboardLogger
    from torch.utils.tensorboard.writer import SummaryWriter

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    told = case.settings
    venv = venvs.DummyVectorEnv([MAKERS[case.env]] * case.num_envs)
    venv.seed(seed)
    algorithm = _tianshou_algorithm(case)
    collector = Collector(algorithm.policy, venv, VectorReplayBuffer(_REPLAY_SIZE, case.num_envs))
    collector.reset()
    collector.collect(n_step=_WARMUP_STEPS, random=True)

    def stop_in_time(epoch: int, env_step: int) -> None:
        if not clock.goes_on(_WARMUP_STEPS + env_step):
            raise _Done

    try:
        algorithm.run_training(
            OffPolicyTrainerParams(
                max_epochs=1,
                epoch_num_steps=_MOST_STEPS,
                training_collector=collector,
                collection_step_num_env_steps=told["num_steps"] * case.num_envs,
                update_step_num_gradient_steps_per_sample=told["updates_per_step"],
                batch_size=told["batch_size"],
                training_fn=stop_in_time,
                logger=TensorboardLogger(SummaryWriter(folder)),
                verbose=False,
                show_progress=False,
            )
        )
    except _Done:
        venv.close()


class _Done(Exception):
    """Ends a run of Tianshou, whose callback cannot."""


def _tianshou_algorithm(case: Case) -> Any:
    """Build the algorithm of a case from Tianshou's networks."""
    import numpy as np
    from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
    from tianshou.algorithm.modelfree.sac import SAC, AutoAlpha, SACPolicy
    from tianshou.algorithm.modelfree.td3 import TD3, ContinuousDeterministicPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.exploration import GaussianNoise
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import (
        ContinuousActorDeterministic,
        ContinuousActorProbabilistic,
        ContinuousCritic,
    )

    told = case.settings
    env: Any = MAKERS[case.env]()
    sizes, adam = told["hidden_sizes"], AdamOptimizerFactory(lr=told["learning_rate"])
    obs_shape, action_space = env.observation_space.shape, env.action_space
    if told["algo"] == "dqn":
        values = Net(state_shape=obs_shape, action_shape=action_space.n, hidden_sizes=sizes)
        greedy = DiscreteQLearningPolicy(
            model=values, action_space=action_space, eps_training=0.1, eps_inference=0.05
        )
        return DQN(policy=greedy, optim=adam, target_update_freq=1000, is_double=False)
    critics = [
        ContinuousCritic(
            preprocess_net=Net(
                state_shape=obs_shape, action_shape=action_space.shape, hidden_sizes=sizes,
                concat=True,
            )
        )
        for _ in range(2)
    ]  # fmt: skip
    torso = Net(state_shape=obs_shape, hidden_sizes=sizes)
    both = {
        "policy_optim": adam, "critic": critics[0], "critic_optim": adam, "critic2": critics[1],
        "critic2_optim": adam,
    }  # fmt: skip
    if told["algo"] == "td3":
        actor = ContinuousActorDeterministic(
            preprocess_net=torso, action_shape=action_space.shape,
            max_action=float(action_space.high[0]),
        )  # fmt: skip
        deterministic = ContinuousDeterministicPolicy(
            actor=actor, action_space=action_space, exploration_noise=GaussianNoise(sigma=0.1)
        )
        return TD3(policy=deterministic, **both)
    policy = SACPolicy(
        actor=ContinuousActorProbabilistic(
            preprocess_net=torso, action_shape=action_space.shape, unbounded=True,
            conditioned_sigma=True,
        ),
        action_space=action_space,
    )  # fmt: skip
    alpha = AutoAlpha(-float(np.prod(action_space.shape)), 0.0, adam)
    return SAC(policy=policy, alpha=alpha, **both)


CONTENDERS: dict[str, Callable[[Case, Clock, int, str], None]] = {
    "rookery: train": _rookery,
    "rookery: train, custom network": functools.partial(_rookery, own=True),
    "SB3: DummyVecEnv": functools.partial(_sb3, library="stable_baselines3"),
    "SB3: DummyVecEnv, 1 thread": functools.partial(_sb3, library="stable_baselines3", threads=1),
    "SBX: DummyVecEnv": functools.partial(_sb3, library="sbx"),
    "Tianshou: DummyVectorEnv, 1 thread": _tianshou,
}
