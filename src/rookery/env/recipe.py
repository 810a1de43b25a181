"""EnvRecipe: everything needed to build one env in any process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, TypeAlias, cast

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rookery.common.arguments import checked_kwargs, checked_wrappers, near_names, whole_number
from rookery.common.env_errors import in_words
from rookery.common.importing import is_installed, package_of
from rookery.env.deferred import Workshop, holds_deferred
from rookery.env.guard import env_problem
from rookery.env.registrations import self_contained
from rookery.errors import ConfigError, UnknownEnvError

EnvSource: TypeAlias = (
    "str | EnvSpec | Callable[..., gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]]"
)
Wrapper = Callable[[Any], Any]
_FORMS = "a Gymnasium id, 'module:Id', an EnvSpec or a callable"


@dataclass(frozen=True)
class EnvRecipe:
    """Instructions to build one env.

    Attributes:
        source: a Gymnasium id, ``"package.module:Id"``, an EnvSpec or a callable that makes an env.
            :func:`make_recipes` also takes ``"package.module:function"``.
        kwargs: arguments of the env; they may hold :class:`rookery.Deferred` objects.
        wrappers: applied to the env, the first one innermost.
    """

    source: EnvSource
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[Wrapper, ...] = ()

    def build(self, workshop: Workshop) -> gym.Env[Any, Any]:
        """Build the env in this process, with deferred arguments from ``workshop``."""
        deferred = deferred_arguments(self.source, self.kwargs)
        kwargs = workshop.resolve({**deferred, **self.kwargs})
        if isinstance(self.source, (str, EnvSpec)):
            env: Any = gym.make(self.source, **kwargs)
            if env.unwrapped.spec is not None:
                # Wrappers copy and pickle the spec, which fails for what a Deferred has built.
                env.unwrapped.spec.kwargs.update(deferred)
        else:
            env = self.source(**kwargs)
        for wrapper in self.wrappers:
            env = wrapper(env)
        problem = env_problem(env)
        if problem is not None:
            raise TypeError(problem)
        return cast("gym.Env[Any, Any]", env)

    @property
    def name(self) -> str:
        """The name of the env in messages."""
        if isinstance(self.source, str):
            return self.source
        if isinstance(self.source, EnvSpec):
            return self.source.id
        return getattr(self.source, "__qualname__", type(self.source).__name__)

    def self_contained(self) -> EnvRecipe:
        """Return the recipe with the registered spec in place of an id.

        In another process the same id may be registered differently.
        """
        spec = self_contained(self.source) if isinstance(self.source, str) else None
        return self if spec is None else replace(self, source=spec)

    def spec(self) -> EnvSpec | None:
        """Return the registered spec if the source is an id or a spec, else None."""
        if isinstance(self.source, EnvSpec):
            return self.source
        return find_spec(self.source) if isinstance(self.source, str) else None


def deferred_arguments(source: EnvSource, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an env that hold a Deferred.

    Args:
        source: the source of a recipe; the ``kwargs`` of its registration count too.
        kwargs: further arguments. They replace arguments of the registration.
    """
    spec = gym.registry.get(source.rpartition(":")[2]) if isinstance(source, str) else source
    registered = spec.kwargs if isinstance(spec, EnvSpec) else {}
    arguments = {**registered, **kwargs}
    return {name: value for name, value in arguments.items() if holds_deferred(value)}


def make_recipes(
    env: EnvSource | Sequence[Callable[..., Any]],
    num_envs: int | None,
    env_kwargs: Mapping[str, Any] | None,
    wrappers: Sequence[Wrapper],
) -> list[EnvRecipe]:
    """Return one recipe per env. A single source is used for all of them.

    Raises:
        ConfigError: an argument has a wrong type or value, or ``num_envs`` contradicts a list of
            sources.
        UnknownEnvError: an id is not registered.
    """
    if num_envs is not None:
        num_envs = whole_number("num_envs", num_envs, 1)
    kwargs, wrapped_by = checked_kwargs(env_kwargs), checked_wrappers(wrappers)
    sources: list[Any] = list(env) if isinstance(env, (list, tuple)) else [env] * (num_envs or 1)
    if not sources or (num_envs is not None and len(sources) != num_envs):
        raise ConfigError(f"num_envs is {num_envs}, but {len(sources)} env callables were given")
    resolved = {id(source): _resolved(source) for source in sources}
    return [EnvRecipe(resolved[id(source)], dict(kwargs), wrapped_by) for source in sources]


def _resolved(source: Any) -> EnvSource:
    """Check a source and return it, or the function that ``"module:function"`` names."""
    if isinstance(source, EnvSpec) or (callable(source) and not isinstance(source, str)):
        return cast("EnvSource", source)
    if not isinstance(source, str):
        raise ConfigError(f"An env is {_FORMS}, not {type(source).__name__}: {in_words(source)}")
    module, colon, name = source.rpartition(":")
    if colon and not module:
        raise ConfigError(f"{source!r} names no module before its colon; an env is {_FORMS}")
    if module and name not in gym.registry:
        factory: Any = getattr(_imported(module, source), name, None)
        if callable(factory):
            return cast("EnvSource", factory)
    find_spec(source)
    return source


def _imported(module: str, env_id: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnknownEnvError(f"Cannot import the module that {env_id!r} names: {error}") from error


def find_spec(env_id: str) -> EnvSpec:
    """Return the spec registered under ``env_id``, which may name a module to import first.

    Raises:
        UnknownEnvError: the id is not registered. The message names the nearest ids.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        _imported(module, env_id)
    try:
        return gym.spec(name)
    except gym.error.Error as error:
        raise UnknownEnvError(
            f"No environment is registered as {env_id!r}.{_what_there_is(name)} "
            f"{_how_to_register(name)}"
        ) from error


def _what_there_is(name: str) -> str:
    """Name the registered versions of the env, or the nearest ids."""
    base = name.rpartition("-v")[0] or name
    versions = [registered for registered in gym.registry if registered.rpartition("-v")[0] == base]
    if versions:
        return f" {base} is registered as {', '.join(sorted(versions))}."
    near = near_names(name, gym.registry, 3)
    return f" Nearest: {', '.join(near)}." if near else ""


def _how_to_register(name: str) -> str:
    package = package_of(name)
    if package is None:
        return f"If a package registers it, import that first or write 'package:{name}'."
    there_is = is_installed(package.module)
    if there_is and package.module in sys.modules:
        return f"The package {package.module}, which registers such envs, does not register it."
    first = "" if there_is else f"pip install {package.pip}, and then "
    return (
        f"The package {package.module} registers such envs: {first}import it first or write "
        f"'{package.module}:{name}'."
    )
