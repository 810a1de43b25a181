"""One anonymous shared mapping: memory that two processes see and that no name can leak.

The only platform code about memory is here. On POSIX a block is a file without a name: Linux makes
one that never had any (``memfd_create``; it does not count against a small ``/dev/shm`` either),
other systems unlink a temporary file at once. On Windows it is a section backed by the paging file,
which the system frees with its last user. So even SIGKILL leaves nothing behind.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import uuid
from typing import Any

_WINDOWS = sys.platform == "win32"


class SharedBlock:
    """A piece of zeroed memory that other processes can map too.

    The mapping lives as long as an array over ``memory`` does, and no longer.

    Args:
        size_bytes: how much.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._handle: Any = uuid.uuid4().hex if _WINDOWS else _nameless_file(size_bytes)
        self.memory = _map(self._handle, size_bytes)

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

    @staticmethod
    def map(size_bytes: int, handle: Any) -> Any:
        """Map a block that another process has made; return its memory."""
        return _map(handle, size_bytes)


def _map(handle: Any, size_bytes: int) -> Any:
    if sys.platform == "win32":
        return mmap.mmap(-1, size_bytes, tagname=handle)
    return mmap.mmap(handle, size_bytes)


def _nameless_file(size_bytes: int) -> int:
    if sys.platform == "linux":
        descriptor = os.memfd_create("rookery", os.MFD_CLOEXEC)
    else:
        descriptor, path = tempfile.mkstemp(prefix="rookery-")
        os.unlink(path)
    try:
        os.ftruncate(descriptor, size_bytes)
        if hasattr(os, "posix_fallocate"):  # a full file system says so now, not as SIGBUS later
            os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
