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
from rookery.policy.action_masks import read_space
from rookery.policy.actions import action_layout
from rookery.run.agent import Agent, Spaces
from rookery.run.algorithms import BuiltIn, OwnModules, is_own, name_of
from rookery.run.checkpoint.files import load_checkpoint, space_from_data, space_to_data
from rookery.run.checks import check_policy
from rookery.run.plan import SHAPES, agent_algorithm, algorithm_to_dict


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
