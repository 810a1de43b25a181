"""The policy in a checkpoint: its description, and the agent that is built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gymnasium import Space

from rookery.env.wrappers.action_mask import MASK_KEY
from rookery.errors import ConfigError
from rookery.learn.base import Algorithm
from rookery.policy.actions import action_layout, read_space
from rookery.run.agent import Agent, Spaces
from rookery.run.algorithms import (
    SHAPES,
    BuiltIn,
    OwnModules,
    agent_algorithm,
    algorithm_to_dict,
    config_of,
    is_own,
    name_of,
)
from rookery.run.checkpoint.files import load_checkpoint, space_from_data, space_to_data
from rookery.run.checks import check_policy


def load(
    path: str | Path,
    *,
    algo: Any = None,
    encoder: Any = None,
    network: Any = None,
    learner: Any = None,
) -> Agent:
    """Load a trained policy. This builds no env, and executes no code from the file.

    Args:
        path: folder of a run, or a checkpoint file such as ``best.pt``.
        algo: the custom algorithm, if the run was trained with one.
        encoder: the custom encoder, if the run was trained with one.
        network: the custom network, if the run was trained with one.
        learner: the custom learner, if the run had one that defines ``make_policy``.

    Raises:
        ConfigError: there is no checkpoint, or it cannot be loaded with these arguments.
    """
    path = Path(path)
    file = path / "checkpoint.pt" if path.is_dir() else path
    saved = load_checkpoint(file)
    _, written, (observation_space, action_space) = _description(saved, file)
    algorithm = agent_algorithm(written, file, algo, OwnModules(encoder, network, learner))
    if observation_space is None or action_space is None:
        raise ConfigError(f"{file}: its spaces have classes that cannot be stored in checkpoints")
    return agent_of(saved, algorithm, (observation_space, action_space), file)


def agent_of(saved: dict[str, Any], algorithm: Algorithm, spaces: Spaces, file: Path) -> Agent:
    """Build the agent of a checkpoint.

    Args:
        saved: content of the checkpoint.
        algorithm: algorithm of the training.
        spaces: observation space and action space of one env.
        file: path of the checkpoint, for error messages.

    Raises:
        ConfigError: the checkpoint has another algorithm, other spaces or another network.
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
        raise ConfigError(f"the weights in {file} do not fit its network: {why}{error}") from error


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
    """Return the description of a policy in a checkpoint, from which it is built without an env."""
    observation, action = (space_to_data(space) for space in spaces)
    return {
        "algorithm": algorithm_to_dict(algorithm),
        "spaces": {"observation": observation, "action": action},
        "leaves_mask_out": _leaves_mask_out(algorithm, spaces),
    }


def _leaves_mask_out(algorithm: Algorithm, spaces: Spaces) -> bool:
    """Return True if observations contain an action mask that the network does not read."""
    if not isinstance(algorithm, BuiltIn) or algorithm.modules.network is not None:
        return False
    encoder = algorithm.modules.encoder
    if encoder is not None and not isinstance(encoder, Mapping):
        return False
    observation, action = spaces
    return read_space(observation, action_layout(action), encoder or ()) is not observation


def fits(saved: dict[str, Any], algorithm: Algorithm, spaces: Spaces, path: Path) -> None:
    """Raise if a checkpoint does not fit a run.

    Raises:
        ConfigError: its algorithm, spaces or network inputs differ.
    """
    of_file, _, theirs = _description(saved, path)
    name = name_of(algorithm)
    if of_file != name:
        raise ConfigError(f"{path} has algorithm {of_file!r}, but this run has {name!r}")
    for kind, space, other in zip(("observation", "action"), spaces, theirs, strict=True):
        if other is not None and other != space:
            raise ConfigError(f"{path} has {kind} space {other}, but this run has {space}")
    if _leaves_mask_out(algorithm, spaces) and not saved.get("leaves_mask_out"):
        raise ConfigError(
            f"{path} is from an earlier version, whose networks read the part {MASK_KEY!r} of "
            "observations; use the version that wrote it, or train again"
        )


def _description(
    saved: dict[str, Any], path: Path
) -> tuple[str, dict[str, Any], list[Space[Any] | None]]:
    """Return a checkpoint's algorithm by name, its settings, and its spaces.

    A space that cannot be stored is None.

    Raises:
        ConfigError: they are missing.
    """
    try:
        written, name = saved["algorithm"], saved["algorithm"]["algo"]
        theirs = [space_from_data(saved["spaces"][key]) for key in ("observation", "action")]
        return name, written, theirs
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not the checkpoint of a run: {error} is missing") from error


def differences(saved: dict[str, Any], algorithm: Algorithm) -> str:
    """Return a text about settings of a checkpoint's network that differ; empty if none do."""
    config = config_of(algorithm)
    theirs = saved["algorithm"].get(name_of(algorithm)) or {}
    said = []
    for key in sorted(SHAPES & theirs.keys()):
        there = tuple(theirs[key]) if isinstance(theirs[key], list) else theirs[key]
        here = getattr(config, key, there)
        if here != there:
            said.append(f"{key} is {there} in the checkpoint and {here} here; ")
    return "".join(said)
