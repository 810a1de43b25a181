"""Another platform, imitated on Linux, as far as rookery's own code can tell.

The modules of the standard library and other packages go on as on Linux. Modules of rookery get
other ones in place of ``os``, ``sys``, ``signal`` and so on: with another ``sys.platform``, without
what that platform lacks, and with what it has. So its branches for that platform are run, in the
caller and in workers, which inherit the environment that asks for it.

What is imitated is what the documentation and the sources of CPython say about a platform; that
they are right, and the system's own behaviour, only that platform can show.
"""

from __future__ import annotations

import _multiprocessing
import ast
import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import io
import marshal
import mmap
import multiprocessing
import multiprocessing.context
import os
import signal
import subprocess
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection, reduction
from pathlib import Path
from typing import Any

import numpy as np
import psutil

_delete, _list, _stat = os.unlink, os.listdir, os.stat
FOLDER = "ROOKERY_IMITATION_FOLDER"  # names a folder for what the imitation keeps

_NOT_ON_WINDOWS = {
    "os": """
        MFD_CLOEXEC WEXITSTATUS WIFEXITED WNOHANG chown fchmod fork forkpty get_blocking getgid
        getloadavg getpgid getpgrp getuid killpg lchown memfd_create mkfifo nice openpty
        posix_fallocate posix_spawn register_at_fork sched_getaffinity sched_setaffinity sched_yield
        sendfile set_blocking setpgid setsid statvfs sync sysconf uname wait wait3 wait4 waitid
    """,
    "signal": """
        ITIMER_REAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGSTOP SIGTSTP SIGUSR1
        SIGUSR2 SIG_BLOCK SIG_SETMASK SIG_UNBLOCK alarm pause pthread_kill pthread_sigmask setitimer
        sigpending siginterrupt sigwait
    """,
    "select": "epoll poll POLLIN POLLOUT",
    "faulthandler": "register unregister",
    "socket": "AF_UNIX CMSG_LEN SCM_RIGHTS recv_fds send_fds",
    "_multiprocessing": "sem_unlink",
    "mmap": "MAP_ANONYMOUS MAP_SHARED PROT_READ PROT_WRITE",
}
_NOT_ON_MACOS = {
    "os": """
        MFD_CLOEXEC memfd_create posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity
        pidfd_open eventfd
    """,
    "select": "epoll",
}
_FILES_OF_LINUX = ("/proc/", "/sys/fs/", "/dev/shm")


class Imitated(types.ModuleType):
    """A module without some of its names, and with others.

    Args:
        real: the module as it is here.
        missing: names that it lacks there.
        there: what it has there.
    """

    def __init__(
        self, real: types.ModuleType, missing: Sequence[str], there: Mapping[str, Any]
    ) -> None:
        super().__init__(real.__name__)
        vars(self).update(_real=real, _missing=frozenset(missing), **there)

    def __getattr__(self, name: str) -> Any:
        if name in vars(self)["_missing"]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(vars(self)["_real"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_real"], name, value)


def begin(platform: str) -> None:
    """Imitate a platform from now on: ``"win32"``, ``"darwin"`` or ``"posix"``, a bare one."""
    modules = {"win32": _windows, "darwin": _macos, "posix": _bare_posix}[platform]()
    builtins.__imitated__ = modules.__getitem__  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder(platform, frozenset(modules)))
    _hide_files_of_linux()


# ---------------------------------------------------------------- modules of rookery


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, platform: str, names: frozenset[str]) -> None:
        self._platform, self._names = platform, names

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] != "rookery":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Loader(fullname, spec.loader.path, self._platform, self._names)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module whose imports of some modules are given others."""

    def __init__(self, fullname: str, path: str, platform: str, names: frozenset[str]) -> None:
        super().__init__(fullname, path)
        self._platform, self._names = platform, names

    def get_code(self, fullname: str) -> types.CodeType:
        kept = Path(
            os.environ[FOLDER], self._platform, f"{fullname}.{_stat(self.path).st_mtime_ns}"
        )
        if kept.exists():
            return marshal.loads(kept.read_bytes())
        tree = _Imports(self._names).visit(ast.parse(self.get_data(self.path)))
        code: types.CodeType = compile(
            ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True
        )
        kept.parent.mkdir(exist_ok=True)
        temporary = kept.with_name(f"{kept.name}.{os.getpid()}")
        temporary.write_bytes(marshal.dumps(code))
        os.rename(temporary, kept)
        return code


class _Imports(ast.NodeTransformer):
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def visit_Import(self, node: ast.Import) -> Any:
        return [
            ast.parse(f"{alias.asname or alias.name} = __imitated__({alias.name!r})").body[0]
            if alias.name in self._names
            else ast.Import([alias])
            for alias in node.names
        ]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        names = [alias.name for alias in node.names if alias.name != "PathLike"]
        assert node.module not in self._names or not names, f"from {node.module} import: {names}"
        return node


# ---------------------------------------------------------------- platforms


def _bare_posix() -> dict[str, types.ModuleType]:
    """A POSIX system with nothing that is Linux's alone, nor what is optional."""
    missing = {name: names.split() for name, names in _NOT_ON_MACOS.items()}
    missing["os"] += ["sched_yield", "getloadavg", "register_at_fork"]
    return {
        "os": Imitated(os, missing["os"], {}),
        "sys": Imitated(sys, (), {"platform": "freebsd14"}),
        "select": Imitated(sys.modules["select"], missing["select"], {}),
    }


def _macos() -> dict[str, types.ModuleType]:
    import resource
    import select

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    reduction.ACKNOWLEDGE = True  # type: ignore[attr-defined]
    missing = {name: names.split() for name, names in _NOT_ON_MACOS.items()}
    return {
        "os": Imitated(os, missing["os"], {}),
        "sys": Imitated(sys, (), {"platform": "darwin"}),
        "select": Imitated(select, missing["select"], {}),
        "_multiprocessing": Imitated(_multiprocessing, (), {"SemLock": PollingSemLock}),
    }


def _windows() -> dict[str, types.ModuleType]:
    import faulthandler
    import select
    import socket

    contexts = multiprocessing.context._concrete_contexts  # type: ignore[attr-defined]
    for method in ("fork", "forkserver"):
        contexts.pop(method)
    multiprocessing.get_all_start_methods = lambda: ["spawn"]
    connection.PipeConnection = connection.Connection
    # A signal that Linux has for something else; what it is on Windows is another number.
    signals = {
        "SIGBREAK": signal.SIGTTIN,
        "signal": _InterruptCount.signal,
        "getsignal": _InterruptCount.getsignal,
    }
    kill = {"name": "nt", "kill": _kill}
    _remember_parents()
    del psutil.Process.num_fds
    psutil.Process.num_handles = lambda _self: 7  # type: ignore[assignment]
    _refuse_files_in_use()
    _interrupt_waits()
    there: dict[str, tuple[types.ModuleType, dict[str, Any]]] = {
        "os": (os, kill),
        "sys": (sys, {"platform": "win32"}),
        "signal": (signal, signals),
        "select": (select, {}),
        "faulthandler": (faulthandler, {}),
        "socket": (socket, {}),
        "_multiprocessing": (_multiprocessing, {"SemLock": HandleSemLock}),
        "mmap": (mmap, {"mmap": TaggedMemory}),
    }
    modules: dict[str, types.ModuleType] = {
        name: Imitated(real, _NOT_ON_WINDOWS.get(name, "").split(), more)
        for name, (real, more) in there.items()
    }
    modules["numpy"] = Imitated(
        np, (), {name: _with_small_ints(getattr(np, name)) for name in ("arange", "array", "full")}
    )
    return modules


def _hide_files_of_linux() -> None:
    """Have rookery's own code not find what only Linux has in its file system."""

    def seen(original: Callable[..., Any]) -> Callable[..., Any]:
        def function(path: Any = ".", *args: Any, **options: Any) -> Any:
            if str(path).startswith(_FILES_OF_LINUX) and _is_called_by_rookery():
                raise FileNotFoundError(2, "No such file or directory", str(path))
            return original(path, *args, **options)

        return function

    for module, name in ((builtins, "open"), (io, "open"), (os, "listdir"), (os, "stat")):
        setattr(module, name, seen(getattr(module, name)))


def _is_called_by_rookery() -> bool:
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in ("pathlib", "shutil", "imitation"):
            return package == "rookery"
        frame = frame.f_back
    return False


# ---------------------------------------------------------------- what Windows has


def _kill(pid: int, number: int) -> None:
    """Windows ends the process, and the number becomes its exit code; see `os.kill`."""
    if pid == os.getpid():
        os._exit(number)
    os.kill(pid, signal.SIGKILL)


class TaggedMemory(mmap.mmap):
    """Memory that processes find by a tag, gone with its last user; here, with who made it."""

    def __new__(cls, fileno: int, length: int, tagname: str | None = None) -> TaggedMemory:
        if tagname is None:
            return super().__new__(cls, fileno, length)
        path = Path(os.environ[FOLDER], f"section-{tagname}")
        is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(descriptor, max(length, os.fstat(descriptor).st_size))
            memory = super().__new__(cls, descriptor, length)
        finally:
            os.close(descriptor)
        if is_new:
            weakref.finalize(memory, _unlink, path)
        return memory


def _with_small_ints(make: Callable[..., Any]) -> Callable[..., Any]:
    """As with numpy below 2 there, whose int is of four bytes."""

    def function(*args: Any, dtype: Any = None, **options: Any) -> Any:
        made = make(*args, dtype=dtype, **options) if dtype is not None else make(*args, **options)
        is_told = dtype not in (None, int) or any(isinstance(arg, np.ndarray) for arg in args)
        is_told = is_told or any(isinstance(arg, (type, np.dtype)) for arg in args)
        if is_told or made.dtype != np.int64 or not np.all(np.abs(made) < 2**31):
            return made
        return made.astype(np.int32)

    return function


class HandleSemLock:
    """A semaphore that another process can use only if it was given the handle when it started.

    And that a Ctrl-C, whose handler has raised nothing, ends a wait for with an InterruptedError.
    """

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, _unlink_now: bool) -> None:
        self._real = _multiprocessing.SemLock(kind, value, maxvalue, name, False)
        self.handle = os.memfd_create("semaphore")  # which says how the system finds it
        os.write(self.handle, name.encode())
        self.kind, self.maxvalue, self.name = kind, maxvalue, name
        weakref.finalize(self, _forget_semaphore, os.getpid(), name, self.handle)
        self._adopt()

    def _adopt(self) -> None:
        self.release, self._is_zero = self._real.release, self._real._is_zero

    @classmethod
    def _rebuild(cls, handle: int, kind: int, maxvalue: int, name: str) -> HandleSemLock:
        found = os.pread(handle, 100, 0).decode()
        assert found == name
        self = cls.__new__(cls)
        self._real = _multiprocessing.SemLock._rebuild(0, kind, maxvalue, found)
        self.handle, self.kind, self.maxvalue, self.name = handle, kind, maxvalue, name
        self._adopt()
        return self

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        if not block:
            return bool(self._real.acquire(False))
        end = None if timeout is None else time.monotonic() + timeout
        heard = _InterruptCount.value
        while True:
            left = 0.05 if end is None else min(end - time.monotonic(), 0.05)
            rang = self._real.acquire(True, max(left, 0.0))
            if rang and _InterruptCount.is_due(heard):
                self._real.release()
            _InterruptCount.check(heard)
            if rang:
                return True
            if end is not None and time.monotonic() >= end:
                return False


class _InterruptCount:
    """How many handlers of a Ctrl-C have run and raised nothing."""

    value = 0

    @classmethod
    def signal(cls, number: int, handler: Any) -> Any:
        if number != signal.SIGINT or not callable(handler):
            return signal.signal(number, handler)

        def counted(*args: Any) -> None:
            handler(*args)
            cls.value += 1

        counted.__wrapped__ = handler  # type: ignore[attr-defined]
        before = signal.signal(number, counted)
        return getattr(before, "__wrapped__", before)

    @staticmethod
    def getsignal(number: int) -> Any:
        handler = signal.getsignal(number)
        return getattr(handler, "__wrapped__", handler)

    @classmethod
    def is_due(cls, heard: int) -> bool:
        return cls.value != heard and threading.current_thread() is threading.main_thread()

    @classmethod
    def check(cls, heard: int) -> None:
        if cls.is_due(heard):
            raise InterruptedError(4, "Interrupted system call")


def _remember_parents() -> None:
    """Have a process whose parent has ended still tell who that was."""
    begin, ask = subprocess.Popen.__init__, psutil._ppid_map

    def begin_and_note(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        Path(os.environ[FOLDER], f"parent-of-{self.pid}").write_text(str(os.getpid()))

    def parents() -> dict[int, int]:
        parents = ask()
        for note in Path(os.environ[FOLDER]).glob("parent-of-*"):
            pid = int(note.name.rpartition("-")[2])
            if pid in parents:
                parents[pid] = int(note.read_text())
        return parents

    subprocess.Popen.__init__ = begin_and_note  # type: ignore[method-assign]
    psutil._ppid_map = parents


def _interrupt_waits() -> None:
    """Have waits for pipes and processes end with an InterruptedError, too, and take few handles.

    Likewise for those in which `connection.wait` is called by `Connection.poll`.
    """
    original = connection.wait

    def wait(object_list: Any, timeout: float | None = None) -> list[Any]:
        objects = list(object_list)
        if len(objects) >= 63:
            raise ValueError("need at most 63 handles")
        end, heard = None if timeout is None else time.monotonic() + timeout, _InterruptCount.value
        while True:
            left = 0.05 if end is None else max(min(end - time.monotonic(), 0.05), 0.0)
            ready = original(objects, left)
            _InterruptCount.check(heard)
            if ready:
                return list(ready)
            if end is not None and time.monotonic() >= end:
                return []

    connection.wait = wait  # type: ignore[assignment]


def _refuse_files_in_use() -> None:
    """Have a file that this process has open neither be deleted nor replaced."""

    def refusing(original: Callable[..., Any]) -> Callable[..., Any]:
        def function(path: Any, *args: Any, **options: Any) -> Any:
            places = [path, *args[:1]] if args else [path]
            if not options.get("dir_fd") and any(_is_open_here(place) for place in places):
                raise PermissionError(13, "The process cannot access the file", str(path))
            return original(path, *args, **options)

        return function

    for name in ("unlink", "remove", "replace", "rename"):
        setattr(os, name, refusing(getattr(os, name)))


def _is_open_here(path: Any) -> bool:
    place = os.path.realpath(path)
    for descriptor in _list("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}") == place:
                return True
        except OSError:  # it was the one of listdir
            continue
    return False


def _unlink(path: Path) -> None:
    if path.exists():
        _delete(path)


def _forget_semaphore(owner: int, name: str, handle: int) -> None:
    if os.getpid() == owner:
        _multiprocessing.sem_unlink(name)
    os.close(handle)


# ---------------------------------------------------------------- what macOS has


class PollingSemLock:
    """A semaphore without sem_timedwait: a wait with a time looks every few milliseconds."""

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink_now: bool) -> None:
        if len(name) > 30:
            raise OSError(63, "File name too long")
        if maxvalue > 32767:
            raise OSError(22, "Invalid argument")
        self._adopt(_multiprocessing.SemLock(kind, value, maxvalue, name, unlink_now))

    def _adopt(self, real: Any) -> None:
        self._real = real
        self.handle, self.kind, self.maxvalue = real.handle, real.kind, real.maxvalue
        self.name, self.release = real.name, real.release

    @classmethod
    def _rebuild(cls, *state: Any) -> PollingSemLock:
        self = cls.__new__(cls)
        self._adopt(_multiprocessing.SemLock._rebuild(*state))
        return self

    def _get_value(self) -> int:
        raise NotImplementedError

    def _is_zero(self) -> bool:
        if not self._real.acquire(False):
            return True
        self._real.release()
        return False

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        if not block or timeout is None:
            return bool(self._real.acquire(block))
        end, delay = time.monotonic() + timeout, 0.0
        while True:
            if self._real.acquire(False):
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(delay, left))
            delay = min(delay + 1e-3, 20e-3)
