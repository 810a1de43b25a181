"""Presets: settings of an algorithm for an env, or for a family of envs.

There is one data file per algorithm in this folder. Each preset names the source of its settings,
the mean return that was published for them, and the mean return that they reached with this
library. ``reached`` is null where the preset was never run here; docs/results.md lists these.
Settings that a preset does not contain keep their defaults, and settings of the user win.

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
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from rookery.common.arguments import not_a_choice
from rookery.learn.config_base import Config
from rookery.run.algorithms import BUILT_IN
from rookery.run.env_source import import_module
from rookery.run.families import family_of

NONE, AUTO = "none", "auto"
_FAMILY = "family: "


@dataclass(frozen=True)
class Preset:
    """Settings for one algorithm on one env, or on the envs of a family.

    Attributes:
        algo: name of the algorithm.
        env: id of the env, or ``"family: name"``.
        source: where the settings are from.
        expected: the mean return in evaluation that was published for them; None if there is none.
        expected_std: the deviation that was published with it, of single episodes' returns.
        reached: the mean return that they reached here, see docs/results.md; None if nobody tried.
        note: how they differ from what the source has; empty if they do not.
        run: settings of the run, by name.
        settings: settings of the algorithm, by name.
        changes: those that a user gives, which win.
        file: the user's own file that it was read from; empty for those of this folder.
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
        """As config.json has it, such as ``"ppo/CartPole-v1"``; the path of its file, if any."""
        return self.file or f"{self.algo}/{self.env}"

    @property
    def config(self) -> Config:
        """The settings of the algorithm: those of the user, of the preset, else the defaults."""
        return BUILT_IN[self.algo][0].from_dict({**self.settings, **self.changes})

    def fit(self, config: Config, num_envs: int) -> Config:
        """Cut a minibatch to the rollout, if its size is the preset's and the rollout's is not."""
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
        env: id of the env, with or without a module before it, or its spec. An env whose name is
            known in another version has that version's preset; one without has its family's.
        choice: ``"auto"``; ``"none"``; the env, or the family, whose preset is meant; or the path
            of a file that ends in ``.json``, see `files`.
        env_module: module to import first, as it may register the env.

    Returns:
        None where there is none, or none is wanted.

    Raises:
        ConfigError: there is no such algorithm or module, or no preset of the name chosen.
    """
    known = presets(algo)
    if choice == NONE:
        return None
    if env_module:
        import_module(env_module)
    if is_file(choice):
        from rookery.run.presets.files import read_preset

        return read_preset(algo, env, choice)
    if choice != AUTO:
        wanted = choice.removeprefix(f"{algo}/")
        found = known.get(wanted) or known.get(f"{_FAMILY}{wanted}")
        if found is None:
            raise not_a_choice("preset", wanted, (AUTO, NONE, *known))
        return found
    return matching(known, env)


def matching(known: Mapping[str, Preset], env: Any) -> Preset | None:
    """The one of some presets that is for an env: its own, its name's, or its family's."""
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
    """Whether a preset is named by the path of a file."""
    return choice.lower().endswith(".json")


@cache
def presets(algo: str) -> dict[str, Preset]:
    """All presets of an algorithm, by env id, those of families as ``"family: name"``.

    Raises:
        ConfigError: there is no such algorithm.
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
