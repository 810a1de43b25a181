"""Pickling for other processes, and the search for parts that cannot be pickled."""

from __future__ import annotations

import ctypes
import functools
import io
import linecache
import os
import pickle
import sys
import threading
import types
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import CodeType, ModuleType
from typing import Any, NoReturn

import cloudpickle

from rookery.common.env_errors import in_words

# The name of the script in children of ``multiprocessing``. cloudpickle takes it for an importable
# module.
_MAIN_OF_CHILDREN = "__mp_main__"

_NAMES_OF_MAIN = (b"__main__", _MAIN_OF_CHILDREN.encode())

# The position of ``co_filename`` among the arguments of ``CodeType``.
_FILENAME = 10

# Modules of ctypes and cffi. Their types hold addresses of this process.
_NATIVE_MODULES = ("ctypes", "_ctypes", "_cffi_backend")

_MAX_PARTS = 10_000  # limit of the time for a message

_registering = threading.RLock()


def _reduced_code(code: CodeType) -> tuple[Any, ...]:
    """Return how to rebuild ``code``, as cloudpickle does, but with its own file name.

    cloudpickle 3.1.3 replaces the file name by ``<dynamic-code>``. Tracebacks and stacks would
    then show neither the file nor the source line.
    """
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    if make is CodeType:
        arguments = (*arguments[:_FILENAME], code.co_filename, *arguments[_FILENAME + 1 :])
    return make, arguments


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A cloudpickle pickler that keeps the file names of the code that it pickles by value."""

    dispatch_table = ChainMap({CodeType: _reduced_code}, cloudpickle.Pickler.dispatch_table)


def _reduced_code_and_source(code: CodeType) -> tuple[Any, ...]:
    reduced = _reduced_code(code)
    source = _source_without_file(code.co_filename)
    if source is None:
        return reduced
    return (*reduced, (code.co_filename, source), None, None, _add_source)


def _source_without_file(filename: str) -> list[str] | None:
    """Return the source lines that only this process has, such as those of a notebook cell."""
    entry: Any = linecache.cache.get(filename)
    if entry is None or len(entry) == 1 or os.path.exists(filename):
        return None
    source: list[str] = entry[2]
    return source  # not a copy: the functions of one cell share what is pickled


def _add_source(_code: CodeType, filename_and_source: tuple[str, list[str]]) -> None:
    """Make ``linecache``, and so tracebacks, find the source of code that was unpickled."""
    filename, source = filename_and_source
    # Without a modification time, linecache does not look for a file.
    linecache.cache[filename] = (sum(map(len, source)), None, source, filename)


def _refuse_library(library: Any) -> NoReturn:
    """Refuse a ctypes library, which could be pickled but never unpickled."""
    raise pickle.PicklingError(
        f"the native library {library._name!r} is loaded in this process only"
    )


class _WorkerPickler(Pickler):
    """The pickler for other processes.

    It adds the source of code that no file holds, such as notebook cells, and refuses ctypes
    libraries.
    """

    dispatch_table = ChainMap(
        {
            CodeType: _reduced_code_and_source,
            **{
                vars(ctypes)[name]: _refuse_library
                for name in ("CDLL", "PyDLL", "WinDLL", "OleDLL")  # the last two are Windows' own
                if name in vars(ctypes)
            },
        },
        Pickler.dispatch_table,
    )


def pickled(value: Any) -> bytes:
    """Pickle for a process that runs the script: with pickle if possible, else by value."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # objects may raise anything while they are pickled
        return by_value(value)


def pickled_for_workers(value: Any) -> bytes:
    """Pickle for a process that does not run the script, so it cannot import its names."""
    data = pickled(value)
    return by_value(value) if any(name in data for name in _NAMES_OF_MAIN) else data


def by_value(value: Any) -> bytes:
    """Pickle ``value`` with the code of all functions and classes of the running script."""
    main = sys.modules.get(_MAIN_OF_CHILDREN)
    with _registering, whole(main) if main is not None else nullcontext():
        file = io.BytesIO()
        _WorkerPickler(file).dump(value)
        return file.getvalue()


@contextmanager
def whole(module: ModuleType) -> Iterator[None]:
    """Pickle the functions and classes of a module by value instead of by name."""
    # Pickling may collect garbage, and closing that pickles too. The outer call unregisters.
    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


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
