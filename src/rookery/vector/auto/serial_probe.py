"""The part of the probe that is played in the worker: serial vector envs there are timed."""

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
# How long the parts may take; a step that takes longer is still made, once.
SERIALLY_S, _REPLAY_S = 0.05, 0.015
_REPLAY_STEPS = 200

Sample: TypeAlias = "tuple[Any, dict[str, Any]]"  # an observation and infos


@dataclass(frozen=True)
class SerialReport:
    """What a worker tells of serial vector envs in it.

    The first four are of envs that do nothing but return what the measured env has returned: of one
    of them and of ``MANY``, with results as for this process and as for another.

    Attributes:
        here_one: see above, as all that follow.
        here_many: ...
        there_one: ...
        there_many: ...
        own: of the env that is measured; None if its steps take too long for it to matter.
        before: the worker's usage before ``own``.
        after: the worker's usage after it.
    """

    here_one: Timing
    here_many: Timing
    there_one: Timing
    there_many: Timing
    own: Timing | None
    before: Usage
    after: Usage


def report_serially(env: gym.Env[Any, Any], copy: bool, steps_env: bool) -> SerialReport:
    """Time serial vector envs: of ``env``, if that is wanted, and of some that do nothing."""
    samples: list[Sample] = [(env.observation_space.sample(), {})]
    before = after = usage_of(env)
    own = None
    if steps_env:
        batch = EnvBatch([EnvRecipe(lambda: env)], 0)
        venv = SerialVectorEnv.of_batch(batch, AutoresetMode.NEXT_STEP, copy)
        try:
            actions = LegalActions(venv)
            samples = _samples(venv, actions)
            before = usage_of(env)
            own = time_steps(venv, actions, SERIALLY_S, MOST_STEPS)
            after = usage_of(env)
        finally:
            batch.envs.clear()  # it is not theirs to close
            venv.close()
    recipe = EnvRecipe(lambda: _Replay(env, samples))
    return SerialReport(
        here_one=_time_replay([recipe], copy, travels=False),
        here_many=_time_replay([recipe] * MANY, copy, travels=False),
        there_one=_time_replay([recipe], copy, travels=True),
        there_many=_time_replay([recipe] * MANY, copy, travels=True),
        own=own,
        before=before,
        after=after,
    )


def _samples(venv: SerialVectorEnv, actions: LegalActions) -> list[Sample]:
    """Some observations and infos of the one env."""
    samples: list[Sample] = []
    venv.infos_per_env = not actions.are_masked  # masks are found in the other form
    for _ in range(WARM_UP_STEPS):
        action = actions.next()
        results: tuple[Any, ...] = venv.reset() if action is None else venv.step(action)
        (obs,) = rows(venv.single_observation_space, results[0], 1)
        samples.append((obs, {} if actions.are_masked else results[-1][0]))
        actions.note(results[0], results[-1])
    venv.infos_per_env = False
    return samples


def _time_replay(recipes: list[EnvRecipe], copy: bool, travels: bool) -> Timing:
    batch = EnvBatch(recipes, 0)
    with SerialVectorEnv.of_batch(batch, AutoresetMode.NEXT_STEP, copy, travels) as venv:
        return time_steps(venv, LegalActions(venv, heeds_masks=False), _REPLAY_S, _REPLAY_STEPS)


class _Replay(gym.Env[Any, Any]):
    """Returns what another env has returned, and does nothing else."""

    def __init__(self, env: gym.Env[Any, Any], samples: list[Sample]) -> None:
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._samples = itertools.cycle(deepcopy(samples))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return next(self._samples)

    def step(self, action: Any) -> Any:
        obs, info = next(self._samples)
        return obs, 0.0, False, False, info
