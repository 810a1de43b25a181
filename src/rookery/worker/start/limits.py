"""What a system that runs out of something says when a worker is started, and the way out."""

from __future__ import annotations

import errno
import os
import sys

from rookery.errors import WorkerError

if sys.platform != "win32":
    import resource

DESCRIPTORS_PER_WORKER = 3  # a pipe, a sentinel, and what tells the worker that its caller is gone
ABANDONED_EXIT_CODE = 70  # of a process whose caller has ended, or has given up its start
_DESCRIPTORS_TO_START = 12  # for a moment, with those of a fork server and the resource tracker
_STANDARD_DESCRIPTORS = 3
# ERROR_NOT_ENOUGH_MEMORY, ERROR_NO_SYSTEM_RESOURCES, ERROR_COMMITMENT_LIMIT
_NO_PAGING_FILE = (8, 1450, 1455)


def start_failed(error: OSError) -> WorkerError:
    """The error for a caller whose worker could not be started, because of ``error``."""
    reasons = {
        errno.EMFILE: _descriptors,
        errno.ENFILE: _descriptors,
        errno.EAGAIN: _processes,
        errno.ENOMEM: _memory,
        errno.ENOSPC: _semaphores,
        errno.EROFS: _read_only,
        errno.EACCES: _read_only,
    }
    explain = _paging_file if lacks_paging_file(error) else reasons.get(error.errno or 0)
    text = f"A worker process could not be started: {error.strerror or error}."
    return WorkerError(f"{text} {explain()}" if explain else text, command="make")


def _descriptors() -> str:
    limit = _limit("RLIMIT_NOFILE")
    return (
        f"{_open_descriptors()}The limit is {limit}. Each worker takes {DESCRIPTORS_PER_WORKER} "
        "of them here (one more with deadlines), and starting one about ten for a moment. Use "
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
        "Use fewer workers (num_workers=), or free memory. A large program can be too large to be "
        "copied by start_method='fork'; 'forkserver' copies a small one."
    )


def lacks_paging_file(error: BaseException) -> bool:
    """Whether Windows has refused memory because it could not be moved out to the disk."""
    return getattr(error, "winerror", None) in _NO_PAGING_FILE


def _paging_file() -> str:
    return (
        "Windows promises memory only as far as memory and paging file reach together, and each "
        "worker that imports much (torch above all) is promised a lot. Use fewer workers "
        "(num_workers=), or let Windows enlarge the paging file (Advanced system settings)."
    )


def _semaphores() -> str:
    return (
        "Semaphores need room in /dev/shm, or the system has a limit for them. Free some there "
        "(a container can be given more, for instance with `docker run --shm-size=1g`), or use "
        "fewer workers (num_workers=)."
    )


def _read_only() -> str:
    return (
        "Workers are woken by semaphores, which have names in /dev/shm for a moment: this program "
        "must be allowed to write there. Or keep the envs in this process with backend='serial' "
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
    except OSError:  # there is none left even for this, or no such folder
        return ""
    return f"This process has {count} descriptors open. "


def reserve_standard_descriptors() -> None:
    """Have descriptors 0 to 2 name something, be it nothing at all.

    Where a program was started with some of them closed, the next pipe or socket would get such a
    number, and whoever reads standard input or prints would read or write it.
    """
    for descriptor in range(_STANDARD_DESCRIPTORS):
        try:
            os.fstat(descriptor)
        except OSError:
            taken = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(taken, True)


def require_descriptors() -> None:
    """Find out beforehand whether the descriptors that a start needs for a moment are there.

    ``multiprocessing`` leaves some open when it fails for want of others.

    Raises:
        OSError: when they are not.
    """
    held: list[int] = []
    try:
        while len(held) < _DESCRIPTORS_TO_START:
            held.extend(os.pipe())
    finally:
        for descriptor in held:
            os.close(descriptor)
