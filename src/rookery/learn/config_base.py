"""What the settings of all learners are: plain data, and checked; importable without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeAlias, TypeVar

from rookery.common.arguments import (
    check_choice,
    check_flag,
    did_you_mean,
    known_names,
    unfit,
    whole_number,
    without_fraction,
)
from rookery.common.importing import imported, reference
from rookery.errors import ConfigError

C = TypeVar("C", bound="Config")

# A number, or a function of the share of training that is done, from 0 to 1.
Scheduled: TypeAlias = float | Callable[[float], float]


class Config:
    """Settings of one algorithm: a frozen dataclass that JSON can hold.

    Attributes:
        num_steps: steps of every env before each call of the learner.
        hidden_sizes: widths of the hidden layers.
    """

    __slots__ = ()

    num_steps: int
    hidden_sizes: tuple[int, ...] | None

    def __new__(cls, *values: Any, **settings: Any) -> Any:
        """Refuse unknown names with a suggestion, which the dataclass's TypeError lacks.

        Raises:
            ConfigError: a keyword is not a setting.
        """
        if settings:
            _known_settings(cls, settings)
        return object.__new__(cls)

    def to_dict(self) -> dict[str, Any]:
        """Fields by name, as plain data; a function is written as where it can be imported."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {k: {"function": reference(v)} if callable(v) else v for k, v in values.items()}

    def rows_per_gradient_step(self, num_envs: int) -> int:
        """How many transitions one gradient step reads."""
        return self.num_steps * num_envs

    def check(self, num_envs: int) -> None:
        """Complain of settings that do not go with so many envs.

        Raises:
            ConfigError: then.
        """
        return

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy remembers the episode."""
        return getattr(self, "recurrent", "none") != "none"

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """Undo `to_dict`, also after a trip through JSON, which turns tuples into lists.

        Raises:
            ConfigError: there is no such setting, or one has a value that cannot be.
        """
        _known_settings(cls, values)
        return cls(**{name: _value(name, value) for name, value in values.items()})


def _known_settings(kind: type[Any], names: Iterable[str]) -> None:
    known_names([field.name for field in fields(kind)], names, f"settings of {kind.__name__}")


class _LostFunction:
    """Stands for a function that was not written down; it is an error to ask it anything."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, progress: float) -> float:
        raise ConfigError(
            f"{self._name} was a lambda or a local function, which config.json cannot hold; pass "
            f"it again: rookery.resume(run_dir, {self._name}=...)"
        )


def _value(name: str, value: Any) -> Any:
    """Undo what `Config.to_dict` and JSON have made of one value."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    try:
        return imported(value["function"] or "")
    except (ImportError, AttributeError, ValueError):
        return _LostFunction(name)


# ---------------------------------------------------------------- checks


def at_least(config: Any, low: float, *names: str) -> None:
    """Refuse settings that are no numbers of at least ``low``, nor functions of the progress."""
    for name in names:
        value = getattr(config, name)
        if callable(value):
            if getattr(config, f"final_{name}", None) not in (None, 0.0):
                raise ConfigError(f"{name} is a function; it says itself where final_{name} is")
            continue
        if not _is_number(value):
            raise unfit(name, "a number", value)
        if not value >= low:  # NaN neither
            raise ConfigError(f"{name} is {value}; it must be at least {low}")


def finite(config: Any, *names: str) -> None:
    """Refuse settings that are no finite numbers."""
    for name in names:
        value = getattr(config, name)
        if not (_is_number(value) and math.isfinite(value)):
            raise unfit(name, "a finite number", value)


def counts(config: Any, *names: str) -> None:
    """Refuse settings other than whole numbers of at least 1; store ``1e5`` as an int."""
    for name in names:
        number = whole_number(name, without_fraction(getattr(config, name)), 1)
        object.__setattr__(config, name, number)  # the dataclasses are frozen


def shares(config: Any, *names: str) -> None:
    """Refuse settings that do not lie in [0, 1]."""
    for name in names:
        value = getattr(config, name)
        if not _is_number(value):
            raise unfit(name, "a number in [0, 1]", value)
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"{name} is {value}; it must lie in [0, 1]")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def flags(config: Any) -> None:
    """Refuse settings that must be True or False, and are something else."""
    for field in fields(config):
        if isinstance(field.default, bool):
            check_flag(field.name, getattr(config, field.name))


def known_network(config: Any) -> None:
    """Refuse hidden layers, activations and networks for images that cannot be."""
    sizes = config.hidden_sizes
    is_tuple = isinstance(sizes, (tuple, list))
    if sizes is not None and not (is_tuple and all(type(n) is int and n > 0 for n in sizes)):
        raise unfit("hidden_sizes", "a tuple of widths, such as (64, 64)", sizes)
    check_choice("activation", config.activation, ("tanh", "relu"))
    check_choice("image_encoder", config.image_encoder, ("nature", "impala"))


def known_memory(config: Any) -> None:
    """Refuse kinds of memory that there are not, or that cannot be compiled."""
    check_choice("recurrent", config.recurrent, ("none", "gru", "lstm"))
    if config.recurrent != "none" and config.compile:
        raise ConfigError(
            f"compile is for networks without memory; leave it out with recurrent="
            f"{config.recurrent!r}"
        )


def known_interval(config: Any) -> None:
    """Refuse an interval of state-dependent noise that is neither -1 nor a number of steps."""
    if config.noise_interval != -1:
        whole_number("noise_interval", config.noise_interval, 1)


def noise_settings(config: Any) -> dict[str, Any]:
    """What settings say of state-dependent noise, as policies are made with it."""
    interval = getattr(config, "noise_interval", -1)
    return {
        "initial_log_std": getattr(config, "initial_log_std", 0.0),
        "state_dependent_noise": getattr(config, "state_dependent_noise", False),
        "noise_interval": config.num_steps if interval == -1 else interval,
    }


def known_device(config: Any) -> None:
    """Refuse devices that torch has no such name for."""
    device = config.device
    if isinstance(device, str) and re.fullmatch(r"cpu|cuda(:\d+)?|mps", device):
        return
    meant = "cuda" if device in ("gpu", "GPU", "nvidia") else str(device)
    hint = did_you_mean(meant, ("cuda", "mps"))
    known = "'cpu', 'cuda', 'cuda:N' or 'mps'"
    raise ConfigError(f"device is {device!r}; it must be {known}{hint and '; ' + hint}")
