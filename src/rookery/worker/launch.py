"""Starting a child process that never runs the caller's script again.

The only code about start methods is here. ``multiprocessing`` makes a child import the caller's
``__main__`` because the preparation data names it; that is why scripts need a main guard. A worker
needs nothing from it (functions of a script travel by value, with cloudpickle), so for our own
starts, and for nobody else's, the data does not name it.

Forkserver children come from servers of our own, one per thread cap, so that the caller's own
forkserver stays as it was. A server has imported what every worker needs, so a worker starts in a
few milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import process, spawn
from multiprocessing.process import BaseProcess
from typing import Any

from rookery.errors import ConfigError

START_METHODS = ("forkserver", "spawn", "fork")

_PRELOAD = ["rookery.worker.entry"]
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

_lock = threading.RLock()
_servers: dict[tuple[int | None, tuple[str, ...]], Any] = {}  # (thread cap, preload) -> ForkServer


def resolve_start_method(start_method: str | None) -> str:
    """The start method to use: the given one, or the platform's best.

    Raises:
        ConfigError: when the method does not exist, or not on this platform.
    """
    available = multiprocessing.get_all_start_methods()
    if start_method is None:
        return "forkserver" if "forkserver" in available else "spawn"
    if start_method not in START_METHODS:
        raise ConfigError(f"start_method must be one of {START_METHODS}, got {start_method!r}")
    if start_method not in available:
        raise ConfigError(f"start_method={start_method!r} does not exist on this platform")
    return start_method


def check_fork() -> None:
    """Refuse to fork what cannot be forked, and warn of what may go wrong.

    Raises:
        ConfigError: once CUDA is initialised, which no forked process can use.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise ConfigError(
            "start_method='fork' cannot be used once CUDA is initialised: CUDA does not survive a "
            "fork. Use 'forkserver' or 'spawn', or make the vector env before anything uses CUDA."
        )
    others = [t.name for t in threading.enumerate() if t is not threading.current_thread()]
    if others:
        warnings.warn(
            f"start_method='fork' while other threads run ({', '.join(others[:3])}): a lock that "
            "one of them holds stays locked for ever in the workers. 'forkserver' has no such risk",
            RuntimeWarning,
            stacklevel=4,
        )


def thread_variables(threads: int | None) -> dict[str, str]:
    """Environment variables that cap the threads of numerical libraries; None caps nothing."""
    return {} if threads is None else {name: str(threads) for name in _THREAD_VARIABLES}


def start_process(
    start_method: str,
    threads: int | None,
    target: Callable[..., None],
    args: tuple[Any, ...],
    name: str,
    preload: tuple[str, ...] = (),
) -> BaseProcess:
    """Start ``target(*args)`` in a child process.

    Args:
        start_method: one of ``START_METHODS``.
        threads: cap on the threads of numerical libraries, in force before they are imported.
        target: a function that the child can import.
        args: sent with multiprocessing's own pickling, so bells and connections may be among them.
        name: of the process.
        preload: modules that a forkserver imports once, before it forks; what is large (torch)
            then lies in memory once for all children.
    """
    with _lock, _environment(thread_variables(threads)), _private_start(threads, preload):
        context: Any = multiprocessing.get_context(start_method)
        child: BaseProcess = context.Process(target=target, args=args, name=name, daemon=True)
        child.start()
    return child


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _private_start(threads: int | None, preload: tuple[str, ...]) -> Iterator[None]:
    """For this thread, within the block: no ``__main__`` for children, servers of our own."""
    with (
        _replaced(spawn, "get_preparation_data", _preparation_without_main),
        _replaced(os, "getcwd", _directory_or_root),
        _own_server(threads, preload),
    ):
        config = process.current_process()._config  # type: ignore[attr-defined]
        daemon = config.pop("daemon", None)  # a daemonic caller may start workers all the same
        try:
            yield
        finally:
            if daemon is not None:
                config["daemon"] = daemon


@contextmanager
def _own_server(threads: int | None, preload: tuple[str, ...]) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    from multiprocessing import forkserver

    def connect(_original: Any, fds: list[int]) -> Any:
        return _server(threads, preload).connect_to_new_process(fds)

    with _replaced(forkserver, "connect_to_new_process", connect):
        yield


def _server(threads: int | None, preload: tuple[str, ...]) -> Any:
    from multiprocessing.forkserver import ForkServer

    key = threads, preload
    if key not in _servers:
        server = ForkServer()
        server.set_forkserver_preload([*_PRELOAD, *preload])
        _servers[key] = server
    return _servers[key]


def _directory_or_root(original: Callable[[], str]) -> str:
    try:
        return original()
    except FileNotFoundError:  # the current directory is gone; a child must be somewhere
        return os.path.abspath(os.sep)


def _preparation_without_main(
    original: Callable[[str], dict[str, Any]], name: str
) -> dict[str, Any]:
    data = original(name)
    data.pop("init_main_from_name", None)
    data.pop("init_main_from_path", None)
    return data


@contextmanager
def _replaced(module: Any, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of a module, but only for calls from this thread."""
    original = getattr(module, name)
    thread = threading.get_ident()

    def function(*args: Any) -> Any:
        if threading.get_ident() == thread:
            return replacement(original, *args)
        return original(*args)

    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, original)
