"""Normalisation of observations as a layer, saved and exported with the policy."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rookery.common.trees import Tree
from rookery.policy.numpy.features import OBS_LIMIT
from rookery.policy.space_tree import Path, leaf_spaces
from rookery.policy.torch.encoders import as_rows
from rookery.policy.torch.images import is_image
from rookery.rollout.normalize import EPSILON, Gather, RunningMoments, only_own


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
