"""The base class of all settings, and the checks of their values; importable without torch."""

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

# A number, or a function of the progress of the training, from 0 to 1.
Scheduled: TypeAlias = float | Callable[[float], float]


class Config:
    """Settings of one algorithm: a frozen dataclass that can be stored as JSON.

    Attributes:
        num_steps: Steps of every env before each call of the learner.
        hidden_sizes: Widths of the hidden layers.
    """

    __slots__ = ()

    num_steps: int
    hidden_sizes: tuple[int, ...] | None

    def __new__(cls, *values: Any, **settings: Any) -> Any:
        """Reject unknown names with a suggestion, which the TypeError of a dataclass lacks.

        Raises:
            ConfigError: a keyword is not a setting.
        """
        if settings:
            _known_settings(cls, settings)
        return object.__new__(cls)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, as plain data; a function becomes its import path."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {k: {"function": reference(v)} if callable(v) else v for k, v in values.items()}

    def rows_per_gradient_step(self, num_envs: int) -> int:
        """Return the number of transitions that one gradient step reads."""
        return self.num_steps * num_envs

    def check(self, num_envs: int) -> None:
        """Raise if the settings do not fit this number of envs.

        Raises:
            ConfigError: they do not fit.
        """

    @property
    def is_recurrent(self) -> bool:
        """True if the policy has recurrent layers."""
        return getattr(self, "recurrent", "none") != "none"

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """Build the settings from the result of `to_dict`, also after a round trip through JSON.

        Raises:
            ConfigError: a name is unknown or a value is invalid.
        """
        _known_settings(cls, values)
        return cls(**{name: _value(name, value) for name, value in values.items()})


def _known_settings(kind: type[Any], names: Iterable[str]) -> None:
    known_names([field.name for field in fields(kind)], names, f"settings of {kind.__name__}")


class _LostFunction:
    """Placeholder for a function that config.json could not store; calling it is an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, progress: float) -> float:
        raise ConfigError(
            f"{self._name} was a lambda or a local function, which config.json cannot hold; pass "
            f"it again: rookery.resume(run_dir, {self._name}=...)"
        )


def _value(name: str, value: Any) -> Any:
    """Return one value as it was before `Config.to_dict` and JSON changed it."""
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
    """Reject settings that are neither numbers of at least ``low`` nor functions."""
    for name in names:
        value = getattr(config, name)
        if callable(value):
            if getattr(config, f"final_{name}", None) not in (None, 0.0):
                raise ConfigError(f"{name} is a function, so final_{name} must not be set")
            continue
        if not _is_number(value):
            raise unfit(name, "a number", value)
        if not value >= low:  # NaN neither
            raise ConfigError(f"{name} is {value}; it must be at least {low}")


def finite(config: Any, *names: str) -> None:
    """Reject settings that are not finite numbers."""
    for name in names:
        value = getattr(config, name)
        if not (_is_number(value) and math.isfinite(value)):
            raise unfit(name, "a finite number", value)


def counts(config: Any, *names: str) -> None:
    """Reject settings other than whole numbers of at least 1; store ``1e5`` as an int."""
    for name in names:
        number = whole_number(name, without_fraction(getattr(config, name)), 1)
        object.__setattr__(config, name, number)  # the dataclasses are frozen


def shares(config: Any, *names: str) -> None:
    """Reject settings outside [0, 1]."""
    for name in names:
        value = getattr(config, name)
        if not _is_number(value):
            raise unfit(name, "a number in [0, 1]", value)
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"{name} is {value}; it must lie in [0, 1]")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def flags(config: Any) -> None:
    """Reject boolean settings with values other than True and False."""
    for field in fields(config):
        if isinstance(field.default, bool):
            check_flag(field.name, getattr(config, field.name))


def known_network(config: Any) -> None:
    """Reject invalid hidden layers, activations and networks for images."""
    sizes = config.hidden_sizes
    is_tuple = isinstance(sizes, (tuple, list))
    if sizes is not None and not (is_tuple and all(type(n) is int and n > 0 for n in sizes)):
        raise unfit("hidden_sizes", "a tuple of widths, such as (64, 64)", sizes)
    check_choice("activation", config.activation, ("tanh", "relu"))
    check_choice("image_encoder", config.image_encoder, ("nature", "impala"))


def known_memory(config: Any) -> None:
    """Reject unknown kinds of recurrent layers, and ``compile`` with recurrent layers."""
    check_choice("recurrent", config.recurrent, ("none", "gru", "lstm"))
    if config.recurrent != "none" and config.compile:
        raise ConfigError(
            f"compile does not support recurrent networks; use compile=False with recurrent="
            f"{config.recurrent!r}"
        )


def known_interval(config: Any) -> None:
    """Reject a ``noise_interval`` that is neither -1 nor a number of steps."""
    if config.noise_interval != -1:
        whole_number("noise_interval", config.noise_interval, 1)


def noise_settings(config: Any) -> dict[str, Any]:
    """Return the arguments of `rookery.policy.make_policy` that concern exploration noise."""
    interval = getattr(config, "noise_interval", -1)
    return {
        "initial_log_std": getattr(config, "initial_log_std", 0.0),
        "state_dependent_noise": getattr(config, "state_dependent_noise", False),
        "noise_interval": config.num_steps if interval == -1 else interval,
    }


def known_device(config: Any) -> None:
    """Reject names that are not devices of torch."""
    device = config.device
    if isinstance(device, str) and re.fullmatch(r"cpu|cuda(:\d+)?|mps", device):
        return
    meant = "cuda" if device in ("gpu", "GPU", "nvidia") else str(device)
    hint = did_you_mean(meant, ("cuda", "mps"))
    known = "'cpu', 'cuda', 'cuda:N' or 'mps'"
    raise ConfigError(f"device is {device!r}; it must be {known}{hint and '; ' + hint}")
