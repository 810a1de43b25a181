"""Presets out of files of one's own, which are written as those of this folder are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from rookery.common.arguments import did_you_mean, known_names
from rookery.errors import ConfigError
from rookery.run.presets import Preset, is_file, matching
from rookery.run.settings import TrainSettings

_OF_FILE = ("algo", "env", "file", "changes")  # not written in a preset itself
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "source": ((str,), "text"),
    "expected": ((int, float, type(None)), "a number or null"),
    "expected_std": ((int, float, type(None)), "a number or null"),
    "reached": ((int, float, type(None)), "a number or null"),
    "note": ((str,), "text"),
    "run": ((dict,), "an object of settings"),
    "settings": ((dict,), "an object of settings"),
}


def read_preset(algo: str, env: Any, file: str) -> Preset:
    """Read the preset for an env from a file; the only one in it stands for every env.

    Args:
        algo: name of the algorithm.
        env: id of the env, or its spec.
        file: a JSON object from env ids to presets, as rookery's own files are.

    Raises:
        ConfigError: the file cannot be read, holds no presets, none for this env, or one whose
            settings the algorithm does not have.
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
            f"preset file {file} has none for {env_id}; {hint and hint + ' '}it has "
            f"{', '.join(entries)}"
        )
    return found


def preset_of_run(algo: str, env: Any, name: str) -> Preset | None:
    """The preset that a run names; None where its file is no more, or says something else."""
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
            f"the preset file {file} must hold an object from env ids to presets, such as "
            '{"CartPole-v1": {"source": "...", "run": {...}, "settings": {...}}}, not '
            f"{json.dumps(written)[:60]}"
        )
    return written


def _preset(algo: str, env: str, entry: Any, file: str) -> Preset:
    """Check one entry of a file, its settings included."""
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
        preset.config  # noqa: B018 - complains of what the algorithm does not have
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error
    return preset


def _check_run(preset: Preset) -> None:
    """Refuse settings of a run that it does not have, and let no preset name another one."""
    TrainSettings.from_dict(preset.run, "settings of a run")
    for name in ("preset", "run_dir", "overwrite"):
        if name in preset.run:
            raise ConfigError(f"{name} is for the user to say, and no part of a preset")
