"""Description: spaces, metadata and abilities of a batch of envs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode


@dataclass(frozen=True)
class Description:
    """Spaces, metadata and abilities of the envs that a batch has built.

    Attributes:
        spaces: (observation space, action space) of each env; a single pair if all are equal.
        metadata: metadata of the first env.
        render_mode: render mode of the first env.
        spec: spec of the first env.
        autoreset_modes: the modes that the batch supports; None means all.
        steps_together: True if one call steps all envs of the batch, and single envs cannot be
            stepped.
    """

    spaces: list[tuple[Space[Any], Space[Any]]]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: EnvSpec | None
    autoreset_modes: tuple[AutoresetMode, ...] | None = None
    steps_together: bool = False

    @classmethod
    def of(cls, envs: Sequence[Any]) -> Description:
        """Return the description of ``envs``."""
        first = envs[0]
        spaces = [(env.observation_space, env.action_space) for env in envs]
        if all(pair == spaces[0] for pair in spaces):
            spaces = spaces[:1]
        return cls(spaces, dict(first.metadata), first.render_mode, first.spec)
