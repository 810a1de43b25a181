"""Runs as their folders tell of them, for pictures: settings, metrics and evaluations."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.errors import ConfigError
from rookery.report.figures import Series
from rookery.report.run_figures import series_of
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.log.evaluation_log import evaluations_in
from rookery.run.log.jsonl import read_rows


@dataclass(frozen=True)
class RecordedRun:
    """What the folder of a run holds.

    Attributes:
        path: the folder.
        env: a short name of the env.
        settings: of the run, its algorithm and its envs, by name; those within a mapping as
            ``env_kwargs.size``.
        rows: the lines of metrics.jsonl.
        evaluations: env step, mean return and standard deviation of each.
    """

    path: Path
    env: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    evaluations: list[tuple[int, float, float]]

    @property
    def metrics(self) -> set[str]:
        """The names of its metrics."""
        return set().union(*self.rows) - {"step"}

    def telemetry(self) -> list[dict[str, Any]]:
        """The lines of telemetry.jsonl that are whole; none where the run has written none.

        Each is cumulative from the start of the run, or from where it was gone on with, when
        ``seconds`` goes on and the counts begin anew; docs/telemetry.md says what it holds.

        Raises:
            ConfigError: a line before the last is no JSON object.
        """
        path = RunDirectory(self.path).telemetry
        return read_rows(path) if path.is_file() else []

    def series(self, metric: str, over: str) -> Series:
        """One metric over another, without values that are not finite.

        Args:
            metric: what is looked at.
            over: ``"step"``, or a metric that grows as the run goes on, such as ``"seconds"``.

        Returns:
            float64 ``[N]`` of ``over``, increasing, and of ``metric``; of two at one place, the
            last.
        """
        return series_of(self.rows, metric, over)

    def places(self, steps: list[int], over: str) -> npt.NDArray[np.float64]:
        """Where env steps lie on the axis of ``over``, between those that lines tell of."""
        if over == "step":
            return np.array(steps, np.float64)
        known, values = self.series(over, "step")
        return np.interp(steps, known, values) if len(known) else np.full(len(steps), np.nan)


def read_run(path: str | Path) -> RecordedRun:
    """Read a run, which may still be under way.

    Raises:
        ConfigError: there is no run, or none that has written a line of metrics yet; or a file of
            it cannot be understood.
    """
    try:
        return _read(Path(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def _read(path: Path) -> RecordedRun:
    folder = folder_of_run(path)
    env, settings = settings_of(folder)
    if not folder.metrics.is_file():
        raise ConfigError(f"{folder.metrics} is not there: {_NOTHING_YET}")
    rows = read_rows(folder.metrics)
    if not rows:
        raise ConfigError(f"{folder.metrics} holds no whole line: {_NOTHING_YET}")
    return RecordedRun(folder.path, env, settings, rows, _evaluations(folder, rows))


def folder_of_run(path: Path) -> RunDirectory:
    """Open the folder of a run.

    Raises:
        ConfigError: it is not there, or holds no run.
    """
    if not os.path.lexists(path):
        raise ConfigError(f"there is no folder {path}; give folders that rookery train has written")
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
    """Those that are kept, and those that only metrics tell of, as a user's callback logs them.

    Args:
        kept: those of evaluations.jsonl: env step, mean and standard deviation.
        logged: those of metrics.jsonl.
    """
    known = {(mean, std) for _, mean, std in kept}
    return sorted([*kept, *(each for each in logged if each[1:] not in known)])


_NOTHING_YET = "the run has not told of an update yet; wait until it has, or leave it out"


def _hint_at_runs_within(path: Path) -> None:
    """Say so if ``path`` is a folder of runs, as ``runs`` is, and no run itself."""
    if path.is_dir() and not RunDirectory(path).config.is_file():
        within = sorted(child.parent for child in path.glob("*/config.json"))
        if within:
            raise ConfigError(
                f"{path} is no run, but holds {len(within)}, such as {within[0]}; "
                f"name one of those, or all of them where several can be given: {path / '*'}"
            )


def settings_of(folder: RunDirectory) -> tuple[str, dict[str, Any]]:
    """Name of the env, and all settings, of config.json.

    Raises:
        ConfigError: it is not the configuration of a run.
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
    """Mappings within mappings as one, with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat({f"{name}.{inner}": each for inner, each in value.items()})
        elif value is not None:
            flat[name] = value
    return flat


def _env_name(env: Any) -> str:
    """What config.json calls an env: an id, a spec with an id in it, or a callable."""
    if isinstance(env, str):
        return env
    known = _mapping(env)
    try:
        spec = json.loads(known.get("spec") or "{}")
    except (TypeError, ValueError):
        spec = {}
    return str(_mapping(spec).get("id") or known.get("callable") or "env")
