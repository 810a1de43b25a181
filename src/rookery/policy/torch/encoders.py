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
    """Box and MultiBinary as one row of numbers; bytes are divided by 255."""

    def forward(self, values: Tensor) -> Tensor:
        rows = as_rows(values).to(torch.float32)
        return rows / 255.0 if values.dtype == torch.uint8 else rows


class OneHot(nn.Module):
    """Discrete and MultiDiscrete as a one among zeros for each component.

    Args:
        space: Discrete or MultiDiscrete.
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
class Leaf:
    """A part of an observation that one encoder reads.

    Attributes:
        path: keys that lead to it from the whole observation.
        space: the part's.
        is_own: whether an encoder of the user's reads it.
    """

    path: Path
    space: spaces.Space[Any]
    is_own: bool = False

    @property
    def rank(self) -> int:
        """Place among the features: numbers first, then choices, images, the user's own."""
        if self.is_own:
            return 3
        if is_image(self.space):
            return 2
        return int(not isinstance(self.space, spaces.Box))


class FeatureEncoder(nn.Module):
    """Observations of any supported space to float32 features ``[N, num_features]``.

    Args:
        space: of one env's observations.
        own: encoders of the user's for some parts, by dotted path (``"camera"``,
            ``"robot.joints"``): callables ``(space of the part) -> nn.Module``.
        image: "nature" or "impala", the network that reads each image, or what builds it from the
            image's space and ``generator=``.
        generator: draws the initial weights.

    Attributes:
        num_features: width of the result.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        own: Mapping[str, EncoderFactory] | None = None,
        image: str | Callable[..., nn.Module] = "nature",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        own = dict(own or {})
        build_image = IMAGE_ENCODERS[image] if isinstance(image, str) else image
        self._leaves = sorted(observation_leaves(space, own), key=lambda leaf: leaf.rank)
        self.parts = nn.ModuleList()
        for leaf in self._leaves:
            if leaf.is_own:
                name = _dotted(leaf.path)
                self.parts.append(require_module(f"encoder[{name!r}]", own[name](leaf.space)))
            elif is_image(leaf.space):
                self.parts.append(build_image(leaf.space, generator=generator))
            else:
                self.parts.append(_plain(leaf.space))
        self.num_features = count_features(self, space)

    def forward(self, obs: Tree) -> Tensor:
        pairs = zip(self._leaves, self.parts, strict=True)
        features = [part(at_path(obs, leaf.path)) for leaf, part in pairs]
        return features[0] if len(features) == 1 else torch.cat(features, dim=1)


def observation_leaves(
    space: spaces.Space[Any],
    own: Mapping[str, Any] | None = None,
) -> list[Leaf]:
    """List the parts of an observation that are encoded one by one.

    Raises:
        ConfigError: ``own`` names a part that there is not.
        SpaceError: a part can be read by no built-in encoder.
    """
    own = own or {}
    leaves = list(_leaves(space, own))
    found = [_dotted(leaf.path) for leaf in leaves]
    for name in own:
        if name not in found and not found[0]:
            raise ConfigError(
                f"encoder names {name!r}, but observation_space has no parts, it is {space}; give "
                "the callable itself"
            )
        if name not in found:
            raise ConfigError(
                f"encoder names {name!r}, but observation_space has: {', '.join(found)}"
            )
    return leaves


def require_module(name: str, made: Any) -> nn.Module:
    """Refuse what a callable of the user's made, if it is no module.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"{name} must be a callable that makes an nn.Module; it made a {type(made).__name__}"
        )
    return made


def count_features(encoder: nn.Module, space: spaces.Space[Any]) -> int:
    """Run an encoder on two made-up observations, and return the width of its features.

    Raises:
        ConfigError: it does not give float32 ``[N, F]``.
    """
    was_training = encoder.training
    encoder.eval()  # statistics of batches must not see what is made up
    with torch.no_grad(), as_config_error("encoder", encoder, space):
        features = encoder(made_up(space))
    encoder.train(was_training)
    is_tensor = isinstance(features, Tensor)
    if not is_tensor or features.dtype != torch.float32 or features.shape[:-1] != (2,):
        got = f"{features.dtype} {list(features.shape)}" if is_tensor else type(features).__name__
        raise ConfigError(
            f"encoder {type(encoder).__name__} must turn a batch of N observations into float32 "
            f"features [N, F]; from 2 it made {got}"
        )
    return int(features.shape[1])


@contextmanager
def as_config_error(what: str, module: nn.Module, space: spaces.Space[Any]) -> Iterator[None]:
    """Name the module of the user's that cannot read what it was given."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{what} {type(module).__name__} cannot read observations of {space}, of which it was "
            f"given two in a batch: {type(error).__name__}: {error!s:.300}"
        ) from error


def made_up(space: spaces.Space[Any], device: torch.device | str = "cpu") -> Tree:
    """Two observations, drawn at random, as modules read them."""
    return to_tensors(text_as_arrays(space, batch_space(space, 2).sample()), device)


def as_rows(values: Tensor) -> Tensor:
    """Turn ``[N, *shape]`` into ``[N, width]``; a single number makes a row of one, too."""
    return values.flatten(1) if values.dim() > 1 else values[:, None]


def to_tensors(obs: Tree, device: torch.device | str = "cpu") -> Tree:
    """Turn the arrays of a batch of observations into tensors, on the cpu without a copy.

    Float64 becomes float32, which modules compute in. What is no array of numbers, such as text,
    stays as it is.
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
        # Torch takes no negative strides, and warns of arrays that cannot be written.
        if not leaf.flags.writeable or any(stride < 0 for stride in leaf.strides):
            leaf = leaf.copy()
        return torch.from_numpy(leaf).to(device)

    return tree_map(convert, obs)


def _plain(space: spaces.Space[Any]) -> nn.Module:
    is_choice = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    return OneHot(space) if is_choice else Numbers()


def _leaves(space: Any, own: Mapping[str, Any]) -> Iterator[Leaf]:
    for path, leaf in leaf_spaces(space, lambda path: _dotted(path) in own):
        is_own = _dotted(path) in own
        if not is_own and not isinstance(leaf, _READABLE):
            way = f"encoder={{{_dotted(path)!r}: ...}}" if path else "encoder=..."
            raise SpaceError(
                f"no built-in network reads observation_space{place_of(path)}, a "
                f"{type(leaf).__name__}; Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple "
                f"are supported; give an encoder of your own for it: {way}"
            )
        yield Leaf(path, leaf, is_own)


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


class ObservationNormalizer(nn.Module):
    """Standardises the numbers of observations by running statistics; not choices, not images.

    Args:
        space: of one env's observations.

    Attributes:
        moments: the statistics, exact, float64 ``[D]``; D numbers of all parts side by side.
        mean: float32 ``[D]``, a buffer: what acting needs.
        scale: float32 ``[D]``, a buffer: one over the deviation.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self._space = space
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
        """Standardise a batch ``[N, *obs]`` of tensors, clipped to +-10."""
        return self._visit(obs, (), self._normalized)

    def observe(self, obs: Tree, gather: Gather = only_own) -> None:
        """Merge a batch ``[N, *obs]`` of numpy arrays into the statistics.

        ``gather`` is as for `RunningMoments.update`.
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
        """The statistics; part of the module's ``state_dict``."""
        state = self.moments.state_dict()
        arrays = {name: torch.from_numpy(state[name]) for name in ("mean", "squares")}
        return {"count": state["count"], **arrays}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what `get_extra_state` gave."""
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
        """Apply ``function(leaf, place)`` to all numbers; the rest stays as it is."""
        if path in self._places:
            return function(obs, self._places[path])
        if isinstance(obs, dict):
            return {key: self._visit(obs[key], (*path, key), function) for key in obs}
        if isinstance(obs, tuple):
            return tuple(self._visit(o, (*path, k), function) for k, o in enumerate(obs))
        return obs
