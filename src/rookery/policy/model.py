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
    """Makes the parameters of ``module`` views of one tensor, in the order the module has them.

    The module stays as it was in all other respects: the parameters are the same objects, tied
    weights stay tied and are laid out once. Frozen parameters are laid out too; their gradient is
    zero. Moving the module to another device, or to another dtype, takes the parameters out of
    the tensor again: make a new one then. To send the module elsewhere, pickle this object and
    not the module alone.

    Args:
        module: any module, already on its device.
        memory: float32 ``[size]`` to lay the parameters out in, on the cpu, for example shared
            with other processes; None takes new memory.

    Attributes:
        module: whose parameters they are.
        tensor: float32 ``[size]``, the parameters, for an optimiser to change in place; it takes
            no part in autograd.
        shapes: name -> shape, in order.

    Raises:
        ConfigError: a parameter is not float32, not initialised, on another device, or shares its
            memory with another one without being the same; or ``memory`` has another size.
    """

    def __init__(self, module: nn.Module, memory: Floats | None = None) -> None:
        self.module = module
        named = dict(module.named_parameters())
        _require_flattenable(named)
        self._parameters = list(named.values())
        self.shapes = {name: tuple(p.shape) for name, p in named.items()}
        self._sizes = [p.numel() for p in self._parameters]
        self.tensor = self._allocate(memory)
        for parameter, view in zip(self._parameters, self.views(self.tensor).values(), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
        self._learned = [p for p in self._parameters if p.requires_grad]
        self._gradient = torch.zeros_like(self.tensor)
        self._buffers = _state_buffers(module)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle would write the whole tensor once for every parameter that is a view of it; those
        # of a copy have memory of their own.
        return type(self), (copy.deepcopy(self.module).cpu(),)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(self._sizes)

    @property
    def array(self) -> Floats:
        """The parameters for numpy, float32 ``[size]``: the same memory; on the cpu only."""
        array: Floats = self.tensor.numpy()
        return array

    def views(self, flat: Any) -> dict[str, Any]:
        """Views by name of ``flat``, a tensor or numpy array ``[size]`` in this order."""
        views, start = {}, 0
        for (name, shape), size in zip(self.shapes.items(), self._sizes, strict=True):
            views[name] = flat[start : start + size].reshape(shape)
            start += size
        return views

    def gradient(self, loss: Tensor) -> Tensor:
        """Differentiate a scalar loss by all parameters, in one walk back through its graph.

        Returns:
            float32 ``[size]``, valid until the next call; zero where the loss reads nothing.

        Raises:
            ConfigError: the module was moved since, and no longer reads this tensor.
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
        """Copy in the parameters that were moved, or whose data was replaced, since."""
        for parameter, view in zip(self._parameters, self.views(self.tensor).values(), strict=True):
            if parameter.data_ptr() != view.data_ptr():
                view.copy_(parameter.detach())

    def buffers(self) -> npt.NDArray[np.float64]:
        """Copy the buffers that belong to the module's state, one after the other: float64."""
        rows = [b.detach().cpu().reshape(-1).double().numpy() for b in self._present_buffers()]
        return np.concatenate([np.empty(0), *rows])

    def load_buffers(self, buffers: npt.NDArray[np.float64]) -> None:
        """Take over what `buffers` gave, in place.

        Raises:
            ConfigError: it is of another module.
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

    def _allocate(self, memory: Floats | None) -> Tensor:
        if memory is None:
            device = self._parameters[0].device if self._parameters else None
            return torch.empty(self.size, dtype=torch.float32, device=device)
        if memory.dtype != np.float32 or memory.shape != (self.size,):
            raise ConfigError(
                f"memory for the parameters of {type(self.module).__name__} must be float32 "
                f"[{self.size}], not {memory.dtype} {list(memory.shape)}"
            )
        if self._parameters and self._parameters[0].device.type != "cpu":
            raise ConfigError(
                f"parameters on {self._parameters[0].device} cannot lie in numpy's memory"
            )
        return torch.from_numpy(memory)

    def _present_buffers(self) -> Iterator[Tensor]:
        """Modules may put new tensors in the place of their buffers, of the same form."""
        present = dict(self.module.named_buffers())
        for name, first in self._buffers.items():
            if present[name].shape != first.shape or present[name].dtype != first.dtype:
                raise ConfigError(
                    f"buffer {name!r} of {type(self.module).__name__} changed from {first.dtype} "
                    f"{list(first.shape)} to {present[name].dtype} {list(present[name].shape)}; "
                    "buffers must keep their form"
                )
            yield present[name]

    def _require_whole(self) -> None:
        if not self._parameters:
            raise ConfigError(f"{type(self.module).__name__} has no parameters to learn")
        last = self._parameters[-1]
        place = self.tensor.data_ptr() + 4 * (self.size - last.numel())
        if last.numel() and last.data_ptr() != place:
            raise ConfigError(
                f"{type(self.module).__name__} no longer reads its flat parameters: it was moved "
                "or cast, or a parameter's data was replaced; do that before, and write values in "
                "place"
            )


def _state_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that are state; tables that a module builds anew are none."""
    state = module.state_dict(keep_vars=True)
    return {name: buffer for name, buffer in module.named_buffers() if name in state}


def _require_flattenable(named: dict[str, nn.Parameter]) -> None:
    ways = {"float64": "call .float() on it first", "float16": "call .float() on it first"}
    for name, parameter in named.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ConfigError(
                f"parameter {name!r} is not initialised: run the module once on observations first"
            )
        if parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            way = ways.get(kind, "a constant can be a buffer instead")
            raise ConfigError(f"parameter {name!r} is {kind}; it must be float32: {way}")
        if parameter.is_meta:
            raise ConfigError(f"parameter {name!r} is on the meta device, which has no values")
    devices = {str(parameter.device): name for name, parameter in named.items()}
    if len(devices) > 1:
        places = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise ConfigError(f"parameters must be on one device: {places}")
    _require_apart(list(named.items()))


def _require_apart(named: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Refuse parameters that are different objects over the same memory: they would part."""
    spans = sorted(
        (p.data_ptr(), p.data_ptr() + 4 * _extent(p), name) for name, p in named if p.numel()
    )
    for (_, stop, one), (start, _, other) in pairwise(spans):
        if start < stop:
            raise ConfigError(
                f"parameters {one!r} and {other!r} share memory but are two objects; tie weights "
                "by making them the same nn.Parameter"
            )


def _extent(parameter: Tensor) -> int:
    """Numbers from the first element to the last, in memory."""
    steps = zip(parameter.shape, parameter.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


class Model:
    """What is learned, and what travels to whoever acts.

    Args:
        module: any module; its parameters become views of one array.
        num_exploration: numbers that tell actors how to explore, such as a share of random
            actions. They travel with the weights.

    Attributes:
        module: the module, in evaluation mode but while a learner learns.
        flat: its parameters, where the module is.
        parameters: float32 ``[size]``, what actors read. On the cpu it is the memory of the module
            itself, so that a change of either is one of both.
        exploration: float64 ``[num_exploration]``, for a learner to write.
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
        """Bring ``parameters`` up to date with a module that was moved or assigned anew."""
        self.flat.gather()
        if self.flat.tensor.device.type != "cpu":
            self.parameters[...] = self.flat.tensor.cpu().numpy()

    def extras(self) -> npt.NDArray[np.float64]:
        """What travels beside the parameters: the module's buffers, then ``exploration``."""
        return np.concatenate([self.flat.buffers(), self.exploration])

    def set_extras(self, extras: npt.NDArray[np.float64]) -> None:
        """Take over what `extras` gave, in place."""
        size = len(extras) - len(self.exploration)
        self.flat.load_buffers(extras[:size])
        self.exploration[...] = extras[size:]

    def observe(self, obs: Tree, *gather: Gather) -> None:
        """Merge observations ``[N, *obs]`` into the module's statistics, if it keeps any.

        ``gather`` is as for `RunningMoments.update`, for modules of this library.
        """
        module: Any = self.module
        if hasattr(module, "observe"):
            module.observe(obs, *gather)

    def state_dict(self) -> dict[str, Any]:
        """The module's ``state_dict`` in numpy's arrays, and ``exploration``: plain data."""
        module = _mapped(self.module.state_dict(), Tensor, lambda t: np.array(t.cpu().numpy()))
        return {"module": module, "exploration": self.exploration.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, in place.

        Raises:
            ValueError: it is of another module.
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
    """Which parts of two states are not of one shape, in one line; empty if all are."""
    shapes = [
        {name: tuple(np.shape(part)) for name, part in state.items()} for state in (there, here)
    ]
    theirs, ours = shapes
    odd = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
    both = [name for name in odd if name in theirs and name in ours]
    if both:
        name = both[0]
        said = f"{name} differs, shape {theirs[name]} there and {ours[name]} here"
    elif odd:
        said = f"{odd[0]} is missing {'here' if odd[0] in theirs else 'there'}"
    else:
        return ""
    return f"{said} (and {len(odd) - 1} more parts do not fit)" if len(odd) > 1 else said


def _mapped(tree: Any, kind: type[Any], function: Callable[[Any], Any]) -> Any:
    """Apply ``function`` to what is of ``kind`` in nested dicts."""
    if isinstance(tree, dict):
        return {key: _mapped(branch, kind, function) for key, branch in tree.items()}
    return function(tree) if isinstance(tree, kind) else tree
