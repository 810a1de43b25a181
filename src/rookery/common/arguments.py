"""Checks of arguments, which raise `ConfigError` for invalid values and suggest near names.

A table in ``docs/coming_from/stable_baselines3.md`` lists the names of `COMMON_NAMES` too.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rookery.common.env_errors import in_words
from rookery.errors import ConfigError

# Name in other libraries -> settings of this library that it may stand for.
COMMON_NAMES: dict[str, tuple[str, ...]] = {
    "activation_fn": ("activation",),
    "batch_size": ("minibatch_size",),
    "buffer_size": ("replay_size",),
    "clip_coef": ("clip_range",),
    "clip_range_vf": ("value_clip_range",),
    "discount": ("gamma",),
    "ent_coef": ("entropy_coef",),
    "eval_freq": ("eval_every",),
    "exploration_final_eps": ("final_epsilon",),
    "exploration_initial_eps": ("initial_epsilon",),
    "features_extractor_class": ("encoder",),
    "gradient_steps": ("updates_per_step",),
    "learning_starts": ("warmup_steps",),
    "log_std_init": ("initial_log_std",),
    "lr": ("learning_rate",),
    "lstm_hidden_size": ("memory_size",),
    "n_envs": ("num_envs",),
    "n_epochs": ("num_epochs",),
    "n_eval_episodes": ("eval_episodes",),
    "n_quantiles": ("num_quantiles",),
    "n_steps": ("num_steps", "n_step"),
    "net_arch": ("hidden_sizes",),
    "ortho_init": ("orthogonal_init",),
    "policy_kwargs": ("hidden_sizes",),
    "polyak": ("target_rate",),
    "progress_bar": ("progress",),
    "rms_prop_eps": ("rms_epsilon",),
    "save_freq": ("checkpoint_every",),
    "sde_sample_freq": ("noise_interval",),
    "start_steps": ("warmup_steps",),
    "target_policy_noise": ("target_noise",),
    "target_update_interval": ("target_interval",),
    "tau": ("target_rate",),
    "total_timesteps": ("total_steps",),
    "train_freq": ("num_steps",),
    "update_epochs": ("num_epochs",),
    "use_sde": ("state_dependent_noise",),
    "vf_coef": ("value_coef",),
}


def whole_number(name: str, value: Any, least: int) -> int:
    """Return ``value`` as an int.

    Raises:
        ConfigError: ``value`` is not a whole number, or less than ``least``.
    """
    number = as_int(value)
    if number is None or number < least:
        raise unfit(name, f"a whole number of at least {least}", value)
    return number


def as_int(value: Any) -> int | None:
    """Return ``value`` as an int, or None if it is a bool, a float or something else."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def without_fraction(value: Any) -> Any:
    """Convert a float with a whole value, such as ``1e5``, to an int; keep other values."""
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return int(value) if is_whole else value


def check_positive(name: str, value: Any) -> None:
    """Raise ConfigError unless ``value`` is a finite number above 0.

    Raises:
        ConfigError: ``value`` is something else.
    """
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:
        raise unfit(name, "a finite number above 0", value)


def check_flag(name: str, value: Any) -> None:
    """Raise ConfigError unless ``value`` is True or False.

    Raises:
        ConfigError: ``value`` is something else, such as the string ``"False"``.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise unfit(name, "True or False", value)


def near_names(name: str, known: Iterable[str], count: int = 2) -> list[str]:
    """Return the known names that ``name`` may mean, the nearest first.

    If another library uses ``name`` for a known name (`COMMON_NAMES`), that name is returned.
    Otherwise names are compared by their letters, ignoring case. Names that are much less similar
    than the nearest name are left out.
    """
    by_lower = {each.lower(): each for each in known}
    meant = COMMON_NAMES.get(name.lower().replace("-", "_"), ())
    spelled = [each.replace("_", "-") if "-" in name else each for each in meant]
    translated = [by_lower[each] for each in spelled if each in by_lower]
    if translated:
        return translated[:count]
    near = difflib.get_close_matches(name.lower(), by_lower, count, cutoff=0.6)
    likeness = [difflib.SequenceMatcher(None, each, name.lower()).ratio() for each in near]
    return [by_lower[n] for n, r in zip(near, likeness, strict=True) if r > likeness[0] - 0.15]


def did_you_mean(name: str, known: Iterable[str], sign: str = "") -> str:
    """Return ``"did you mean X?"`` or ``"did you mean X or Y?"``, or "" if no name is near.

    Args:
        name: the unknown name.
        known: all known names.
        sign: prefix of each name, such as ``"--"``.
    """
    near = near_names(name, known)
    return f"did you mean {' or '.join(sign + each for each in near)}?" if near else ""


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise ConfigError unless ``value`` is one of ``choices``.

    Raises:
        ConfigError: ``value`` is none of them; the message suggests the nearest.
    """
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        raise not_a_choice(name, value, choices)


def not_a_choice(name: str, value: Any, choices: Iterable[str]) -> ConfigError:
    """Return the error for a value that is none of ``choices``; it suggests the nearest."""
    quoted = [repr(choice) for choice in choices]
    hint = did_you_mean(repr(value), quoted) if isinstance(value, str) else ""
    error = unfit(name, f"one of {', '.join(quoted)}", value)
    return ConfigError(f"{error}; {hint}") if hint else error


def known_names(known: Iterable[str], given: Iterable[str], owner: str) -> None:
    """Raise ConfigError for an unknown name.

    Args:
        known: all known names.
        given: names to check.
        owner: what the names stand for, in messages, such as ``"settings of a run"``.

    Raises:
        ConfigError: a name is unknown; the message suggests the nearest names.
    """
    known = sorted(known)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
            raise ConfigError(f"{name!r} is not among the {owner}; {hint}")


def checked_wrappers(wrappers: Any) -> tuple[Callable[[Any], Any], ...]:
    """Return ``wrappers`` as a tuple; None means no wrappers.

    Raises:
        ConfigError: ``wrappers`` is not a sequence of callables.
    """
    if wrappers is None:
        return ()
    if callable(wrappers) or not isinstance(wrappers, Iterable):
        way_out = f": write wrappers=[{_name(wrappers)}]" if callable(wrappers) else ""
        raise unfit("wrappers", f"a sequence of callables Env -> Env{way_out}", wrappers)
    listed = tuple(wrappers)
    for i, wrapper in enumerate(listed):
        if not callable(wrapper):
            raise unfit(f"wrappers[{i}]", "a callable Env -> Env", wrapper)
    return listed


def checked_kwargs(env_kwargs: Any) -> dict[str, Any]:
    """Return ``env_kwargs`` as a dict; None means no arguments.

    Raises:
        ConfigError: ``env_kwargs`` is not a mapping from names to values.
    """
    if env_kwargs is None:
        return {}
    if not isinstance(env_kwargs, Mapping) or not all(type(name) is str for name in env_kwargs):
        raise unfit("env_kwargs", "a mapping from names of arguments to values", env_kwargs)
    return dict(env_kwargs)


def unfit(name: str, expected: str, value: Any) -> ConfigError:
    """Return the error for an argument with an invalid value."""
    return ConfigError(f"{name} must be {expected}, got {in_words(value)} ({_name(type(value))})")


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", type(value).__name__))
