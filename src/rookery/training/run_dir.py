"""The folder of a run: its files, and which folder to take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rookery.errors import ConfigError

EVENTS = "events.out.tfevents.*"


class RunDirectory:
    """Paths of one run's files.

    Attributes:
        companions: folder of what only resuming reads: replay and envs' states. checkpoint.pt
            names the files that belong to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint.pt"
        self.curve = path / "curve.png"
        self.videos = path / "videos"
        self.companions = path / "resume"

    @classmethod
    def plan(cls, path: str | Path | None, name: str, overwrite: bool) -> RunDirectory:
        """Take ``path``, or a fresh folder under ``runs/`` named after ``name``. Changes nothing.

        Raises:
            ConfigError: ``path`` holds a run already, and ``overwrite`` is false.
        """
        run = cls(Path(path)) if path is not None else _fresh(name)
        if not overwrite and (run.config.exists() or run.checkpoint.exists()):
            raise ConfigError(
                f"{run.path} already holds a run; choose another run_dir, "
                "or overwrite=True (--overwrite) to replace it"
            )
        return run

    @classmethod
    def existing(cls, path: str | Path) -> RunDirectory:
        """Open the folder of a run.

        Raises:
            ConfigError: there is no run in it.
        """
        run = cls(Path(path))
        if not run.config.is_file():
            raise ConfigError(f"{run.path} holds no run: there is no {run.config.name} in it")
        return run

    def make(self) -> None:
        """Make the folder, without files of an earlier run."""
        files = [self.config, self.metrics, self.checkpoint, self.curve]
        companions, videos = self.companions.glob("*"), self.videos.glob("*.mp4")
        for file in [*files, *companions, *videos, *self.path.glob(EVENTS)]:
            file.unlink(missing_ok=True)
        try:
            self.companions.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the run directory {self.path}: {error}") from error

    def write_config(self, config: dict[str, Any]) -> None:
        """Write config.json."""
        temporary = self.config.with_name("config.json.tmp")
        temporary.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        temporary.replace(self.config)

    def read_config(self) -> dict[str, Any]:
        """Read config.json."""
        try:
            config: dict[str, Any] = json.loads(self.config.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{self.config} is not readable: {error}") from error
        return config


def _fresh(name: str) -> RunDirectory:
    """Name a folder that does not exist yet: name, name-2, name-3, ..."""
    base = re.sub(r"[^\w.-]+", "-", name.rpartition(":")[2]).strip("-") or "run"
    path, number = Path("runs") / base, 2
    while path.exists():
        path, number = Path("runs") / f"{base}-{number}", number + 1
    return RunDirectory(path)
