"""Actions of any supported space as rows of numbers, and masks of legal actions.

The Discrete, MultiDiscrete, MultiBinary and Box leaves of a (nested) Dict or Tuple are the columns
of such a row. Distributions and rollouts use these rows. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree
from rookery.env.wrappers.action_mask import MASK_KEY
from rookery.errors import SpaceError, SpaceValueError
from rookery.policy.space_tree import Path, at_path, leaf_spaces, place_of
from rookery.shared.spaces import batched

Kind: TypeAlias = Literal["categorical", "bernoulli", "gaussian", "squashed"]
Rows: TypeAlias = npt.NDArray[Any]

# Of squashed normals: the logarithm of the deviation stays within.
LOG_STD_RANGE = (-20.0, 2.0)
# Added to the variance of state-dependent noise, which is zero where the latent state is.
NOISE_FLOOR = 1e-6


@dataclass(frozen=True, slots=True)
class ActionPart:
    """One leaf of an action space.

    Attributes:
        path: keys that lead to it from the whole action.
        space: the leaf.
        kind: the family of its distribution.
        sizes: number of choices of each component; empty where there are none to choose from.
        outputs: its columns of the network's outputs, ``[N, num_outputs]``.
        columns: its columns of encoded actions, ``[N, num_columns]``.
        choices: its columns of a mask, ``[N, num_choices]``; empty where it cannot be masked.
        deviations: its places in the learned ``log_std``; empty where it has none.
        latent: the columns of the network's outputs that noise depends on, H of them; empty where
            it does not depend on the state. Then ``log_std`` has H times K places for it.
    """

    path: Path
    space: Any
    kind: Kind
    sizes: tuple[int, ...]
    outputs: slice
    columns: slice
    choices: slice
    deviations: slice
    latent: slice

    @property
    def is_state_dependent(self) -> bool:
        """Whether the deviation of its noise is a function of the state."""
        return bool(self.latent.stop > self.latent.start)

    def encode(self, action: Rows) -> Rows:
        """Turn ``[N, *shape]`` in the space's own terms into rows ``[N, K]``."""
        rows = np.asarray(action).reshape(len(action), -1)
        if self.kind == "categorical":
            return (rows - np.ravel(self.space.start)).astype(np.int64, copy=False)
        return rows.astype(np.float32, copy=False)

    def decode(self, rows: Rows) -> Rows:
        """Undo `encode`; what a normal distribution drew stays as it was drawn."""
        if isinstance(self.space, spaces.Discrete):
            chosen = rows[:, 0].astype(np.int64, copy=False)
            return chosen + self.space.start if self.space.start else chosen
        if self.kind == "categorical":
            rows = rows + np.ravel(self.space.start)
        shaped = rows.reshape(len(rows), *self.space.shape)
        return shaped.astype(self.space.dtype, copy=False) if self.sizes else shaped

    def to_env(self, action: Rows) -> Rows:
        """Clip a Box action to its bounds, or stretch it there from [-1, 1]."""
        if self.kind == "gaussian":
            action = np.clip(action, self.space.low, self.space.high)
        elif self.kind == "squashed":
            low, high = (np.asarray(b, np.float64) for b in (self.space.low, self.space.high))
            # The rounding of the stretching must not leave the bounds.
            action = np.clip(low + (action + 1.0) * ((high - low) / 2), low, high)
        return np.asarray(action).astype(self.space.dtype, copy=False)


@dataclass(frozen=True, slots=True)
class ActionLayout:
    """Where everything of an action space lies.

    Attributes:
        space: the action space of one env.
        parts: its leaves.
        num_outputs: how many numbers a network gives per observation.
        num_columns: K, the width of encoded actions.
        num_choices: width of a mask; 0 where nothing can be masked. A Discrete has one column per
            action, a MultiDiscrete those of its components side by side, a MultiBinary two for
            each component: whether zero is legal, and whether one is.
        num_deviations: length of the learned ``log_std``; 0 where there is none.
        is_joint: whether the space is a Dict or Tuple, whose actions rollouts hold as rows. Asking
            the space takes 2 us, for these are abstract mappings too, and it is asked in each step.
        num_latent: H, how many of the outputs are the latent state that noise depends on; 0 where
            noise does not depend on the state.
        noise_interval: steps for which a draw of state-dependent noise is kept.
    """

    space: spaces.Space[Any]
    parts: tuple[ActionPart, ...]
    num_outputs: int
    num_columns: int
    num_choices: int
    num_deviations: int
    is_joint: bool
    num_latent: int = 0
    noise_interval: int = 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of encoded actions: int64 where all are choices, else float32."""
        is_choice = all(part.kind == "categorical" for part in self.parts)
        return np.dtype(np.int64 if is_choice else np.float32)

    def encode(self, action: Tree) -> Rows:
        """Turn a batch of actions ``[N, *action]`` into rows ``[N, K]``."""
        rows = [part.encode(at_path(action, part.path)) for part in self.parts]
        return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1, dtype=self.dtype)

    def decode(self, rows: Rows) -> Tree:
        """Turn rows ``[N, K]`` into a batch of actions in the space's own terms, ``[N, *action]``.

        Numbers that were drawn from a normal distribution may lie outside of their bounds.
        """
        if not self.is_joint:
            return self.parts[0].decode(rows)
        decoded = [part.decode(rows[:, part.columns]) for part in self.parts]
        return batched(self.space, iter(decoded))

    def to_env(self, action: Tree) -> Tree:
        """Make a batch of decoded actions fit the action space."""
        if not self.is_joint:
            return self.parts[0].to_env(action)
        fitted = [part.to_env(at_path(action, part.path)) for part in self.parts]
        return batched(self.space, iter(fitted))

    def pack(self, rows: Rows) -> Rows:
        """Turn rows ``[N, K]`` into what a rollout holds of them: one array ``[N, ...]``."""
        packed: Rows = rows if self.is_joint else self.decode(rows)
        return packed

    def unpack(self, action: Rows) -> Rows:
        """Turn what a rollout holds, ``[N, ...]``, back into rows ``[N, K]``."""
        return action if self.is_joint else self.encode(action)

    def fit(self, action: Rows) -> Tree:
        """Turn what a rollout holds, ``[N, ...]``, into actions that the env takes."""
        return self.to_env(self.decode(action) if self.is_joint else action)


def packed_form(space: spaces.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of one env's action in a rollout: the space's own, or rows; see `pack`.

    Raises:
        SpaceError: a part of a Dict or Tuple has no such form, or the space has none.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        layout = action_layout(space)
        return (layout.num_columns,), layout.dtype
    if space.shape is None or space.dtype is None:
        raise SpaceError(f"rollouts hold actions as one array; {space} has no array form")
    return space.shape, np.dtype(space.dtype)


def action_layout(
    space: spaces.Space[Any],
    *,
    squashed: bool = False,
    num_latent: int = 0,
    noise_interval: int = 1,
) -> ActionLayout:
    """Lay out an action space.

    Args:
        space: of one env.
        squashed: whether Box actions are drawn within [-1, 1] and stretched to their bounds, by
            normals whose deviation is an output of the network (SAC), not a parameter of its own.
        num_latent: H, of state-dependent noise: the width of the latent state, which follows the
            means in the network's outputs; 0 makes noise that does not depend on the state.
        noise_interval: steps for which a draw of state-dependent noise is kept.

    Raises:
        SpaceError: a leaf has no distribution, or has no finite bounds to stretch to; or noise is
            to depend on the state, and actions are no Box.
    """
    if num_latent and not isinstance(space, spaces.Box):
        raise SpaceError(
            f"state-dependent noise is for a Box of floats; action_space is {space}; leave "
            "state_dependent_noise out"
        )
    parts: list[ActionPart] = []
    ends = dict.fromkeys(("outputs", "columns", "choices", "deviations"), 0)
    for path, leaf in leaf_spaces(space):
        kind, sizes = _kind(leaf, path, squashed), _sizes(leaf)
        width = int(np.prod(leaf.shape or (), dtype=np.int64))
        has_raw_deviations = kind == "squashed" and not num_latent
        widths = {
            "outputs": sum(sizes) if kind == "categorical" else width * (1 + has_raw_deviations),
            "columns": width,
            "choices": sum(sizes),
            "deviations": width * (num_latent or kind == "gaussian"),
        }
        places = {name: slice(ends[name], ends[name] + size) for name, size in widths.items()}
        ends = {name: place.stop for name, place in places.items()}
        latent = slice(ends["outputs"], ends["outputs"] + num_latent)
        ends["outputs"] = latent.stop
        parts.append(ActionPart(path, leaf, kind, sizes, **places, latent=latent))
    if not ends["columns"]:
        raise SpaceError(f"action_space holds nothing to choose: {space}")
    is_joint = isinstance(space, (spaces.Dict, spaces.Tuple))
    widths = {f"num_{name}": end for name, end in ends.items()}
    return ActionLayout(
        space,
        tuple(parts),
        **widths,
        is_joint=is_joint,
        num_latent=num_latent,
        noise_interval=noise_interval,
    )


def _kind(space: spaces.Space[Any], path: Path, squashed: bool) -> Kind:
    match space:
        case spaces.Discrete() | spaces.MultiDiscrete():
            return "categorical"
        case spaces.MultiBinary():
            return "bernoulli"
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            if squashed and not space.is_bounded("both"):
                raise SpaceError(
                    f"squashed actions need finite bounds; action_space{place_of(path)} is {space}"
                )
            return "squashed" if squashed else "gaussian"
    kind = f"{type(space).__name__} of {space.dtype}" if space.dtype else type(space).__name__
    raise SpaceError(
        f"no built-in policy acts in action_space{place_of(path)}, a {kind}; Discrete, "
        "MultiDiscrete, MultiBinary, Box of floats, and Dict and Tuple of them are supported"
    )


def _sizes(space: spaces.Space[Any]) -> tuple[int, ...]:
    match space:
        case spaces.Discrete():
            return (int(space.n),)
        case spaces.MultiDiscrete():
            return tuple(int(n) for n in np.ravel(space.nvec))
        case spaces.MultiBinary():
            return (2,) * int(np.prod(space.shape))
        case _:
            return ()


def has_action_mask(observation_space: spaces.Space[Any], layout: ActionLayout) -> bool:
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
    if not has_action_mask(observation_space, layout) or MASK_KEY in own:
        return observation_space
    parts = {k: v for k, v in observation_space.spaces.items() if k != MASK_KEY}  # type: ignore[attr-defined]
    return spaces.Dict(parts) if parts else observation_space


def action_masks(obs: Tree) -> npt.NDArray[np.bool_]:
    """The masks in observations ``[N, *obs]`` for which `has_action_mask`: bool ``[N, num_choices]``."""
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
