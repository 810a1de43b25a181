"""Pickling for other processes, which cannot import the running script."""

from __future__ import annotations

import ctypes
import io
import linecache
import os
import pickle
import sys
import threading
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import CodeType, ModuleType
from typing import Any, NoReturn

import cloudpickle

# The name of the script in children of ``multiprocessing``. cloudpickle takes it for an importable
# module.
_MAIN_OF_CHILDREN = "__mp_main__"

_NAMES_OF_MAIN = (b"__main__", _MAIN_OF_CHILDREN.encode())

# The position of ``co_filename`` among the arguments of ``CodeType``.
_FILENAME = 10

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
