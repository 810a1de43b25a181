"""Action masks: which choices are legal, as envs tell it, and as distributions read it."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.errors import SpaceValueError
from rookery.policy.actions import ActionLayout, ActionPart, branch, place_of
from rookery.rollout.tree import Tree

# In Gymnasium's masks of MultiBinary, 0 and 1 are the only legal value, and this allows both.
_EITHER = 2
# Of a Dict observation: the part that is taken for an action mask.
MASK_KEY = "action_mask"


def encode_mask(layout: ActionLayout, mask: Tree) -> npt.NDArray[np.bool_]:
    """Turn a batch of masks in Gymnasium's forms into rows, bool ``[N, num_choices]``.

    A Discrete has an array ``[N, n]``, true or not zero where legal; a MultiDiscrete a tuple of
    them, or one array with all components side by side; a MultiBinary an array ``[N, *shape]`` of
    0 and 1 (the only legal value) and 2 (both); a Dict or Tuple one mask for each of its parts,
    None for what cannot be masked.

    Raises:
        SpaceValueError: a mask has another shape.
    """
    rows = [_encode(part, branch(mask, part.path)) for part in layout.parts if part.sizes]
    if not rows:
        raise SpaceValueError(f"action_space {layout.space} has no choices to mask")
    return np.concatenate(rows, axis=1)


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


def _encode(part: ActionPart, mask: Any) -> npt.NDArray[np.bool_]:
    if isinstance(part.space, spaces.MultiDiscrete) and isinstance(mask, tuple):
        mask = np.concatenate([np.reshape(m, (len(m), -1)) for m in _arrays(mask)], axis=1)
    rows = np.reshape(mask, (len(mask), -1))
    if part.kind == "bernoulli":
        rows = np.stack([rows != 1, rows != 0], axis=2).reshape(len(rows), -1)
        legal = np.isin(mask, (0, 1, _EITHER)).all()
        if not legal:
            raise SpaceValueError(
                f"the mask of action_space{place_of(part.path)}, a MultiBinary, must hold 0, 1 or 2"
            )
    width = part.choices.stop - part.choices.start
    if rows.shape[1] != width:
        raise SpaceValueError(
            f"the mask of action_space{place_of(part.path)} must have {width} columns for "
            f"{part.space}, not {rows.shape[1]}"
        )
    return rows.astype(np.bool_, copy=False)


def _arrays(mask: tuple[Any, ...]) -> list[npt.NDArray[Any]]:
    """The arrays of nested tuples, as those of a MultiDiscrete with several axes are."""
    found = [_arrays(m) if isinstance(m, tuple) else [np.asarray(m)] for m in mask]
    return [array for arrays in found for array in arrays]
