"""Groups of runs with equal settings, and their labels."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.common.arguments import known_names
from rookery.report.recorded import RecordedRun

# Settings that may differ within a group. RecordedRun.settings does not contain versions.
_OF_ONE_RUN = {"seed", "run_dir", "overwrite"}


@dataclass(frozen=True)
class RunGroup:
    """A group of runs that is drawn as one curve.

    Attributes:
        env: short name of the env.
        label: settings that distinguish this group from the others, and its number of runs.
        runs: the runs, in the order in which they were given.
    """

    env: str
    label: str
    runs: list[RecordedRun]

    def evaluations(self, over: str) -> list[tuple[float, float, float]]:
        """Return the evaluations of all runs, pooled by env step.

        Args:
            over: quantity on the x axis, ``"step"`` or ``"seconds"``.

        Returns:
            X, mean and standard deviation of the returns of all episodes, one entry per env step.
            All evaluations have the same weight.
        """
        at: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
        for run in self.runs:
            places = run.places([step for step, *_ in run.evaluations], over).tolist()
            for place, (step, mean, std) in zip(places, run.evaluations, strict=True):
                at[step].append((place, mean, std))
        pooled = []
        for _, points in sorted(at.items()):
            places, means, stds = np.array(points, np.float64).T
            spread = np.sqrt(np.mean(stds**2) + np.var(means))
            pooled.append((float(places.mean()), float(means.mean()), float(spread)))
        return pooled


def groups_of(runs: Sequence[RecordedRun], by: Sequence[str] = ()) -> list[RunGroup]:
    """Group runs on the same env.

    Args:
        runs: runs, whose order determines the order of the groups.
        by: names of settings. Runs with equal values of these form a group. If empty, runs that
            differ only in seed and folder form a group.

    Raises:
        ConfigError: no run has a setting of that name.
    """
    known_names(set().union(*(run.settings for run in runs)), by, "settings of these runs")
    together: dict[str, list[RecordedRun]] = defaultdict(list)
    for run in runs:
        together[_key(run, by)].append(run)
    groups = list(together.values())
    return [RunGroup(group[0].env, _label(group, groups, by), group) for group in groups]


def _key(run: RecordedRun, by: Sequence[str] = ()) -> str:
    names = by or sorted(run.settings.keys() - _OF_ONE_RUN)
    # A run of an older version may lack a setting; it is treated as unset.
    chosen = {name: run.settings.get(name) for name in names if run.settings.get(name) is not None}
    return json.dumps([run.env, chosen], sort_keys=True)


def _label(group: list[RecordedRun], groups: list[list[RecordedRun]], by: Sequence[str]) -> str:
    """Return the settings that distinguish a group, and its number of runs."""
    first = group[0]
    settings = first.settings
    if by:
        names = list(by)
    else:
        firsts = [each[0] for each in groups if _same(each[0], first, ("env", "algo"))]
        names = ["algo", *_differing(firsts)]
    words = [
        word_of(settings.get(name)) if name == "algo" else f"{name}={word_of(settings.get(name))}"
        for name in names
    ]
    is_seeds = len({_key(run) for run in group}) == 1
    is_seeds = is_seeds and len({word_of(run.settings.get("seed")) for run in group}) == len(group)
    kind = "seed" if is_seeds else "run"
    return f"{' '.join(words)} ({len(group)} {kind}{'s' if len(group) > 1 else ''})"


def _same(one: RecordedRun, other: RecordedRun, names: Sequence[str]) -> bool:
    return all(one.settings.get(name) == other.settings.get(name) for name in names)


def _differing(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the names of settings in which runs differ, in the order of config.json."""
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in _OF_ONE_RUN)
    return [name for name in names if len({word_of(run.settings.get(name)) for run in runs}) > 1]


def word_of(value: Any) -> str:
    """Return the value of a setting as text for legends and tables."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, list):
        return "[" + ",".join(map(word_of, value)) + "]"
    return str(value)
