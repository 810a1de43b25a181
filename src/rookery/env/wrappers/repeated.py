"""A check that an env is not preprocessed twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from rookery.common.importing import reference
from rookery.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Once:
    """Refuses an env that both the run and a wrapper of the user preprocess.

    A user's wrapper that replaces the run's wrapper is usually found before an env is built. A
    wrapper inside a lambda or another function is only found here, in the built env.

    Attributes:
        name: name of the env, for messages.
        ours: the outermost wrapper of the run. Wrappers below it are not checked.
        instead: prefixes of the addresses, ``module:name``, of wrappers that replace the run's.
    """

    name: str
    ours: type[gym.Wrapper[Any, Any, Any, Any]]
    instead: tuple[str, ...]

    def __call__(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Return ``env`` unchanged.

        Raises:
            ConfigError: a wrapper of the user repeats the preprocessing of the run.
        """
        link: Any = env
        while isinstance(link, gym.Wrapper) and not isinstance(link, self.ours):
            kinds = (reference(kind) or "" for kind in type(link).__mro__)
            if any(kind.startswith(self.instead) for kind in kinds):
                raise ConfigError(
                    f"{self.name} is preprocessed twice: by the run, and then by "
                    f"{type(link).__name__}, which a function among the wrappers applies; give "
                    "preprocess=False (--no-preprocess), or among the wrappers the class itself or "
                    "a functools.partial of it, which the run takes instead of its own"
                )
            link = link.env
        return env
