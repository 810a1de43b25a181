"""Pickles for the journey between processes, which need nothing of the script that made them."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import cloudpickle

# What ``multiprocessing`` calls the script in children that import it; to cloudpickle it looks like
# a module that anybody can import.
_MAIN_OF_CHILDREN = "__mp_main__"

_NAMES_OF_MAIN = (b"__main__", _MAIN_OF_CHILDREN.encode())

_registering = threading.RLock()


def pickled(value: Any) -> bytes:
    """Pickle for the journey to where the script runs: quickly if possible, else by value."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # pickle raises whatever the objects raise; cloudpickle's word is final
        return by_value(value)


def pickled_for_workers(value: Any) -> bytes:
    """Pickle for the journey to where the script was not run, and its names mean nothing."""
    data = pickled(value)
    return by_value(value) if any(name in data for name in _NAMES_OF_MAIN) else data


def by_value(value: Any) -> bytes:
    """Pickle ``value``; functions and classes of the running script go along whole."""
    main = sys.modules.get(_MAIN_OF_CHILDREN)
    with _registering, whole(main) if main is not None else nullcontext():
        return bytes(cloudpickle.dumps(value))


@contextmanager
def whole(module: ModuleType) -> Iterator[None]:
    """Have what a module defines travel by value, instead of as names that can be imported."""
    # Pickling may collect garbage, whose closing pickles too; the outer call ends it.
    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
