"""EnvGroup: consecutive envs of a vector env that are built, called and closed together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import gymnasium as gym

from rookery.common.env_errors import env_failed, is_from_outside
from rookery.env.deferred import Workshop
from rookery.env.recipe import EnvRecipe
from rookery.env.seam import Description
from rookery.errors import ConfigError, EnvFailed


class EnvGroup:
    """Envs ``first_id``, ``first_id + 1``, ... of a vector env.

    Args:
        recipes: one for each env, in order. The envs are built in the constructor.
        first_id: the index of the first env in the vector env.
        envs_in_process: all envs of the process; None if the process has no others of the vector
            env.

    Attributes:
        envs: the envs.
        ids: their indices in the vector env.
        seeds: the seed of the last seeded reset of each env, or None.
        passes_on: exceptions that interrupt the process while an env is busy. They end the call and
            are not treated as failures of the env.

    Raises:
        EnvFailed: an env cannot be built.
        ConfigError: two envs are the same object.
    """

    passes_on: tuple[type[BaseException], ...] = (KeyboardInterrupt,)

    def __init__(
        self, recipes: Sequence[EnvRecipe], first_id: int, envs_in_process: range | None = None
    ) -> None:
        self.envs: list[gym.Env[Any, Any]] = []
        self.ids = range(first_id, first_id + len(recipes))
        self.seeds: list[int | None] = [None] * len(recipes)
        self._names = [recipe.name for recipe in recipes]
        self._envs_in_process = self.ids if envs_in_process is None else envs_in_process
        self._workshop = Workshop()
        try:
            for i, recipe in enumerate(recipes):
                try:
                    self.envs.append(recipe.build(self._workshop))
                except BaseException as error:
                    if is_from_outside(error, self.passes_on):
                        raise
                    raise self.failure(error, i, "make") from error
            self._refuse_twins()
        except BaseException:
            with suppress(EnvFailed):  # the caller needs the error that prevented the building
                self.close()
            raise

    def describe(self) -> Description:
        """Return the spaces and metadata of the envs that were built."""
        return Description.of(self.envs)

    def failure(
        self,
        error: BaseException,
        i: int,
        command: str,
        *,
        steps: int | None = None,
        action: Any = None,
    ) -> EnvFailed:
        """Return the error to raise if env i has raised ``error``."""
        return env_failed(
            error,
            env_name=self._names[i],
            env_id=self.ids[i],
            command=command,
            seed=self.seeds[i],
            steps_since_reset=steps,
            last_action=action,
            envs_in_process=self._neighbours(i) if command == "make" else (),
        )

    def _neighbours(self, i: int) -> tuple[int, ...]:
        """Return the envs of this process, env i included, if others may have been built first."""
        is_first = i == 0 and len(self._envs_in_process) == len(self.ids)
        return () if is_first else tuple(self._envs_in_process)

    # ---------------------------------------------------------------- calls

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call the method ``name`` of each env, or read its attribute ``name``.

        As in Gymnasium, the outermost wrapper that has the name is used.
        """

        def call(env: gym.Env[Any, Any]) -> Any:
            attribute = env.get_wrapper_attr(name)
            return attribute(*args, **kwargs) if callable(attribute) else attribute

        return [value for _, value in self._each(self.ids, call, f"call of {name!r}")]

    def apply(
        self, function: Callable[[gym.Env[Any, Any]], Any], env_ids: Sequence[int]
    ) -> list[tuple[int, Any]]:
        """Return (id, ``function(env)``) for the ids of this group among ``env_ids``."""
        name = getattr(function, "__name__", type(function).__name__)
        return self._each([i for i in env_ids if i in self.ids], function, f"call of {name!r}")

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set the attribute ``name`` of each env with Gymnasium's ``set_wrapper_attr``."""
        value = iter(values)
        self._each(
            self.ids, lambda env: env.set_wrapper_attr(name, next(value)), f"setting of {name!r}"
        )

    def close(self) -> None:
        """Close all envs, then the deferred arguments. Raise the first error at the end."""
        envs, self.envs = self.envs, []
        errors = [self._closed(env.close, i, "close") for i, env in enumerate(envs)]
        errors.append(self._closed(self._workshop.close, 0, "close of a deferred argument"))
        raise_first(errors)

    def _closed(self, close: Callable[[], object], i: int, command: str) -> BaseException | None:
        """Call ``close`` and return the error to raise after everything else is closed, or None."""
        try:
            close()
        except BaseException as error:
            is_ours = not is_from_outside(error, self.passes_on)
            return self.failure(error, i, command) if is_ours else error
        return None

    def _each(
        self, env_ids: Iterable[int], function: Callable[[gym.Env[Any, Any]], Any], command: str
    ) -> list[tuple[int, Any]]:
        results = []
        for env_id in env_ids:
            i = env_id - self.ids.start
            try:
                results.append((env_id, function(self.envs[i])))
            except BaseException as error:
                if is_from_outside(error, self.passes_on):
                    raise
                raise self.failure(error, i, command) from error
        return results

    def _refuse_twins(self) -> None:
        twins = find_twins([id(env.unwrapped) for env in self.envs])
        if twins is not None:
            first, second = twins
            raise ConfigError(
                f"Envs {self.ids[first]} and {self.ids[second]} ({self._names[second]}) are one "
                "and the same object, so each would step the other's. Return a new env at each "
                "call, not one made before."
            )


def raise_first(errors: Iterable[BaseException | None]) -> None:
    """Raise the first error, if any. An error that is not a failure of an env has priority."""
    raised = [error for error in errors if error is not None]
    if raised:
        raise min(raised, key=lambda error: isinstance(error, EnvFailed))


def find_twins(keys: Sequence[int]) -> tuple[int, int] | None:
    """Return the places of the first two equal keys, or None if all differ."""
    places: dict[int, int] = {}
    for place, key in enumerate(keys):
        first = places.setdefault(key, place)
        if first != place:
            return first, place
    return None
