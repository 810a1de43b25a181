"""The folder of a run: its files, which folder to take, and that one process at a time has it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rookery.errors import ConfigError, MissingExtra, StorageError
from rookery.run.log.jsonl import put_in_place

EVENTS = "events.out.tfevents.*"


class _Inside:
    """A path inside of the folder of a run."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDirectory, owner: type[RunDirectory]) -> Path:
        return run.path / self._name


class RunDirectory:
    """Paths of one run's files.

    They are relative if the folder was given so, and if this process is still where it was then:
    an env may go to another folder, and takes the process with it.

    Args:
        path: of the folder.

    Attributes:
        absolute: the folder, wherever this process goes.
        telemetry: what envs and processes cost, a line now and then.
        evaluations: each evaluation on its line, also the one at the end of the run.
        best: the policy of the best evaluation.
        checkpoints: folder of checkpoints that are kept by themselves.
        companions: folder of what only resuming reads: replay and envs' states. checkpoint.pt
            names the files that belong to it.
    """

    config = _Inside("config.json")
    metrics = _Inside("metrics.jsonl")
    telemetry = _Inside("telemetry.jsonl")
    evaluations = _Inside("evaluations.jsonl")
    checkpoint = _Inside("checkpoint.pt")
    best = _Inside("best.pt")
    curve = _Inside("curve.png")
    report = _Inside("report.html")
    videos = _Inside("videos")
    checkpoints = _Inside("checkpoints")
    companions = _Inside("resume")
    _lock = _Inside(".lock")

    def __init__(self, path: Path) -> None:
        self._given, self.absolute = path, _from_root(path)

    @property
    def path(self) -> Path:
        """The folder, as it was given where that still leads to it."""
        return self._given if _from_root(self._given) == self.absolute else self.absolute

    @classmethod
    def plan(cls, path: str | Path | None, name: str, overwrite: bool) -> RunDirectory:
        """Take ``path``, or a fresh folder under ``runs/`` named after ``name``. Changes nothing.

        Raises:
            ConfigError: ``path`` holds a run already, and ``overwrite`` is false.
        """
        run = cls(_usable(path)) if path is not None else _fresh(name)
        if not overwrite:
            run._require_empty()
        return run

    @classmethod
    def existing(cls, path: str | Path) -> RunDirectory:
        """Open the folder of a run.

        Raises:
            ConfigError: there is no run in it.
        """
        run = cls(_usable(path))
        if run.path.is_file():
            raise ConfigError(f"{run.path} is a file; give the folder of the run")
        if not run.config.is_file():
            raise ConfigError(f"{run.path} holds no run: there is no {run.config.name} in it")
        return run

    def _require_empty(self) -> None:
        if self.config.exists() or self.checkpoint.exists():
            raise ConfigError(
                f"{self.path} already holds a run; rookery.resume (rookery train --resume "
                f"{self.path}) goes on with it, overwrite=True (--overwrite) replaces it, and "
                "another run_dir begins beside it"
            )

    @contextmanager
    def held(self, may_hold_run: bool = True) -> Iterator[None]:
        """Have the folder for this process alone; it is made if there is none.

        A folder that was made for it, and into which nothing was written, is taken away again.

        Args:
            may_hold_run: whether a run may lie in it; another process may have made one since
                `plan` looked.

        Raises:
            ConfigError: another process has it, or it cannot be made.
        """
        here = self.absolute
        made = [path for path in (here, *here.parents) if not path.exists()]
        owner = os.getpid()
        with ExitStack() as stack:
            stack.callback(self._take_away_if_empty, made, owner)
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_locked(self._lock.absolute(), self.path, owner))
            except (OSError, NotImplementedError) as error:  # some file systems have no locks
                if isinstance(error, MissingExtra):
                    raise
                reason = getattr(error, "strerror", None) or error
                raise ConfigError(
                    f"cannot make the run directory {self.path}: {reason}; choose another run_dir"
                ) from error
            if not may_hold_run:
                self._require_empty()
            yield

    def writer(self) -> int | None:
        """The process that has the folder, as it has written down itself; None if there is none.

        The file stays where a process was killed, and may tell of one on another machine.
        """
        try:
            return int(self.writer_file.read_text())
        except (OSError, ValueError):
            return None

    @property
    def writer_file(self) -> Path:
        """Where the process that has the folder writes its number."""
        return self._lock.with_suffix(".pid")

    def _take_away_if_empty(self, made: list[Path], owner: int) -> None:
        """Take away the folders that were made for a run of which nothing was written."""
        if not made or os.getpid() != owner:
            return
        if {file.name for file in self.path.glob("*")} <= {self._lock.name}:
            with contextlib.suppress(OSError):  # somebody else has taken it away, or uses it
                self._lock.unlink(missing_ok=True)
                for path in made:
                    path.rmdir()

    def clear(self) -> None:
        """Take away the files of an earlier run.

        Raises:
            StorageError: one of them cannot be taken away.
        """
        files = [
            self.config, self.metrics, self.telemetry, self.evaluations, self.checkpoint,
            self.best, self.curve,
        ]  # fmt: skip
        folders = {self.companions: "*", self.videos: "*.mp4", self.checkpoints: "*.pt"}
        kept = [file for folder, names in folders.items() for file in folder.glob(names)]
        for file in [*files, self.report, *kept, *self.path.glob(EVENTS)]:
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise cannot_write(file, error) from None

    def write_config(self, config: dict[str, Any]) -> None:
        """Write config.json."""
        with whole_file(self.config) as file:
            file.write((json.dumps(config, indent=2) + "\n").encode())

    def read_config(self) -> dict[str, Any]:
        """Read config.json.

        Raises:
            ConfigError: it holds no configuration.
        """
        try:
            config = json.loads(self.config.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise ConfigError(f"{self.config} is not readable: {error}") from error
        if not isinstance(config, dict):
            raise ConfigError(f"{self.config} is not the configuration of a run: it is {config!r}")
        return config


@contextmanager
def whole_file(path: Path, *, has_one_writer: bool = True, way_out: str = "") -> Iterator[BinaryIO]:
    """Open a file that takes the name ``path`` once it is complete and on the disk.

    Args:
        path: of the file.
        has_one_writer: whether nobody else can be writing it at the same time, as in the folder of
            a run; what a killed writer has left is then overwritten by the next one.
        way_out: what to do where it cannot be written; empty says what can be done about a run.

    Raises:
        StorageError: it cannot be written; the file of this name before is as it was.
    """
    writer = "" if has_one_writer else f".{os.getpid()}"
    temporary = path.with_name(f"{path.name}{writer}.tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        put_in_place(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # it is the first error that counts
            temporary.unlink(missing_ok=True)
        # torch tells of a full disk as a RuntimeError of its own.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(cause, OSError) or isinstance(error, RuntimeError):
            raise cannot_write(path, cause or error, way_out) from None
        raise


def cannot_write(path: Path, error: BaseException, way_out: str = "") -> StorageError:
    """What to raise for a file that cannot be written, with another way out than a run's if any."""
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    if way_out:
        return StorageError(f"cannot write {path}: {reason}; {way_out}")
    match getattr(error, "errno", None):
        case errno.EACCES | errno.EPERM | errno.EROFS:
            way_out = "make it writable"
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR:
            return StorageError(
                f"cannot write {path}: {reason}. The folder {path.parent} must be there, and the "
                "name must be free for a file; was it moved or deleted?"
            )
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG | None:  # torch tells no number
            way_out = "make room"
        case _:
            way_out = "see to it that it can be written"
    return StorageError(f"cannot write {path}: {reason}. {_advice(path, way_out)}")


def _advice(path: Path, way_out: str) -> str:
    """What to do about a file that cannot be written: resume a run only if it has a checkpoint."""
    kept = "What was written before is as it was"
    runs = [RunDirectory(folder) for folder in (path.parent, path.parent.parent)]
    if any(run.checkpoint.is_file() for run in runs):
        return f"{kept}; {way_out} and go on with rookery train --resume"
    if any(run.config.is_file() for run in runs):
        again = "start it again, with overwrite=True (--overwrite)"
        return f"{kept}, but nothing of this run was saved yet; {way_out} and {again}"
    if path == runs[0].config:
        return f"{kept}, but nothing of this run was saved yet; {way_out} and start it again"
    return f"{kept}; {way_out}"


def _usable(path: Any) -> Path:
    """``path``, once it is known that a folder could have this name.

    Raises:
        ConfigError: none could, or nobody may look.
    """
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise ConfigError(f"run_dir must be the path of a folder, got {path!r}")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # it is made, or missed, later
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"run_dir {str(path)[:100]!r} cannot be used: {reason}") from error
    return Path(path)


def _from_root(path: Path) -> Path:
    """``path`` as it leads there from everywhere."""
    try:
        return path.absolute()
    except FileNotFoundError:  # the folder that this process is in is no more
        return path


@contextmanager
def _locked(path: Path, folder: Path, owner: int) -> Iterator[None]:
    """Hold a lock that goes with the process ``owner``, however it ends.

    A forked copy of the process leaves it alone. ``folder`` is what is locked, for messages.
    """
    try:
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise MissingExtra("training needs filelock: pip install 'rookery[train]'") from error
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ConfigError(
            f"{folder} is in use by {_owner(path)}; a run has one writer at a time. Wait for "
            "it, or choose another run_dir"
        ) from None
    try:
        path.with_suffix(".pid").write_text(str(owner))
        yield
    finally:
        if os.getpid() == owner:
            # The locked file stays: without it two others could lock two files of one name.
            with contextlib.suppress(OSError):  # the lock counts; the number is for messages
                path.with_suffix(".pid").unlink(missing_ok=True)
            lock.release()


def _owner(path: Path) -> str:
    try:
        return f"process {path.with_suffix('.pid').read_text()}"
    except OSError:
        return "another process"


def _fresh(name: str) -> RunDirectory:
    """Name a folder that does not exist yet: name, name-2, name-3, ..."""
    base = re.sub(r"[^\w.-]+", "-", name.rpartition(":")[2]).strip("-") or "run"
    path, number = Path("runs") / base, 2
    while path.exists():
        path, number = Path("runs") / f"{base}-{number}", number + 1
    return RunDirectory(path)
