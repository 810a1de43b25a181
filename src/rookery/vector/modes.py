"""Names for Gymnasium's autoreset modes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.arguments import not_a_choice
from rookery.env.description import Description
from rookery.errors import ConfigError

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
    raise not_a_choice("autoreset_mode", mode, _NAMES)


def check_mode(mode: AutoresetMode, descriptions: Iterable[Description]) -> None:
    """Refuse a mode in which batches cannot run.

    Raises:
        ConfigError: naming those in which they can.
    """
    for description in descriptions:
        modes = description.autoreset_modes
        if modes is not None and mode not in modes:
            known = " or ".join(repr(_name(each)) for each in modes)
            raise ConfigError(
                f"autoreset_mode={_name(mode)!r} cannot be had of this native env: it steps all "
                "its envs at once, and resets those that have ended in its own way. Say "
                f"autoreset_mode={known}, build it in another mode (env_kwargs, or in the "
                "callable), or run single envs: backend='process'"
            )


def _name(mode: AutoresetMode) -> str:
    return mode.name.lower()
