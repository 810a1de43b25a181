"""Which env a run trains on, in a form that config.json can hold and `evaluate` can rebuild."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymnasium.envs.registration import EnvSpec

from rookery.env.recipe import make_recipes, package_of
from rookery.env.references import imported, reference
from rookery.errors import ConfigError, UnknownEnvError
from rookery.vector.base import VectorEnv
from rookery.vector.make import make_vec


@dataclass(frozen=True, slots=True)
class EnvSource:
    """What `make_vec` is given to build the envs.

    Attributes:
        env: gym id, EnvSpec, or callable that returns an env.
        env_kwargs: given to every env.
        wrappers: callables ``Env -> Env``.
        env_module: module to import first.
    """

    env: Any
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: Sequence[Callable[[Any], Any]] = ()
    env_module: str | None = None

    @property
    def name(self) -> str:
        """A short name for titles and folders."""
        if isinstance(self.env, str):
            return self.env
        return self.env.id if isinstance(self.env, EnvSpec) else reference(self.env) or "env"

    def changed(
        self,
        env: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
        wrappers: Sequence[Callable[[Any], Any]] | None = None,
    ) -> EnvSource:
        """The same source but for what is given. Another env begins without ``env_kwargs``."""
        kwargs = self.env_kwargs if env is None else {}
        return EnvSource(
            self.env if env is None else env,
            kwargs if env_kwargs is None else env_kwargs,
            self.wrappers if wrappers is None else tuple(wrappers),
            self.env_module,
        )

    def make(self, num_envs: int, **options: Any) -> VectorEnv:
        """Build the vector env that training and evaluation use."""
        return make_vec(
            **self.arguments(),
            num_envs=num_envs,
            autoreset_mode="same_step",
            copy=False,
            **options,
        )

    def arguments(self) -> dict[str, Any]:
        """What `make_vec` and `WorkerCollector` take under the same names; registers the env.

        Raises:
            UnknownEnvError: no such env is registered.
        """
        if self.env_module:
            import_module(self.env_module)
        try:
            make_recipes(self.env, None, None, ())
        except UnknownEnvError as error:
            if isinstance(error.__cause__, ImportError):
                raise
            raise UnknownEnvError(f"{error} {self._how_to_register()}") from error
        return {
            "env": self.env,
            "env_kwargs": dict(self.env_kwargs),
            "wrappers": tuple(self.wrappers),
        }

    def _how_to_register(self) -> str:
        """How to have an env registered whose id is not known."""
        module, _, name = str(self.env).rpartition(":")
        if module:
            return f"Module {module!r} was imported, and has no function {name!r} either."
        if self.env_module:
            return f"{self.env_module!r} was imported and does not register it."
        known = package_of(name)
        if known is None:
            return "On the command line, --env-module PACKAGE imports one."
        return f"--env-module {known[0]}, or env_module={known[0]!r} in Python, imports it."

    def to_dict(self) -> dict[str, Any]:
        """Describe the source as JSON data; what has no name becomes null."""
        if isinstance(self.env, str):
            env: Any = self.env
        elif isinstance(self.env, EnvSpec):
            env = {"spec": self.env.to_json()}
        else:
            env = {"callable": reference(self.env)}
        return {
            "env": env,
            "env_kwargs": _as_json(dict(self.env_kwargs)),
            "wrappers": [reference(wrapper) for wrapper in self.wrappers],
            "env_module": self.env_module,
        }

    @classmethod
    def from_dict(
        cls,
        config: dict[str, Any],
        env: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
        wrappers: Sequence[Callable[[Any], Any]] | None = None,
    ) -> EnvSource:
        """Undo `to_dict`; what is given replaces what is written there.

        Raises:
            ConfigError: a part of it could not be written into config.json, and is not given.
        """
        if env is None:
            env = _read_env(config["env"])
        if env_kwargs is None:
            env_kwargs = config["env_kwargs"]
        if env_kwargs is None:
            raise ConfigError(
                "the run's env_kwargs are not JSON data, so config.json does not hold them; pass "
                "them again: rookery.evaluate(run_dir, env_kwargs=...), or rookery.resume likewise"
            )
        if wrappers is None:
            wrappers = [resolve(address) for address in config["wrappers"]]
        return cls(env, env_kwargs, wrappers, config["env_module"])


def _read_env(env: Any) -> Any:
    if not isinstance(env, dict):
        return env
    return EnvSpec.from_json(env["spec"]) if "spec" in env else resolve(env["callable"])


def import_module(name: str) -> Any:
    """Import a module by name.

    Raises:
        ConfigError: it cannot be found.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"cannot import {name!r}: {error}") from error


def _as_json(value: Any) -> Any:
    """Return ``value`` as it comes back from JSON, or None where JSON cannot hold it."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return None


def resolve(address: str | None) -> Any:
    """Import what `reference` named.

    Raises:
        ConfigError: it had no name, or is not there any more.
    """
    if address is None:
        raise ConfigError(
            "the run's env or a wrapper was a lambda, a local function or a partial, which "
            "config.json cannot hold; pass them again: rookery.evaluate(run_dir, env=..., "
            "wrappers=...), or rookery.resume likewise"
        )
    try:
        return imported(address)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the run's env or a wrapper was {address}, which is not to be found now ({error}); "
            "pass it again: rookery.evaluate(run_dir, env=..., wrappers=...), or rookery.resume "
            "likewise"
        ) from error
