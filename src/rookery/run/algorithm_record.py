"""The description of an algorithm in config.json and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rookery.errors import ConfigError
from rookery.learn.base import Algorithm
from rookery.learn.config_base import Config
from rookery.run.algorithms import BUILT_IN, BuiltIn, OwnModules, algorithm_of, name_of
from rookery.run.env_source import resolve

# Settings that determine the shapes of weights.
SHAPES = {
    "hidden_sizes", "activation", "normalize_obs", "recurrent", "memory_size", "dueling",
    "num_quantiles", "image_encoder", "state_dependent_noise",
}  # fmt: skip


def agent_algorithm(
    written: Mapping[str, Any], where: Path, algo: Any, modules: OwnModules
) -> Algorithm:
    """Create the algorithm that a checkpoint describes, without importing custom networks.

    Raises:
        ConfigError: the description is invalid, or needs an argument that is missing.
    """
    try:
        return algorithm_from_dict(written, algo, modules, imports=False, learns=False)
    except (KeyError, TypeError, ConfigError) as error:
        raise ConfigError(f"{where} cannot be understood: {error}") from error


def algorithm_to_dict(algorithm: Algorithm) -> dict[str, Any]:
    """Describe an algorithm for config.json and checkpoints; see `algorithm_from_dict`."""
    name, config = name_of(algorithm), getattr(algorithm, "config", None)
    modules = algorithm.modules if isinstance(algorithm, BuiltIn) else OwnModules()
    return {
        "algo": name,
        name: config.to_dict() if isinstance(config, Config) else None,
        "own": modules.to_dict(),
        "learner_makes_policy": isinstance(algorithm, BuiltIn) and algorithm.makes_own_policy,
    }


def algorithm_from_dict(
    written: Mapping[str, Any], algo: Any, modules: OwnModules, *, imports: bool, learns: bool
) -> Algorithm:
    """Rebuild an algorithm from what `algorithm_to_dict` recorded.

    Args:
        written: the record.
        algo: replaces the recorded algorithm, if it is not None.
        modules: parts that the user gives again.
        imports: whether recorded parts may be imported.
        learns: whether the algorithm will learn. To act, it needs a custom learner only if that
            one makes the policy.
    """
    if algo is not None:
        return algorithm_of(algo, *modules)
    name = written["algo"]
    if name not in BUILT_IN:
        raise ConfigError(
            f"its algorithm {name!r} is not built into this library; pass it again: algo=..."
        )
    modules.check()
    parts = modules._asdict()
    for part, address in written["own"].items():
        if part == "learner" and not learns and not written["learner_makes_policy"]:
            continue
        if parts[part] is None and imports and address is not None:
            parts[part] = resolve(address)
        if parts[part] is None:
            raise ConfigError(
                f"its {part} is custom ({address or 'a local function'}); pass it again: {part}=..."
            )
    return BuiltIn(name, BUILT_IN[name][0].from_dict(written[name]), OwnModules(**parts))
