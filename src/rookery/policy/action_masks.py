"""Action masks: which choices are legal, as observations show it."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree
from rookery.env.wrappers.action_mask import MASK_KEY
from rookery.errors import SpaceValueError
from rookery.policy.actions import ActionLayout


def shows_mask(observation_space: spaces.Space[Any], layout: ActionLayout) -> bool:
    """Whether observations are a Dict whose `MASK_KEY` tells which actions are legal.

    It is a MultiBinary, or a Box from 0 to 1, of as many numbers as a mask has.
    """
    if not isinstance(observation_space, spaces.Dict):
        return False
    part = observation_space.spaces.get(MASK_KEY)
    if not isinstance(part, (spaces.Box, spaces.MultiBinary)):
        return False
    is_flag = isinstance(part, spaces.MultiBinary) or bool(
        (part.low == 0).all() and (part.high == 1).all()
    )
    return is_flag and layout.num_choices == int(np.prod(part.shape)) > 0


def read_space(
    observation_space: spaces.Space[Any], layout: ActionLayout, own: Container[str] = ()
) -> spaces.Space[Any]:
    """The part of observations that networks read: all but a shown mask, which only masks.

    Args:
        observation_space: of one env.
        layout: of the actions.
        own: dotted paths of the parts that the user's encoders read; a mask among them is read. So
            is one that is all there is.
    """
    if not shows_mask(observation_space, layout) or MASK_KEY in own:
        return observation_space
    parts = {k: v for k, v in observation_space.spaces.items() if k != MASK_KEY}  # type: ignore[attr-defined]
    return spaces.Dict(parts) if parts else observation_space


def shown_mask(obs: Tree) -> npt.NDArray[np.bool_]:
    """The masks in observations ``[N, *obs]`` for which `shows_mask`: bool ``[N, num_choices]``."""
    rows = np.asarray(obs[MASK_KEY])
    return np.asarray(rows.reshape(len(rows), -1) != 0)


def require_mask_shape(layout: ActionLayout, mask: Any, num_rows: int) -> None:
    """Refuse rows of a mask (array or tensor) that are not ``[num_rows, num_choices]``.

    Raises:
        SpaceValueError: they have another shape.
    """
    if tuple(mask.shape) != (num_rows, layout.num_choices):
        raise SpaceValueError(
            f"a mask of {num_rows} rows must be [{num_rows}, {layout.num_choices}] for "
            f"action_space {layout.space}, not {list(mask.shape)}"
        )


def nothing_legal(row: int, mask: list[Any]) -> SpaceValueError:
    """The error of a mask that leaves no legal action in ``row``, whose mask it is given."""
    return SpaceValueError(
        f"row {row} of the action mask leaves no legal action: {list(map(int, mask))}; at least "
        "one choice of every component must be legal"
    )
