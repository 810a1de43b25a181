"""Names for Gymnasium's autoreset modes."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.env.arguments import unfit

_NAMES = sorted(mode.name.lower() for mode in AutoresetMode)


def parse_autoreset_mode(mode: Any) -> AutoresetMode:
    """The mode called ``"next_step"``, ``"same_step"`` or ``"disabled"``; enums pass.

    Raises:
        ConfigError: for anything else.
    """
    if isinstance(mode, AutoresetMode):
        return mode
    for each in AutoresetMode:
        if isinstance(mode, str) and mode in (each.value, each.name, each.name.lower()):
            return each
    raise unfit("autoreset_mode", f"one of {_NAMES}", mode)
