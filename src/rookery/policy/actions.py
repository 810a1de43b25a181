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

# Bounds of the log standard deviation of squashed normals.
LOG_STD_RANGE = (-20.0, 2.0)
# Added to the variance of state-dependent noise, which is zero if the latent state is zero.
NOISE_FLOOR = 1e-6


@dataclass(frozen=True, slots=True)
class ActionPart:
    """One leaf of an action space.

    Attributes:
        path: keys that lead from the whole action to the leaf.
        space: space of the leaf.
        kind: family of its distribution.
        sizes: number of choices of each component; empty for continuous actions.
        outputs: its columns of the network's outputs ``[N, num_outputs]``.
        columns: its columns of encoded actions ``[N, num_columns]``.
        choices: its columns of a mask ``[N, num_choices]``; empty for continuous actions.
        deviations: its entries of the learned ``log_std``; empty if it has none. With
            state-dependent noise there are H * K entries.
        latent: the H columns of the network's outputs that the noise depends on; empty without
            state-dependent noise.
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
        """True if the standard deviation of its noise depends on the state."""
        return bool(self.latent.stop > self.latent.start)

    def encode(self, action: Rows) -> Rows:
        """Convert actions ``[N, *shape]`` of the space to rows ``[N, K]``."""
        rows = np.asarray(action).reshape(len(action), -1)
        if self.kind == "categorical":
            return (rows - np.ravel(self.space.start)).astype(np.int64, copy=False)
        return rows.astype(np.float32, copy=False)

    def decode(self, rows: Rows) -> Rows:
        """Convert rows to actions of the space, without clipping continuous ones."""
        if isinstance(self.space, spaces.Discrete):
            chosen = rows[:, 0].astype(np.int64, copy=False)
            return chosen + self.space.start if self.space.start else chosen
        if self.kind == "categorical":
            rows = rows + np.ravel(self.space.start)
        shaped = rows.reshape(len(rows), *self.space.shape)
        return shaped.astype(self.space.dtype, copy=False) if self.sizes else shaped

    def to_env(self, action: Rows) -> Rows:
        """Clip Box actions to their bounds, or scale them from [-1, 1] to the bounds."""
        if self.kind == "gaussian":
            action = np.clip(action, self.space.low, self.space.high)
        elif self.kind == "squashed":
            low, high = (np.asarray(b, np.float64) for b in (self.space.low, self.space.high))
            # Rounding may exceed the bounds.
            action = np.clip(low + (action + 1.0) * ((high - low) / 2), low, high)
        return np.asarray(action).astype(self.space.dtype, copy=False)


@dataclass(frozen=True, slots=True)
class ActionLayout:
    """The columns of an action space in outputs, encoded actions and masks.

    Attributes:
        space: action space of one env.
        parts: leaves of the space.
        num_outputs: number of outputs of a network per observation.
        num_columns: K, width of encoded actions.
        num_choices: width of a mask; 0 if nothing can be masked. A Discrete has one column per
            action, a MultiDiscrete the columns of all components, and a MultiBinary two columns
            per component: whether zero is legal and whether one is legal.
        num_deviations: length of the learned ``log_std``; 0 if there is none.
        is_joint: whether the space is a Dict or Tuple; rollouts store such actions as rows. The
            flag is read in every step, and ``isinstance`` with these abstract mappings takes 2 us.
        num_latent: H, number of outputs that are the latent state of state-dependent noise; 0
            without such noise.
        noise_interval: number of steps between two draws of state-dependent noise.
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
        """Dtype of encoded actions: int64 if all parts are choices, otherwise float32."""
        is_choice = all(part.kind == "categorical" for part in self.parts)
        return np.dtype(np.int64 if is_choice else np.float32)

    def encode(self, action: Tree) -> Rows:
        """Convert a batch of actions ``[N, *action]`` to rows ``[N, K]``."""
        rows = [part.encode(at_path(action, part.path)) for part in self.parts]
        return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1, dtype=self.dtype)

    def decode(self, rows: Rows) -> Tree:
        """Convert rows ``[N, K]`` to a batch of actions ``[N, *action]``.

        Continuous actions may be outside of their bounds.
        """
        if not self.is_joint:
            return self.parts[0].decode(rows)
        decoded = [part.decode(rows[:, part.columns]) for part in self.parts]
        return batched(self.space, iter(decoded))

    def to_env(self, action: Tree) -> Tree:
        """Clip or scale a batch of decoded actions to the bounds of the action space."""
        if not self.is_joint:
            return self.parts[0].to_env(action)
        fitted = [part.to_env(at_path(action, part.path)) for part in self.parts]
        return batched(self.space, iter(fitted))

    def pack(self, rows: Rows) -> Rows:
        """Convert rows ``[N, K]`` to the array ``[N, ...]`` that a rollout stores."""
        packed: Rows = rows if self.is_joint else self.decode(rows)
        return packed

    def unpack(self, action: Rows) -> Rows:
        """Convert an array ``[N, ...]`` of a rollout to rows ``[N, K]``."""
        return action if self.is_joint else self.encode(action)

    def fit(self, action: Rows) -> Tree:
        """Convert an array ``[N, ...]`` of a rollout to actions for the env."""
        return self.to_env(self.decode(action) if self.is_joint else action)


def packed_form(space: spaces.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of one env's action in a rollout; see `ActionLayout.pack`.

    Raises:
        SpaceError: the space, or a part of a Dict or Tuple, has no array form.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        layout = action_layout(space)
        return (layout.num_columns,), layout.dtype
    if space.shape is None or space.dtype is None:
        raise SpaceError(f"rollouts store actions as one array; {space} has no array form")
    return space.shape, np.dtype(space.dtype)


def action_layout(
    space: spaces.Space[Any],
    *,
    squashed: bool = False,
    num_latent: int = 0,
    noise_interval: int = 1,
) -> ActionLayout:
    """Make the layout of an action space.

    Args:
        space: action space of one env.
        squashed: True draws Box actions within [-1, 1] and scales them to their bounds (SAC). Their
            standard deviation is then an output of the network instead of a parameter.
        num_latent: H, width of the latent state of state-dependent noise, which follows the means
            in the network's outputs; 0 for noise that does not depend on the state.
        noise_interval: number of steps between two draws of state-dependent noise.

    Raises:
        SpaceError: a leaf has no distribution, ``squashed`` is set and a Box has infinite bounds,
            or ``num_latent`` is set and the space is not a Box.
    """
    if num_latent and not isinstance(space, spaces.Box):
        raise SpaceError(
            f"state_dependent_noise needs a Box of floats, not action_space {space}; leave it out"
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
        raise SpaceError(f"action_space has no components: {space}")
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
        f"no built-in policy supports action_space{place_of(path)}, a {kind}; supported are "
        "Discrete, MultiDiscrete, MultiBinary, Box of floats, and Dict and Tuple of these"
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
    """Return True if observations are a Dict with an action mask under `MASK_KEY`.

    An action mask is a MultiBinary, or a Box from 0 to 1, with one number per choice.
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
    observation_space: spaces.Space[Any], layout: ActionLayout, custom: Container[str] = ()
) -> spaces.Space[Any]:
    """Return the observation space that networks read: all parts except an action mask.

    The mask is included if a custom encoder reads it or if it is the only part.

    Args:
        observation_space: observation space of one env.
        layout: layout of the actions.
        custom: dotted paths of the parts that custom encoders read.
    """
    if not has_action_mask(observation_space, layout) or MASK_KEY in custom:
        return observation_space
    parts = {k: v for k, v in observation_space.spaces.items() if k != MASK_KEY}  # type: ignore[attr-defined]
    return spaces.Dict(parts) if parts else observation_space


def action_masks(obs: Tree) -> npt.NDArray[np.bool_]:
    """Return the action masks of observations ``[N, *obs]``: bool ``[N, num_choices]``."""
    rows = np.asarray(obs[MASK_KEY])
    return np.asarray(rows.reshape(len(rows), -1) != 0)


def require_mask_shape(layout: ActionLayout, mask: Any, num_rows: int) -> None:
    """Raise `SpaceValueError` if a mask, array or tensor, is not ``[num_rows, num_choices]``."""
    if tuple(mask.shape) != (num_rows, layout.num_choices):
        raise SpaceValueError(
            f"a mask of {num_rows} rows must be [{num_rows}, {layout.num_choices}] for "
            f"action_space {layout.space}, not {list(mask.shape)}"
        )


def nothing_legal(row: int, mask: list[Any]) -> SpaceValueError:
    """Return the error for a mask without a legal action; ``mask`` is row ``row`` of it."""
    return SpaceValueError(
        f"row {row} of the action mask has no legal action: {list(map(int, mask))}; at least "
        "one choice of every component must be legal"
    )
