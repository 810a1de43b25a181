"""Errors of a system without enough resources for another worker, with what to do about them."""

from __future__ import annotations

import errno
import os
import sys

from rookery.errors import WorkerError

if sys.platform != "win32":
    import resource

DESCRIPTORS_PER_WORKER = 3  # a pipe, a sentinel, and one for the worker to watch its caller
ABANDONED_EXIT_CODE = 70  # the caller has exited, or has given up starting this process
_DESCRIPTORS_TO_START = 12  # temporary, including a fork server and the resource tracker
_STANDARD_DESCRIPTORS = 3
# ERROR_NOT_ENOUGH_MEMORY, ERROR_NO_SYSTEM_RESOURCES, ERROR_COMMITMENT_LIMIT
_NO_PAGING_FILE = (8, 1450, 1455)


def start_failed(error: OSError) -> WorkerError:
    """Return the error of a worker that could not be started because of ``error``."""
    reasons = {
        errno.EMFILE: _descriptors,
        errno.ENFILE: _descriptors,
        errno.EAGAIN: _processes,
        errno.ENOMEM: _memory,
        errno.ENOSPC: _semaphores,
        errno.EROFS: _read_only,
        errno.EACCES: _read_only,
    }
    explain = reasons.get(error.errno or 0)
    if getattr(error, "winerror", None) in _NO_PAGING_FILE:  # on Windows only
        explain = _paging_file
    text = f"A worker process could not be started: {error.strerror or error}."
    return WorkerError(f"{text} {explain()}" if explain else text, command="make")


def _descriptors() -> str:
    limit = _limit("RLIMIT_NOFILE")
    return (
        f"{_open_descriptors()}The limit is {limit}. Each worker takes {DESCRIPTORS_PER_WORKER} "
        "of them here (one more with deadlines), and a start needs about ten temporarily. Use "
        "fewer workers (num_workers=), or raise the limit before the program starts, for instance "
        "with `ulimit -n 4096`."
    )


def _processes() -> str:
    return (
        f"The limit of processes and threads is {_limit('RLIMIT_NPROC')} for this user, and a "
        "container may have a lower one. Use fewer workers (num_workers=), end other processes, "
        "or raise the limit (`ulimit -u`, or the container's limit of pids)."
    )


def _memory() -> str:
    return (
        "Use fewer workers (num_workers=), or free memory. A large program can be too large for "
        "start_method='fork', which copies it; 'forkserver' copies a small process."
    )


def _paging_file() -> str:
    return (
        "Windows reserves no more memory than RAM and paging file have together, and each worker "
        "with large imports (above all torch) reserves a lot. Use fewer workers "
        "(num_workers=), or let Windows enlarge the paging file (Advanced system settings)."
    )


def _semaphores() -> str:
    return (
        "Semaphores need room in /dev/shm, and the system may limit their number. Free some room "
        "(or enlarge it: a container, for instance, with `docker run --shm-size=1g`), or use "
        "fewer workers (num_workers=)."
    )


def _read_only() -> str:
    return (
        "Workers are woken by semaphores, which have names in /dev/shm temporarily: allow this "
        "program to write there. Or keep the envs in this process with backend='serial' "
        "or backend='thread'."
    )


def _limit(name: str) -> str:
    text = "unknown"
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(getattr(resource, name))
        most = "any number" if hard == resource.RLIM_INFINITY else hard
        text = str(soft) if soft == hard else f"{soft} (`ulimit` can raise it to {most})"
        if soft == resource.RLIM_INFINITY:
            text = "unlimited"
    return text


def _open_descriptors() -> str:
    try:
        count = len(os.listdir("/dev/fd"))
    except OSError:  # no descriptor is left for this, or the folder does not exist
        return ""
    return f"This process has {count} descriptors open. "


def reserve_standard_descriptors() -> None:
    """Open descriptors 0 to 2 on the null device if they are closed.

    Otherwise the next pipe or socket would get such a number, and code that reads standard input or
    prints would use it.
    """
    for descriptor in range(_STANDARD_DESCRIPTORS):
        try:
            os.fstat(descriptor)
        except OSError:
            taken = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            os.set_inheritable(taken, True)


def require_descriptors() -> None:
    """Raise an error if a start would run out of descriptors.

    ``multiprocessing`` leaves some open if it fails because of this.

    Raises:
        OSError: if too few descriptors are free.
    """
    opened: list[int] = []
    try:
        while len(opened) < _DESCRIPTORS_TO_START:
            opened.extend(os.pipe())
    finally:
        for descriptor in opened:
            os.close(descriptor)
