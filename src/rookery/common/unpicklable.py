"""Search for the part of a value that cannot be pickled, for error messages."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from rookery.common.env_errors import in_words
from rookery.common.pickling import by_value

# Modules of ctypes and cffi. Their types hold addresses of this process.
_NATIVE_MODULES = ("ctypes", "_ctypes", "_cffi_backend")

_MAX_PARTS = 10_000  # limit of the time for a message


def find_unpicklable(value: Any, name: str) -> tuple[str, Any] | None:
    """Return the innermost part of ``value`` that cannot be pickled.

    Args:
        value: the value that could not be pickled.
        name: name of the value; the path starts with it.

    Returns:
        The path, for instance ``env_kwargs['server'].context``, and the part; None if
        ``value`` can be pickled.
    """
    if _can_be_pickled(value):
        return None
    seen: set[int] = set()
    path, part = name, value
    while not _is_native(part):
        seen.add(id(part))
        inner = next(
            (
                (path + suffix, child)
                for suffix, child in _parts(part)
                if id(child) not in seen and len(seen) < _MAX_PARTS and not _can_be_pickled(child)
            ),
            None,
        )
        if inner is None:
            return path, part
        path, part = inner
    return path, part


def advice_for(part: Any) -> str:
    """Return what to do about a part of a native library, or "" if ``part`` is something else."""
    if not _is_native(part):
        return ""
    return (
        "Load the native library in the env's __init__, or in a module that the script imports "
        "(for an argument of the env, use rookery.Deferred): each worker process then loads its own"
    )


def _is_native(part: Any) -> bool:
    """Return whether ``part`` is a library, function or pointer of ctypes or cffi."""
    return any(cls.__module__ in _NATIVE_MODULES for cls in type(part).__mro__)


def _can_be_pickled(value: Any) -> bool:
    try:
        by_value(value)
    except Exception:
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, each with its path."""
    if isinstance(value, dict):
        yield from ((f"[{in_words(key)}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from ((" (an element)", item) for item in value)
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield from ((f".args[{i}]", item) for i, item in enumerate(value.args))
        yield from ((f".keywords[{key!r}]", item) for key, item in value.keywords.items())
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, (staticmethod, classmethod)):
        yield "", value.__func__
    elif isinstance(value, property):
        yield from (("", function) for function in (value.fget, value.fset, value.fdel))
    elif isinstance(value, types.FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, type):
        yield from _class_parts(value)
    else:
        yield from _attributes(value)
        yield f" (its class {type(value).__qualname__})", type(value)


def _class_parts(cls: type) -> Iterator[tuple[str, Any]]:
    for name, item in vars(cls).items():
        if name[:2] != "__" or isinstance(item, types.FunctionType):
            yield f".{name}", item
    yield from ((f" (base class {base.__qualname__})", base) for base in cls.__bases__)


def _function_parts(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f" closes over {name!r}", cell.cell_contents
        except ValueError:  # a variable not yet assigned
            continue
    for i, default in enumerate(function.__defaults__ or ()):
        yield f" (default {i})", default
    for name, default in (function.__kwdefaults__ or {}).items():
        yield f" (default of {name!r})", default
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield f" uses the global {name!r}", function.__globals__[name]


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that code uses, with those of the functions defined in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    state = getattr(value, "__dict__", None)
    if isinstance(state, dict):
        yield from ((f".{name}", item) for name, item in state.items())
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                yield f".{name}", getattr(value, name)
