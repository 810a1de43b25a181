"""Settings of this process during training: threads of numpy and torch, and glibc's malloc."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rookery.common.cpus import usable_cpus
from rookery.learn.config_base import Config
from rookery.policy.base import Policy


@contextmanager
def threads_and_memory_for(
    config: Config | None, policy: Policy, num_envs: int, num_learners: int = 1
) -> Iterator[None]:
    """Limit the threads of BLAS and torch, and keep freed memory if the networks are large.

    Args:
        config: settings of the algorithm; None for a custom one, whose gradient steps count as
            small.
        policy: the policy that is trained.
        num_envs: number of envs of the run.
        num_learners: number of learners that share the CPUs.
    """
    num_rows = 1 if config is None else config.rows_per_gradient_step(num_envs)
    widths = (config and config.hidden_sizes) or (64,)
    num_parameters = 0 if policy.model is None else len(policy.model.parameters)
    is_small = policy.is_recurrent or 0 < num_rows * num_parameters < WORTH_SPLITTING
    blas, torch = blas_threads_for(num_rows, widths), torch_threads_for(is_small, num_learners)
    with blas, torch, freed_memory_kept(not is_small):
        yield


@contextmanager
def torch_threads_for(is_small: bool, num_learners: int = 1) -> Iterator[None]:
    """Limit torch to the CPUs that this process may use, or to one thread for small steps.

    Small and recurrent networks make many small steps. On two idle cores, a PPO step on 256 images
    took 98 ms with two threads and 160 ms with one. With both cores busy, it took 520 ms with two
    threads and 176 ms with one. Torch ignores the CPU quota of a container, so the limit is set
    here.
    """
    if not is_small and "torch" not in sys.modules:
        yield
        return
    import torch

    from rookery.learn.step_threads import torch_threads

    most = max(min(torch.get_num_threads(), usable_cpus() // num_learners), 1)
    with torch_threads(1 if is_small else most):
        yield


# Number of multiply-adds of one product from which a second thread is worthwhile.
WORTH_SPLITTING = 2**24


@contextmanager
def blas_threads_for(num_rows: int, widths: tuple[int, ...]) -> Iterator[None]:
    """Limit BLAS to one thread while networks and minibatches are small.

    OpenBLAS splits a product of 256 rows by 64 x 64 over two threads, which saves 20 us on an idle
    machine. Next to other busy processes its threads spin, and the same product took up to a
    hundred times as long. Without threadpoolctl this does nothing.

    Args:
        num_rows: rows of the largest matrix product, usually the minibatch size.
        widths: widths of the hidden layers.
    """
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        yield
        return
    small = num_rows * max(widths, default=1) ** 2 < WORTH_SPLITTING
    with threadpool_limits(limits=1 if small else None, user_api="blas"):
        yield


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
