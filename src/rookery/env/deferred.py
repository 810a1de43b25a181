"""Deferred: an argument that is built where the env lives, because it cannot travel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Literal

from rookery.common.arguments import unfit

Scope = Literal["env", "worker"]


class Deferred:
    """A promise of an argument: ``factory(*args, **kwargs)``, called in the env's own process.

    Sockets, file handles, locks and handles of native libraries cannot be sent to another process;
    what they are built from can. The built object is closed with the worker, through its
    ``close`` or else its ``__exit__`` method, if it has one.

    Args:
        factory: what builds the argument.
        *args: given to the factory.
        scope: ``"env"`` builds one for each env, ``"worker"`` one for all envs of a process.
        **kwargs: given to the factory.

    Raises:
        ConfigError: when the factory cannot be called, or there is no such scope.
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
        self._shared: dict[
            int, tuple[Deferred, Any]
        ] = {}  # keeps the Deferred, so its id stays its own

    def resolve(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``kwargs`` with every Deferred value replaced by what it builds."""
        return {
            name: self._build(value) if isinstance(value, Deferred) else value
            for name, value in kwargs.items()
        }

    def close(self) -> None:
        """Close what was built."""
        self._shared.clear()
        self._built.close()

    def _build(self, deferred: Deferred) -> Any:
        if deferred.scope == "worker" and id(deferred) in self._shared:
            return self._shared[id(deferred)][1]
        built = deferred.factory(*deferred.args, **deferred.kwargs)
        self._close_later(built)
        if deferred.scope == "worker":
            self._shared[id(deferred)] = (deferred, built)
        return built

    def _close_later(self, built: Any) -> None:
        if callable(getattr(built, "close", None)):
            self._built.callback(built.close)
        elif hasattr(type(built), "__exit__") and not hasattr(built, "release"):
            self._built.push(built)  # a lock's __exit__ would release what was never acquired
