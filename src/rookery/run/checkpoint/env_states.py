"""The states of envs, taken and given back where the envs live.

An env is a chain of wrappers around one env. Each of them may offer ``get_state()`` and
``set_state(state)``, which then answer for all that lies beneath; of the others the attributes
are pickled. These pickles execute code when they are loaded, so they are kept out of checkpoint.pt
and read only to resume a run that one trusts.
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
    """Pickles the attributes of a chain; where they name a member of it, only the place."""

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
    """Return the state of ``env``, or why it cannot be had."""
    chain = _chain(env)
    file = io.BytesIO()
    try:
        states = [link.get_state() if _keeps_state(link) else vars(link) for link in chain]
        pickle.dump(_kinds(chain), file)
        _Pickler(file, chain).dump(states)
    except Exception as error:  # noqa: BLE001  whatever the env's parts raise when they are pickled
        return f"{type(error).__name__}: {error}"
    return file.getvalue()


class Restore:
    """A function that gives an env the state that `capture` took of another one like it."""

    def __init__(self, state: bytes) -> None:
        self._state = state

    def __call__(self, env: gym.Env[Any, Any]) -> None:
        """Give ``env`` the state.

        Raises:
            ValueError: the state is that of other wrappers, or of another env; this one is as it
                was.
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
        """The state of each member of a chain, once it is known to be that of such members."""
        file = io.BytesIO(self._state)
        first = _Unpickler(file, chain).load()
        if isinstance(first, list):  # as earlier versions wrote it, without the kinds of members
            states, kinds = first, _kinds(chain)[: len(first)]
        else:
            kinds = first
            states = _Unpickler(file, chain).load() if kinds == _kinds(chain) else []
        if len(states) != len(chain):
            raise ValueError(
                f"the state is that of {' of '.join(kinds)}, but the env is "
                f"{' of '.join(_kinds(chain))}"
            )
        return states


def capture_all(venv: VectorEnv) -> tuple[list[bytes] | None, str]:
    """Return the state of every env, or None and the reason if one of them cannot be had."""
    try:
        states = venv.apply(capture)
    except EnvFailed as error:
        return None, str(error)
    for env_id, state in enumerate(states):
        if isinstance(state, str):
            return None, f"env {env_id}: {state}"
    return states, ""


def restore_all(venv: VectorEnv, states: list[bytes]) -> None:
    """Give every env the state that `capture_all` returned for it."""
    for env_id, state in enumerate(states):
        venv.apply(Restore(state), [env_id])


def _keeps_state(link: Any) -> bool:
    return hasattr(type(link), "get_state") and hasattr(type(link), "set_state")


def _kinds(chain: list[Any]) -> tuple[str, ...]:
    """The classes of a chain's members, without modules: a script's has another name in workers."""
    return tuple(type(link).__qualname__ for link in chain)


def _chain(env: gym.Env[Any, Any]) -> list[Any]:
    """List wrappers from the outermost inwards, down to who answers for the rest."""
    chain: list[Any] = [env]
    while isinstance(chain[-1], gym.Wrapper) and not _keeps_state(chain[-1]):
        chain.append(chain[-1].env)
    return chain
