"""How many threads numpy's matrix products may use while a run trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_torch_thread(wanted: bool) -> Iterator[None]:
    """Keep torch to one thread, where ``wanted``: recurrent networks take many small steps."""
    if not wanted:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
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
