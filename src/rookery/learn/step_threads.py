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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import nn

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
        self._means_s: list[float] = []  # durations of a step with one thread, and with several
        self._kept_s = _KEPT_S
        self.number: int | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Take one gradient step with the number of threads that is faster at present."""
        most = torch.get_num_threads()
        if not self._can_choose or most == 1 or not are_exact(most):
            yield
            return
        if self.number is None:
            self._begin(1, _TRIAL_S)
        started = time.perf_counter()
        torch.set_num_threads(self.number or most)  # of this Python thread; takes 0.1 us
        try:
            yield
        finally:
            torch.set_num_threads(most)
        self.note(time.perf_counter() - started, most)

    def note(self, seconds: float, most: int) -> None:
        """Note the duration of a step, and choose the number of threads for the next."""
        self._seconds += seconds
        self._steps += 1
        if self._seconds < self._length_s:
            return
        self._means_s.append(self._seconds / self._steps)
        if len(self._means_s) == 1:
            self._begin(most, _TRIAL_S)
        elif len(self._means_s) == 3:
            self._means_s.clear()
            self._begin(1, _TRIAL_S)
        elif self._means_s[1] < self._means_s[0]:
            self._kept_s = _KEPT_S
            self._begin(most, _KEPT_S)
        else:
            self._begin(1, self._kept_s)
            self._kept_s = min(2 * self._kept_s, _MOST_KEPT_S)

    def _begin(self, number: int, length_s: float) -> None:
        """Use a number of threads for steps of ``length_s`` seconds together."""
        self.number, self._length_s = number, length_s
        self._seconds, self._steps = 0.0, 0


def _is_linear(module: nn.Module) -> bool:
    parameters = list(module.parameters())
    layers = [layer for layer in module.modules() if isinstance(layer, (Linear, StackedLinear))]
    in_layers = sum(p.numel() for layer in layers for p in layer.parameters())
    is_on_cpu = all(p.device.type == "cpu" for p in parameters)
    return is_on_cpu and in_layers > 0.8 * sum(p.numel() for p in parameters)


@lru_cache
def are_exact(most: int) -> bool:
    """Return True if products have the same bits with one thread and with ``most``."""
    before = torch.get_num_threads()
    found = []
    for number in (1, most):
        torch.set_num_threads(number)
        generator = torch.Generator().manual_seed(0)
        for rows, inputs, outputs in ((256, 17, 256), (256, 256, 256), (100, 400, 300)):
            x, weight, d = (
                torch.randn(2, *shape, generator=generator)
                for shape in ((rows, inputs), (inputs, outputs), (rows, outputs))
            )
            found += [x @ weight, x.transpose(1, 2) @ d, d @ weight.transpose(1, 2), d.sum(1)]
    torch.set_num_threads(before)
    half = len(found) // 2
    return all(map(torch.equal, found[:half], found[half:]))
