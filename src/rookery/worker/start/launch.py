"""Starting a child process that never runs the caller's script again.

The only code about start methods is here. ``multiprocessing`` makes a child import the caller's
``__main__`` because the preparation data names it; that is why scripts need a main guard. A worker
needs nothing from it (functions of a script travel by value, with cloudpickle), so for our own
starts, and for nobody else's, the data does not name it.

Forkserver children come from servers of our own (``forkserver.py``), one per thread cap, so that
the caller's own forkserver stays as it was. A server has imported what every worker needs, so a
worker starts in a few milliseconds.

A process that is forked from the caller, by whomever, owns neither the caller's workers nor its
servers. It starts its own.
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

# All of rookery that a worker with plain envs needs, its first message included.
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
# Where a child of Windows finds no caller, or no pipe of his: no such process, or no such handle.
# An EOFError, which says the same, has no such number.
_CALLER_GONE = (0, 6, 87)

_lock = threading.RLock()
_servers: dict[tuple[int | None, tuple[str, ...]], ForkServer] = {}  # by thread cap and preload
_children: weakref.WeakSet[BaseProcess] = weakref.WeakSet()


def resolve_start_method(start_method: str | None) -> str:
    """The start method to use: the given one, or the platform's best.

    Raises:
        ConfigError: when the method does not exist, or not on this platform.
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
    """Start ``target(*args)`` in a child process, which may have children of its own.

    Args:
        start_method: one of ``START_METHODS``.
        threads: cap on the threads of numerical libraries, in force before they are imported.
        target: a function that the child can import.
        args: sent with multiprocessing's own pickling, so bells and connections may be among them.
        name: of the process.
        preload: modules that a forkserver imports once, before it forks; what is large (torch)
            then lies in memory once for all children.

    Raises:
        UsageError: when this process is a child that still imports its caller's script.
        WorkerError: when the system allows no further process or descriptor; nothing is left then.
    """
    if getattr(process.current_process(), "_inheriting", False):
        raise UsageError(
            "Workers cannot be started while this process, which multiprocessing has started, "
            "still imports the script that it comes from. Put what the script does under "
            "`if __name__ == '__main__':`."
        )
    # Asked for in another way, it would be settled from now on.
    default_method = multiprocessing.get_start_method(allow_none=True)
    context: Any = multiprocessing.get_context(start_method)
    child: BaseProcess = context.Process(
        target=_run, args=(target, args, default_method), name=name, daemon=True
    )  # as a daemon, it is not waited for when this process ends
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
    except (
        BaseException
    ):  # an interrupt, which the caller of this would not have a child to end for
        if child.pid is not None:
            child.kill()
            child.join()
        raise
    return child


def _run(target: Callable[..., None], args: tuple[Any, ...], default_method: str | None) -> None:
    """What a child does: run the target in a process that may start others, as the caller's may.

    Args:
        target: what to run.
        args: its arguments.
        default_method: by which multiprocessing starts processes if nothing is said; None means
            that the caller has not settled that.
    """
    multiprocessing.set_start_method(
        default_method, force=True
    )  # else it would be that of this one
    config = process.current_process()._config  # type: ignore[attr-defined]
    config.pop("daemon", None)  # daemonic processes must not have children
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller deals with a Ctrl-C
    if sys.platform != "win32":
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would hide how children end
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        target(*args)
    finally:
        for child in multiprocessing.active_children():  # they end with us, none is waited for
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
        except (EOFError, ConnectionError):  # somebody has ended the server; another one will do
            _servers.pop(key).stop()
            try:
                child.start()
            except (EOFError, ConnectionError) as error:
                raise WorkerError(
                    "The server process that forks workers ended twice before it had forked one. "
                    "What it printed last may say why; start_method='spawn' needs no server.",
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
    """What a child is told before it unpickles its target; no word of ``__main__``."""
    return {
        "name": name,
        "authkey": process.current_process().authkey,
        "sys_path": search_path(),
        "sys_argv": sys.argv,
        "orig_dir": process.ORIGINAL_DIR,  # type: ignore[attr-defined]
        "dir": _directory_or_root(),
    }


def _command_line(original: Callable[..., list[str]], **numbers: int) -> list[str]:
    """The command of a child that ends without a word if its caller has ended before it began."""
    command = original(**numbers)
    if "-c" in command:  # else the program is frozen, and is called itself
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
    except FileNotFoundError:  # the current directory is gone; a child must be somewhere
        return os.path.abspath(os.sep)


def give_up(child: BaseProcess) -> bool:
    """Have ``multiprocessing`` take a child for ended, since nobody can wait for it here.

    Returns:
        Whether it does; not if a Python keeps its notes of children elsewhere.
    """
    popen = getattr(child, "_popen", None)
    if popen is None or not hasattr(popen, "returncode"):
        return False
    popen.returncode = _UNKNOWN_EXIT_CODE
    return True


def _disown() -> None:
    """In a process that was just forked: leave to the parent what is the parent's."""
    global _lock
    _lock = threading.RLock()  # a thread that does not exist here may have held the old one
    restore()
    for server in _servers.values():
        server.disown()
    _servers.clear()
    for child in _children:
        process._children.discard(child)  # type: ignore[attr-defined]
        give_up(child)  # nobody here is to wait for it or to signal it
    _children.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
