"""From observations to features, in torch: normalization, then an encoder for each part.

Numbers, choices (one-hot) and images of a (nested) Dict or Tuple become one row of features. Custom
encoders can read single parts or the whole observation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector.utils import batch_space
from torch import Tensor, nn

from rookery.common.trees import Tree, tree_map
from rookery.errors import ConfigError, SpaceError
from rookery.policy.numpy.mlp import OBS_LIMIT
from rookery.policy.space_tree import Path, at_path, leaf_spaces, place_of
from rookery.policy.torch.images import IMAGE_ENCODERS, is_image
from rookery.rollout.normalize import EPSILON, Gather, RunningMoments, only_own
from rookery.rollout.text import text_as_arrays

EncoderFactory: TypeAlias = Callable[[spaces.Space[Any]], nn.Module]

_READABLE = (spaces.Box, spaces.MultiBinary, spaces.Discrete, spaces.MultiDiscrete)


class Numbers(nn.Module):
    """Box and MultiBinary as a row of numbers; uint8 values are divided by 255."""

    def forward(self, values: Tensor) -> Tensor:
        rows = as_rows(values).to(torch.float32)
        return rows / 255.0 if values.dtype == torch.uint8 else rows


class OneHot(nn.Module):
    """Discrete and MultiDiscrete as one-hot features of each component.

    Args:
        space: a Discrete or MultiDiscrete.
    """

    component: Tensor
    choice: Tensor

    def __init__(self, space: Any) -> None:
        super().__init__()
        sizes = np.ravel(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n)
        starts = np.broadcast_to(np.ravel(space.start), sizes.shape)
        component = np.repeat(np.arange(len(sizes)), sizes)
        choice = np.concatenate([s + np.arange(n) for s, n in zip(starts, sizes, strict=True)])
        for name, table in (("component", component), ("choice", choice)):
            self.register_buffer(name, torch.from_numpy(table.astype(np.int64)), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        components = as_rows(values).to(torch.int64)
        return (components[:, self.component] == self.choice).to(torch.float32)


@dataclass(frozen=True, slots=True)
class ObservationPart:
    """A part of an observation that one encoder reads.

    Attributes:
        path: keys that lead from the whole observation to the part.
        space: space of the part.
        is_custom: whether a custom encoder reads the part.
    """

    path: Path
    space: spaces.Space[Any]
    is_custom: bool = False

    @property
    def rank(self) -> int:
        """Position among the features: numbers, choices, images, then custom encoders."""
        if self.is_custom:
            return 3
        if is_image(self.space):
            return 2
        return int(not isinstance(self.space, spaces.Box))


class FeatureEncoder(nn.Module):
    """An encoder from observations of any supported space to features ``[N, num_features]``.

    Args:
        space: observation space of one env.
        custom: custom encoders for some parts, by dotted path (``"camera"``, ``"robot.joints"``):
            callables ``(space of the part) -> nn.Module``.
        image: network that reads each image: "nature", "impala", or a callable with the image's
            space and ``generator=`` that builds a module.
        generator: generator of the initial weights.

    Attributes:
        num_features: width of the features.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        custom: Mapping[str, EncoderFactory] | None = None,
        image: str | Callable[..., nn.Module] = "nature",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        custom = dict(custom or {})
        build_image = IMAGE_ENCODERS[image] if isinstance(image, str) else image
        self._leaves = sorted(observation_leaves(space, custom), key=lambda leaf: leaf.rank)
        self.parts = nn.ModuleList()
        for leaf in self._leaves:
            if leaf.is_custom:
                name = _dotted(leaf.path)
                self.parts.append(require_module(f"encoder[{name!r}]", custom[name](leaf.space)))
            elif is_image(leaf.space):
                self.parts.append(build_image(leaf.space, generator=generator))
            else:
                is_choice = isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete)
                self.parts.append(OneHot(leaf.space) if is_choice else Numbers())
        self.num_features = count_features(self, space)

    def forward(self, obs: Tree) -> Tensor:
        pairs = zip(self._leaves, self.parts, strict=True)
        features = [part(at_path(obs, leaf.path)) for leaf, part in pairs]
        return features[0] if len(features) == 1 else torch.cat(features, dim=1)


def observation_leaves(
    space: spaces.Space[Any],
    custom: Mapping[str, Any] | None = None,
) -> list[ObservationPart]:
    """Return the parts of an observation that have separate encoders.

    Raises:
        ConfigError: ``custom`` names a part that does not exist.
        SpaceError: a part has no built-in encoder.
    """
    custom = custom or {}
    leaves = list(_leaves(space, custom))
    found = [_dotted(leaf.path) for leaf in leaves]
    for name in custom:
        if name in found:
            continue
        if not found[0]:
            raise ConfigError(
                f"encoder names {name!r}, but observation_space {space} has no parts; give the "
                "callable itself instead of a mapping"
            )
        raise ConfigError(
            f"encoder names {name!r}, but the parts of observation_space are {', '.join(found)}"
        )
    return leaves


def require_module(name: str, made: Any) -> nn.Module:
    """Return the result of a user's callable, or raise `ConfigError` if it is not a module."""
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"{name} must be a callable that returns an nn.Module; it returned a "
            f"{type(made).__name__}"
        )
    return made


def count_features(encoder: nn.Module, space: spaces.Space[Any]) -> int:
    """Run an encoder on two random observations and return the width of its features.

    Raises:
        ConfigError: the features are not float32 ``[N, F]``.
    """
    was_training = encoder.training
    encoder.eval()  # keep random observations out of batch statistics
    with torch.no_grad(), as_config_error("encoder", encoder, space):
        features = encoder(made_up(space))
    encoder.train(was_training)
    is_tensor = isinstance(features, Tensor)
    if not is_tensor or features.dtype != torch.float32 or features.shape[:-1] != (2,):
        got = f"{features.dtype} {list(features.shape)}" if is_tensor else type(features).__name__
        raise ConfigError(
            f"encoder {type(encoder).__name__} must convert N observations to float32 features "
            f"[N, F]; for 2 observations it returned {got}"
        )
    return int(features.shape[1])


@contextmanager
def as_config_error(what: str, module: nn.Module, space: spaces.Space[Any]) -> Iterator[None]:
    """Convert any exception to a `ConfigError` that names the module and the space."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{what} {type(module).__name__} failed for a batch of two observations of {space}: "
            f"{type(error).__name__}: {error!s:.300}"
        ) from error


def made_up(space: spaces.Space[Any], device: torch.device | str = "cpu") -> Tree:
    """Return a batch of two random observations as tensors."""
    return to_tensors(text_as_arrays(space, batch_space(space, 2).sample()), device)


def as_rows(values: Tensor) -> Tensor:
    """Reshape ``[N, *shape]`` to ``[N, width]``, and ``[N]`` to ``[N, 1]``."""
    return values.flatten(1) if values.dim() > 1 else values[:, None]


def to_tensors(obs: Tree, device: torch.device | str = "cpu") -> Tree:
    """Convert the arrays of a batch of observations to tensors, on the CPU without a copy.

    Float64 becomes float32. Other values than numeric arrays, such as text, do not change.
    """

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device)
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "biuf":
            return leaf
        if leaf.dtype in (np.uint16, np.uint32, np.uint64):
            leaf = leaf.astype(np.int64)
        if leaf.dtype == np.float64:
            leaf = leaf.astype(np.float32)
        # Torch does not support negative strides and warns about read-only arrays.
        if not leaf.flags.writeable or any(stride < 0 for stride in leaf.strides):
            leaf = leaf.copy()
        return torch.from_numpy(leaf).to(device)

    return tree_map(convert, obs)


def _leaves(space: Any, custom: Mapping[str, Any]) -> Iterator[ObservationPart]:
    for path, leaf in leaf_spaces(space, lambda path: _dotted(path) in custom):
        is_custom = _dotted(path) in custom
        if not is_custom and not isinstance(leaf, _READABLE):
            way = f"encoder={{{_dotted(path)!r}: ...}}" if path else "encoder=..."
            raise SpaceError(
                f"no built-in encoder supports observation_space{place_of(path)}, a "
                f"{type(leaf).__name__}; supported are Box, Discrete, MultiDiscrete, MultiBinary, "
                f"Dict and Tuple; give a custom encoder for it: {way}"
            )
        yield ObservationPart(path, leaf, is_custom)


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


class ObservationNormalizer(nn.Module):
    """A layer that standardizes the numbers of observations, but not choices and images.

    It is saved and exported together with the policy.

    Args:
        space: observation space of one env.

    Attributes:
        moments: running statistics of the D numbers of all parts, float64 ``[D]``.
        mean: float32 ``[D]`` buffer, mean of each number.
        scale: float32 ``[D]`` buffer, inverse standard deviation of each number.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self._places: dict[Path, slice] = {}
        size = 0
        for path, leaf in leaf_spaces(space):
            if not isinstance(leaf, spaces.Box) or is_image(leaf):
                continue
            width = int(np.prod(leaf.shape))
            self._places[path] = slice(size, size + width)
            size += width
        self.moments = RunningMoments((size,))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def forward(self, obs: Tree) -> Tree:
        """Standardize a batch ``[N, *obs]`` of tensors and clip it to +-10."""
        return self._visit(obs, (), self._normalized)

    def observe(self, obs: Tree, gather: Gather = only_own) -> None:
        """Merge a batch ``[N, *obs]`` of numpy arrays into the statistics.

        ``gather`` returns the batch moments of all learners that share these statistics.
        """
        found: list[npt.NDArray[np.float32]] = []

        def collect(leaf: npt.NDArray[Any], place: slice) -> None:
            rows = leaf.reshape(len(leaf), place.stop - place.start).astype(np.float32)
            found.append(rows / np.float32(255) if leaf.dtype == np.uint8 else rows)

        self._visit(obs, (), collect)
        if found:
            self.moments.update(np.concatenate(found, axis=1), gather)
            self._refresh()

    def get_extra_state(self) -> dict[str, Any]:
        """Return the statistics, which are part of the module's ``state_dict``."""
        state = self.moments.state_dict()
        arrays = {name: torch.from_numpy(state[name]) for name in ("mean", "squares")}
        return {"count": state["count"], **arrays}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load the result of `get_extra_state`."""
        arrays = {name: state[name].numpy().copy() for name in ("mean", "squares")}
        self.moments.load_state_dict({"count": state["count"], **arrays})
        self._refresh()

    def _refresh(self) -> None:
        mean, scale = self.moments.mean, 1.0 / np.sqrt(self.moments.variance + EPSILON)
        self.mean.copy_(torch.from_numpy(mean.astype(np.float32)))
        self.scale.copy_(torch.from_numpy(scale.astype(np.float32)))

    def _normalized(self, leaf: Tensor, place: slice) -> Tensor:
        rows = as_rows(leaf).to(torch.float32)
        rows = rows / 255.0 if leaf.dtype == torch.uint8 else rows
        rows = ((rows - self.mean[place]) * self.scale[place]).clamp(-OBS_LIMIT, OBS_LIMIT)
        return rows.view_as(leaf)

    def _visit(self, obs: Tree, path: Path, function: Any) -> Tree:
        """Apply ``function(leaf, place)`` to all numbers and keep all other parts."""
        if path in self._places:
            return function(obs, self._places[path])
        if isinstance(obs, dict):
            return {key: self._visit(obs[key], (*path, key), function) for key in obs}
        if isinstance(obs, tuple):
            return tuple(self._visit(o, (*path, k), function) for k, o in enumerate(obs))
        return obs
