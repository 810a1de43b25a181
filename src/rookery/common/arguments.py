"""Checks of arguments: a value that cannot be meant is refused before anything is started."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rookery.common.env_errors import in_words
from rookery.common.setting_names import COMMON_NAMES
from rookery.errors import ConfigError


def whole_number(name: str, value: Any, least: int) -> int:
    """``value`` as an int.

    Raises:
        ConfigError: when it is no int, or less than ``least``.
    """
    number = as_int(value)
    if number is None or number < least:
        raise unfit(name, f"a whole number of at least {least}", value)
    return number


def as_int(value: Any) -> int | None:
    """``value`` as an int; None if it is none. A float with a whole value is none, nor is True."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def without_fraction(value: Any) -> Any:
    """Return a float with a whole value, such as ``1e5``, as an int; anything else as it is."""
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return int(value) if is_whole else value


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no finite number above 0.

    Raises:
        ConfigError: when it is none.
    """
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:
        raise unfit(name, "a finite number above 0", value)


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False, such as the string ``"False"``.

    Raises:
        ConfigError: when it is neither.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise unfit(name, "True or False", value)


def near_names(name: str, known: Iterable[str], count: int = 2) -> list[str]:
    """Return the known names that ``name`` may mean, the nearest first.

    If another library uses ``name`` for a known name (`COMMON_NAMES`), that one is returned. Else
    names are compared by their letters, ignoring case; those that look much less like ``name`` than
    the nearest are left out.
    """
    by_lower = {each.lower(): each for each in known}
    meant = COMMON_NAMES.get(name.lower().replace("-", "_"), ())
    spelled = [each.replace("_", "-") if "-" in name else each for each in meant]
    translated = [by_lower[each] for each in spelled if each in by_lower]
    if translated:
        return translated[:count]
    near = difflib.get_close_matches(name.lower(), by_lower, count, cutoff=0.6)
    likeness = [difflib.SequenceMatcher(None, each, name.lower()).ratio() for each in near]
    return [by_lower[n] for n, r in zip(near, likeness, strict=True) if r > likeness[0] - 0.15]


def did_you_mean(name: str, known: Iterable[str], sign: str = "") -> str:
    """``"did you mean X?"``, or ``"did you mean X or Y?"``; empty if no known name is near.

    Args:
        name: what was given.
        known: what could have been meant.
        sign: what to write before each, such as ``"--"``.
    """
    near = near_names(name, known)
    return f"did you mean {' or '.join(sign + each for each in near)}?" if near else ""


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse what is none of ``choices``, and tell the nearest.

    Raises:
        ConfigError: when it is none.
    """
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        raise not_a_choice(name, value, choices)


def not_a_choice(name: str, value: Any, choices: Iterable[str]) -> ConfigError:
    """What to raise for an argument that is none of ``choices``; it tells the nearest."""
    quoted = [repr(choice) for choice in choices]
    hint = did_you_mean(repr(value), quoted) if isinstance(value, str) else ""
    error = unfit(name, f"one of {', '.join(quoted)}", value)
    return ConfigError(f"{error}; {hint}") if hint else error


def known_names(known: Iterable[str], given: Iterable[str], owner: str) -> None:
    """Refuse a name that is not known, and tell the nearest ones.

    Args:
        known: all names.
        given: those to look at.
        owner: what they are names of, for messages: ``"settings of a run"``.

    Raises:
        ConfigError: for the first that is not known.
    """
    known = sorted(known)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
            raise ConfigError(f"{name!r} is not among the {owner}; {hint}")


def checked_wrappers(wrappers: Any) -> tuple[Callable[[Any], Any], ...]:
    """``wrappers`` as a tuple; None means none.

    Raises:
        ConfigError: when it is not a sequence of callables.
    """
    if wrappers is None:
        return ()
    if callable(wrappers) or not isinstance(wrappers, Iterable):
        way_out = f": write wrappers=[{_name(wrappers)}]" if callable(wrappers) else ""
        raise unfit("wrappers", f"a sequence of callables Env -> Env{way_out}", wrappers)
    listed = tuple(wrappers)
    for i, wrapper in enumerate(listed):
        if not callable(wrapper):
            raise unfit(f"wrappers[{i}]", "a callable Env -> Env", wrapper)
    return listed


def checked_kwargs(env_kwargs: Any) -> dict[str, Any]:
    """``env_kwargs`` as a dict; None means none.

    Raises:
        ConfigError: when it is not a mapping from names to values.
    """
    if env_kwargs is None:
        return {}
    if not isinstance(env_kwargs, Mapping) or not all(type(name) is str for name in env_kwargs):
        raise unfit("env_kwargs", "a mapping from names of arguments to values", env_kwargs)
    return dict(env_kwargs)


def unfit(name: str, expected: str, value: Any) -> ConfigError:
    """What to raise for an argument that is not what it must be."""
    return ConfigError(f"{name} must be {expected}, got {in_words(value)} ({_name(type(value))})")


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", type(value).__name__))
