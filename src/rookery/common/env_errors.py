"""Errors of envs: an EnvFailed that names the env and the call, made from the env's exception.

This works for any exception, also if it cannot be printed, contains megabytes of text, or would end
the process.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from rookery.errors import EnvFailed

_MOST_CHARACTERS = 2_000  # of a message of this library
_MOST_CHARACTERS_OF_A_CAUSE = 10_000  # of a text in the env's exception
_MOST_CHARACTERS_OF_A_VALUE = 200
_MOST_CAUSES = 100

# Loops and generators would treat a StopIteration as their own end.
_LEFT_OUT = (EnvFailed, StopIteration, StopAsyncIteration)
_DETAILS = (
    "env_name",
    "env_ids",
    "command",
    "seed",
    "steps_since_reset",
    "last_action",
    "envs_in_process",
)

_Details = dict[str, Any]


def env_failed(
    cause: BaseException,
    *,
    env_name: str,
    env_id: int,
    command: str,
    seed: int | None = None,
    steps_since_reset: int | None = None,
    last_action: Any = None,
    env_ids: tuple[int, ...] | None = None,
    envs_in_process: tuple[int, ...] = (),
    process: str = "calling process",
) -> EnvFailed:
    """Return an EnvFailed that is also an instance of the cause's type.

    Args:
        cause: the exception of the env, which becomes ``__cause__``. Very long texts in it, and in
            its own causes, are shortened.
        env_name: name of the env.
        env_id: index of the env in the vector env.
        command: the call that failed.
        seed: seed of the last seeded reset.
        steps_since_reset: number of steps since the last reset; None if it was never reset.
        last_action: action of the failing step.
        env_ids: all envs of a native env, which fail together. Seed and steps belong to the first.
            None means only ``env_id``.
        envs_in_process: consecutive envs that share the process in which the env could not be
            built; empty if no other env can be the reason.
        process: the kind of this process, for the message.
    """
    for each in _chain(cause):
        _cut_texts(each)
    context = [f"seed {seed}" if seed is not None else "unseeded"]
    if steps_since_reset is not None:
        plural = "" if steps_since_reset == 1 else "s"
        context.append(f"{steps_since_reset} step{plural} after its reset")
    if command == "step":
        if steps_since_reset is None:
            context.append("never reset")
        context.append(f"action {in_words(last_action, 100)}")
    message = (
        f"{which_envs(env_ids or (env_id,))} ({env_name}) raised {type(cause).__name__} in "
        f"{command} "
        f"({', '.join(context)}): {describe(cause)}"
    )
    if envs_in_process:
        message += (
            f"\n{which_envs(envs_in_process)} share the {process}. If the simulator allows one "
            "instance per process, use isolate=True (--isolate), which gives each env a worker "
            "process of its own; with backend='ray', use num_workers=num_envs."
        )
    details = {
        "env_name": env_name,
        "env_ids": env_ids or (env_id,),
        "command": command,
        "seed": seed,
        "steps_since_reset": steps_since_reset,
        "last_action": last_action,
        "envs_in_process": envs_in_process,
    }
    error = _of_type(type(cause), message, {**_attributes(cause), **details})
    error.__cause__ = cause
    return error


def context_of(error: EnvFailed) -> dict[str, Any]:
    """Return the arguments of :func:`env_failed` that made ``error``, without the cause."""
    return {
        "env_name": error.env_name,
        "env_id": error.env_ids[0],
        "env_ids": error.env_ids,
        "command": error.command,
        "seed": error.seed,
        "steps_since_reset": error.steps_since_reset,
        "last_action": error.last_action,
        "envs_in_process": error.envs_in_process,
    }


def is_from_outside(error: BaseException, passes_on: tuple[type[BaseException], ...]) -> bool:
    """Return True if an exception interrupted a busy env instead of coming from it.

    Args:
        error: the exception.
        passes_on: types of exceptions that come from outside. If there are any, exceptions that a
            signal handler of this process raised count too, for instance at SIGTERM or an alarm.
    """
    return isinstance(error, passes_on) or (bool(passes_on) and _is_raised_by_a_handler(error))


def _is_raised_by_a_handler(error: BaseException) -> bool:
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def _code_of(handler: Any) -> Any:
    """Return the code object of a signal handler, or None if it is not a Python function."""
    if not callable(handler):  # SIG_DFL, SIG_IGN
        return None
    handler = getattr(handler, "func", handler)  # of a partial
    if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = getattr(type(handler), "__call__", None)  # noqa: B004 - only its code is needed
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


# ---------------------------------------------------------------- words


def which_envs(env_ids: Sequence[int]) -> str:
    """Return the beginning of a message about consecutive envs."""
    if len(env_ids) == 1:
        return f"Env {env_ids[0]}"
    return f"Envs {env_ids[0]}-{env_ids[-1]}"


def describe(exception: BaseException, most: int = _MOST_CHARACTERS) -> str:
    """Return the message of any exception, shortened to about ``most`` characters."""
    text = _text_of(str, exception)
    if text is None:
        return f"({type(exception).__name__} cannot be printed: its __str__ fails)"
    return shortened(text, most)


def in_words(value: Any, most: int = _MOST_CHARACTERS_OF_A_VALUE) -> str:
    """Return the repr of any value, shortened to about ``most`` characters."""
    text = _text_of(repr, value)
    if text is None:
        return f"<a {type(value).__name__} whose __repr__ fails>"
    return shortened(text, most)


def shortened(text: str, most: int) -> str:
    """Cut the middle out of a text longer than ``most`` characters, and say how much was cut."""
    if len(text) <= most:
        return text
    head, tail = most * 3 // 4, most // 4
    return f"{text[:head]} [... {len(text) - head - tail} characters cut ...] {text[-tail:]}"


def _text_of(convert: Callable[[Any], str], value: Any) -> str | None:
    try:
        return str.__str__(convert(value))
    except (Exception, SystemExit, GeneratorExit):
        return None


def _cut_texts(error: BaseException) -> None:
    most = _MOST_CHARACTERS_OF_A_CAUSE
    if any(isinstance(part, str) and len(part) > most for part in error.args):
        cut = tuple(shortened(part, most) if isinstance(part, str) else part for part in error.args)
        BaseException.__setattr__(error, "args", cut)  # its type may be a frozen dataclass


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception and all its causes and contexts."""
    chain: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting and len(chain) < _MOST_CAUSES:
        each = waiting.pop()
        if each is not None and id(each) not in chain:
            chain[id(each)] = each
            waiting += [each.__cause__, each.__context__]
    return list(chain.values())


# ---------------------------------------------------------------- types


def _of_type(cause_type: type[BaseException], message: str, details: _Details) -> EnvFailed:
    """Return an EnvFailed with ``details`` as attributes, of the cause's type if possible."""
    with suppress(Exception):  # the cause's type has special arguments, attributes or layout
        error = _made(_combined(cause_type), message, details)
        if str(error) == message and all(
            getattr(error, name) is details[name] for name in _DETAILS
        ):
            return error
    return _made(EnvFailed, message, details)


def _made(error_type: type[EnvFailed], message: str, details: _Details) -> EnvFailed:
    error = error_type.__new__(error_type, message)
    Exception.__init__(error, message)
    for name, value in details.items():
        setattr(error, name, value)
    return error


def _combined(cause_type: type[BaseException]) -> type[EnvFailed]:
    if not issubclass(cause_type, Exception) or issubclass(cause_type, _LEFT_OUT):
        return EnvFailed
    body: _Details = dict.fromkeys(_members(cause_type))  # kept as plain attributes, for copying
    body |= {"__module__": EnvFailed.__module__, "__reduce__": _reduced, "cause_type": cause_type}
    return type("EnvFailed", (EnvFailed, cause_type), body)


def _attributes(cause: BaseException) -> _Details:
    """Return the attributes of an exception, such as the errno of an OSError."""
    members = {name: getattr(cause, name, None) for name in _members(type(cause))}
    return {**members, **{name: v for name, v in vars(cause).items() if name != "__notes__"}}


def _members(cause_type: type[BaseException]) -> list[str]:
    """Return the names of an exception type's members that are not in its ``__dict__``."""
    return [
        name
        for base in cause_type.__mro__
        if base not in (BaseException, Exception)
        for name, member in vars(base).items()
        if isinstance(member, (MemberDescriptorType, GetSetDescriptorType))
        and not name.startswith("__")
    ]


def _reduced(error: Any) -> Any:
    """Return how to rebuild an error; pickle cannot find the combined type by its name."""
    cause_type = type(error).cause_type  # the env's exception may have an attribute of that name
    module = sys.modules.get(cause_type.__module__)
    if getattr(module, cause_type.__qualname__, None) is not cause_type:
        cause_type = EnvFailed  # another process could not import it
    return _rebuilt, (cause_type, *EnvFailed.__reduce__(error)[1:])


def _rebuilt(
    cause_type: type[BaseException], args: tuple[Any, ...], details: _Details
) -> EnvFailed:
    return _of_type(cause_type, args[0], details)
