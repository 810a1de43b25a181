"""A check of built envs: that nothing is done to them twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from rookery.common.references import reference
from rookery.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Once:
    """Refuses an env that a run preprocesses and its user too.

    A wrapper of the user's own that stands for the run's is mostly known before anything is built.
    One within a lambda or another function is seen here, as the outermost "wrapper".

    Attributes:
        name: of the env, for messages.
        ours: a wrapper of the run's own; what lies beneath it is not looked at.
        instead: how the addresses begin, ``module:name``, of wrappers that stand for the run's.
    """

    name: str
    ours: type[gym.Wrapper[Any, Any, Any, Any]]
    instead: tuple[str, ...]

    def __call__(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Return ``env`` as it is.

        Raises:
            ConfigError: one of the user's wrappers does what the run does beneath it.
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
