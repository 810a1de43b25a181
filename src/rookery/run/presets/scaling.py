"""Scaling of a learner's settings to another number of envs, so that it learns as before.

    learners from rollouts (PPO, A2C, IMPALA)

        num_steps      num_steps * base / num_envs, so that a rollout has as many transitions. At
                       least the horizon 1 / (1 - gamma * lambda), over which generalised advantage
                       estimation weighs errors (Schulman et al. 2016, eq. 16), or the former value
                       if that is smaller
        growth         the ratio of the new to the former number of transitions in a rollout
        minibatch_size times growth, so that the number of gradient steps per rollout is unchanged
        learning_rate  times sqrt(growth), at most 4. With it, Adam and RMSProp make the same
                       progress over the same data with larger batches (Malladi et al. 2022)

    learners from replay (DQN, QR-DQN, SAC, TD3)

        num_steps      num_steps * base / num_envs, at least 1, so that the learner is called after
                       as many env steps as before
        updates_per_step, batch_size, learning_rate   unchanged: gradient steps are counted by env
                       steps

The size of a rollout is kept if possible. A policy that must stay close to the policy that
collected learns differently from larger rollouts, whatever the step size (Hilton et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rookery.learn.config import ReplayConfig
from rookery.learn.config_base import Config

MOST_RATE_GROWTH = 4.0  # largest factor of the learning rate; larger ones were never tested
_LAMBDAS = ("gae_lambda", "trace_lambda")


def scaled(
    config: Config,
    algo: str,
    base_num_envs: int,
    num_envs: int,
    given: frozenset[str] = frozenset(),
) -> tuple[Config, list[str]]:
    """Scale settings for ``base_num_envs`` envs to ``num_envs`` envs.

    Args:
        config: settings of the learner.
        algo: name of the algorithm, for the reasons.
        base_num_envs: number of envs for which the settings were chosen.
        num_envs: number of envs of the run.
        given: names of settings that the user has given, which are not changed.

    Returns:
        The settings, and one line with the reason for each setting that changes, or would change
        if it were not given or a function.
    """
    if num_envs == base_num_envs:
        return config, []
    wanted = (
        _of_replay(config, base_num_envs, num_envs)
        if isinstance(config, ReplayConfig)
        else _of_rollouts(config, base_num_envs, num_envs, given)
    )
    changes: dict[str, Any] = {}
    reasons = []
    for name, (value, why) in wanted.items():
        before = getattr(config, name)
        if value == before:
            continue
        if name in given:
            reasons.append(f"{algo}: {name} stays {_text(before)}, because it was given")
        elif callable(before):
            reasons.append(
                f"{algo}: {name} is a function and stays; {num_envs} envs would need it times "
                f"{_text(value)} ({why})"
            )
        else:
            changes[name] = value
            reasons.append(f"{algo}: {name} {_text(before)} -> {_text(value)} ({why})")
    return replace(config, **changes), reasons  # type: ignore[type-var]


def gae_horizon(gamma: float, lam: float) -> float:
    """Return the number of steps over which generalised advantage estimation weighs errors."""
    decay = gamma * lam
    return math.inf if decay >= 1 else 1 / (1 - decay)


Wanted = Mapping[str, tuple[Any, str]]


def _of_rollouts(config: Any, base: int, num_envs: int, given: frozenset[str]) -> Wanted:
    """Return the scaled value and the reason of each setting of a learner from rollouts."""
    rows = base * config.num_steps
    num_steps = config.num_steps if "num_steps" in given else _num_steps(config, base, num_envs)
    growth = num_envs * num_steps / rows
    wanted: dict[str, tuple[Any, str]] = {}
    if num_steps != config.num_steps:
        kept = f"a rollout has {num_envs * num_steps} transitions; it has {rows} with {base} envs"
        wanted["num_steps"] = (num_steps, kept)
    grown = f"a rollout is {growth:.3g} times as large"
    size = getattr(config, "minibatch_size", None)
    if size is not None:
        count = max(round(rows / min(size, rows)), 1)
        fitting = max(round(num_envs * num_steps / count), 1)
        # The learner cuts a minibatch that is larger than a rollout, so its size may stay.
        is_other = fitting != min(size, rows)
        wanted["minibatch_size"] = (fitting if is_other else size, f"{grown}: as many minibatches")
    factor = min(math.sqrt(growth), MOST_RATE_GROWTH)
    if not math.isclose(growth, 1.0, rel_tol=0.02):
        why = f"{grown}, its square root, at most {MOST_RATE_GROWTH:g}"
        wanted.update(_rates(config, factor, why))
    return wanted


def _rates(config: Any, factor: float, why: str) -> Wanted:
    rate, final = config.learning_rate, getattr(config, "final_learning_rate", None)
    if callable(rate):
        return {"learning_rate": (factor, why)}
    wanted = {"learning_rate": (_rounded(rate * factor), why)}
    if final:
        wanted["final_learning_rate"] = (_rounded(final * factor), why)
    return wanted


def _num_steps(config: Any, base: int, num_envs: int) -> int:
    lam = next((getattr(config, name) for name in _LAMBDAS if hasattr(config, name)), 1.0)
    horizon = gae_horizon(config.gamma, lam)
    least = int(config.num_steps) if horizon >= config.num_steps else math.ceil(horizon)
    wanted = max(round(int(config.num_steps) * base / num_envs), least)
    if not config.is_recurrent or not hasattr(config, "sequence_length"):
        return wanted
    length: int = config.sequence_length
    return max(math.ceil(wanted / length), 1) * length


def _of_replay(config: Any, base: int, num_envs: int) -> Wanted:
    num_steps = max(round(config.num_steps * base / num_envs), 1)
    why = (
        f"the learner is called after {num_steps * num_envs} env steps; with {base} envs after "
        f"{config.num_steps * base}; updates_per_step keeps gradient steps per env step"
    )
    wanted: dict[str, tuple[Any, str]] = {"num_steps": (num_steps, why)}
    rows = max(num_steps, config.n_step + 1) * num_envs
    if config.replay_size < rows:
        wanted["replay_size"] = (rows, f"{num_envs} envs need {rows // num_envs} rows each")
    return wanted


def _rounded(rate: float) -> float:
    """Round to four digits."""
    return float(f"{rate:.4g}")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
