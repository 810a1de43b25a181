"""Presets: settings of an algorithm for an env, or for a family of envs.

There is one data file per algorithm in this folder. Each preset names the source of its settings,
the mean return that was published for them, and the mean return that they reached with this
library. ``reached`` is null where the preset was never run here; docs/results.md lists these.
Settings that a preset does not contain keep their defaults, and settings of the user win. A user's
file of presets has the same form as the files in this folder.

The plan of a run and the command line import this package. Start reading at `find_preset`.

The RL Zoo counts the target updates of DQN and QR-DQN in env steps, and ``target_interval`` counts
them in gradient steps. Stable-Baselines3 trains ``gradient_steps`` times after every ``train_freq``
env steps. Between two trainings the weights do not change, so several target updates in that time
have the effect of one. With one env, the mean number of gradient steps between two effective
updates is::

    max(target_update_interval, train_freq) * gradient_steps / train_freq

``gradient_steps=-1`` stands for ``train_freq``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from rookery.common.arguments import did_you_mean, known_names, not_a_choice
from rookery.errors import ConfigError
from rookery.learn.config_base import Config
from rookery.run.algorithms import BUILT_IN
from rookery.run.env_source import import_module
from rookery.run.families import family_of
from rookery.run.settings import TrainSettings

NONE, AUTO = "none", "auto"
_FAMILY = "family: "
_OF_FILE = ("algo", "env", "file", "changes")  # fields that are not in a file
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "source": ((str,), "text"),
    "expected": ((int, float, type(None)), "a number or null"),
    "expected_std": ((int, float, type(None)), "a number or null"),
    "reached": ((int, float, type(None)), "a number or null"),
    "note": ((str,), "text"),
    "run": ((dict,), "an object of settings"),
    "settings": ((dict,), "an object of settings"),
}


@dataclass(frozen=True)
class Preset:
    """Settings for one algorithm on one env, or on the envs of a family.

    Attributes:
        algo: name of the algorithm.
        env: id of the env, or ``"family: name"``.
        source: origin of the settings.
        expected: published mean return in evaluation; None if there is none.
        expected_std: published standard deviation of the returns of single episodes.
        reached: mean return with this library, see docs/results.md; None if it was never run.
        note: differences from the settings of the source; empty if there are none.
        run: settings of the run, by name.
        settings: settings of the algorithm, by name.
        changes: settings of the algorithm that the user gives; they replace those of the preset.
        file: path of the user's file that contains the preset; empty for presets of this folder.
    """

    algo: str
    env: str
    source: str
    expected: float | None = None
    expected_std: float | None = None
    reached: float | None = None
    note: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""

    @property
    def name(self) -> str:
        """Name in config.json: the path of the file, or for example ``"ppo/CartPole-v1"``."""
        return self.file or f"{self.algo}/{self.env}"

    @property
    def config(self) -> Config:
        """Settings of the algorithm: of the user, else of the preset, else the defaults."""
        return BUILT_IN[self.algo][0].from_dict({**self.settings, **self.changes})

    def fit(self, config: Config, num_envs: int) -> Config:
        """Reduce the preset's minibatch size to the rollout, unless the user has set it."""
        is_ours = "minibatch_size" in self.settings and "minibatch_size" not in self.changes
        rows = config.num_steps * num_envs
        if not is_ours or getattr(config, "minibatch_size", rows) <= rows:
            return config
        return replace(config, minibatch_size=rows)  # type: ignore[type-var]

    def __str__(self) -> str:
        is_untried = self.reached is None and not self.env.startswith(_FAMILY)
        notes = [self.note] * bool(self.note) + ["not tried with this library"] * is_untried
        return f"preset {self.name} ({'; '.join([self.source, *notes])})"


def find_preset(
    algo: str, env: Any, choice: str = AUTO, env_module: str | None = None
) -> Preset | None:
    """Find the preset of an algorithm for an env.

    Args:
        algo: name of the algorithm, such as ``"ppo"``.
        env: id of the env, which may begin with a module, or its spec. Without a preset for the
            env, that of another version of the env is used, or else that of its family.
        choice: ``"auto"``, ``"none"``, the env or family whose preset is used, or the path of a
            file that ends in ``.json``, see `read_preset`.
        env_module: module that registers the env, imported first; None imports nothing.

    Returns:
        None if there is no preset, or ``choice`` is ``"none"``.

    Raises:
        ConfigError: the algorithm, module or chosen preset does not exist.
    """
    known = presets(algo)
    if choice == NONE:
        return None
    if env_module:
        import_module(env_module)
    if is_file(choice):
        return read_preset(algo, env, choice)
    if choice != AUTO:
        wanted = choice.removeprefix(f"{algo}/")
        found = known.get(wanted) or known.get(f"{_FAMILY}{wanted}")
        if found is None:
            raise not_a_choice("preset", wanted, (AUTO, NONE, *known))
        return found
    return matching(known, env)


def matching(known: Mapping[str, Preset], env: Any) -> Preset | None:
    """Return the preset for an env, for another version of it, or for its family."""
    env_id = (env if isinstance(env, str) else str(getattr(env, "id", ""))).rpartition(":")[2]
    if env_id in known:
        return known[env_id]
    name = _without_version(env_id)
    for found in known.values():
        if not found.env.startswith(_FAMILY) and _without_version(found.env) == name:
            return found
    family = family_of(env) if known else None
    return None if family is None else known.get(f"{_FAMILY}{family.name}")


def is_file(choice: str) -> bool:
    """Return True if ``choice`` is the path of a file of presets."""
    return choice.lower().endswith(".json")


@cache
def presets(algo: str) -> dict[str, Preset]:
    """Return all presets of an algorithm, by env id or ``"family: name"``.

    Raises:
        ConfigError: the algorithm does not exist.
    """
    if algo not in BUILT_IN:
        raise not_a_choice("algo", algo, BUILT_IN)
    path = Path(__file__).parent / f"{algo}.json"
    if not path.exists():
        return {}
    return {
        env: Preset(algo, env, **values)
        for env, values in json.loads(path.read_text(encoding="utf-8")).items()
    }


def _without_version(env_id: str) -> str:
    name, _, version = env_id.rpartition("-v")
    return name if version.isdigit() else env_id


def read_preset(algo: str, env: Any, file: str) -> Preset:
    """Read the preset for an env from a file.

    If the file has a single preset, it is used for every env.

    Args:
        algo: name of the algorithm.
        env: id of the env, or its spec.
        file: path of a JSON object that maps env ids to presets.

    Raises:
        ConfigError: the file cannot be read, has no preset for this env, or a preset is invalid.
    """
    written = _read(file)
    entries = {name: _preset(algo, name, entry, file) for name, entry in written.items()}
    found = matching(entries, env)
    if found is None and len(entries) == 1:
        (found,) = entries.values()
    if found is None:
        env_id = env if isinstance(env, str) else str(getattr(env, "id", "env"))
        hint = did_you_mean(env_id, entries)
        raise ConfigError(
            f"preset file {file} has no preset for {env_id}; {hint and hint + ' '}it has "
            f"{', '.join(entries)}"
        )
    return found


def preset_of_run(algo: str, env: Any, name: str) -> Preset | None:
    """Return the preset of a run from its file, or None if it cannot be read any more."""
    if not is_file(name):
        return None
    try:
        return read_preset(algo, env, name)
    except ConfigError:
        return None


def _read(file: str) -> Mapping[str, Any]:
    try:
        written = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read the preset file {file}: {error.strerror or error}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"the preset file {file} is not JSON: {error}") from error
    if not isinstance(written, dict) or not written:
        raise ConfigError(
            f"the preset file {file} must contain an object that maps env ids to presets, such as "
            '{"CartPole-v1": {"source": "...", "run": {...}, "settings": {...}}}, not '
            f"{json.dumps(written)[:60]}"
        )
    return written


def _preset(algo: str, env: str, entry: Any, file: str) -> Preset:
    """Check an entry of a file, and return it as a preset."""
    where = f"preset {env!r} in {file}"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} must be an object, not {json.dumps(entry)[:60]}")
    known = [field.name for field in fields(Preset) if field.name not in _OF_FILE]
    try:
        known_names(known, entry, "parts of a preset")
        for name, value in entry.items():
            kinds, wanted = _KINDS[name]
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise ConfigError(f"{name} must be {wanted}, not {json.dumps(value)[:60]}")
        preset = Preset(algo, env, **{"source": "a file", **entry}, file=file)
        _check_run(preset)
        preset.config  # noqa: B018 - checks the settings of the algorithm
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error
    return preset


def _check_run(preset: Preset) -> None:
    """Raise if a preset has unknown settings of a run, or settings that only a user may give."""
    TrainSettings.from_dict(preset.run, "settings of a run")
    for name in ("preset", "run_dir", "overwrite"):
        if name in preset.run:
            raise ConfigError(f"{name} cannot be part of a preset; only the user can set it")
