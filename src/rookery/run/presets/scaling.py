"""What a learner's settings become with another number of envs, so that a run learns alike.

    learners from rollouts (PPO, A2C, IMPALA)

        num_steps      num_steps * base / num_envs, so that a rollout has as many transitions; but
                       no less than the horizon 1 / (1 - gamma * lambda) over which generalised
                       advantage estimation weighs errors (Schulman et al. 2016, eq. 16), or than
                       it was
        growth         what a rollout has grown by all the same
        minibatch_size times growth: as many gradient steps for each rollout
        learning_rate  times sqrt(growth), at most 4: what Adam and RMSProp need for larger batches
                       to make the same way over the same data (Malladi et al. 2022)

    learners from replay (DQN, QR-DQN, SAC, TD3)

        num_steps      num_steps * base / num_envs, at least 1: the learner is called after as many
                       env steps as before, as far as that can be
        updates_per_step, batch_size, learning_rate   stay: gradient steps are counted by env steps

A rollout is kept as large as it was where that can be, because a policy that is held to the one
that collected does not learn alike from larger rollouts, whatever the step size (Hilton et al.
2022, who part the two).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rookery.common.arguments import whole_number
from rookery.learn.config import ReplayConfig
from rookery.learn.config_base import Config

MOST_RATE_GROWTH = 4.0  # of the learning rate; nobody has tried more here
_LAMBDAS = ("gae_lambda", "trace_lambda")


def scaled(
    config: Config,
    algo: str,
    base_num_envs: int,
    num_envs: int,
    given: frozenset[str] = frozenset(),
) -> tuple[Config, list[str]]:
    """Move settings that were meant for ``base_num_envs`` envs to ``num_envs``.

    Args:
        config: of the learner.
        algo: its name, for the reasons.
        base_num_envs: what the settings were made for.
        num_envs: how many envs there will be.
        given: settings that must stay, because the user has said them.

    Returns:
        The settings, and a line for each that has changed, or would have; none where nothing is
        to be done.

    Raises:
        ConfigError: a number of envs is no whole number from 1 on.
    """
    whole_number("base_num_envs", base_num_envs, 1)
    whole_number("num_envs", num_envs, 1)
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
            reasons.append(f"{algo}: {name} stays {_told(before)}, because it was given")
        elif callable(before):
            reasons.append(
                f"{algo}: {name} is a function and stays; times {_told(value)} would go with "
                f"{num_envs} envs ({why})"
            )
        else:
            changes[name] = value
            reasons.append(f"{algo}: {name} {_told(before)} -> {_told(value)} ({why})")
    return replace(config, **changes), reasons  # type: ignore[type-var]


def gae_horizon(gamma: float, lam: float) -> float:
    """Steps over which generalised advantage estimation weighs errors; infinite without decay."""
    decay = gamma * lam
    return math.inf if decay >= 1 else 1 / (1 - decay)


Wanted = Mapping[str, tuple[Any, str]]


def _of_rollouts(config: Any, base: int, num_envs: int, given: frozenset[str]) -> Wanted:
    """What a learner from rollouts should have: for each setting the value, and why."""
    rows = base * config.num_steps
    num_steps = config.num_steps if "num_steps" in given else _num_steps(config, base, num_envs)
    growth = num_envs * num_steps / rows
    wanted: dict[str, tuple[Any, str]] = {}
    if num_steps != config.num_steps:
        kept = f"a rollout has {num_envs * num_steps} transitions, {rows} with {base} envs"
        wanted["num_steps"] = (num_steps, kept)
    grown = f"a rollout is {growth:.3g} times as large"
    size = getattr(config, "minibatch_size", None)
    if size is not None:
        count = max(round(rows / min(size, rows)), 1)
        fitting = max(round(num_envs * num_steps / count), 1)
        # What comes even stays: a minibatch that is larger than a rollout is cut by the learner.
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
        f"the learner is called after {num_steps * num_envs} env steps, {config.num_steps * base} "
        f"with {base} envs; updates_per_step keeps gradient steps per env step"
    )
    wanted: dict[str, tuple[Any, str]] = {"num_steps": (num_steps, why)}
    rows = max(num_steps, config.n_step + 1) * num_envs
    if config.replay_size < rows:
        wanted["replay_size"] = (rows, f"{num_envs} envs need {rows // num_envs} rows each")
    return wanted


def _rounded(rate: float) -> float:
    """Four digits; more would pretend to know."""
    return float(f"{rate:.4g}")


def _told(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
