"""The file tuned.json: settings of the parallelism that `rookery tune` found, and their use."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import psutil

from rookery.common.arguments import known_names
from rookery.common.cpus import processor_name, usable_cpus
from rookery.common.env_errors import in_words
from rookery.errors import ConfigError
from rookery.run.checkpoint.run_dir import whole_file
from rookery.run.settings import TrainSettings

FORMAT = 1
# Settings that are measured together: where the envs run and where the policy acts.
PLACE = ("collector", "backend", "num_workers", "caller_steps")
SETTINGS = ("num_envs", *PLACE, "scale_hyperparameters")
_WAY_OUT = "make the folder writable, make room, or choose another --output"
_MEMORY_TOLERANCE = 0.1  # share of a machine's memory; another kernel reports slightly less


@dataclass(frozen=True)
class Tuned:
    """The result of a search for the best parallelism of a run.

    Attributes:
        settings: fields of `TrainSettings` that were searched, by name.
        algo: name of the algorithm.
        env: description of the env, see `EnvSource.to_dict`.
        machine: description of the machine, see `describe_machine`.
        versions: versions of the packages, by name.
        figures: measured values, for readers only.
        interrupted: True if the search was interrupted.
    """

    settings: Mapping[str, Any]
    algo: str
    env: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON data."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"rookery_tuned": FORMAT, **parts}

    @classmethod
    def from_dict(cls, values: Any, where: str) -> Tuned:
        """Undo `to_dict`.

        Args:
            values: data of the file.
            where: path of the file, for error messages.

        Raises:
            ConfigError: the data is not that of a file of ``rookery tune``.
        """
        if not isinstance(values, dict) or "rookery_tuned" not in values:
            raise ConfigError(f"{where} is not a file that rookery tune wrote: {in_words(values)}")
        if values["rookery_tuned"] != FORMAT:
            raise ConfigError(
                f"{where} has format {values['rookery_tuned']!r}; this version reads format "
                f"{FORMAT}; write it again with rookery tune"
            )
        parts = {name: value for name, value in values.items() if name != "rookery_tuned"}
        try:
            known_names([each.name for each in fields(cls)], parts, f"parts of {where}")
            tuned = cls(**parts)
        except TypeError as error:
            raise ConfigError(f"{where} is incomplete: {error}") from error
        try:
            known_names(SETTINGS, tuned.settings, f"settings of {where}")
            TrainSettings.from_dict(tuned.settings, "settings of a run")
        except (ConfigError, TypeError) as error:
            raise ConfigError(f"{where} cannot be used: {error}") from error
        return tuned

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tuned:
        """Read a file.

        Raises:
            ConfigError: the file does not exist, or was not written by ``rookery tune``.
        """
        where = str(path)
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"cannot read {where}: {error.strerror or error}; rookery tune writes it"
            ) from error
        except ValueError as error:
            raise ConfigError(
                f"{where} is not JSON: {error}; write it again with rookery tune"
            ) from (error)
        return cls.from_dict(values, where)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file; if this fails, the previous file is kept.

        Raises:
            StorageError: the file cannot be written.
        """
        with whole_file(Path(path), has_one_writer=False, way_out=_WAY_OUT) as file:
            file.write((json.dumps(self.to_dict(), indent=2) + "\n").encode())


def applied(
    tuned: Tuned, where: str, given: Mapping[str, Any], algo: str, env: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of a tuned file that apply to a run, and lines to print about them.

    Args:
        tuned: content of the file.
        where: path of the file.
        given: settings that the user has given, which are not changed.
        algo: name of the run's algorithm.
        env: description of the run's env, see `EnvSource.to_dict`.

    Returns:
        The settings to apply, and lines to print. The first line lists the applied settings, the
        others differences between the run and the search.
    """
    settings = {name: value for name, value in tuned.settings.items() if name not in given}
    lines = []
    reason = _conflict(tuned.settings, given)
    if reason:
        settings = {name: value for name, value in settings.items() if name not in PLACE}
    applied_text = ", ".join(
        f"{name} {_text(value)}" for name, value in settings.items() if value is not None
    )
    kept = [name for name in tuned.settings if name in given]
    notes = [f"given and kept: {', '.join(kept)}"] * bool(kept)
    notes += [f"{reason}, so {', '.join(PLACE)} of the file are ignored"] * bool(reason)
    notes += ["the search was interrupted"] * tuned.interrupted
    beside = f" ({'; '.join(notes)})" if notes else ""
    lines.append(f"tuned by {where}: {applied_text or 'no setting applies'}{beside}")
    lines += [f"{where} was tuned {what}" for what in _differences(tuned, algo, env)]
    return settings, lines


def _conflict(tuned: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return the reason why the settings in ``PLACE`` cannot be applied; empty if they can."""
    for name in ("collector", "backend", "caller_steps"):
        if name in given and given[name] != tuned.get(name):
            return f"{name} {_text(given[name])} was given"
    faults = ("isolate", "step_timeout_s", "reset_timeout_s", "max_worker_rss_mb")
    needs = [name for name in faults if given.get(name)]
    needs += ["on_fault"] * (given.get("on_fault") == "restart")
    if needs and tuned.get("backend") in ("serial", "native") and not tuned.get("num_workers"):
        return f"{needs[0]} was given, which needs worker processes"
    if given.get("isolate"):
        return "isolate was given"
    return ""


def _text(value: Any) -> str:
    if value is None:
        return "unset"
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _differences(tuned: Tuned, algo: str, env: Mapping[str, Any]) -> list[str]:
    """Describe the differences between a run and the search."""
    found = []
    if tuned.algo != algo:
        found.append(f"for {tuned.algo}, but this run trains {algo}")
    before, now = tuned.env.get("env"), env.get("env")
    if before != now:
        found.append(f"for the env {_named(before)}, but this run uses {_named(now)}")
    else:
        found += [
            f"with other {name} of the env ({tuned.env[name]!r})"
            for name in ("env_kwargs", "wrappers", "preprocess", "frame_stack")
            if name in tuned.env and tuned.env[name] != env.get(name)
        ]
    machine = describe_machine()
    if not is_same_machine(tuned.machine, machine):
        found.append(f"on another machine ({_machine(tuned.machine)}; here {_machine(machine)})")
    return found


def _named(env: Any) -> str:
    return repr(env) if isinstance(env, str) else in_words(env)


def describe_machine() -> dict[str, Any]:
    """Describe the properties of this machine that determine the speed, as JSON data."""
    return {
        "processor": processor_name(),
        "cpus": usable_cpus(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "system": platform.system(),
    }


def is_same_machine(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if two descriptions belong to the same or to equal machines."""
    if any(one.get(name) != other.get(name) for name in ("processor", "cpus", "system")):
        return False
    sizes = [float(each.get("memory_bytes") or 0) for each in (one, other)]
    return abs(sizes[0] - sizes[1]) <= _MEMORY_TOLERANCE * max(sizes)


def _machine(machine: Mapping[str, Any]) -> str:
    memory = float(machine.get("memory_bytes") or 0) / 2**30
    return f"{machine.get('cpus')} CPUs, {machine.get('processor')}, {memory:.0f} GB"
