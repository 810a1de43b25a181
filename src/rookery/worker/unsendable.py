"""What a caller and its worker cannot send each other, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rookery.common.env_errors import describe
from rookery.common.pickling import find_unpicklable
from rookery.env.seam import Batch, Description
from rookery.errors import PicklingError
from rookery.worker.protocol import PREPARE_RESET

_WAY_OUT = "or keep the envs in this process with backend='serial' or backend='thread'"


def argument_error(method: str, args: tuple[Any, ...], error: Exception) -> PicklingError:
    """What to raise because a request cannot be pickled.

    Args:
        method: that the worker was to call.
        args: its arguments.
        error: what pickling them has raised.
    """
    call = "reset" if method == PREPARE_RESET else method
    what = _culprit(_arguments(method, args)) or "an argument"
    return PicklingError(
        f"{call}: {what} cannot be sent to a worker: {describe(error, 200)}. Give it something "
        "that can be pickled and have the env make the rest (venv.apply(function) runs a function "
        f"where each env lives), {_WAY_OUT}."
    )


def result_error(
    batch: Batch, method: str, args: tuple[Any, ...], result: Any, error: Exception
) -> PicklingError:
    """What to raise because what envs have answered cannot be pickled.

    Args:
        batch: the envs.
        method: that was called.
        args: its arguments.
        result: what it returned.
        error: what pickling that has raised.
    """
    call, pairs = method, [(batch.ids[0], result)]
    if method == "call":
        call, pairs = f"call of {args[0]!r}", list(zip(batch.ids, result, strict=False))
    elif method == "apply":
        call, pairs = "apply", result
    for env_id, value in pairs:
        what = _culprit(iter([("result", value)]))
        if what is not None:
            return PicklingError(
                f"Env {env_id}: what {call} returned cannot be sent to the calling process, "
                f"because of {what}: {describe(error, 200)}. Return something that can be "
                f"pickled, {_WAY_OUT}."
            )
    return PicklingError(f"What {call} returned cannot be sent: {describe(error)}")


def description_error(batch: Batch, said: Description, error: Exception) -> PicklingError:
    """What to raise because what envs say of themselves cannot be pickled.

    Args:
        batch: the envs.
        said: by them.
        error: what pickling that has raised.
    """
    for env_id, pair in zip(batch.ids, said.spaces, strict=False):
        names = ("observation_space", "action_space")
        named = [*zip(names, pair, strict=True), ("metadata", said.metadata), ("spec", said.spec)]
        what = _culprit(iter(named))
        if what is not None:
            return PicklingError(
                f"Env {env_id}: what it says of itself cannot be sent to the calling process, "
                f"because of {what}: {describe(error, 200)}. Leave that out, {_WAY_OUT}."
            )
    return PicklingError(f"What the envs say of themselves cannot be sent: {describe(error)}")


def _arguments(method: str, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """The arguments as the user gave them, with their names."""
    if method == "call":
        yield "args", args[1]
        yield from ((f"argument {name!r}", value) for name, value in args[2].items())
    elif method == "set_attr":
        yield from ((f"the value of {args[0]!r}", value) for value in args[1])
    elif method == "apply":
        yield "the function", args[0]
    elif method == PREPARE_RESET:
        yield from (("options", options) for _, options in args[0].values())
    else:
        yield "arguments", args


def _culprit(named: Iterator[tuple[str, Any]]) -> str | None:
    """The path to the first part that cannot be pickled, and what that is."""
    for name, value in named:
        found = find_unpicklable(value, name)
        if found is not None:
            path, part = found
            kind = f"{type(part).__module__}.{type(part).__qualname__}"
            return f"{path} ({kind.removeprefix('builtins.')})"
    return None
