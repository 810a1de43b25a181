"""Atari games by ALE's own batch, against Python's preprocessing of single envs in processes.

Everybody plays as DQN does (Mnih et al. 2015): every fourth frame, the larger of the last two,
84x84 grey, four stacked, up to 30 no-ops after a reset, actions that are repeated with probability
0.25. Single envs are ``AtariPreprocessing`` and ``FrameStackObservation`` in worker processes; a
native batch does all of it in C++, in threads of its own: as many as there are cores, shared out
among the processes where there are several. "ALE alone" is the same batch without
rookery around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium

from benchmarks.cases import CORES, Case, Effort
from benchmarks.environments import MAKERS, draw_actions, register_atari
from benchmarks.stepping import rate_of

_GAMES = {"pong": "ALE/Pong-v5", "breakout": "ALE/Breakout-v5"}
_ALONE = "ALE alone"
_BATCHES = {"rookery native": 0, "rookery native, 2 workers": 2}
_ASYNC = "gymnasium Async"

CASES = tuple(
    Case(
        f"{game}-{num_envs}",
        f"{title}, preprocessed, 4 frames stacked, {num_envs} envs",
        game,
        num_envs,
        (*_BATCHES, _ALONE, "rookery workers", _ASYNC),
        quick_num_envs=4,
    )
    for game, title in _GAMES.items()
    for num_envs in (16, 64)
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Measure one contender once; meant for a process of its own."""
    actions = list(draw_actions(case.env, case.num_envs))
    with _opened(case, contender) as step:
        rate_of(step, actions, effort.warmup_s)
        calls_per_second = rate_of(step, actions, effort.measure_s)
    return {"steps_per_second": calls_per_second * case.num_envs}


@contextmanager
def _opened(case: Case, contender: str) -> Iterator[Callable[[Any], object]]:
    venv = _open(case, contender)
    try:
        venv.reset(seed=0)
        yield venv.step
    finally:
        venv.close()


def _open(case: Case, contender: str) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Open a vector env, in next-step mode."""
    import rookery

    register_atari()
    if contender == _ALONE:
        return gymnasium.make_vec(_GAMES[case.env], case.num_envs, **_as_dqn(CORES))
    if contender == _ASYNC:
        return gymnasium.vector.AsyncVectorEnv([MAKERS[case.env]] * case.num_envs)
    if contender == "rookery workers":
        return rookery.make_vec(
            MAKERS[case.env], case.num_envs, backend="process", num_workers=case.num_workers
        )
    num_workers = _BATCHES[contender]
    return rookery.make_vec(
        _GAMES[case.env],
        case.num_envs,
        backend="native",
        num_workers=num_workers,
        env_kwargs=_as_dqn(max(CORES // max(num_workers, 1), 1)),
    )


def _as_dqn(num_threads: int) -> dict[str, Any]:
    """Arguments of ALE's batch that make it do what Python's preprocessing does."""
    return {"num_threads": num_threads, "reward_clipping": False, "use_fire_reset": False}
