"""Model: a torch module and its flat parameters, as learners change it and actors read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rookery.common.trees import Tree
from rookery.policy.flat import FlatParameters
from rookery.rollout.normalize import Gather

Floats: TypeAlias = npt.NDArray[np.float32]


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
