"""What the caller registered with Gymnasium, so that a worker can make it too.

A worker is a fresh interpreter: it knows Gymnasium's own envs and those of installed plug-ins, but
not what the caller's script registered. Every other spec travels, each pickled on its own, so that
one that cannot travel spoils no other; it is missed only if a worker asks for it.
"""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rookery.env.culprit import find_culprit
from rookery.env.travel import by_value
from rookery.errors import PicklingError

Registrations = dict[str, bytes]

_OWN_PREFIX = "gymnasium.envs."


def collect() -> Registrations:
    """What is registered here beyond Gymnasium's own, pickled, by id.

    A spec that cannot travel is replaced by one that says so when somebody makes it.
    """
    return {
        env_id: _pickled(spec) for env_id, spec in list(gym.registry.items()) if not _is_own(spec)
    }


def install(specs: Registrations) -> None:
    """Register the specs that this process does not know yet.

    A plug-in that an env imports later registers its own again; that is no news to anybody.
    """
    warnings.filterwarnings("ignore", message=".*Overriding environment .* already in registry")
    for env_id, pickled in specs.items():
        if env_id not in gym.registry:
            gym.registry[env_id] = _loaded(env_id, pickled)


def _loaded(env_id: str, pickled: bytes) -> EnvSpec:
    try:
        spec = pickle.loads(pickled)
        assert isinstance(spec, EnvSpec)
    except Exception as error:  # what it refers to may not exist here
        reason = f"{type(error).__name__}: {error}"
        return EnvSpec(id=env_id, entry_point=_StayedBehind(env_id, reason))
    return spec


def _is_own(spec: EnvSpec) -> bool:
    return isinstance(spec.entry_point, str) and spec.entry_point.startswith(_OWN_PREFIX)


def _pickled(spec: Any) -> bytes:
    if isinstance(spec.entry_point, str) and not spec.kwargs:
        return pickle.dumps(spec)
    try:
        return by_value(spec)
    except Exception as error:  # a spec may hold anything
        path, part = find_culprit(vars(spec), "spec") or ("spec", spec)
        reason = f"{path} ({type(part).__name__}) cannot be pickled: {error}"
        return pickle.dumps(EnvSpec(id=spec.id, entry_point=_StayedBehind(spec.id, reason)))


class _StayedBehind:
    """Stands in a worker for an env whose registration could not travel."""

    def __init__(self, env_id: str, reason: str) -> None:
        self._env_id = env_id
        self._reason = reason

    def __call__(self, **kwargs: Any) -> Any:
        raise PicklingError(
            f"{self._env_id!r} is registered in the calling process, but its registration could "
            f"not be sent to this worker: {self._reason}. Register it in a module and name it as "
            "'module:Id', or use start_method='fork' or backend='serial'."
        )
