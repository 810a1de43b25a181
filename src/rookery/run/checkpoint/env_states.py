"""Saving and restoring the states of envs, in the processes that run them.

An env is a chain of wrappers around a base env. A wrapper or env may define ``get_state()`` and
``set_state(state)``, which then also cover everything inside it. For all others the attributes are
pickled. These pickles execute code when they are loaded. They are therefore kept out of
checkpoint.pt and are read only to resume a trusted run.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import gymnasium as gym

from rookery.common.pickling import Pickler
from rookery.errors import EnvFailed
from rookery.vector.base import VectorEnv


class _Pickler(Pickler):
    """Pickler of a chain's attributes that stores references to its members as their index."""

    def __init__(self, file: io.BytesIO, chain: list[Any]) -> None:
        super().__init__(file)
        self._places = {id(env): place for place, env in enumerate(chain)}

    def persistent_id(self, value: Any) -> int | None:
        return self._places.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, chain: list[Any]) -> None:
        super().__init__(file)
        self._chain = chain

    def persistent_load(self, place: int) -> Any:
        return self._chain[place]


def capture(env: gym.Env[Any, Any]) -> bytes | str:
    """Return the state of ``env``, or the reason why it cannot be saved."""
    chain = _chain(env)
    file = io.BytesIO()
    try:
        states = [link.get_state() if _keeps_state(link) else vars(link) for link in chain]
        pickle.dump(_kinds(chain), file)
        _Pickler(file, chain).dump(states)
    except Exception as error:  # noqa: BLE001  pickling the env's attributes can raise anything
        return f"{type(error).__name__}: {error}"
    return file.getvalue()


class Restore:
    """Callable that restores in an env the state that `capture` returned for an equal env."""

    def __init__(self, state: bytes) -> None:
        self._state = state

    def __call__(self, env: gym.Env[Any, Any]) -> None:
        """Restore the state in ``env``.

        Raises:
            ValueError: the state belongs to another env or other wrappers; ``env`` is unchanged.
        """
        chain = _chain(env)
        states = self._states(chain)
        for link, state in zip(chain, states, strict=True):
            if _keeps_state(link):
                link.set_state(state)
            else:
                vars(link).clear()
                vars(link).update(state)

    def _states(self, chain: list[Any]) -> list[Any]:
        """Load the state of each member of a chain, after checking the members' classes."""
        file = io.BytesIO(self._state)
        first = _Unpickler(file, chain).load()
        if isinstance(first, list):  # earlier versions stored no classes
            states, kinds = first, _kinds(chain)[: len(first)]
        else:
            kinds = first
            states = _Unpickler(file, chain).load() if kinds == _kinds(chain) else []
        if len(states) != len(chain):
            raise ValueError(
                f"the state belongs to {' of '.join(kinds)}, but the env is "
                f"{' of '.join(_kinds(chain))}"
            )
        return states


def capture_all(venv: VectorEnv) -> tuple[list[bytes] | None, str]:
    """Return the state of every env, or None and the reason why one cannot be saved."""
    try:
        states = venv.apply(capture)
    except EnvFailed as error:
        return None, str(error)
    for env_id, state in enumerate(states):
        if isinstance(state, str):
            return None, f"env {env_id}: {state}"
    return states, ""


def restore_all(venv: VectorEnv, states: list[bytes]) -> None:
    """Restore in every env the state that `capture_all` returned for it."""
    for env_id, state in enumerate(states):
        venv.apply(Restore(state), [env_id])


def _keeps_state(link: Any) -> bool:
    return hasattr(type(link), "get_state") and hasattr(type(link), "set_state")


def _kinds(chain: list[Any]) -> tuple[str, ...]:
    """Return class names without modules, which may differ in workers."""
    return tuple(type(link).__qualname__ for link in chain)


def _chain(env: gym.Env[Any, Any]) -> list[Any]:
    """List wrappers from the outermost inwards, down to the first that defines ``get_state``."""
    chain: list[Any] = [env]
    while isinstance(chain[-1], gym.Wrapper) and not _keeps_state(chain[-1]):
        chain.append(chain[-1].env)
    return chain
