"""The weights that a learner changes: a torch module with flat parameters.

All parameters of the module are views of one array. Publishing weights is then one copy, an
optimiser step needs few operations, and the norm of a gradient is one reduction. On the CPU,
numpy sees the same memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rookery.common.trees import Tree
from rookery.errors import ConfigError
from rookery.rollout.normalize import Gather

Floats: TypeAlias = npt.NDArray[np.float32]


class FlatParameters:
    """The parameters of a module as views of one tensor, in the module's order.

    Otherwise the module does not change. The parameters remain the same objects. Tied weights stay
    tied and appear once. Frozen parameters are included, with a gradient of zero. Moving the module
    to another device or dtype separates its parameters from the tensor: create a new
    `FlatParameters` afterwards. To send the module to another process, pickle this object instead
    of the module.

    Args:
        module: any module, already on its device.

    Attributes:
        module: the module.
        tensor: float32 ``[size]``, the parameters, which an optimizer changes in place; autograd
            does not track it.
        shapes: name -> shape of each parameter, in order.

    Raises:
        ConfigError: a parameter is not float32, not initialized, on another device, or shares
            memory with another parameter.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        named = dict(module.named_parameters())
        _require_flattenable(named)
        self._parameters = list(named.values())
        self.shapes = {name: tuple(p.shape) for name, p in named.items()}
        self._sizes = [p.numel() for p in self._parameters]
        device = self._parameters[0].device if self._parameters else None
        self.tensor = torch.empty(self.size, dtype=torch.float32, device=device)
        for parameter, view in zip(self._parameters, self.views(self.tensor).values(), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
        self._places = [p.data_ptr() for p in self._parameters]
        self._learned = [p for p in self._parameters if p.requires_grad]
        self._gradient = torch.zeros_like(self.tensor)
        state = module.state_dict(keep_vars=True)  # without buffers that are not persistent
        self._buffers = {name: b for name, b in module.named_buffers() if name in state}

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle would write the whole tensor for every parameter that is a view of it. The
        # parameters of a copy have separate memory.
        return type(self), (copy.deepcopy(self.module).cpu(),)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(self._sizes)

    @property
    def array(self) -> Floats:
        """The parameters as a numpy view, float32 ``[size]``; on the CPU only."""
        array: Floats = self.tensor.numpy()
        return array

    def views(self, flat: Any) -> dict[str, Any]:
        """Return views by name of ``flat``, a tensor or numpy array ``[size]`` in this order."""
        views, start = {}, 0
        for (name, shape), size in zip(self.shapes.items(), self._sizes, strict=True):
            views[name] = flat[start : start + size].reshape(shape)
            start += size
        return views

    def gradient(self, loss: Tensor) -> Tensor:
        """Differentiate a scalar loss by all parameters.

        Returns:
            float32 ``[size]``, valid until the next call; zero for parameters without influence.

        Raises:
            ConfigError: the module was moved and no longer reads this tensor.
        """
        self._require_whole()
        found = torch.autograd.grad(loss, self._learned, allow_unused=True)
        gradients = iter(found)
        pieces = [next(gradients) if p.requires_grad else None for p in self._parameters]
        torch.cat(
            [
                self.tensor.new_zeros(size) if piece is None else piece.reshape(-1)
                for piece, size in zip(pieces, self._sizes, strict=True)
            ],
            out=self._gradient,
        )
        return self._gradient

    def gather(self) -> None:
        """Copy parameters that were moved or replaced back into the tensor."""
        if [p.data_ptr() for p in self._parameters] == self._places:
            return
        for parameter, view in zip(self._parameters, self.views(self.tensor).values(), strict=True):
            if parameter.data_ptr() != view.data_ptr():
                view.copy_(parameter.detach())

    def buffers(self) -> npt.NDArray[np.float64]:
        """Return a copy of the buffers in the module's state as one float64 array."""
        rows = [b.detach().cpu().reshape(-1).double().numpy() for b in self._present_buffers()]
        return np.concatenate([np.empty(0), *rows])

    def load_buffers(self, buffers: npt.NDArray[np.float64]) -> None:
        """Load buffers from the result of `buffers`, in place.

        Raises:
            ConfigError: the number of values differs.
        """
        size = sum(b.numel() for b in self._buffers.values())
        if len(buffers) != size:
            raise ConfigError(
                f"{type(self.module).__name__} has {size} numbers in its buffers, not "
                f"{len(buffers)}"
            )
        start = 0
        for buffer in self._present_buffers():
            row = torch.from_numpy(buffers[start : start + buffer.numel()])
            buffer.detach().copy_(row.view(buffer.shape))
            start += buffer.numel()

    def _present_buffers(self) -> Iterator[Tensor]:
        """Return the current buffers, which modules may have replaced."""
        present = dict(self.module.named_buffers())
        for name, first in self._buffers.items():
            if present[name].shape != first.shape or present[name].dtype != first.dtype:
                raise ConfigError(
                    f"buffer {name!r} of {type(self.module).__name__} changed from {first.dtype} "
                    f"{list(first.shape)} to {present[name].dtype} {list(present[name].shape)}; "
                    "buffers must keep their dtype and shape"
                )
            yield present[name]

    def _require_whole(self) -> None:
        if not self._parameters:
            raise ConfigError(f"{type(self.module).__name__} has no parameters to learn")
        last = self._parameters[-1]
        if last.numel() and last.data_ptr() != self._places[-1]:
            raise ConfigError(
                f"{type(self.module).__name__} no longer reads its flat parameters, because it was "
                "moved or cast, or a parameter's data was replaced; move or cast it before, and "
                "assign values in place"
            )


def _require_flattenable(named: dict[str, nn.Parameter]) -> None:
    hints = {"float64": "call .float() on it first", "float16": "call .float() on it first"}
    for name, parameter in named.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ConfigError(
                f"parameter {name!r} is not initialized: run the module once on observations first"
            )
        if parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            hint = hints.get(kind, "a constant can be a buffer instead")
            raise ConfigError(f"parameter {name!r} is {kind}; it must be float32: {hint}")
    devices = {str(parameter.device): name for name, parameter in named.items()}
    if len(devices) > 1:
        places = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise ConfigError(f"parameters must be on one device: {places}")
    _require_apart(list(named.items()))


def _require_apart(named: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Raise an error if two parameter objects share memory, which flat views would separate."""
    spans = sorted(
        (p.data_ptr(), p.data_ptr() + 4 * _extent(p), name) for name, p in named if p.numel()
    )
    for (_, stop, one), (start, _, other) in pairwise(spans):
        if start < stop:
            raise ConfigError(
                f"parameters {one!r} and {other!r} share memory but are two objects; to tie "
                "weights, use the same nn.Parameter for both"
            )


def _extent(parameter: Tensor) -> int:
    """Return the distance from the first element to the last in memory, in elements."""
    steps = zip(parameter.shape, parameter.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


class Model:
    """A module with the weights that a learner changes and actors receive.

    Args:
        module: any module; its parameters become views of one array.
        num_exploration: number of exploration settings for actors, such as the share of random
            actions. Actors receive them together with the weights.

    Attributes:
        module: the module, in evaluation mode except while a learner updates it.
        flat: parameters of the module, on the module's device.
        parameters: float32 ``[size]`` array that actors read. On the CPU it shares the memory of
            the module's parameters.
        exploration: float64 ``[num_exploration]``, which a learner writes.
    """

    def __init__(self, module: nn.Module, num_exploration: int = 0) -> None:
        self.module = module
        self.flat = FlatParameters(module)
        is_here = self.flat.tensor.device.type == "cpu"
        self.parameters: Floats = self.flat.array if is_here else np.empty(self.flat.size, "f4")
        self.exploration = np.zeros(num_exploration, np.float64)
        self.gather()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.flat, self.exploration)

    def gather(self) -> None:
        """Update ``parameters`` after the module was moved or its parameters were replaced."""
        self.flat.gather()
        if self.flat.tensor.device.type != "cpu":
            self.parameters[...] = self.flat.tensor.cpu().numpy()

    def extras(self) -> npt.NDArray[np.float64]:
        """Return what actors need beside the parameters: the buffers, then ``exploration``."""
        return np.concatenate([self.flat.buffers(), self.exploration])

    def set_extras(self, extras: npt.NDArray[np.float64]) -> None:
        """Load the result of `extras`, in place."""
        size = len(extras) - len(self.exploration)
        self.flat.load_buffers(extras[:size])
        self.exploration[...] = extras[size:]

    def observe(self, obs: Tree, *gather: Gather) -> None:
        """Merge observations ``[N, *obs]`` into the module's statistics, if it has any.

        Modules of this library take ``gather``, which returns the batch moments of all learners.
        """
        module: Any = self.module
        if hasattr(module, "observe"):
            module.observe(obs, *gather)

    def state_dict(self) -> dict[str, Any]:
        """Return the module's ``state_dict`` as numpy arrays, and ``exploration``."""
        module = _mapped(self.module.state_dict(), Tensor, lambda t: np.array(t.cpu().numpy()))
        return {"module": module, "exploration": self.exploration.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the result of `state_dict`, in place.

        Raises:
            ValueError: the module has other parameters.
        """
        module = _mapped(state["module"], np.ndarray, lambda a: torch.from_numpy(np.array(a)))
        try:
            self.module.load_state_dict(module)
        except RuntimeError as error:
            own = self.module.state_dict()
            raise ValueError(_difference(state["module"], own) or str(error)) from error
        self.exploration[...] = state["exploration"]
        self.gather()


def _rebuilt(flat: FlatParameters, exploration: npt.NDArray[np.float64]) -> Model:
    model = Model(flat.module, len(exploration))
    model.exploration[...] = exploration
    return model


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    """Describe in one line which parts of two states differ in shape; empty if none do."""
    shapes = [
        {name: tuple(np.shape(part)) for name, part in state.items()} for state in (there, here)
    ]
    theirs, ours = shapes
    odd = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
    both = [name for name in odd if name in theirs and name in ours]
    if both:
        name = both[0]
        first = f"{name} has shape {theirs[name]} in the loaded state and {ours[name]} here"
    elif odd:
        first = f"{odd[0]} is missing {'here' if odd[0] in theirs else 'in the loaded state'}"
    else:
        return ""
    return f"{first} (and {len(odd) - 1} more parts differ)" if len(odd) > 1 else first


def _mapped(tree: Any, kind: type[Any], function: Callable[[Any], Any]) -> Any:
    """Apply ``function`` to the values of type ``kind`` in nested dicts."""
    if isinstance(tree, dict):
        return {key: _mapped(branch, kind, function) for key, branch in tree.items()}
    return function(tree) if isinstance(tree, kind) else tree
