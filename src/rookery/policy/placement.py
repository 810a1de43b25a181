"""Where a torch network's parameters live: the model's own memory, or a copy on a device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rookery.errors import ConfigError
from rookery.policy.old_model import ActorCriticModel

Floats: TypeAlias = npt.NDArray[np.float32]


def torch_device(name: str) -> torch.device:
    """Find the device that ``name`` means.

    Raises:
        ConfigError: torch knows no such device, or this machine has none.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(
            f"device is {name!r}; it must be 'cpu', 'cuda', 'cuda:N' or 'mps'"
        ) from error
    available = _counts().get(device.type, 0)
    if (device.index or 0) >= available:
        raise ConfigError(
            f"device is {name!r}, but torch {torch.__version__} sees {available} devices of type "
            f"{device.type!r} here; leave device at 'cpu', or install a torch built for yours"
        )
    return device


def shares_memory(device: torch.device) -> bool:
    """Whether torch computes there with numpy's own memory."""
    return device.type == "cpu"


def _counts() -> dict[str, int]:
    mps = int(torch.backends.mps.is_available())
    return {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": mps}


class Placement:
    """The flat parameters of a model as torch computes with them.

    On the cpu they are the model's own memory. On another device they are a copy, which is the
    true one within `learning`, and the model's array is the true one outside: learners write
    there, and whoever acts reads here.

    Attributes:
        device: where they are.
        parameters: float32 ``[size]`` for an optimiser to change in place: the model's array, or
            the tensor on the device.
        flat: the same for autograd, which wants a tensor of its own.
    """

    def __init__(self, model: ActorCriticModel, device: str = "cpu") -> None:
        self.device = torch_device(device)
        self._shapes = model.layout.shapes
        self._sizes = [math.prod(shape) for shape in self._shapes.values()]
        self._host = model.parameters
        self._shared = shares_memory(self.device)
        own = torch.from_numpy(self._host)
        self.flat = (own if self._shared else own.to(self.device, copy=True)).requires_grad_()
        self.parameters: Any = self._host if self._shared else self.flat.detach()

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Take the model's parameters to the device, and bring them back afterwards: one copy."""
        if self._shared:
            yield
            return
        self.parameters.copy_(torch.from_numpy(self._host))
        try:
            yield
        finally:
            torch.from_numpy(self._host).copy_(self.parameters)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of ``flat`` by name. One split is one node, so the gradient is one tensor."""
        pairs = zip(self._shapes.items(), torch.split(flat, self._sizes), strict=True)
        return {name: part.view(shape) for (name, shape), part in pairs}

    def gradient(
        self, results: Sequence[Tensor], by: Sequence[Floats], by_log_std: Floats | None
    ) -> Any:
        """Turn a loss's gradients by ``results`` into its gradient by all parameters.

        Returns:
            float32 ``[size]``, an array or a tensor as `parameters` is.
        """
        placed = [self.tensor(np.asarray(d, np.float32)) for d in by]
        (flat,) = torch.autograd.grad(list(results), self.flat, placed)
        if by_log_std is not None:
            tail = self.tensor(np.asarray(by_log_std, np.float32))
            flat[len(flat) - len(tail) :] = tail  # it is laid out last
        return flat.numpy() if self._shared else flat

    def log_std(self) -> Floats:
        """The present log deviations, which are laid out last: float32 ``[K]``; maybe none."""
        size = math.prod(self._shapes.get("log_std", (0,)))
        if self._shared:
            return self._host[len(self._host) - size :]
        return host(self.parameters[len(self._host) - size :])

    def tensor(self, array: npt.NDArray[Any] | Tensor) -> Tensor:
        """Bring an array to the device, if it is not there yet; the order of its axes stays."""
        if isinstance(array, Tensor):
            return array
        return readable(array).to(self.device)


def readable(array: npt.NDArray[Any]) -> Tensor:
    """Look at an array through torch, which takes no negative strides and warns of constants."""
    plain = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if plain else array.copy())


def host(tensor: Tensor) -> Floats:
    """Bring a result back; waits for it."""
    array: Floats = tensor.detach().cpu().numpy()
    return array
