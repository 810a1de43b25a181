"""What a search may choose: for each setting a range or some choices, as data.

Every algorithm has a file in ``spaces/``. One of the user's own, in the same form, changes it:

    {
      "learning_rate": {"low": 1e-4, "high": 1e-2, "log": true},
      "hidden_sizes": {"choices": [[64, 64], [256, 256]]},
      "gamma": 0.99
    }

A value that is no range and no choice is fixed: it is the same in every trial.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeGuard

from rookery.common.arguments import known_names, not_a_choice
from rookery.errors import ConfigError
from rookery.run.algorithms import BUILT_IN
from rookery.run.settings import TrainSettings, is_number

_FOLDER = Path(__file__).parent / "spaces"
_PARTS = ("low", "high", "log", "choices")
# Settings of a run that the search, or its command, decides itself.
_RESERVED = {
    "preset", "total_steps", "seed", "run_dir", "overwrite", "env_module", "eval_every",
    "eval_episodes", "stop_at", "checkpoint_every", "checkpoint_interval_s", "video_every",
}  # fmt: skip


@dataclass(frozen=True)
class Dimension:
    """One setting of which a search may choose the value.

    Attributes:
        name: of the setting.
        low: the smallest value of a range.
        high: the largest.
        log: whether its logarithm is drawn evenly, instead of itself.
        whole: whether only whole numbers can be.
        choices: all values, where it is no range; None where it is.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] | None = None

    def to_stored(self, value: Any) -> Any:
        """A value as a study stores it: lists as text. That of a range is moved into it.

        Raises:
            ValueError: it is none of the choices.
        """
        if self.choices is not None:
            value = list(value) if isinstance(value, tuple) else value
            return _stored(self.choices[self.choices.index(value)])
        if not is_number(value):
            raise ValueError(f"{value!r} is no number")
        return min(max(value, self.low), self.high)

    def from_stored(self, stored: Any) -> Any:
        """Undo `to_stored`."""
        if self.choices is None:
            return stored
        return next(choice for choice in self.choices if _stored(choice) == stored)

    def stored_choices(self) -> list[Any]:
        """All choices as a study stores them."""
        return [_stored(choice) for choice in self.choices or ()]

    def to_dict(self) -> dict[str, Any]:
        """As in a file."""
        if self.choices is not None:
            return {"choices": list(self.choices)}
        return {"low": self.low, "high": self.high, **({"log": True} if self.log else {})}


@dataclass(frozen=True)
class SearchSpace:
    """All settings of which a search chooses the values, and those that it leaves as they are.

    Attributes:
        dimensions: the first, in the order of the file.
        fixed: the second, by name; those of the algorithm and those of the run.
    """

    dimensions: tuple[Dimension, ...]
    fixed: Mapping[str, Any]

    @classmethod
    def of(cls, algo: str, changes: Mapping[str, Any] | None = None) -> SearchSpace:
        """The space of an algorithm, with what a user changes.

        Args:
            algo: name of the algorithm.
            changes: by name of a setting a range, choices, or the one value to have.

        Raises:
            ConfigError: there is no such algorithm or setting, or one has a range that cannot be.
        """
        if algo not in BUILT_IN:
            raise not_a_choice("algo", algo, BUILT_IN)
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
        """As in a file."""
        return {**{each.name: each.to_dict() for each in self.dimensions}, **self.fixed}

    def values(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a trial, those that are fixed included."""
        chosen = {d.name: d.from_stored(stored[d.name]) for d in self.dimensions}
        return {**self.fixed, **chosen}

    def stored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of some values that the space has, as a study stores them."""
        found = {}
        for dimension in self.dimensions:
            try:
                found[dimension.name] = dimension.to_stored(values[dimension.name])
            except (KeyError, ValueError):  # it is left to the search
                continue
        return found


def read_changes(file: str) -> dict[str, Any]:
    """Read a file of ``--space``.

    Raises:
        ConfigError: it cannot be read, or is no JSON object.
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
    """Settings apart: those of the run, and those of the algorithm."""
    own = {field.name for field in fields(BUILT_IN[algo][0])}  # type: ignore[arg-type]
    run = {name: value for name, value in values.items() if name not in own}
    return run, {name: value for name, value in values.items() if name in own}


def _defaults(algo: str) -> dict[str, Any]:
    """Every setting that a space may have, with its default."""
    of_a_run = {f.name: f.default for f in fields(TrainSettings) if f.name not in _RESERVED}
    own = {f.name: f.default for f in fields(BUILT_IN[algo][0])}  # type: ignore[arg-type]
    return {**of_a_run, **own}


def _dimension(name: str, written: Mapping[str, Any], default: Any) -> Dimension:
    """Read what a file says of one setting.

    Raises:
        ConfigError: it cannot be.
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
