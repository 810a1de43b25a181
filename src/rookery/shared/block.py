"""Memory that two processes share: the block, the columns in it, and the order of writes.

`SharedBlock` is one anonymous mapping. `Layout` computes where each named column lies in it.
`make_fence` returns a memory barrier for processors that reorder writes.

This is the only platform-specific code about memory. No block can be leaked, not even by SIGKILL,
because no block has a name that outlives its users. On Linux a block is a ``memfd_create`` file,
which never has a name and does not count against the size of ``/dev/shm``. Other POSIX systems
unlink a temporary file at once. On Windows a block is a section backed by the paging file, which
the system frees with its last user.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import platform
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.errors import SharedMemoryError

_WINDOWS = sys.platform == "win32"
ColumnSizes = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]  # name -> (shape, dtype)

CACHE_LINE_BYTES = 64  # columns start on a cache line each, so that two writers never share one
# These processors show the reads and writes of each other in program order.
_KEEPS_ORDER = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686", "x86")


class SharedBlock:
    """A piece of zeroed memory that other processes can map.

    The mapping lives as long as an array over ``memory`` exists.

    Args:
        size_bytes: size of the block.
        is_sparse: True allocates a page only when it is written. If the system is then out of
            memory, it kills the writer.

    Raises:
        SharedMemoryError: the system does not provide the memory.
    """

    # Defaults, because close() also runs after an interrupted __init__.
    _handle: Any = None
    memory: Any = None

    def __init__(self, size_bytes: int, is_sparse: bool = False) -> None:
        self.size_bytes = size_bytes
        try:
            self._handle = uuid.uuid4().hex if _WINDOWS else _nameless_file(size_bytes)
            self.memory = _map(self._handle, size_bytes)
            # Otherwise a full file system would raise SIGBUS later.
            if hasattr(os, "posix_fallocate") and not is_sparse:
                os.posix_fallocate(self._handle, 0, size_bytes)
        except (OSError, OverflowError) as error:
            self.close()
            raise _no_room(size_bytes, error) from error

    @property
    def address(self) -> tuple[int, Any]:
        """Size in bytes and handle, the arguments with which another process calls :meth:`map`."""
        return self.size_bytes, self._handle

    def close(self) -> None:
        """Close the handle and drop this reference to the memory. Arrays over it stay valid."""
        if not _WINDOWS and self._handle is not None:
            os.close(self._handle)
        self._handle = None
        self.memory = None

    def __del__(self) -> None:
        self.close()

    @staticmethod
    def map(size_bytes: int, handle: Any) -> Any:
        """Map a block that another process has created, and return its memory."""
        return _map(handle, size_bytes)


def _no_room(size_bytes: int, error: OSError | OverflowError) -> SharedMemoryError:
    size = f"{size_bytes / 2**20:.1f} MiB" if size_bytes >= 2**20 else f"{size_bytes} bytes"
    text = f"Could not allocate {size} of shared memory: {error}."
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        way_out = "Use fewer workers (num_workers=), or raise the limit, as with `ulimit -n 4096`."
    elif number == errno.EFBIG:
        way_out = "Raise the limit of file sizes (`ulimit -f`), which also limits shared memory."
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


def zeros(columns: ColumnSizes) -> dict[str, npt.NDArray[Any]]:
    """Return one array per column over plain memory of this process."""
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in columns.items()}


class Layout:
    """The offsets of the columns of a block.

    Args:
        columns: name -> (shape, dtype); the order is the order in memory.

    Attributes:
        columns: name -> (shape, dtype).
        offsets: name -> first byte of the column, a multiple of 64.
        size_bytes: size of the whole block, at least one byte.
    """

    def __init__(self, columns: ColumnSizes) -> None:
        self.columns = columns
        self.offsets: dict[str, int] = {}
        end = 0
        for name, (shape, dtype) in columns.items():
            self.offsets[name] = end
            size_bytes = math.prod(shape) * dtype.itemsize
            end += -(-size_bytes // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
        self.size_bytes = max(end, 1)

    def views(self, buffer: Any) -> dict[str, npt.NDArray[Any]]:
        """Return one array per column over ``buffer``, any object with the buffer protocol."""
        return {
            name: np.frombuffer(
                buffer,
                dtype=dtype,
                count=math.prod(shape),
                offset=self.offsets[name] if math.prod(shape) else 0,
            ).reshape(shape)
            for name, (shape, dtype) in self.columns.items()
        }


def make_fence() -> Callable[[], None] | None:
    """Return a full memory barrier for the calling thread, or None if the processor needs none.

    Processors of the x86 family need none here, because no write overtakes a write and no read
    overtakes a read. On other processors the barrier takes 0.1 us.

    Python has no barrier, but its locks imply one. Acquiring a lock keeps later accesses after it,
    and releasing a lock keeps earlier accesses before it. No processor moves an acquisition before
    a preceding release. So nothing passes between the release of the first ``with`` and the
    acquisition of the second. An exception from a signal handler leaves no ``with`` half done.
    """
    if _KEEPS_ORDER:
        return None
    lock = threading.Lock()

    def fence() -> None:
        with lock:
            pass
        with lock:
            pass

    return fence
