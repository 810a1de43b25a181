"""Agents: trained policies that act without an env, on one observation or a batch.

Observations are checked: a value that a cast to the space's dtype would change raises an error.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from rookery.common.arguments import unfit
from rookery.common.env_errors import in_words
from rookery.common.trees import Tree, num_rows, tree_map
from rookery.errors import ConfigError, SpaceError
from rookery.learn.base import Algorithm
from rookery.policy.base import Policy
from rookery.rollout.text import text_as_arrays
from rookery.run.checkpoint.files import space_form
from rookery.run.checkpoint.run_dir import whole_file

Spaces: TypeAlias = "tuple[Space[Any], Space[Any]]"


class Agent:
    """A trained policy that maps observations to actions.

    ``rookery.load`` and `Trainer.agent` return agents. A recurrent agent keeps a memory for each
    env of a batch; call `reset` when episodes begin.

    Args:
        policy: the trained policy.
        spaces: observation space and action space of one env.
        steps: number of env steps of the training.

    Attributes:
        observation_space: observation space of one env.
        action_space: action space of one env.
        policy: the trained policy.
        steps: number of env steps of the training.
    """

    _num_rows = 0  # rows of the last batch; 0 before the first

    def __init__(self, policy: Policy, spaces: Spaces, steps: int = 0) -> None:
        self.policy = policy
        self.observation_space, self.action_space = spaces
        self.steps = steps

    @classmethod
    def of(cls, algorithm: Algorithm, spaces: Spaces, policy: Any, steps: int = 0) -> Agent:
        """Return an agent with a copy of a policy that is being trained."""
        copied: Any = algorithm.make_policy(*spaces, 0)
        copied.model.load_state_dict(copy.deepcopy(policy.model.state_dict()))
        copied.version = policy.version
        return cls(copied, spaces, steps)

    def act(self, obs: Any, deterministic: bool = True) -> Any:
        """Return an action for an observation, or actions for a batch of observations.

        Args:
            obs: one observation of the observation space, or a batch ``[N, *obs]``.
            deterministic: take the most probable action instead of sampling one.

        Returns:
            An action of the action space, or ``[N, *action]`` for a batch.

        Raises:
            SpaceError: ``obs`` has another form, or holds values outside the observation space.
        """
        batch, is_single = as_batch(self.observation_space, obs)
        self._num_rows = num_rows(batch)
        action = self.policy.to_env(self.policy.act(batch, deterministic).action)
        if not is_single:
            return action
        one = tree_map(lambda rows: rows[0], action)
        return int(one) if isinstance(self.action_space, spaces.Discrete) else one

    def reset(self, begins: npt.ArrayLike | None = None) -> None:
        """Clear the memory of envs in which an episode begins.

        Only recurrent policies and policies with exploration noise over several steps need this.

        Args:
            begins: bool ``[N]``, True for each env of the batch in which an episode begins. None
                means all envs.

        Raises:
            ConfigError: ``begins`` has another type, or its length is not that of the last batch.
        """
        if begins is None:
            self.policy.memory = self.policy.held_noise = None
            return
        selected = np.asarray(begins)
        num_envs = self._num_rows or selected.size
        if selected.dtype != np.bool_ or selected.shape != (num_envs,):
            which = f"bool [{num_envs}], True for each env of the batch in which an episode begins"
            raise unfit("begins", f"{which}, or None for all", begins)
        self.policy.begin_episodes(selected)

    def export(self, path: str | Path) -> Path:
        """Write the policy and its normalisation to a file that runs without rookery.

        The exported function takes a batch of observations ``[N, *obs]`` with the dtypes of the
        observation space, but int64 instead of uint16, uint32 and uint64. It returns the most
        probable actions, in the form that the env takes.

        A recurrent policy takes its memory ``[N, memory_size]`` as second argument, zeros at the
        beginning of an episode. It returns the next memory as second result.

        ONNX inputs are named ``obs`` and ``memory``, outputs ``action`` and ``next_memory``. Names
        of the parts of a Dict or Tuple end in their path, such as ``action_arm``.

        Args:
            path: path of the file. ``.onnx`` selects ONNX, ``.pt2`` selects ``torch.export``, and
                ``.ts`` selects TorchScript. TorchScript supports only observations and actions of
                one array each.

        Returns:
            Path of the file.

        Raises:
            ConfigError: the policy does not support this format, or the folder does not exist.
            StorageError: the file cannot be written.
            MissingExtra: ONNX is not installed.
        """
        from rookery.policy.torch.export import exported
        from rookery.policy.torch.policy_module import PolicyModule

        module = getattr(self.policy.model, "module", None)
        if not isinstance(module, PolicyModule):
            raise ConfigError(
                f"{type(self.policy).__name__} cannot be exported; only policies of rookery can"
            )
        path = Path(path)
        if not path.parent.is_dir():
            raise ConfigError(f"export: folder {path.parent} does not exist; create it")
        content = exported(module, self.observation_space, path)
        with whole_file(path, has_one_writer=False, way_out="choose another file") as file:
            file.write(content)
        return path

    def give_weights_to(self, policy: Any, spaces: Spaces) -> None:
        """Copy the weights to another policy with the same network.

        Args:
            policy: policy that receives the weights.
            spaces: observation space and action space of ``policy``. Bounds of boxes may differ
                from those of this agent.

        Raises:
            ConfigError: the spaces or networks differ.
        """
        mine: Any = self.policy
        agent_spaces = self.observation_space, self.action_space
        for kind, space, other in zip(("observation", "action"), agent_spaces, spaces, strict=True):
            if space_form(space) != space_form(other):
                raise ConfigError(
                    f"the initial agent's {kind} space is {space}, but this run's is {other}; "
                    "use an agent with the same spaces"
                )
        try:
            policy.model.load_state_dict(copy.deepcopy(mine.model.state_dict()))
        except (KeyError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the initial agent's weights do not fit this run's policy: {error}; give the run "
                "the same algorithm, network settings and spaces"
            ) from error
        for layer, in_run in zip(_layers(mine), _layers(policy), strict=False):
            if layer != in_run:
                raise ConfigError(
                    f"the initial agent's network has {layer}, but this run's has {in_run}; give "
                    "the run the same algorithm and network settings, such as activation"
                )


def _layers(policy: Any) -> list[str]:
    """Describe the layers of a policy's network: classes and activations."""
    module = getattr(policy.model, "module", None)
    if module is None:
        return []
    kinds = []
    for layer in module.modules():
        activation = getattr(layer, "activation", None)
        named = f" with activation {activation}" if isinstance(activation, str) else ""
        kinds.append(f"a {type(layer).__name__}{named}")
    return kinds


_NUMBERS = "biuf"  # dtype kinds


def as_batch(space: Space[Any], obs: Any) -> tuple[Tree, bool]:
    """Convert a single observation or a batch of observations to a batch.

    Args:
        space: space of a single observation.
        obs: a single observation or a batch.

    Returns:
        The batch, and True if ``obs`` was a single observation.

    Raises:
        SpaceError: ``obs`` has another form, or holds numbers that are outside the space.
    """
    try:
        if _has_form(space, obs, is_batch=False):
            return tree_map(lambda leaf: np.asarray(leaf)[None], _as_tree(space, obs)), True
        if not _has_form(space, obs, is_batch=True):
            raise SpaceError(
                f"the observation {_shapes(obs)} is neither one of {space}, nor a batch of such"
            )
        batch = _as_tree(space, obs)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise SpaceError(
            f"the observation {in_words(obs)} does not fit {space}: {error}"
        ) from error
    _require_one_length(obs, batch)
    return batch, False


def _require_one_length(obs: Any, batch: Tree) -> None:
    """Raise if the parts have different lengths or the batch is empty."""
    lengths: set[int] = set()
    tree_map(lambda leaf: lengths.add(len(leaf)), batch)
    if len(lengths) > 1:
        raise SpaceError(
            f"the parts of a batch must have the same number of rows, one for each env; those of "
            f"this observation are {_shapes(obs)}"
        )
    if lengths == {0}:
        raise SpaceError("a batch must have at least one observation; this one is empty")


def _has_form(space: Space[Any], obs: Any, is_batch: bool) -> bool:
    """Return True if ``obs`` has the form of one observation, or of a batch of them."""
    match space:
        case spaces.Dict():
            return isinstance(obs, dict) and all(
                key in obs and _has_form(part, obs[key], is_batch)
                for key, part in space.spaces.items()
            )
        case spaces.Tuple():
            return (
                isinstance(obs, tuple)
                and len(obs) == len(space.spaces)
                and all(
                    _has_form(part, value, is_batch)
                    for part, value in zip(space.spaces, obs, strict=True)
                )
            )
        case spaces.Text():
            return _is_text(obs) if not is_batch else np.ndim(obs) == 1 and all(map(_is_text, obs))
    shape = np.shape(obs)
    if is_batch:
        return bool(len(shape) > 0 and shape[1:] == space.shape)
    return bool(shape == space.shape)


def _as_tree(space: Space[Any], obs: Any) -> Tree:
    match space:
        case spaces.Dict():
            return {key: _as_tree(part, obs[key]) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(map(_as_tree, space.spaces, obs))
        case spaces.Discrete():
            return _whole(space, obs, space.start, space.start + space.n)
        case spaces.MultiDiscrete():
            return _whole(space, obs, space.start, space.start + space.nvec)
        case spaces.MultiBinary():
            return _whole(space, obs, 0, 2)
        case spaces.Text():
            return text_as_arrays(space, obs)
    dtype = np.dtype(space.dtype)
    if dtype.kind == "b":
        return _whole(space, obs, 0, 2)
    if dtype.kind in "iu":
        kind = np.iinfo(dtype)
        return _whole(space, obs, kind.min, kind.max + 1)
    return _finite(space, obs)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)  # includes numpy strings


def _whole(space: Space[Any], obs: Any, low: Any, end: Any) -> npt.NDArray[Any]:
    """Convert integers in ``[low, end)`` to an array of the space's dtype.

    Raises:
        SpaceError: a number is not an integer or outside this range.
    """
    given = _numbers(space, obs)
    with np.errstate(invalid="ignore"):
        numbers = given.astype(space.dtype)
    if ((numbers != given) | (given < low) | (given >= end)).any():
        raise SpaceError(f"the observation {in_words(obs)} holds a number that is not in {space}")
    return numbers


def _finite(space: Space[Any], obs: Any) -> npt.NDArray[Any]:
    """Convert numbers to an array of the space's dtype.

    Raises:
        SpaceError: a number is not finite in this dtype.
    """
    with np.errstate(over="ignore"):
        numbers = _numbers(space, obs).astype(space.dtype)
    if not np.isfinite(numbers).all():
        raise SpaceError(
            f"the observation {in_words(obs)} holds a number that is not finite (NaN, infinite, or "
            f"too large for {space.dtype})"
        )
    return numbers


def _numbers(space: Space[Any], obs: Any) -> npt.NDArray[Any]:
    given = np.asarray(obs)
    if given.dtype.kind not in _NUMBERS:
        raise SpaceError(f"the observation {in_words(obs)} is not of numbers, as {space} is")
    return given


def _shapes(obs: Any) -> str:
    if isinstance(obs, dict):
        return "{" + ", ".join(f"{key}: {_shapes(part)}" for key, part in obs.items()) + "}"
    if isinstance(obs, tuple):
        return "(" + ", ".join(map(_shapes, obs)) + ")"
    return f"of shape {np.shape(obs)}"
