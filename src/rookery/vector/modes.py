"""Names for Gymnasium's autoreset modes."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode

from rookery.errors import ConfigError

_NAMES = sorted(mode.name.lower() for mode in AutoresetMode)


def parse_autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """The mode called ``"next_step"``, ``"same_step"`` or ``"disabled"``; enums pass.

    Raises:
        ConfigError: for anything else.
    """
    if isinstance(mode, AutoresetMode):
        return mode
    for candidate in AutoresetMode:
        if mode in (candidate.value, candidate.name, candidate.name.lower()):
            return candidate
    raise ConfigError(f"autoreset_mode must be one of {_NAMES}, got {mode!r}")
