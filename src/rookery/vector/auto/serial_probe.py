"""The part of the probe that runs in the worker: timing of serial vector envs."""

from __future__ import annotations

import itertools
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
from gymnasium.vector import AutoresetMode

from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe
from rookery.shared.spaces import rows
from rookery.vector.auto.legal_actions import LegalActions
from rookery.vector.auto.timing import WARM_UP_STEPS, Timing, Usage, time_steps, usage_of
from rookery.vector.serial import SerialVectorEnv

MANY = 9
MOST_STEPS = 1000
# Seconds for each part. At least one step is made, even if it takes longer.
SERIALLY_S, _REPLAY_S = 0.05, 0.015
_REPLAY_STEPS = 200

Sample: TypeAlias = "tuple[Any, dict[str, Any]]"  # observation and infos


@dataclass(frozen=True)
class SerialReport:
    """Timings of serial vector envs in a worker.

    Replayed envs only return recorded results of the measured env. They show the cost of everything
    around the env.

    Attributes:
        here_one: timing of one replayed env, with results for the same process.
        here_many: timing of ``MANY`` replayed envs, with results for the same process.
        there_one: timing of one replayed env, with results for another process.
        there_many: timing of ``MANY`` replayed envs, with results for another process.
        real: timing of the measured env; None if its steps are slow, so that other costs do not
            matter.
        before: usage of the worker before ``real``.
        after: usage of the worker after ``real``.
    """

    here_one: Timing
    here_many: Timing
    there_one: Timing
    there_many: Timing
    real: Timing | None
    before: Usage
    after: Usage


def report_serially(env: gym.Env[Any, Any], copy: bool, steps_env: bool) -> SerialReport:
    """Time serial vector envs of replayed envs and, if wanted, of ``env``.

    Args:
        env: the measured env.
        copy: results are copied.
        steps_env: time ``env`` too.
    """
    samples: list[Sample] = [(env.observation_space.sample(), {})]
    before = after = usage_of(env)
    real = None
    if steps_env:
        batch = EnvBatch([EnvRecipe(lambda: env)], 0)
        venv = SerialVectorEnv.of_batch(batch, AutoresetMode.NEXT_STEP, copy)
        try:
            actions = LegalActions(venv)
            samples = _samples(venv, actions)
            before = usage_of(env)
            real = time_steps(venv, actions, SERIALLY_S, MOST_STEPS)
            after = usage_of(env)
        finally:
            batch.envs.clear()  # the worker closes the env
            venv.close()
    recipe = EnvRecipe(lambda: _Replay(env, samples))
    return SerialReport(
        here_one=_time_replay([recipe], copy, pickles=False),
        here_many=_time_replay([recipe] * MANY, copy, pickles=False),
        there_one=_time_replay([recipe], copy, pickles=True),
        there_many=_time_replay([recipe] * MANY, copy, pickles=True),
        real=real,
        before=before,
        after=after,
    )


def _samples(venv: SerialVectorEnv, actions: LegalActions) -> list[Sample]:
    """Return some observations and infos of the env."""
    samples: list[Sample] = []
    venv.infos_per_env = not actions.are_masked  # masks are read from the vector form
    for _ in range(WARM_UP_STEPS):
        action = actions.next()
        results: tuple[Any, ...] = venv.reset() if action is None else venv.step(action)
        (obs,) = rows(venv.single_observation_space, results[0], 1)
        samples.append((obs, {} if actions.are_masked else results[-1][0]))
        actions.note(results[0], results[-1])
    venv.infos_per_env = False
    return samples


def _time_replay(recipes: list[EnvRecipe], copy: bool, pickles: bool) -> Timing:
    batch = EnvBatch(recipes, 0)
    with SerialVectorEnv.of_batch(batch, AutoresetMode.NEXT_STEP, copy, pickles) as venv:
        return time_steps(venv, LegalActions(venv, heeds_masks=False), _REPLAY_S, _REPLAY_STEPS)


class _Replay(gym.Env[Any, Any]):
    """An env that returns recorded results of another env in turn."""

    def __init__(self, env: gym.Env[Any, Any], samples: list[Sample]) -> None:
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._samples = itertools.cycle(deepcopy(samples))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return next(self._samples)

    def step(self, action: Any) -> Any:
        obs, info = next(self._samples)
        return obs, 0.0, False, False, info
