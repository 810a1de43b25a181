"""Search spaces: a range or a list of choices for each setting.

Every algorithm has a file in ``spaces/``. A user can change it with a file of the same format:

    {
      "learning_rate": {"low": 1e-4, "high": 1e-2, "log": true},
      "hidden_sizes": {"choices": [[64, 64], [256, 256]]},
      "gamma": 0.99
    }

A plain value is fixed: it is the same in every trial.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeGuard

from rookery.common.arguments import known_names
from rookery.errors import ConfigError
from rookery.run.algorithms import BUILT_IN
from rookery.run.settings import TrainSettings, is_number

_FOLDER = Path(__file__).parent / "spaces"
_PARTS = ("low", "high", "log", "choices")
# Settings of a run that the search or its command determines.
_RESERVED = {
    "preset", "total_steps", "seed", "run_dir", "overwrite", "env_module", "eval_every",
    "eval_episodes", "stop_at", "checkpoint_every", "checkpoint_interval_s", "video_every",
}  # fmt: skip


@dataclass(frozen=True)
class Dimension:
    """A setting that is searched.

    Attributes:
        name: name of the setting.
        low: smallest value of a range.
        high: largest value of a range.
        log: True to sample on a logarithmic scale.
        whole: True for whole numbers.
        choices: all allowed values; None for a range.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] | None = None

    def to_stored(self, value: Any) -> Any:
        """Return a value as a study stores it: lists as text, numbers clipped to the range.

        Raises:
            ValueError: the value is not one of the choices, or not a number.
        """
        if self.choices is not None:
            value = list(value) if isinstance(value, tuple) else value
            return _stored(self.choices[self.choices.index(value)])
        if not is_number(value):
            raise ValueError(f"{value!r} is not a number")
        return min(max(value, self.low), self.high)

    def from_stored(self, stored: Any) -> Any:
        """Undo `to_stored`."""
        if self.choices is None:
            return stored
        return next(choice for choice in self.choices if _stored(choice) == stored)

    def stored_choices(self) -> list[Any]:
        """Return all choices as a study stores them."""
        return [_stored(choice) for choice in self.choices or ()]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a file."""
        if self.choices is not None:
            return {"choices": list(self.choices)}
        return {"low": self.low, "high": self.high, **({"log": True} if self.log else {})}


@dataclass(frozen=True)
class SearchSpace:
    """The searched settings and the fixed settings of an algorithm.

    Attributes:
        dimensions: searched settings, in the order of the file.
        fixed: values of the fixed settings of the algorithm and the run, by name.
    """

    dimensions: tuple[Dimension, ...]
    fixed: Mapping[str, Any]

    @classmethod
    def of(cls, algo: str, changes: Mapping[str, Any] | None = None) -> SearchSpace:
        """Return the space of an algorithm, with the changes of a user.

        Args:
            algo: name of the algorithm.
            changes: range, choices or fixed value of each changed setting, by name.

        Raises:
            ConfigError: a setting is unknown, or a range is invalid.
        """
        written = json.loads((_FOLDER / f"{algo}.json").read_text(encoding="utf-8"))
        return cls.from_dict(algo, {**written, **(changes or {})})

    @classmethod
    def from_dict(cls, algo: str, written: Mapping[str, Any]) -> SearchSpace:
        """Undo `to_dict`; raises as `of` does."""
        kinds = _defaults(algo)
        known_names(kinds, written, f"settings of {algo} or of a run")
        dimensions, fixed = [], {}
        for name, value in written.items():
            if isinstance(value, dict):
                dimensions.append(_dimension(name, value, kinds[name]))
            else:
                fixed[name] = value
        if not dimensions:
            raise ConfigError("the space has nothing to search: all its settings are fixed")
        return cls(tuple(dimensions), fixed)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a file."""
        return {**{each.name: each.to_dict() for each in self.dimensions}, **self.fixed}

    def values(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings of a trial, including the fixed ones."""
        chosen = {d.name: d.from_stored(stored[d.name]) for d in self.dimensions}
        return {**self.fixed, **chosen}

    def stored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that lie in the space, as a study stores them."""
        found = {}
        for dimension in self.dimensions:
            try:
                found[dimension.name] = dimension.to_stored(values[dimension.name])
            except (KeyError, ValueError):  # the search chooses a value
                continue
        return found


def read_changes(file: str) -> dict[str, Any]:
    """Read a file for ``--space``.

    Raises:
        ConfigError: the file cannot be read, or is not a JSON object.
    """
    try:
        written = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read --space {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"--space {file} is not JSON: {error}") from error
    if not isinstance(written, dict):
        raise ConfigError(
            f"--space {file} must hold an object from settings to ranges, such as "
            f'{{"gamma": {{"choices": [0.98, 0.99]}}}}, not {json.dumps(written)[:60]}'
        )
    return written


def of_run(algo: str, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split settings into those of the run and those of the algorithm."""
    own = {field.name for field in fields(BUILT_IN[algo][0])}  # type: ignore[arg-type]
    run = {name: value for name, value in values.items() if name not in own}
    return run, {name: value for name, value in values.items() if name in own}


def _defaults(algo: str) -> dict[str, Any]:
    """Return the default of every setting that a space may contain."""
    of_a_run = {f.name: f.default for f in fields(TrainSettings) if f.name not in _RESERVED}
    own = {f.name: f.default for f in fields(BUILT_IN[algo][0])}  # type: ignore[arg-type]
    return {**of_a_run, **own}


def _dimension(name: str, written: Mapping[str, Any], default: Any) -> Dimension:
    """Parse the entry of one setting.

    Raises:
        ConfigError: the entry is invalid.
    """
    known_names(_PARTS, written, f"parts of the range of {name}")
    if "choices" in written:
        choices = written["choices"]
        if set(written) != {"choices"} or not isinstance(choices, list) or not choices:
            raise ConfigError(f"{name}: choices must be a list of values, and stand alone")
        if len({json.dumps(choice) for choice in choices}) < len(choices):
            raise ConfigError(f"{name}: one of its choices {json.dumps(choices)} comes twice")
        return Dimension(name, choices=tuple(choices))
    if isinstance(default, (bool, str, tuple)) or name == "hidden_sizes":
        raise ConfigError(f"{name} has no range; give it choices, or one value")
    low, high, log = written.get("low"), written.get("high"), written.get("log", False)
    if not (_is_finite(low) and _is_finite(high)):
        raise ConfigError(f"{name}: low and high must be two numbers, got {json.dumps(written)}")
    if low >= high or not isinstance(log, bool) or (log and low <= 0):
        raise ConfigError(
            f"{name}: low must be less than high, and above 0 where log is true, got "
            f"{json.dumps(written)}"
        )
    whole = isinstance(default, int)
    if whole and (low != int(low) or high != int(high)):
        raise ConfigError(f"{name} is a whole number; so must be low and high of its range")
    return Dimension(name, int(low) if whole else low, int(high) if whole else high, log, whole)


def _is_finite(value: Any) -> TypeGuard[float]:
    return is_number(value) and math.isfinite(value)


def _stored(choice: Any) -> Any:
    return json.dumps(choice) if isinstance(choice, (list, dict)) else choice
