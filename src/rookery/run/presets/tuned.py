"""tuned.json: how a run's envs are to be run, as `rookery tune` has measured it, and its use."""

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
from rookery.common.cpus import usable_cpus
from rookery.common.env_errors import in_words
from rookery.errors import ConfigError
from rookery.run.checkpoint.run_dir import whole_file
from rookery.run.settings import TrainSettings

FORMAT = 1
# What is measured together: where envs run and where the policy acts.
PLACE = ("collector", "backend", "num_workers", "caller_steps")
SETTINGS = ("num_envs", *PLACE, "scale_hyperparameters")
_WAY_OUT = "make the folder writable, make room, or choose another --output"
_MEMORY_TOLERANCE = 0.1  # of a machine's memory: another kernel shows a little less of it


@dataclass(frozen=True)
class Tuned:
    """What a search for a run's parallelism has found.

    Attributes:
        settings: of `TrainSettings`, those that were searched for.
        algo: name of the algorithm whose policy acted.
        env: what its source's ``to_dict`` says.
        machine: what `describe_machine` says.
        versions: of what was measured with, by name.
        figures: what was measured, for readers; nothing is done with it.
        interrupted: whether the search was broken off.
    """

    settings: Mapping[str, Any]
    algo: str
    env: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON data."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"rookery_tuned": FORMAT, **own}

    @classmethod
    def from_dict(cls, values: Any, where: str) -> Tuned:
        """Undo `to_dict`.

        Args:
            values: what JSON gave.
            where: the file's name, for messages.

        Raises:
            ConfigError: it is not what ``rookery tune`` writes.
        """
        if not isinstance(values, dict) or "rookery_tuned" not in values:
            raise ConfigError(f"{where} is not a file that rookery tune wrote: {in_words(values)}")
        if values["rookery_tuned"] != FORMAT:
            raise ConfigError(
                f"{where} has format {values['rookery_tuned']!r}, and this version reads format "
                f"{FORMAT}; write it again with rookery tune"
            )
        own = {name: value for name, value in values.items() if name != "rookery_tuned"}
        try:
            known_names([each.name for each in fields(cls)], own, f"parts of {where}")
            tuned = cls(**own)
        except TypeError as error:
            raise ConfigError(f"{where} is not whole: {error}") from error
        tuned._check(where)
        return tuned

    def _check(self, where: str) -> None:
        """Complain of what no run could be told.

        Raises:
            ConfigError: for the first.
        """
        for name in ("settings", "env", "machine", "versions", "figures"):
            if not isinstance(getattr(self, name), dict):
                raise ConfigError(f"{where}: {name} must be a JSON object")
        try:
            known_names(SETTINGS, self.settings, f"settings of {where}")
            settings = TrainSettings.from_dict(self.settings, "settings of a run")
        except (ConfigError, TypeError) as error:
            raise ConfigError(f"{where} cannot be used: {error}") from error
        workers = settings.num_workers
        if workers is not None and (type(workers) is not int or workers < 1):
            raise ConfigError(f"{where}: num_workers is {workers!r}; it must be 1 or more, or null")
        if settings.backend not in ("auto", "serial", "process", "native"):
            raise ConfigError(f"{where}: there is no backend {settings.backend!r} to train with")
        if settings.caller_steps not in (None, True, False):
            raise ConfigError(f"{where}: caller_steps is {settings.caller_steps!r}, no flag")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tuned:
        """Read a file.

        Raises:
            ConfigError: it is not there, or is not what ``rookery tune`` writes.
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
                f"{where} is no JSON: {error}; write it again with rookery tune"
            ) from (error)
        return cls.from_dict(values, where)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a file, whole or not at all.

        Raises:
            StorageError: it cannot be written; what was there before is as it was.
        """
        with whole_file(Path(path), has_one_writer=False, way_out=_WAY_OUT) as file:
            file.write((json.dumps(self.to_dict(), indent=2) + "\n").encode())


def applied(
    tuned: Tuned, where: str, given: Mapping[str, Any], algo: str, env: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """What of a tuned file counts in a run, and what to say about it.

    Args:
        tuned: what was found.
        where: the file's name.
        given: the settings that the user has said; they win.
        algo: name of the run's algorithm.
        env: what the run's source says of itself, see `EnvSource.to_dict`.

    Returns:
        The settings to take, and one line for each thing that the user should know: first what is
        applied.
    """
    settings = {name: value for name, value in tuned.settings.items() if name not in given}
    lines = []
    reason = _other_place(tuned.settings, given)
    if reason:
        settings = {name: value for name, value in settings.items() if name not in PLACE}
    told = ", ".join(
        f"{name} {_shown(value)}" for name, value in settings.items() if value is not None
    )
    kept = [name for name in tuned.settings if name in given]
    notes = [f"given and kept: {', '.join(kept)}"] * bool(kept)
    notes += [f"{reason}, so that the rest of where envs run is left out"] * bool(reason)
    notes += ["the search was interrupted"] * tuned.interrupted
    beside = f" ({'; '.join(notes)})" if notes else ""
    lines.append(f"tuned by {where}: {told or 'nothing is applied'}{beside}")
    lines += [f"{where} was tuned {what}" for what in _differences(tuned, algo, env)]
    return settings, lines


def _other_place(tuned: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Why what was measured together cannot be taken, in words; empty if it can."""
    for name in ("collector", "backend", "caller_steps"):
        if name in given and given[name] != tuned.get(name):
            return f"{name} {_shown(given[name])} was given"
    faults = ("isolate", "step_timeout_s", "reset_timeout_s", "max_worker_rss_mb")
    needs = [name for name in faults if given.get(name)]
    needs += ["on_fault"] * (given.get("on_fault") == "restart")
    if needs and tuned.get("backend") in ("serial", "native") and not tuned.get("num_workers"):
        return f"{needs[0]} was given, which needs worker processes"
    if given.get("isolate"):
        return "isolate was given"
    return ""


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _differences(tuned: Tuned, algo: str, env: Mapping[str, Any]) -> list[str]:
    """In what a run differs from what was measured, in words."""
    found = []
    if tuned.algo != algo:
        found.append(f"for {tuned.algo}, and this run is of {algo}")
    before, now = tuned.env.get("env"), env.get("env")
    if before != now:
        found.append(f"for the env {_named(before)}, and this run is of {_named(now)}")
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
    """What speed depends on, of the machine at hand, as JSON data."""
    return {
        "processor": _processor(),
        "cpus": usable_cpus(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "system": platform.system(),
    }


def is_same_machine(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two descriptions can be of one machine, or of two that are alike."""
    if any(one.get(name) != other.get(name) for name in ("processor", "cpus", "system")):
        return False
    sizes = [float(each.get("memory_bytes") or 0) for each in (one, other)]
    return abs(sizes[0] - sizes[1]) <= _MEMORY_TOLERANCE * max(sizes)


def _machine(machine: Mapping[str, Any]) -> str:
    memory = float(machine.get("memory_bytes") or 0) / 2**30
    return f"{machine.get('cpus')} CPUs, {machine.get('processor')}, {memory:.0f} GB"


def _processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
