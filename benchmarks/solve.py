"""Time until PPO has solved CartPole: rookery with its own defaults, SB3 with those of its RL Zoo.

After every 2 048 env steps both play 20 deterministic episodes, while the clock stands; the first
time that they return at least 475 on average ends the run. The clock runs from before the
environments start; imports do not count. Schedules are laid out for 100 000 steps on both sides.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.cases import Case, Effort
from benchmarks.ppo import CARTPOLE, NUM_EVAL_EPISODES, SOLVED_RETURN

TOTAL_STEPS = 100_000
QUICK_STEPS = 4_096
STEPS_BETWEEN_CHECKS = 2_048
_EVAL_SEED = 10_000

Evaluation = Callable[[], float]  # mean return of the policy as it is
Solver = Callable[[Case, int, int], "Watch"]


class Watch:
    """A clock that stands while the policy is evaluated.

    Attributes:
        seconds: So far.
        steps: Env steps so far.
        eval_return: Of the last evaluation.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.eval_return = float("nan")
        self._next_check = STEPS_BETWEEN_CHECKS
        self._start = time.perf_counter()

    @property
    def is_solved(self) -> bool:
        return self.eval_return >= SOLVED_RETURN

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self._start

    def check(self, steps: int, evaluate: Evaluation) -> bool:
        """Evaluate if it is time to, and say whether the env is solved."""
        self.steps = steps
        if steps >= self._next_check:
            self._next_check += STEPS_BETWEEN_CHECKS
            began = time.perf_counter()
            self.eval_return = evaluate()
            self._start += time.perf_counter() - began
        return self.is_solved


def _rookery(case: Case, seed: int, total_steps: int) -> Watch:
    import rookery
    from rookery.env.seeding import env_seeds
    from rookery.learn.ppo import PPO
    from rookery.training.evaluation import run_episodes
    from rookery.training.threads import blas_threads_for

    config, num_envs = rookery.PPOConfig(), case.num_envs
    eval_venv = rookery.make_vec(CARTPOLE.env_id, NUM_EVAL_EPISODES, backend="serial")
    watch = Watch()
    with (
        eval_venv,
        rookery.make_vec(CARTPOLE.env_id, num_envs) as venv,
        blas_threads_for(config.minibatch_size, (64, 64)),
    ):
        spaces = venv.single_observation_space, venv.single_action_space
        policy = PPO.make_policy(config, *spaces, seed)
        learner = PPO(policy, config, num_envs, seed)
        collector = rookery.SyncCollector(
            venv, policy, config.num_steps, seed=env_seeds(seed, num_envs), copy=False
        )

        def evaluate() -> float:
            score = run_episodes(eval_venv, policy, NUM_EVAL_EPISODES, _EVAL_SEED)
            return float(score.returns.mean())

        steps = 0
        while steps < total_steps:
            rollout = collector.collect()
            learner.update(rollout, steps / total_steps)
            policy.version += 1
            steps += rollout.num_transitions
            if watch.check(steps, evaluate):
                break
        watch.stop()
    return watch


def _sb3(case: Case, seed: int, total_steps: int, num_threads: int | None) -> Watch:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    if num_threads is not None:
        torch.set_num_threads(num_threads)
    eval_env = make_vec_env(CARTPOLE.env_id, NUM_EVAL_EPISODES, seed=_EVAL_SEED)

    class Check(BaseCallback):  # type: ignore[misc]
        is_over = False

        def _on_rollout_start(self) -> None:
            self.is_over = watch.check(self.num_timesteps, evaluate)

        def _on_step(self) -> bool:
            return not self.is_over

    def evaluate() -> float:
        mean, _ = evaluate_policy(model, eval_env, NUM_EVAL_EPISODES, deterministic=True)
        return float(mean)

    watch = Watch()
    venv = make_vec_env(CARTPOLE.env_id, case.num_envs, seed=seed)
    model = PPO("MlpPolicy", venv, **CARTPOLE.sb3, seed=seed, device="cpu")
    model.learn(total_steps, callback=Check())
    watch.stop()
    venv.close()
    eval_env.close()
    return watch


SOLVERS: dict[str, Solver] = {
    "rookery, its defaults": _rookery,
    "SB3, RL Zoo": functools.partial(_sb3, num_threads=None),
    "SB3, RL Zoo, 1 thread": functools.partial(_sb3, num_threads=1),
}

CASES = (
    Case(
        "solve-cartpole",
        "time to 475, PPO on CartPole-v1, 8 envs",
        "cartpole",
        8,
        tuple(SOLVERS),
        metric="seconds",
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Train until it is solved; the repetition is the seed."""
    total_steps = QUICK_STEPS if effort.quick else TOTAL_STEPS
    watch = SOLVERS[contender](case, repetition, total_steps)
    return {
        "seconds": watch.seconds,
        "steps": watch.steps,
        "eval_return": watch.eval_return,
        "solved": float(watch.is_solved),
        "seed": repetition,
    }
