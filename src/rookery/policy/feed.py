"""The way of minibatches to a device, beside the computing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rookery.policy import placement


class Feed:
    """Sends features to a device: `Features`, `Sequences` or any named tuple of arrays.

    To CUDA they go from pinned memory on a stream of their own, so that the copy runs beside the
    kernels of the minibatch before. Images travel as bytes; the device makes floats of them.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, features: Any) -> Callable[[], Any]:
        """Start the copy of ``features``.

        Returns:
            Gives the features as tensors on the device, once; what is launched after it waits for
            the copy, the caller does not.
        """
        if placement.shares_memory(self._device):
            return lambda: features
        if self._stream is None:
            moved = _map(lambda a: placement.readable(a).to(self._device), features)
            return lambda: moved
        return self._send_beside(features, self._stream)

    def _send_beside(self, features: Any, stream: torch.cuda.Stream) -> Callable[[], Any]:
        def copy(array: Any) -> Tensor:
            # The allocator of pinned memory keeps it until the copy is done.
            return placement.readable(array).pin_memory().to(self._device, non_blocking=True)

        with torch.cuda.stream(stream):
            moved = _map(copy, features)
            done = stream.record_event()

        def receive() -> Any:
            computing = torch.cuda.current_stream(self._device)
            computing.wait_event(done)
            # Without this the memory could be given to the next copy while kernels still read it.
            _map(lambda tensor: tensor.record_stream(computing), moved)
            return moved

        return receive


def _map(function: Callable[[Any], Any], features: Any) -> Any:
    """Apply ``function`` to the arrays of a named tuple, whose fields are arrays or tuples."""
    return type(features)(
        *(
            tuple(map(function, field)) if isinstance(field, tuple) else function(field)
            for field in features
        )
    )
