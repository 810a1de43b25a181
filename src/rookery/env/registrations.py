"""What the caller registered with Gymnasium, so that a worker can make it too.

A worker is a fresh interpreter: it knows Gymnasium's own envs and those of installed plug-ins, but
not what the caller's script registered. Every other spec travels, each pickled on its own, so that
one that cannot travel spoils no other; it is missed only if a worker asks for it.
"""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rookery.env.travel import by_value

Registrations = dict[str, bytes]

_OWN_PREFIX = "gymnasium.envs."


def collect() -> tuple[Registrations, dict[str, str]]:
    """What is registered here beyond Gymnasium's own.

    Returns:
        The pickled specs by id, and for each that cannot travel the reason.
    """
    specs: Registrations = {}
    reasons: dict[str, str] = {}
    for env_id, spec in list(gym.registry.items()):
        if _is_own(spec):
            continue
        try:
            specs[env_id] = _pickled(spec)
        except Exception as error:  # a spec may hold anything, and pickling then raise anything
            reasons[env_id] = f"{type(error).__name__}: {error}"
    return specs, reasons


def install(specs: Registrations) -> None:
    """Register the specs that this process does not know yet."""
    for env_id, pickled in specs.items():
        if env_id not in gym.registry:
            gym.registry[env_id] = pickle.loads(pickled)


def _is_own(spec: EnvSpec) -> bool:
    return isinstance(spec.entry_point, str) and spec.entry_point.startswith(_OWN_PREFIX)


def _pickled(spec: Any) -> bytes:
    if isinstance(spec.entry_point, str) and not spec.kwargs:
        return pickle.dumps(spec)
    return by_value(spec)
