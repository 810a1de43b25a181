"""NativeRecipe and other helpers that build, reset and call a native vector env.

Gymnasium specifies only that ``VectorEnv.reset(seed=)`` may be an int. ``SyncVectorEnv`` accepts a
list with one seed per env, ALE an array with one seed for each env that is reset, and other envs
only an int, from which they derive the seeds of all their envs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rookery.common.env_errors import in_words
from rookery.env.deferred import Workshop
from rookery.env.recipe import EnvRecipe, Wrapper, deferred_arguments
from rookery.errors import UsageError
from rookery.shared.spaces import FreeLeaf, leaves

NativeEnv = gym.vector.VectorEnv[Any, Any, Any]
Seeds = Sequence[int | None]
Mask = npt.NDArray[np.bool_]

_SPACES = ("single_observation_space", "single_action_space")
_SEED_REFUSALS = (TypeError, ValueError, gym.error.Error)
_NO_SEED = -1  # in ALE's arrays


@dataclass(frozen=True)
class NativeRecipe:
    """Instructions to build one native vector env.

    Attributes:
        source: a Gymnasium id or an EnvSpec with a ``vector_entry_point``, or a callable
            ``(num_envs, **kwargs) -> gymnasium.vector.VectorEnv``.
        num_envs: number of envs that it steps.
        autoreset_mode: passed to the source if it has an argument of this name.
        kwargs: further arguments of the source; they may contain :class:`rookery.Deferred` objects.
        wrappers: callables ``VectorEnv -> VectorEnv``, the first one innermost.
    """

    source: str | EnvSpec | Callable[..., Any]
    num_envs: int
    autoreset_mode: AutoresetMode
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[Wrapper, ...] = ()

    def build(self, workshop: Workshop) -> NativeEnv:
        """Build the vector env in this process, with deferred arguments from ``workshop``.

        Raises:
            TypeError: the result is not a usable vector env. The message says why.
        """
        deferred = deferred_arguments(self.source, self.kwargs)
        env: Any = self._made(workshop.resolve({**deferred, **self.kwargs}))
        for wrapper in self.wrappers:
            env = wrapper(env)
        problem = _problem(env, self.num_envs)
        if problem is not None:
            if isinstance(env, (gym.Env, gym.vector.VectorEnv)):
                env.close()
            raise TypeError(problem)
        return cast("NativeEnv", env)

    @property
    def name(self) -> str:
        """The name of the env in messages."""
        return EnvRecipe(self.source).name

    @property
    def spec(self) -> EnvSpec | None:
        """The registered spec, if the source is an id or a spec."""
        return EnvRecipe(self.source).spec()

    def _made(self, kwargs: dict[str, Any]) -> Any:
        if "autoreset_mode" in kwargs or not self._takes_mode():
            return self._call(kwargs)
        try:
            return self._call({**kwargs, "autoreset_mode": self.autoreset_mode})
        except Exception as refusal:
            try:  # with its default mode, which the vector env checks later
                return self._call(kwargs)
            except Exception:
                raise refusal from None

    def _takes_mode(self) -> bool:
        spec = self.spec
        creator: Any = self.source if spec is None else spec.vector_entry_point
        if isinstance(creator, str):
            creator = load_env_creator(creator)
        try:
            return "autoreset_mode" in inspect.signature(creator).parameters
        except (TypeError, ValueError):  # a C function without a signature
            return False

    def _call(self, kwargs: dict[str, Any]) -> Any:
        if isinstance(self.source, (str, EnvSpec)):
            return gym.make_vec(
                self.source, self.num_envs, vectorization_mode="vector_entry_point", **kwargs
            )
        return self.source(self.num_envs, **kwargs)


def autoreset_mode_of(env: NativeEnv) -> AutoresetMode | None:
    """Return the autoreset mode in a native env's metadata, or None."""
    said = env.metadata.get("autoreset_mode")
    for mode in AutoresetMode:
        if said is mode or (isinstance(said, str) and said in (mode.value, mode.name.lower())):
            return mode
    return None


def _problem(env: Any, num_envs: int) -> str | None:
    """Explain why ``env`` cannot be stepped as a native batch, or return None if it can."""
    if not isinstance(env, gym.vector.VectorEnv):
        return _no_vector_env(env)
    name = type(env).__name__
    came = getattr(env, "num_envs", None)
    if came != num_envs:
        return f"{name} was asked for {num_envs} envs, but its num_envs is {in_words(came)}"
    for attribute in _SPACES:
        problem = _space_problem(env, name, attribute)
        if problem is not None:
            return problem
    if autoreset_mode_of(env) is None:
        said = in_words(env.metadata.get("autoreset_mode"))
        return (
            f"metadata['autoreset_mode'] of {name} must be a gymnasium.vector.AutoresetMode, which "
            f"says what it does when an episode ends, but is {said}"
        )
    return None


def _space_problem(env: Any, name: str, attribute: str) -> str | None:
    space = getattr(env, attribute, None)
    if not isinstance(space, gym.Space):
        return f"{attribute} of {name} must be a gymnasium.spaces.Space, but is {in_words(space)}"
    kind = attribute.removeprefix("single_")
    free = [leaf for leaf in leaves(space, kind) if isinstance(leaf, FreeLeaf)]
    if free:
        return (
            f"{free[0].path} of {name} is a {type(free[0].space).__name__}, which has no fixed "
            "array form; batches of native envs are arrays. Wrap it so that it becomes one, or run "
            "single envs: backend='process'"
        )
    batch, expected = getattr(env, kind, None), batch_space(space, env.num_envs)
    if not isinstance(batch, gym.Space) or not is_space_dtype_shape_equiv(batch, expected):
        return (
            f"{kind} of {name} must be {attribute}, batched for its {env.num_envs} envs: "
            f"{in_words(expected)}, but is {in_words(batch)}"
        )
    return None


def _no_vector_env(env: Any) -> str:
    wanted = "a native batch must be a gymnasium.vector.VectorEnv"
    if env is None:
        return f"{wanted}, but None came; the callable must return the vector env that it makes"
    if isinstance(env, gym.Env):
        return (
            f"{wanted}, but {type(env).__name__} came, which is a single env; "
            "backend='process' runs many of those"
        )
    if isinstance(env, type):
        return (
            f"{wanted}, but the class {env.__qualname__} itself came; the callable must call it, "
            "and return what it makes"
        )
    return f"{wanted}, but a {type(env).__name__} came: {in_words(env)}"


class NativeSeeds:
    """Resets a native env, and remembers the first form of seeds that it accepted."""

    def __init__(self) -> None:
        self._forms: tuple[Callable[[Seeds, Mask], Any], ...] = (_as_list, _as_array, _as_int)

    def reset(
        self, reset: Callable[..., Any], seeds: Seeds, mask: Mask, options: dict[str, Any] | None
    ) -> Any:
        """Call a native env's reset.

        Args:
            reset: the env's ``reset`` method.
            seeds: a seed or None for each env.
            mask: bool ``[n]``, the envs to reset. ``options`` contain it too, unless it is all
                True.
            options: the reset options.
        """
        first, count = seeds[0], len(seeds)
        if all(seed is None for seed in seeds):
            return reset(seed=None, options=_copied(options))
        if first is not None and mask.all() and list(seeds) == list(range(first, first + count)):
            return reset(seed=first, options=_copied(options))
        refusal: Exception | None = None
        for form in self._forms:
            try:
                result = reset(seed=form(seeds, mask), options=_copied(options))
            except _SEED_REFUSALS as error:
                refusal = refusal or error
            else:
                self._forms = (form,)
                return result
        assert refusal is not None
        raise refusal


def _copied(options: dict[str, Any] | None) -> dict[str, Any] | None:
    # Gymnasium's envs remove the mask from the dict.
    return None if options is None else dict(options)


def _as_list(seeds: Seeds, mask: Mask) -> list[int | None]:
    return list(seeds)


def _as_array(seeds: Seeds, mask: Mask) -> npt.NDArray[np.int64]:
    chosen = np.flatnonzero(mask).tolist()
    return np.array([_NO_SEED if seeds[i] is None else seeds[i] for i in chosen], np.int64)


def _as_int(seeds: Seeds, mask: Mask) -> int:
    """Return one seed below 2**31 that depends on all seeds."""
    words = [0 if seed is None else seed + 1 for seed in seeds]
    return int(np.random.SeedSequence(words).generate_state(1)[0]) >> 1


def call_native(
    env: Any, num_envs: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Sequence[Any]:
    """Return the result of a method, or an attribute, for each env.

    Raises:
        AttributeError: the native env has no such method or attribute.
    """
    if name != "render" and callable(getattr(env, "call", None)):
        return tuple(env.call(name, *args, **kwargs))
    attribute = getattr(env, name)
    value = attribute(*args, **kwargs) if callable(attribute) else attribute
    if isinstance(value, (list, tuple)) and len(value) == num_envs:
        return value
    return [value] * num_envs


def set_native_attr(env: Any, name: str, values: list[Any]) -> None:
    """Set an attribute to one value per env.

    Raises:
        AttributeError: the native env has no such attribute.
        UsageError: the values differ, and the native env has one attribute for all envs.
    """
    if callable(getattr(env, "set_attr", None)):
        env.set_attr(name, values)
        return
    getattr(env, name)  # raises AttributeError for a name that the env does not have
    if any(value is not values[0] and not data_equivalence(value, values[0]) for value in values):
        raise UsageError(
            f"set_attr({name!r}): {type(env).__name__} has one attribute for all its envs, so they "
            "cannot be given different values"
        )
    setattr(env, name, values[0])
