"""One anonymous shared mapping: memory that two processes see and that no name can leak.

The only platform code about memory is here. On POSIX a block is a file without a name: Linux makes
one that never had any (``memfd_create``; it does not count against a small ``/dev/shm`` either),
other systems unlink a temporary file at once. On Windows it is a section backed by the paging file,
which the system frees with its last user. So even SIGKILL leaves nothing behind.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import tempfile
import uuid
from typing import Any

from rookery.errors import SharedMemoryError

_WINDOWS = sys.platform == "win32"


class SharedBlock:
    """A piece of zeroed memory that other processes can map too.

    The mapping lives as long as an array over ``memory`` does, and no longer.

    Args:
        size_bytes: how much.
        is_sparse: whether memory is taken only where something is written; a system that has none
            left ends the writer then.

    Raises:
        SharedMemoryError: when the system does not give so much.
    """

    # Of a block too that an interruption has left before it was made.
    _handle: Any = None
    memory: Any = None

    def __init__(self, size_bytes: int, is_sparse: bool = False) -> None:
        self.size_bytes = size_bytes
        try:
            self._handle = uuid.uuid4().hex if _WINDOWS else _nameless_file(size_bytes)
            self.memory = _map(self._handle, size_bytes)
            if not _WINDOWS and not is_sparse:
                _reserve(self._handle, size_bytes)
        except (OSError, OverflowError) as error:
            self.close()
            raise _no_room(size_bytes, error) from error

    @property
    def address(self) -> tuple[int, Any]:
        """Size in bytes and handle, from which another process can map it: see :meth:`map`."""
        return self.size_bytes, self._handle

    def close(self) -> None:
        """Give up the handle and this reference to the memory. Arrays over it stay valid."""
        if not _WINDOWS and self._handle is not None:
            os.close(self._handle)
        self._handle = None
        self.memory = None

    def __del__(self) -> None:
        self.close()

    @staticmethod
    def map(size_bytes: int, handle: Any) -> Any:
        """Map a block that another process has made; return its memory."""
        return _map(handle, size_bytes)


def _no_room(size_bytes: int, error: OSError | OverflowError) -> SharedMemoryError:
    size = f"{size_bytes / 2**20:.1f} MiB" if size_bytes >= 2**20 else f"{size_bytes} bytes"
    text = f"No shared memory of {size} could be had: {error}."
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        way_out = "Use fewer workers (num_workers=), or raise the limit, as with `ulimit -n 4096`."
    elif number == errno.EFBIG:
        way_out = "Raise the limit of file sizes (`ulimit -f`), which counts for such memory too."
    else:
        way_out = (
            "It holds observations, actions and infos of all envs: use fewer envs or smaller "
            "observations, or give the program more memory (its container's limit, `ulimit -v`"
        )
        ways_on = {"linux": ").", "win32": ", or a larger paging file)."}
        way_out += ways_on.get(sys.platform, ", and room in the folder TMPDIR names).")
    return SharedMemoryError(f"{text} {way_out}")


def _map(handle: Any, size_bytes: int) -> Any:
    if sys.platform == "win32":
        memory = mmap.mmap(-1, size_bytes, tagname=handle)
    else:
        memory = mmap.mmap(handle, size_bytes)
    return memory


def _nameless_file(size_bytes: int) -> int:
    if sys.platform == "linux":
        descriptor = os.memfd_create("rookery", os.MFD_CLOEXEC)
    else:
        descriptor, path = tempfile.mkstemp(prefix="rookery-")
        os.unlink(path)
    try:
        os.ftruncate(descriptor, size_bytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _reserve(descriptor: int, size_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):  # a full file system says so now, not as SIGBUS later
        os.posix_fallocate(descriptor, 0, size_bytes)
