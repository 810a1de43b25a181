"""Settings of glibc's malloc that keep freed memory between gradient steps."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Parameters of mallopt, from glibc's malloc.h, and glibc's default values.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_KEEPING = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 64 * 2**20}
_AT_THE_START = {_MMAP_MAX: 65536, _TRIM_THRESHOLD: 128 * 1024, _TOP_PAD: 0}


@contextmanager
def freed_memory_kept(is_worth_it: bool = True) -> Iterator[None]:
    """Let glibc keep freed memory mapped until the block ends, for the next gradient step.

    A PPO step on 256 images frees and allocates some hundred megabytes. By default glibc returns
    them to the system and gets new zeroed pages, at 9,000 to 19,000 page faults per step. Keeping
    them made training on Pong 20 to 30 % faster in env steps per second. Other C libraries are not
    changed.

    Args:
        is_worth_it: False changes nothing.
    """
    libc = _glibc() if is_worth_it else None
    if libc is None:
        yield
        return
    for name, value in _KEEPING.items():
        libc.mallopt(name, value)
    try:
        yield
    finally:
        for name, value in _AT_THE_START.items():
            libc.mallopt(name, value)
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc and the user has not configured its malloc."""
    is_configured = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if sys.platform == "linux" and not is_configured:
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "gnu_get_libc_version") else None
    return None
