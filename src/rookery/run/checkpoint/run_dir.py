"""The folder of a run: its files, the choice of a name, and the lock for one process."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rookery.errors import ConfigError, MissingExtra, StorageError

EVENTS = "events.out.tfevents.*"
_TRIES, _BETWEEN_TRIES_S = 100, 0.05  # to replace a file that another process reads


class _Inside:
    """Descriptor of a path inside the folder of a run."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDirectory, owner: type[RunDirectory]) -> Path:
        return run.path / self._name


class RunDirectory:
    """Paths of one run's files.

    Paths are relative if the folder was given as a relative path and this process has not changed
    its working directory since then. An env may change it.

    Args:
        path: path of the folder.

    Attributes:
        absolute: absolute path of the folder.
        telemetry: measurements of envs and processes, one line per interval.
        evaluations: one line per evaluation, including the final one.
        best: checkpoint of the best evaluation.
        checkpoints: folder of the additional checkpoints (``checkpoint_every``).
        companions: folder of the files that only resuming reads: replay and envs' states.
            checkpoint.pt names the files that belong to it.
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
        """The folder as it was given, or its absolute path if the working directory changed."""
        return self._given if _from_root(self._given) == self.absolute else self.absolute

    @classmethod
    def plan(cls, path: str | Path | None, name: str, overwrite: bool) -> RunDirectory:
        """Choose ``path``, or a new folder under ``runs/`` named after ``name``. Creates nothing.

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
            ConfigError: the folder holds no run.
        """
        run = cls(_usable(path))
        if run.path.is_file():
            raise ConfigError(f"{run.path} is a file; pass the folder of the run")
        if not run.config.is_file():
            raise ConfigError(f"{run.path} holds no run: there is no {run.config.name} in it")
        return run

    def _require_empty(self) -> None:
        if self.config.exists() or self.checkpoint.exists():
            raise ConfigError(
                f"{self.path} already holds a run; resume it with rookery.resume (rookery train "
                f"--resume {self.path}), replace it with overwrite=True (--overwrite), or choose "
                "another run_dir"
            )

    @contextmanager
    def held(self, may_hold_run: bool = True) -> Iterator[None]:
        """Lock the folder for this process; create it if it does not exist.

        A folder that was created here is deleted at the end if nothing was written to it.

        Args:
            may_hold_run: accept a folder that holds a run. If False, this checks again, because
                another process may have written a run since `plan`.

        Raises:
            ConfigError: another process uses the folder, or it cannot be created.
        """
        here = self.absolute
        made = [path for path in (here, *here.parents) if not path.exists()]
        with ExitStack() as stack:
            stack.callback(self._delete_if_empty, made, os.getpid())
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self._lock.absolute(), self._in_use))
                stack.enter_context(_own_id_in(self.writer_file.absolute()))
            except (OSError, NotImplementedError) as error:  # some file systems have no locks
                reason = getattr(error, "strerror", None) or error
                raise ConfigError(
                    f"cannot create the run directory {self.path}: {reason}; choose another run_dir"
                ) from error
            if not may_hold_run:
                self._require_empty()
            yield

    def writer(self) -> int | None:
        """Return the id of the process that uses the folder, or None.

        The id may be outdated if that process was killed, and may belong to another machine.
        """
        try:
            return int(self.writer_file.read_text())
        except (OSError, ValueError):
            return None

    @property
    def writer_file(self) -> Path:
        """The file in which the process that uses the folder writes its id."""
        return self._lock.with_suffix(".pid")

    def _in_use(self) -> str:
        pid = self.writer()
        writer = "another process" if pid is None else f"process {pid}"
        return (
            f"{self.path} is in use by {writer}; a run has one writer at a time. Wait for it, or "
            "choose another run_dir"
        )

    def _delete_if_empty(self, made: list[Path], owner: int) -> None:
        """Delete the folders that were created for a run if the run wrote no files."""
        if not made or os.getpid() != owner:
            return
        if {file.name for file in self.path.glob("*")} <= {self._lock.name}:
            with contextlib.suppress(OSError):  # another process has deleted it, or uses it
                self._lock.unlink(missing_ok=True)
                for path in made:
                    path.rmdir()

    def clear(self) -> None:
        """Delete the files of an earlier run.

        Raises:
            StorageError: a file cannot be deleted.
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
            ConfigError: the file is not the configuration of a run.
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
    """Open a temporary file that is renamed to ``path`` once it is complete and on the disk.

    Args:
        path: path of the file.
        has_one_writer: no other process can write the file at the same time, as in the folder of a
            run. The temporary file of a killed writer is then overwritten by the next one.
        way_out: advice in the error if the file cannot be written; empty gives advice for a run.

    Raises:
        StorageError: the file cannot be written; the previous file of this name is kept.
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
        with contextlib.suppress(OSError):  # report the first error
            temporary.unlink(missing_ok=True)
        # torch reports a full disk as a RuntimeError.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if isinstance(cause, OSError) or isinstance(error, RuntimeError):
            raise cannot_write(path, cause or error, way_out) from None
        raise


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a file to ``path``, and replace the file of that name.

    Windows refuses this while another process reads the old file, such as a virus scanner. The
    renaming is then repeated for up to five seconds.

    Raises:
        OSError: the file cannot be replaced.
    """
    tries = 1 if sys.platform != "win32" else _TRIES
    for left in reversed(range(tries)):
        try:
            os.replace(temporary, path)
            return
        except PermissionError:
            if not left:
                raise
            time.sleep(_BETWEEN_TRIES_S)


def cannot_write(path: Path, error: BaseException, way_out: str = "") -> StorageError:
    """Return the error for a file that cannot be written; ``way_out`` replaces the advice."""
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    if way_out:
        return StorageError(f"cannot write {path}: {reason}; {way_out}")
    match getattr(error, "errno", None):
        case errno.EACCES | errno.EPERM | errno.EROFS:
            way_out = "make it writable"
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR:
            return StorageError(
                f"cannot write {path}: {reason}. The folder {path.parent} must exist, and "
                f"{path.name} must not be a folder; was it moved or deleted?"
            )
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG | None:  # torch gives no errno
            way_out = "free disk space"
        case _:
            way_out = "make it writable"
    return StorageError(f"cannot write {path}: {reason}. {_advice(path, way_out)}")


def _advice(path: Path, way_out: str) -> str:
    """Return advice for a file that cannot be written; resuming needs a checkpoint."""
    kept = "Earlier files are unchanged"
    runs = [RunDirectory(folder) for folder in (path.parent, path.parent.parent)]
    if any(run.checkpoint.is_file() for run in runs):
        return f"{kept}; {way_out} and resume with rookery train --resume"
    if any(run.config.is_file() for run in runs):
        again = "restart it with overwrite=True (--overwrite)"
        return f"{kept}, but nothing of this run was saved yet; {way_out} and {again}"
    if path == runs[0].config:
        return f"{kept}, but nothing of this run was saved yet; {way_out} and start it again"
    return f"{kept}; {way_out}"


def _usable(path: Any) -> Path:
    """Return ``path`` if it can be the path of a folder.

    Raises:
        ConfigError: it cannot, or access to it is denied.
    """
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise ConfigError(f"run_dir must be the path of a folder, got {path!r}")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # the caller creates it, or reports that it is missing
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"run_dir {str(path)[:100]!r} cannot be used: {reason}") from error
    return Path(path)


def _from_root(path: Path) -> Path:
    """Return the absolute form of ``path``."""
    try:
        return path.absolute()
    except FileNotFoundError:  # the working directory was deleted
        return path


@contextmanager
def _own_id_in(file: Path) -> Iterator[None]:
    """Write the id of this process to a file for the duration of the block."""
    owner = os.getpid()
    try:
        file.write_text(str(owner))
        yield
    finally:
        if os.getpid() == owner:
            with contextlib.suppress(OSError):  # the id only serves messages
                file.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, in_use: Callable[[], str]) -> Iterator[None]:
    """Hold a file lock that the system releases when this process exits.

    A forked copy of the process does not release it. The file stays: if it were deleted, two
    processes could lock different files.

    Args:
        path: file of the lock.
        in_use: returns the message for the case that another process holds the lock.

    Raises:
        ConfigError: another process holds the lock.
        MissingExtra: filelock is not installed.
        OSError, NotImplementedError: the file system cannot create the lock.
    """
    try:
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise MissingExtra("training needs filelock: pip install 'rookery[train]'") from error
    lock, owner = FileLock(path), os.getpid()
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ConfigError(in_use()) from None
    try:
        yield
    finally:
        if os.getpid() == owner:
            lock.release()


def as_file_name(name: str) -> str:
    """Return a name that may hold a module, such as an env id, as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", name.rpartition(":")[2])


def _fresh(name: str) -> RunDirectory:
    """Name a folder that does not exist yet: name, name-2, name-3, ..."""
    base = as_file_name(name).strip("-") or "run"
    path, number = Path("runs") / base, 2
    while path.exists():
        path, number = Path("runs") / f"{base}-{number}", number + 1
    return RunDirectory(path)
