"""Agent: a trained policy to act with, out of a file, without an env."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium import spaces as gym_spaces

from rookery.common.arguments import unfit
from rookery.common.trees import num_rows, tree_map
from rookery.env.wrappers.action_mask import MASK_KEY
from rookery.errors import ConfigError
from rookery.learn.base import Algorithm
from rookery.policy.action_masks import read_space
from rookery.policy.actions import action_layout
from rookery.policy.base import Policy
from rookery.run.agent_inputs import as_batch
from rookery.run.algorithm_record import SHAPES, agent_algorithm, algorithm_to_dict
from rookery.run.algorithms import BuiltIn, OwnModules, is_own, name_of
from rookery.run.checkpoint.files import load_checkpoint
from rookery.run.checkpoint.run_dir import whole_file
from rookery.run.checkpoint.space_data import space_form, space_from_data, space_to_data
from rookery.run.custom_algorithm import check_policy

Spaces: TypeAlias = "tuple[Space[Any], Space[Any]]"


class Agent:
    """Acts on observations as a policy does that was trained.

    ``rookery.load`` and `Trainer.agent` make it. A recurrent agent remembers the episodes of the
    batch that it acts on; `reset` begins new ones.

    Args:
        policy: who acts.
        spaces: observation space and action space of one env.
        steps: env steps that it was trained for.

    Attributes:
        observation_space: of one env.
        action_space: of one env.
        policy: who acts.
        steps: env steps that it was trained for.
    """

    _num_rows = 0  # of the batch that was acted on last; 0 before the first

    def __init__(self, policy: Policy, spaces: Spaces, steps: int = 0) -> None:
        self.policy = policy
        self.observation_space, self.action_space = spaces
        self.steps = steps

    @classmethod
    def of(cls, algorithm: Algorithm, spaces: Spaces, policy: Any, steps: int = 0) -> Agent:
        """A copy of a policy that is being trained."""
        own: Any = algorithm.make_policy(*spaces, 0)
        own.model.load_state_dict(copy.deepcopy(policy.model.state_dict()))
        own.version = policy.version
        return cls(own, spaces, steps)

    def act(self, obs: Any, deterministic: bool = True) -> Any:
        """Decide.

        Args:
            obs: one observation, as the env gives it, or a batch ``[N, *obs]``.
            deterministic: take the most probable action instead of drawing one.

        Returns:
            An action that fits the action space, or ``[N, *action]`` for a batch.

        Raises:
            SpaceError: ``obs`` is neither, or holds what no observation of the space does.
        """
        batch, is_single = as_batch(self.observation_space, obs)
        self._num_rows = num_rows(batch)
        action = self.policy.to_env(self.policy.act(batch, deterministic).action)
        if not is_single:
            return action
        one = tree_map(lambda rows: rows[0], action)
        return int(one) if isinstance(self.action_space, gym_spaces.Discrete) else one

    def reset(self, begins: npt.ArrayLike | None = None) -> None:
        """Begin new episodes; only an agent that is recurrent, or explores, needs to be told.

        Args:
            begins: bool ``[N]``, in which envs of the batch; None means in all.

        Raises:
            ConfigError: ``begins`` is something else, or not of the batch that was acted on last.
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
        """Write the policy, normalisation included, to a file that needs no rookery to run.

        It takes a batch of observations ``[N, *obs]``, of the dtypes of the observation space, and
        gives the most probable actions, as the env takes them. (It knows int64 in the place of
        uint16, uint32 and uint64.) A policy that remembers takes its memory ``[N, memory_size]``,
        zeros at an episode's beginning, as second argument and gives the next one as second result.
        In ONNX files inputs are called ``obs`` and ``memory``, outputs ``action`` and
        ``next_memory``; parts of a Dict or Tuple add their path, such as ``action_arm``.

        Args:
            path: ``.onnx`` for ONNX, ``.pt2`` for ``torch.export``, ``.ts`` for TorchScript, which
                takes observations and actions of one array each only.

        Returns:
            The file.

        Raises:
            ConfigError: the policy cannot be written so, or there is no such folder.
            StorageError: the file cannot be written.
            MissingExtra: ONNX is not installed.
        """
        from rookery.policy.torch.export import exported
        from rookery.policy.torch.policy_module import PolicyModule

        module = getattr(self.policy.model, "module", None)
        if not isinstance(module, PolicyModule):
            raise ConfigError(f"{type(self.policy).__name__} is no policy that can be exported")
        path = Path(path)
        if not path.parent.is_dir():
            raise ConfigError(f"export: the folder {path.parent} is not there; make it")
        content = exported(module, self.observation_space, path)
        with whole_file(path, has_one_writer=False, way_out="choose another file") as file:
            file.write(content)
        return path

    def give_weights_to(self, policy: Any, spaces: Spaces) -> None:
        """Have another policy of the same kind begin with these weights.

        Args:
            policy: the other one.
            spaces: its observation space and action space; bounds may be others than of this one.

        Raises:
            ConfigError: it is of another kind.
        """
        mine: Any = self.policy
        own = self.observation_space, self.action_space
        for kind, space, other in zip(("observation", "action"), own, spaces, strict=True):
            if space_form(space) != space_form(other):
                raise ConfigError(
                    f"the initial agent's {kind} space is {space}, and this run's is {other}: its "
                    "weights would mean something else"
                )
        try:
            policy.model.load_state_dict(copy.deepcopy(mine.model.state_dict()))
        except (KeyError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the initial agent's weights do not fit this run's policy: {error}; give the run "
                "the same algorithm, network settings and spaces"
            ) from error
        for theirs, ours in zip(_layers(mine), _layers(policy), strict=False):
            if theirs != ours:
                raise ConfigError(
                    f"the initial agent's network has {theirs} where this run's has {ours}; give "
                    "the run the same algorithm and network settings, such as activation"
                )


def load(
    path: str | Path,
    *,
    algo: Any = None,
    encoder: Any = None,
    network: Any = None,
    learner: Any = None,
) -> Agent:
    """Load a trained policy. It needs no env, and executes no code of the file.

    Args:
        path: a run's folder, or a file in it such as ``best.pt``.
        algo: needed where the run was trained with an algorithm object of one's own.
        encoder: needed where the run was trained with it.
        network: likewise.
        learner: needed if the run had a custom learner that defines ``make_policy``.

    Raises:
        ConfigError: there is no checkpoint, or it cannot be understood.
    """
    path = Path(path)
    file = path / "checkpoint.pt" if path.is_dir() else path
    saved = load_checkpoint(file)
    _, written, (observation_space, action_space) = _told(saved, file)
    algorithm = agent_algorithm(written, file, algo, OwnModules(encoder, network, learner))
    if observation_space is None or action_space is None:
        raise ConfigError(f"{file}: its spaces are of a kind that files do not hold")
    return agent_of(saved, algorithm, (observation_space, action_space), file)


def agent_of(saved: dict[str, Any], algorithm: Algorithm, spaces: Spaces, file: Path) -> Agent:
    """Build the agent of a checkpoint.

    Args:
        saved: what the checkpoint holds.
        algorithm: that it was trained with.
        spaces: of observations and actions.
        file: the checkpoint, for messages.

    Raises:
        ConfigError: it is of another algorithm, other spaces, or another network.
    """
    fits(saved, algorithm, spaces, file)
    algorithm = with_saved_layers(algorithm, saved)
    policy: Any = algorithm.make_policy(*spaces, 0)
    if is_own(algorithm):
        check_policy(algorithm, policy)
    try:
        policy.model.load_state_dict(saved["model"])
        policy.version = saved["policy_version"]
        return Agent(policy, spaces, saved["steps"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        why = differences(saved, algorithm)
        raise ConfigError(f"{file} holds no weights that fit its network: {why}{error}") from error


def with_saved_layers(algorithm: Algorithm, saved: dict[str, Any]) -> Algorithm:
    """Return the algorithm with the hidden layers that a checkpoint's network has.

    ``hidden_sizes=None`` leaves the choice to the version in use. Version 0.9 chose no hidden
    layers behind any encoder with parameters, so None means () for its checkpoints.
    """
    if not isinstance(algorithm, BuiltIn) or algorithm.modules.network is not None:
        return algorithm
    if algorithm.config.hidden_sizes is not None:
        return algorithm
    try:
        names = list(saved["model"]["module"])
    except (KeyError, TypeError):
        return algorithm  # the caller reports what is missing
    has_heads = "network.actor.weight" in names  # SAC and TD3 have one stack, and always layers
    if not has_heads or any(name.startswith("network.towers.") for name in names):
        return algorithm
    config: Any = algorithm.config
    return BuiltIn(algorithm.name, replace(config, hidden_sizes=()), algorithm.modules)


def described(algorithm: Algorithm, spaces: Spaces) -> dict[str, Any]:
    """What a checkpoint says of its policy: enough to build it again without an env."""
    observation, action = (space_to_data(space) for space in spaces)
    return {
        "algorithm": algorithm_to_dict(algorithm),
        "spaces": {"observation": observation, "action": action},
        "leaves_mask_out": _leaves_mask_out(algorithm, spaces),
    }


def _leaves_mask_out(algorithm: Algorithm, spaces: Spaces) -> bool:
    """Whether observations show an action mask that the network does not read."""
    if not isinstance(algorithm, BuiltIn) or algorithm.modules.network is not None:
        return False
    encoder = algorithm.modules.encoder
    if encoder is not None and not isinstance(encoder, Mapping):
        return False
    observation, action = spaces
    return read_space(observation, action_layout(action), encoder or ()) is not observation


def fits(saved: dict[str, Any], algorithm: Algorithm, spaces: Spaces, path: Path) -> None:
    """Refuse a checkpoint of another run: of other spaces, another algorithm, or other features.

    Raises:
        ConfigError: then.
    """
    of_file, _, theirs = _told(saved, path)
    name = name_of(algorithm)
    if of_file != name:
        raise ConfigError(f"{path} is of algorithm {of_file!r}, this run is of {name!r}")
    for kind, space, other in zip(("observation", "action"), spaces, theirs, strict=True):
        if other is not None and other != space:
            raise ConfigError(f"{path} is of {kind} space {other}, this run is of {space}")
    if _leaves_mask_out(algorithm, spaces) and not saved.get("leaves_mask_out"):
        raise ConfigError(
            f"{path} is of a version whose networks read the part {MASK_KEY!r} of observations, "
            "which only says what is legal now; use the version that wrote it, or train again"
        )


def _layers(policy: Any) -> list[str]:
    """What the layers of a policy's network are, as far as their weights do not tell."""
    module = getattr(policy.model, "module", None)
    if module is None:
        return []
    kinds = []
    for layer in module.modules():
        activation = getattr(layer, "activation", None)
        named = f" with activation {activation}" if isinstance(activation, str) else ""
        kinds.append(f"a {type(layer).__name__}{named}")
    return kinds


def _told(saved: dict[str, Any], path: Path) -> tuple[str, dict[str, Any], list[Space[Any] | None]]:
    """A checkpoint's algorithm by name and in full, and its spaces, None for unknown kinds.

    Raises:
        ConfigError: it says nothing of them.
    """
    try:
        written, name = saved["algorithm"], saved["algorithm"]["algo"]
        theirs = [space_from_data(saved["spaces"][key]) for key in ("observation", "action")]
        return name, written, theirs
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not the checkpoint of a run: {error} is missing") from error


def differences(saved: dict[str, Any], algorithm: Algorithm) -> str:
    """Which settings that decide shapes are others in a checkpoint, in words for messages."""
    config = getattr(algorithm, "config", None)
    theirs = saved["algorithm"].get(name_of(algorithm)) or {}
    said = []
    for key in sorted(SHAPES & theirs.keys()):
        there = tuple(theirs[key]) if isinstance(theirs[key], list) else theirs[key]
        here = getattr(config, key, there)
        if here != there:
            said.append(f"{key} is {there} there and {here} here; ")
    return "".join(said)
