"""The number of torch's threads in gradient steps: several while these are faster than one.

The threads of torch wait for each other in every product. If another process uses one of their
cores, each of these waits takes milliseconds: a SAC step with 256 rows and 2 x 256 units took 7 ms
with two threads on two idle cores, and 35 to 650 ms next to two busy processes, where it took 17 ms
with one thread.

The choice depends on time, and the results of a run must not. So it is made only for steps that
consist of operations with the same bits for any number of threads: products (`are_exact` checks
them), sums over rows, and whatever computes each element alone. Torch splits only means and sums of
all elements of a tensor with more than 32,768, which no loss of these learners computes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor, nn

from rookery.policy.torch.layers import Linear, StackedLinear

_TRIAL_S = 0.1  # duration of the steps that measure one number of threads
_KEPT_S = 3.0  # duration of the steps with the faster number, until both are measured again
_MOST_KEPT_S = 48.0  # the same if several threads were slower five times: one step may take 0.6 s


class StepThreads:
    """Measures and chooses the number of threads of a learner's gradient steps.

    It has an effect on steps on the CPU if torch may use several threads, and if nearly all weights
    of the module are in the library's linear layers: convolutions and custom networks may have
    results that depend on the number of threads.

    Args:
        module: the module that is trained.

    Attributes:
        number: number of threads to use now; None before the first step, and without effect.
    """

    def __init__(self, module: nn.Module) -> None:
        self._can_choose = _is_linear(module)
        self._choices: Generator[tuple[int, float], float, None] | None = None
        self.number: int | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Take one gradient step with the number of threads that is faster at present."""
        most = torch.get_num_threads()
        if not self._can_choose or most == 1 or not are_exact(most):
            yield
            return
        if self._choices is None:
            self._choices = _choices(most)
            self._begin(*next(self._choices))
        started = time.perf_counter()
        with torch_threads(self.number or most):
            yield
        self.note(time.perf_counter() - started)

    def note(self, seconds: float) -> None:
        """Add the duration of a step, and choose the number of threads for the next."""
        self._seconds += seconds
        self._steps += 1
        if self._choices is not None and self._seconds >= self._length_s:
            self._begin(*self._choices.send(self._seconds / self._steps))

    def _begin(self, number: int, length_s: float) -> None:
        """Use a number of threads for steps of ``length_s`` seconds together."""
        self.number, self._length_s = number, length_s
        self._seconds, self._steps = 0.0, 0


def _choices(most: int) -> Generator[tuple[int, float], float, None]:
    """Yield a number of threads and for how many seconds to use it; receive a step's duration."""
    kept_s = _KEPT_S
    while True:
        one_s = yield 1, _TRIAL_S
        several_s = yield most, _TRIAL_S
        if several_s < one_s:
            kept_s = _KEPT_S
            yield most, kept_s
        else:
            yield 1, kept_s
            kept_s = min(2 * kept_s, _MOST_KEPT_S)


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch use ``number`` threads for the work of this Python thread; takes 0.1 us."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_linear(module: nn.Module) -> bool:
    parameters = list(module.parameters())
    layers = [layer for layer in module.modules() if isinstance(layer, (Linear, StackedLinear))]
    in_layers = sum(p.numel() for layer in layers for p in layer.parameters())
    is_on_cpu = all(p.device.type == "cpu" for p in parameters)
    return is_on_cpu and in_layers > 0.8 * sum(p.numel() for p in parameters)


@lru_cache
def are_exact(most: int) -> bool:
    """Return True if products have the same bits with one thread and with ``most``."""
    one, several = (_products(number) for number in (1, most))
    return all(map(torch.equal, one, several))


def _products(num_threads: int) -> list[Tensor]:
    """Return products and sums as a gradient step computes them."""
    generator, found = torch.Generator().manual_seed(0), list[Tensor]()
    with torch_threads(num_threads):
        for rows, inputs, outputs in ((256, 17, 256), (256, 256, 256), (100, 400, 300)):
            x, weight, d = (
                torch.randn(2, *shape, generator=generator)
                for shape in ((rows, inputs), (inputs, outputs), (rows, outputs))
            )
            found += [x @ weight, x.transpose(1, 2) @ d, d @ weight.transpose(1, 2), d.sum(1)]
    return found
