"""Thread limits of numpy and torch during training."""

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
    """Limit the threads of BLAS and torch, and keep freed memory if the networks are large.

    Args:
        num_rows: rows of the largest matrix product, usually the minibatch size.
        widths: widths of the hidden layers.
        is_recurrent: the policy is recurrent.
        num_parameters: number of the policy's parameters; 0 if unknown.
        num_learners: number of learners that share the CPUs.
    """
    is_small = is_recurrent or 0 < num_rows * num_parameters < WORTH_SPLITTING
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

    before = torch.get_num_threads()
    most = max(min(before, usable_cpus() // num_learners), 1)
    torch.set_num_threads(1 if is_small else most)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
