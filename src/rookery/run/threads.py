"""How many threads numpy and torch may use while a run trains, and what memory they keep."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rookery.common.cpus import usable_cpus
from rookery.run.malloc import freed_memory_kept


@contextmanager
def threads_and_memory_for(
    num_rows: int,
    widths: tuple[int, ...],
    is_recurrent: bool,
    num_parameters: int = 0,
    num_learners: int = 1,
) -> Iterator[None]:
    """Keep BLAS and torch to as many threads as a run can use, and freed memory where it helps.

    Args:
        num_rows: rows of the largest product, the minibatch size.
        widths: widths of the hidden layers.
        is_recurrent: whether the policy remembers.
        num_parameters: of the policy; 0 if that is not known.
        num_learners: which share the CPUs.
    """
    is_small = is_recurrent or 0 < num_rows * num_parameters < WORTH_SPLITTING
    blas, torch = blas_threads_for(num_rows, widths), torch_threads_for(is_small, num_learners)
    with blas, torch, freed_memory_kept(not is_small):
        yield


@contextmanager
def torch_threads_for(is_small: bool, num_learners: int = 1) -> Iterator[None]:
    """Keep torch to the CPUs that this process may use, and small steps to one thread.

    Small networks and recurrent ones take many of those. A step of PPO on 256 images took 98 ms on
    two threads and 160 on one, with both cores free, which they are while the learner learns and
    the envs wait. Torch knows nothing of a container's quota, and threads beyond it stand in each
    other's way: with both cores busy, two threads took 520 ms where one took 176.
    """
    if not is_small and "torch" not in sys.modules:
        yield
        return
    import torch

    before = torch.get_num_threads()
    most = max(min(before, usable_cpus() // num_learners), 1)
    torch.set_num_threads(1 if is_small else most)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Multiply-adds of one product from which a second thread is worth waking.
WORTH_SPLITTING = 2**24


@contextmanager
def blas_threads_for(num_rows: int, widths: tuple[int, ...]) -> Iterator[None]:
    """Keep BLAS to one thread while networks and minibatches are small.

    OpenBLAS splits a product of 256 rows by 64 x 64 over two threads, which saves 20 us on an idle
    machine. Beside other busy processes its threads spin against them, and the same product was
    seen to take a hundred times as long. Without threadpoolctl nothing is changed.

    Args:
        num_rows: rows of the largest product, the minibatch size.
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
