"""Recorded runs: the data in the folder of a run, and groups of runs with equal settings."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.arguments import known_names
from rookery.errors import ConfigError
from rookery.report.figures import Series, series_of
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.log.jsonl import evaluations_in, read_rows

# Settings that may differ within a group. RecordedRun.settings does not contain versions.
_OF_ONE_RUN = {"seed", "run_dir", "overwrite"}


@dataclass(frozen=True)
class RecordedRun:
    """The data in the folder of a run.

    Attributes:
        path: folder of the run.
        env: short name of the env.
        settings: settings of the run, its algorithm and its envs, by name. Nested settings have
            dotted names such as ``env_kwargs.size``.
        rows: lines of metrics.jsonl.
        evaluations: env step, mean return and standard deviation of each evaluation.
    """

    path: Path
    env: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    evaluations: list[tuple[int, float, float]]

    @property
    def metrics(self) -> set[str]:
        """Names of all metrics in the rows."""
        return set().union(*self.rows) - {"step"}

    def telemetry(self) -> list[dict[str, Any]]:
        """Return the complete lines of telemetry.jsonl; empty if the file does not exist.

        Each line has totals since the start of the run. When a run is resumed, ``seconds``
        continues and the counts restart from 0. The fields are described in docs/telemetry.md.

        Raises:
            ConfigError: a line before the last one is not a JSON object.
        """
        path = RunDirectory(self.path).telemetry
        return read_rows(path) if path.is_file() else []

    def series(self, metric: str, over: str) -> Series:
        """Return one metric over another, without values that are not finite.

        Args:
            metric: name of the metric.
            over: ``"step"``, or a metric that grows during the run, such as ``"seconds"``.

        Returns:
            Float64 arrays ``[N]``: increasing values of ``over``, and values of ``metric``. If
            several values have the same ``over``, the last one is kept.
        """
        return series_of(self.rows, metric, over)

    def places(self, steps: list[int], over: str) -> npt.NDArray[np.float64]:
        """Return the interpolated value of ``over`` at each env step, float64 ``[N]``."""
        if over == "step":
            return np.array(steps, np.float64)
        known, values = self.series(over, "step")
        return np.interp(steps, known, values) if len(known) else np.full(len(steps), np.nan)


def read_run(path: str | Path) -> RecordedRun:
    """Read a run, which may still be training.

    Raises:
        ConfigError: the folder contains no run, the run has no metrics yet, or a file is invalid.
    """
    try:
        return _read(Path(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def _read(path: Path) -> RecordedRun:
    folder = folder_of_run(path)
    env, settings = settings_of(folder)
    if not folder.metrics.is_file():
        raise ConfigError(f"{folder.metrics} does not exist: {_NOTHING_YET}")
    rows = read_rows(folder.metrics)
    if not rows:
        raise ConfigError(f"{folder.metrics} has no complete line: {_NOTHING_YET}")
    return RecordedRun(folder.path, env, settings, rows, _evaluations(folder, rows))


def folder_of_run(path: Path) -> RunDirectory:
    """Open the folder of a run.

    Raises:
        ConfigError: the folder does not exist, or contains no run.
    """
    if not os.path.lexists(path):
        raise ConfigError(f"folder {path} does not exist; give the folder of a run")
    _hint_at_runs_within(path)
    return RunDirectory.existing(path)


def _evaluations(
    folder: RunDirectory, rows: list[dict[str, Any]]
) -> list[tuple[int, float, float]]:
    kept = read_rows(folder.evaluations) if folder.evaluations.is_file() else []
    return all_evaluations(evaluations_in(kept), evaluations_in(rows))


def all_evaluations(
    kept: list[tuple[int, float, float]], logged: list[tuple[int, float, float]]
) -> list[tuple[int, float, float]]:
    """Return all evaluations, sorted by env step.

    Only metrics.jsonl has the evaluations that a user's callback logs.

    Args:
        kept: env step, mean and standard deviation of each evaluation in evaluations.jsonl.
        logged: env step, mean and standard deviation of each evaluation in metrics.jsonl.
    """
    known = {(mean, std) for _, mean, std in kept}
    return sorted([*kept, *(each for each in logged if each[1:] not in known)])


_NOTHING_YET = "the run has not logged an update yet; wait until it has, or leave it out"


def _hint_at_runs_within(path: Path) -> None:
    """Raise if ``path`` is a folder of runs instead of a run."""
    if path.is_dir() and not RunDirectory(path).config.is_file():
        within = sorted(child.parent for child in path.glob("*/config.json"))
        if within:
            raise ConfigError(
                f"{path} is not a run, but contains {len(within)}, such as {within[0]}; "
                f"give one of these, or, if the command takes several, all of them: {path / '*'}"
            )


def settings_of(folder: RunDirectory) -> tuple[str, dict[str, Any]]:
    """Return the name of the env and all settings in config.json.

    Raises:
        ConfigError: the file is not the configuration of a run.
    """
    config = folder.read_config()
    algo, train, source = (config.get(name) for name in ("algo", "train", "source"))
    if not (isinstance(algo, str) and isinstance(train, dict) and isinstance(source, dict)):
        raise ConfigError(
            f"{folder.config} is not the configuration of a run: algo, train or source is missing"
        )
    env = _env_name(source.get("env"))
    parts = {"env_kwargs": source.get("env_kwargs"), "eval_env": config.get("eval_source")}
    own = config.get("own")
    settings = {
        "env": env,
        "algo": algo,
        **_mapping(config.get(algo)),
        **{name: value for name, value in _mapping(own).items() if value is not None},
        "wrappers": source.get("wrappers"),
        **_flat(parts),
        **train,
        "run_dir": str(folder.path),
    }
    if not isinstance(source.get("env"), str):
        settings["env_spec"] = source.get("env")
    return env, settings


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested mappings as one mapping with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat({f"{name}.{inner}": each for inner, each in value.items()})
        elif value is not None:
            flat[name] = value
    return flat


def _env_name(env: Any) -> str:
    """Return a short name for an env id, a spec or a callable in config.json."""
    if isinstance(env, str):
        return env
    known = _mapping(env)
    try:
        spec = json.loads(known.get("spec") or "{}")
    except (TypeError, ValueError):
        spec = {}
    return str(_mapping(spec).get("id") or known.get("callable") or "env")


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
        key = settings.get("env"), settings.get("algo")
        others = (each[0] for each in groups)
        firsts = [e for e in others if (e.settings.get("env"), e.settings.get("algo")) == key]
        names = ["algo", *_differing(firsts)]
    words = [
        word_of(settings.get(name)) if name == "algo" else f"{name}={word_of(settings.get(name))}"
        for name in names
    ]
    is_seeds = len({_key(run) for run in group}) == 1
    is_seeds = is_seeds and len({word_of(run.settings.get("seed")) for run in group}) == len(group)
    kind = "seed" if is_seeds else "run"
    return f"{' '.join(words)} ({len(group)} {kind}{'s' if len(group) > 1 else ''})"


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
