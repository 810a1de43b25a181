"""Starting a child process without running the caller's script again.

All code about start methods is here. ``multiprocessing`` makes a child import the caller's
``__main__`` because the preparation data names it. This is why scripts need a main guard. A worker
needs nothing from that module, because cloudpickle pickles functions of a script by value. So the
preparation data of worker processes does not name it. Other uses of ``multiprocessing`` are not
changed.

Forkserver children come from rookery's servers (``forkserver.py``), one per maximum number of
threads and set of preloaded modules. The fork server of ``multiprocessing`` is not used. A server
has imported what every worker needs, so a worker starts in a few milliseconds.

A process that is forked from the caller uses neither the workers nor the servers of the caller. It
starts other ones.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from multiprocessing import forkserver, process, spawn
from multiprocessing.process import BaseProcess
from typing import Any

from rookery.common.arguments import not_a_choice
from rookery.errors import ConfigError, UsageError, WorkerError
from rookery.worker.start.forkserver import ForkServer, search_path
from rookery.worker.start.limits import (
    ABANDONED_EXIT_CODE,
    require_descriptors,
    reserve_standard_descriptors,
    start_failed,
)
from rookery.worker.start.surroundings import (
    environment,
    interrupts_postponed,
    permission_to_start,
    replaced,
    restore,
)

START_METHODS = ("forkserver", "spawn", "fork")

# All modules of rookery that a worker with plain envs needs, including its first message.
_PRELOAD = [
    "rookery.env.batch",
    "rookery.worker.wait.event",
    "rookery.worker.entry",
    "rookery.worker.start.launch",
]
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

_UNKNOWN_EXIT_CODE = 255
# Errors of a child on Windows if its caller, or the caller's pipe, is gone. An EOFError means the
# same but has no such number.
_CALLER_GONE = (0, 6, 87)

_lock = threading.RLock()
_servers: dict[tuple[int | None, tuple[str, ...]], ForkServer] = {}  # by thread cap and preload
_children: weakref.WeakSet[BaseProcess] = weakref.WeakSet()


def resolve_start_method(start_method: str | None) -> str:
    """Return the given start method, or the best one of this platform if it is None.

    Raises:
        ConfigError: if the method does not exist, or does not exist on this platform.
    """
    available = multiprocessing.get_all_start_methods()
    if start_method is None:
        return "forkserver" if "forkserver" in available else "spawn"
    if start_method not in START_METHODS:
        raise not_a_choice("start_method", start_method, START_METHODS)
    if start_method not in available:
        raise ConfigError(f"start_method={start_method!r} does not exist on this platform")
    return start_method


def check_fork() -> None:
    """Raise an error if this process cannot be forked, and warn if threads make it risky.

    Raises:
        ConfigError: if CUDA is initialised, because a forked process cannot use it.
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
            "one of them holds stays locked in the workers. 'forkserver' avoids this risk",
            RuntimeWarning,
            stacklevel=4,
        )


def thread_variables(threads: int | None) -> dict[str, str]:
    """Return environment variables that limit the threads of numerical libraries, if not None."""
    return {} if threads is None else {name: str(threads) for name in _THREAD_VARIABLES}


def start_process(
    start_method: str,
    threads: int | None,
    target: Callable[..., None],
    args: tuple[Any, ...],
    name: str,
    preload: tuple[str, ...] = (),
) -> BaseProcess:
    """Start ``target(*args)`` in a child process, which may start other processes.

    Args:
        start_method: one of ``START_METHODS``.
        threads: maximum number of threads of numerical libraries, set before they are imported.
        target: a function that the child can import.
        args: its arguments. ``multiprocessing`` pickles them, so they may contain events and
            connections.
        name: name of the process.
        preload: modules that a forkserver imports once, before it forks. All children share the
            memory of large ones (torch).

    Raises:
        UsageError: if this process is a child that is still importing its caller's script.
        WorkerError: if the system allows no more processes or descriptors. Nothing is left open.
    """
    if getattr(process.current_process(), "_inheriting", False):
        raise UsageError(
            "Workers cannot be started while this process, which multiprocessing has started, "
            "still imports the script of its parent. Put the statements of the script under "
            "`if __name__ == '__main__':`."
        )
    # Without allow_none this call would fix the default method.
    default_method = multiprocessing.get_start_method(allow_none=True)
    context: Any = multiprocessing.get_context(start_method)
    child: BaseProcess = context.Process(
        target=_run, args=(target, args, default_method), name=name, daemon=True
    )  # this process does not wait for a daemon when it exits
    try:
        with (
            interrupts_postponed(),
            _lock,
            environment(thread_variables(threads)),
            permission_to_start(),
        ):
            reserve_standard_descriptors()
            require_descriptors()
            if start_method == "fork":
                _start_by_fork(child)
            elif start_method == "spawn":
                with (
                    replaced(spawn, "get_preparation_data", _preparation_data),
                    replaced(spawn, "get_command_line", _command_line),
                ):
                    child.start()
            else:
                with replaced(spawn, "get_preparation_data", _preparation_data):
                    _start_from_server(child, (threads, preload))
            _children.add(child)
    except OSError as error:
        raise start_failed(error) from error
    except BaseException:  # an interruption: the caller has no child that it could kill
        if child.pid is not None:
            child.kill()
            child.join()
        raise
    return child


def _run(target: Callable[..., None], args: tuple[Any, ...], default_method: str | None) -> None:
    """Run a target in a child process, which may start processes like the caller.

    Args:
        target: the function to run.
        args: its arguments.
        default_method: default start method of ``multiprocessing`` in the caller; None if the
            caller has not set one.
    """
    # Otherwise the default would be the method that has started this process.
    multiprocessing.set_start_method(default_method, force=True)
    config = process.current_process()._config  # type: ignore[attr-defined]
    config.pop("daemon", None)  # daemonic processes must not have children
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles a Ctrl-C
    if sys.platform != "win32":
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, exit codes of children are lost
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        target(*args)
    finally:
        for child in multiprocessing.active_children():  # they are killed, not waited for
            child._config["daemon"] = True  # type: ignore[attr-defined]


def _start_by_fork(child: BaseProcess) -> None:
    opened: list[int] = []

    def pipe(original: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        ends = original()
        opened.extend(ends)
        return ends

    def fork(original: Callable[[], int]) -> int:
        try:
            return original()
        except OSError:  # multiprocessing would leave its pipes open
            for end in opened:
                os.close(end)
            raise

    with replaced(os, "pipe", pipe), replaced(os, "fork", fork):
        child.start()


def _start_from_server(child: BaseProcess, key: tuple[int | None, tuple[str, ...]]) -> None:
    def connect(_original: Any, descriptors: list[int]) -> tuple[int, int]:
        return _server(key).connect_to_new_process(descriptors)

    with replaced(forkserver, "connect_to_new_process", connect):
        try:
            child.start()
        except (EOFError, ConnectionError):  # the server has exited; start another one
            _servers.pop(key).stop()
            try:
                child.start()
            except (EOFError, ConnectionError) as error:
                raise WorkerError(
                    "The server process that forks workers exited twice before it forked one. "
                    "Its last output may show the cause; start_method='spawn' needs no server.",
                    command="make",
                ) from error


def _server(key: tuple[int | None, tuple[str, ...]]) -> ForkServer:
    server = _servers.get(key)
    if server is not None and not server.is_alive():
        _servers.pop(key).stop()
        server = None
    if server is None:
        server = _servers[key] = ForkServer([*_PRELOAD, *key[1]], os.environ)
    return server


def _preparation_data(_original: Any, name: str) -> dict[str, Any]:
    """Return the preparation data of a child, without ``__main__``."""
    return {
        "name": name,
        "authkey": process.current_process().authkey,
        "sys_path": search_path(),
        "sys_argv": sys.argv,
        "orig_dir": process.ORIGINAL_DIR,  # type: ignore[attr-defined]
        "dir": _directory_or_root(),
    }


def _command_line(original: Callable[..., list[str]], **numbers: int) -> list[str]:
    """Return the command of a child that exits silently if its caller has already exited."""
    command = original(**numbers)
    if "-c" in command:  # otherwise the program is frozen and runs itself
        place = command.index("-c") + 1
        command[place] = (
            f"try:\n {command[place]}\nexcept (EOFError, OSError) as error:\n"
            f" if getattr(error, 'winerror', 0) not in {_CALLER_GONE}: raise\n"
            f" raise SystemExit({ABANDONED_EXIT_CODE})"
        )
    return command


def _directory_or_root() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the current directory was deleted
        return os.path.abspath(os.sep)


def give_up(child: BaseProcess) -> None:
    """Mark a child as exited in ``multiprocessing``, because this process cannot wait for it."""
    popen = child._popen  # type: ignore[attr-defined]
    if popen is not None:  # otherwise it was closed
        popen.returncode = _UNKNOWN_EXIT_CODE


def _disown() -> None:
    """Give up the servers and children of the parent, in a process that was just forked."""
    global _lock
    _lock = threading.RLock()  # a thread that does not exist here may have held the old one
    restore()
    for server in _servers.values():
        server.disown()
    _servers.clear()
    for child in _children:
        process._children.discard(child)  # type: ignore[attr-defined]
        give_up(child)  # this process must not wait for it or signal it
    _children.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
