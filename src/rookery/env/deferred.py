"""Deferred: an argument that is built in the worker of the env, because it cannot be pickled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Literal

from rookery.common.arguments import unfit

Scope = Literal["env", "worker"]


class Deferred:
    """An argument of an env that is built in the process where the env runs.

    Sockets, file handles, locks and handles of native libraries cannot be pickled, so they cannot
    be sent to a worker process. ``Deferred(factory, *args, **kwargs)`` is sent in their place, and
    the worker calls ``factory(*args, **kwargs)``. All backends do the same, so an env gets the same
    arguments on each of them. When the worker closes its envs, it then closes what the factory
    returned: it calls its ``close`` method, or else its ``__exit__`` method, if it has one.

    A Deferred can be a value of ``env_kwargs``, an argument of another Deferred, or lie inside of
    dicts, lists and tuples (also named tuples) of these, at any depth. The env gets a copy of such
    a container, of the same type. Keys of dicts, sets and attributes of other objects are not
    searched: build the whole object with a Deferred instead.

    Example:
        ``env_kwargs={"io": {"lock": Deferred(threading.Lock), "retries": 3}}``

    Args:
        factory: callable that builds the argument.
        *args: arguments of the factory.
        scope: ``"env"`` builds one for each env, ``"worker"`` one for all envs of a process.
        **kwargs: keyword arguments of the factory.

    Raises:
        ConfigError: the factory cannot be called, or the scope is unknown.
    """

    def __init__(
        self, factory: Callable[..., Any], *args: Any, scope: Scope = "env", **kwargs: Any
    ) -> None:
        if not callable(factory):
            raise unfit("the factory of a Deferred", "a callable, not what it would make", factory)
        if scope not in ("env", "worker"):
            raise unfit("the scope of a Deferred", "'env' or 'worker'", scope)
        self.factory = factory
        self.args = args
        self.kwargs = kwargs
        self.scope = scope

    def __repr__(self) -> str:
        name = getattr(self.factory, "__qualname__", repr(self.factory))
        return f"Deferred({name}, scope={self.scope!r})"


class Workshop:
    """Builds the deferred arguments of one process and closes them again, last built first."""

    def __init__(self) -> None:
        self._built = ExitStack()
        # The Deferred is stored too, so that its id is not reused.
        self._shared: dict[int, tuple[Deferred, Any]] = {}

    def resolve(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``kwargs`` with every Deferred replaced by the object that it builds.

        Containers that hold a Deferred are copied. All other values are passed on unchanged.
        """
        copies: dict[int, Any] = {}
        return {name: self._resolved(value, copies) for name, value in kwargs.items()}

    def close(self) -> None:
        """Close all objects that were built."""
        self._shared.clear()
        self._built.close()

    def _resolved(self, value: Any, copies: dict[int, Any]) -> Any:
        """Return ``value`` with every Deferred in it built.

        Args:
            value: any object.
            copies: the copies made so far, by the id of the original. They keep a container that is
                used twice, or that contains itself, one container.
        """
        if isinstance(value, Deferred):
            return self._build(value)
        if id(value) in copies:
            return copies[id(value)]
        if not holds_deferred(value):
            return value
        if isinstance(value, tuple):
            parts = [self._resolved(part, copies) for part in value]
            resolved = value._make(parts) if hasattr(value, "_make") else tuple(parts)
            return copies.setdefault(id(value), resolved)
        copies[id(value)] = resolved = copy.copy(value)
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            resolved[key] = self._resolved(part, copies)
        return resolved

    def _build(self, deferred: Deferred) -> Any:
        if deferred.scope == "worker" and id(deferred) in self._shared:
            return self._shared[id(deferred)][1]
        args, kwargs = self._resolved((deferred.args, deferred.kwargs), {})
        built = deferred.factory(*args, **kwargs)
        self._close_later(built)
        if deferred.scope == "worker":
            self._shared[id(deferred)] = (deferred, built)
        return built

    def _close_later(self, built: Any) -> None:
        if callable(getattr(built, "close", None)):
            self._built.callback(built.close)
        elif hasattr(type(built), "__exit__") and not hasattr(built, "release"):
            self._built.push(built)  # a lock's __exit__ would release what was never acquired


def holds_deferred(value: Any) -> bool:
    """Return whether ``value`` is a Deferred or a dict, list or tuple with a Deferred inside."""
    left, seen = [value], set()
    while left:
        part = left.pop()
        if isinstance(part, Deferred):
            return True
        if isinstance(part, (dict, list, tuple)) and id(part) not in seen:
            seen.add(id(part))
            left.extend(part.values() if isinstance(part, dict) else part)
    return False
