"""The caller's Gymnasium registry in a worker, so that ``gymnasium.make`` does the same there.

A worker is a fresh interpreter. It knows Gymnasium's own envs, but not the envs that the caller
added, replaced, changed or deleted. Therefore every spec is sent, pickled separately: a spec that
cannot be pickled does not affect the others, and a worker compares bytes to find the specs it
lacks.
"""

from __future__ import annotations

import copy
import os
import pickle
import sys
import warnings
import zlib
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec

from rookery.common.pickling import advice_for, by_value, find_unpicklable, pickled_for_workers
from rookery.errors import PicklingError

_MAIN = "__main__"
_HERE = os.urandom(16)  # forked processes share it


@dataclass(frozen=True)
class Registrations:
    """The registry of one process, packed for sending.

    Attributes:
        origin: identifies the process. Forked processes share it, and already have the registry.
        packed: the pickled specs by id and the objects of the script that they name, compressed so
            that thousands of specs fit into a pipe's buffer.
    """

    origin: bytes
    packed: bytes


def collect() -> Registrations:
    """Return the registry of this process.

    A spec that cannot be pickled is replaced by one that raises PicklingError when it is made.
    """
    specs = {env_id: _pickled(spec) for env_id, spec in list(gym.registry.items())}
    return Registrations(_HERE, zlib.compress(pickle.dumps((specs, _named_in_main())), 1))


def install(registrations: Registrations) -> None:
    """Replace the registry of this process by ``registrations``.

    Afterwards a module that is imported here cannot replace specs that the caller changed or added:
    the caller has imported it before, or registered specs without it. Code of an env can still
    register specs during a call, as in the calling process.
    """
    if registrations.origin == _HERE:
        return
    specs, named = pickle.loads(zlib.decompress(registrations.packed))
    for name, pickled in named.items():
        setattr(sys.modules[_MAIN], name, _loaded(pickled, f"{_MAIN}:{name}"))
    registry = _CallersRegistry(gym.registry)
    for env_id in [known for known, spec in registry.items() if known not in specs]:
        if _is_stock(registry[env_id]):
            del registry[env_id]
    for env_id, pickled in specs.items():
        if env_id not in registry or _pickled(registry[env_id]) != pickled:
            registry.keep(env_id, _spec_from(pickled, env_id))
    gym.registry = gym.envs.registry = registration.registry = registry
    warnings.filterwarnings("ignore", message=".*Overriding environment .* already in registry")


def self_contained(env_id: str) -> EnvSpec | None:
    """Return the spec of an id, for processes in which the id may mean something else.

    Args:
        env_id: a Gymnasium id, which may begin with ``module:``.

    Returns:
        A spec that refers to no name of the running script, or None if the id is not registered.
    """
    spec = gym.registry.get(env_id.rpartition(":")[2])
    if spec is None or not isinstance(spec.entry_point, str):
        return spec
    module, _, name = spec.entry_point.partition(":")
    if module == _MAIN and hasattr(sys.modules[_MAIN], name):
        spec = copy.copy(spec)
        spec.entry_point = getattr(sys.modules[_MAIN], name)
    return spec


class _CallersRegistry(dict[str, EnvSpec]):
    """A registry that keeps the caller's specs when imported modules register the same ids."""

    def __init__(self, specs: dict[str, EnvSpec]) -> None:
        super().__init__(specs)
        self._kept: set[str] = set()

    def keep(self, env_id: str, spec: EnvSpec) -> None:
        """Register a spec of the caller."""
        super().__setitem__(env_id, spec)
        self._kept.add(env_id)

    def __setitem__(self, env_id: str, spec: EnvSpec) -> None:
        if env_id not in self._kept or env_id not in self or not _is_importing():
            super().__setitem__(env_id, spec)


def _is_importing() -> bool:
    """Return True if the calling code runs during the import of a module."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        is_module, frame = frame.f_code.co_name == "<module>", frame.f_back
        if is_module and frame and frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
    return False


def _is_stock(spec: EnvSpec) -> bool:
    """Return True if Gymnasium registers the spec, so a process without it has deleted it."""
    where = spec.entry_point or spec.vector_entry_point
    module = where if isinstance(where, str) else getattr(where, "__module__", "")
    return str(module).startswith("gymnasium.")


def _pickled(spec: EnvSpec) -> bytes:
    try:
        return pickled_for_workers(spec)
    except Exception as error:  # a spec may hold anything
        return _pickled_in_part(spec, error)


def _pickled_in_part(spec: EnvSpec, error: Exception) -> bytes:
    """Return a spec with entry points that raise an error and name the unpicklable part."""
    substitute = copy.copy(spec)
    for name in ("vector_entry_point", "entry_point", "kwargs", "additional_wrappers"):
        found = find_unpicklable(getattr(spec, name), f"spec.{name}")
        if found is None:
            continue
        stand_in = _Unavailable(spec.id, _cannot_be_pickled(*found, error))
        if name == "vector_entry_point":
            substitute.vector_entry_point = stand_in
        else:
            substitute = EnvSpec(spec.id, stand_in, vector_entry_point=stand_in)
    return pickle.dumps(substitute)


def _cannot_be_pickled(path: str, part: Any, error: Exception) -> str:
    reason = f"{path} ({type(part).__name__}) cannot be pickled: {error}"
    advice = advice_for(part)
    return f"{reason}. {advice}" if advice else reason


def _spec_from(pickled: bytes, env_id: str) -> EnvSpec:
    loaded = _loaded(pickled, env_id)
    return loaded if isinstance(loaded, EnvSpec) else EnvSpec("Unavailable-v0", loaded)


def _loaded(pickled: bytes, name: str) -> Any:
    try:
        return pickle.loads(pickled)
    except Exception as error:  # it may refer to objects that do not exist in this process
        return _Unavailable(name, f"{type(error).__name__}: {error}")


def _named_in_main() -> dict[str, bytes]:
    """Return the pickled objects that specs name as ``"__main__:name"``, by name."""
    named = {}
    for spec in list(gym.registry.values()):
        for place in _places(spec):
            module, _, name = place.partition(":")
            if module == _MAIN and hasattr(sys.modules[_MAIN], name):
                named[name] = getattr(sys.modules[_MAIN], name)
    return {name: _pickled_object(value, name) for name, value in named.items()}


def _places(spec: EnvSpec) -> list[str]:
    """Return the import strings of a spec."""
    wrappers = [wrapper.entry_point for wrapper in spec.additional_wrappers]
    places = (spec.entry_point, spec.vector_entry_point, *wrappers)
    return [place for place in places if isinstance(place, str)]


def _pickled_object(value: Any, name: str) -> bytes:
    try:
        return by_value(value)
    except Exception as error:  # a class of a script may hold anything
        reason = _cannot_be_pickled(*(find_unpicklable(value, name) or (name, value)), error)
        return pickle.dumps(_Unavailable(f"{_MAIN}:{name}", reason))


class _Unavailable:
    """A stand-in for an env with an unpicklable registration. It raises when called."""

    def __init__(self, name: str, reason: str) -> None:
        self._name = name
        self._reason = reason

    def __call__(self, **kwargs: Any) -> Any:
        raise PicklingError(
            f"{self._name!r} is registered in the calling process, but its registration could "
            f"not be sent to this worker: {self._reason}. Register the env in a module and "
            "name it as 'module:Id', or use start_method='fork' or backend='serial'."
        )
