"""Errors between processes: pickled exceptions, unpicklable content, exit codes and signals."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.common.env_errors import context_of, describe, env_failed, in_words, shortened
from rookery.common.pickling import by_value, find_unpicklable
from rookery.env.seam import Batch, Description
from rookery.errors import EnvFailed, PicklingError, RookeryError, UsageError, WorkerError
from rookery.worker.protocol import PREPARE_RESET

_SIGKILL = 9
# Exit codes of Windows (NTSTATUS). POSIX systems have no exit codes above 255.
_ENDS_ON_WINDOWS = {
    0xC0000005: " (0xC0000005, access violation), a crash in native code",
    0xC0000017: " (0xC0000017, no memory)",
    0xC000001D: " (0xC000001D, illegal instruction), a crash in native code",
    0xC0000094: " (0xC0000094, division by zero), a crash in native code",
    0xC00000FD: " (0xC00000FD, stack overflow), a crash in native code",
    0xC0000135: " (0xC0000135, a DLL was not found)",
    0xC000013A: " (0xC000013A, Ctrl-C, or its console was closed)",
    0xC0000374: " (0xC0000374, heap corruption), a crash in native code",
    0xC0000409: " (0xC0000409, an abort in native code)",
}
_MOST_CHARACTERS_OF_A_TRACEBACK = 100_000
_WAY_OUT = "or keep the envs in this process with backend='serial' or backend='thread'"


class RemoteTraceback(Exception):
    """The cause of an exception from a worker; shows its traceback in the worker."""


@dataclass(frozen=True)
class Failure:
    """An exception of a worker, in a form that can be pickled.

    Attributes:
        exception: the exception, pickled by value; None if it cannot be pickled.
        type_name: name of the exception's type.
        message: message of the exception.
        remote_traceback: traceback, as the worker would have printed it.
        context: arguments of ``env_failed``; None if no env was concerned.
    """

    exception: bytes | None
    type_name: str
    message: str
    remote_traceback: str
    context: dict[str, Any] | None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return a Failure for an exception."""
        cause, context = error, None
        if isinstance(error, EnvFailed) and error.__cause__ is not None:
            cause, context = error.__cause__, context_of(error)
            if not _can_be_pickled(context["last_action"]):
                context["last_action"] = in_words(context["last_action"])
        return cls(
            exception=_pickled(cause),
            type_name=type(cause).__name__,
            message=describe(cause),
            remote_traceback=shortened(
                "".join(traceback.format_exception(cause)), _MOST_CHARACTERS_OF_A_TRACEBACK
            ),
            context=context,
        )

    @property
    def is_nameless(self) -> bool:
        """True if it names no env and no wrong use of the library."""
        return self.context is None and not isinstance(self._cause(), UsageError)

    def error(self) -> RookeryError:
        """Return the error to raise in the caller. Its cause shows the remote traceback."""
        cause = self._cause()
        remote = RemoteTraceback(f"\n\nIn the worker process:\n{self.remote_traceback}")
        BaseException.__setattr__(cause, "__cause__", remote)  # its type may be a frozen dataclass
        if self.context is not None:
            return env_failed(cause, **self.context, process="worker process")
        if isinstance(cause, UsageError):
            return cause
        error = WorkerError(f"A worker process failed: {self.type_name}: {self.message}")
        error.__cause__ = cause
        return error

    def _cause(self) -> BaseException:
        if self.exception is None:
            return RuntimeError(f"{self.type_name}: {self.message}")
        try:
            cause: BaseException | _Parts = pickle.loads(self.exception)
            return cause.put_together() if isinstance(cause, _Parts) else cause
        except Exception as error:  # its class may not exist here
            return RuntimeError(
                f"{self.type_name}: {self.message} (cannot be rebuilt here: {describe(error)})"
            )


@dataclass(frozen=True)
class _Parts:
    """Parts of an exception that pickle cannot rebuild because of its constructor."""

    cause_type: type[BaseException]
    args: tuple[Any, ...]
    attributes: dict[str, Any]

    def put_together(self) -> BaseException:
        error = self.cause_type.__new__(self.cause_type, *self.args)
        vars(error).update(self.attributes)
        return error


def _pickled(error: BaseException) -> bytes | None:
    """Pickle an exception or its parts. Return None if neither is possible."""
    attributes = {name: value for name, value in vars(error).items() if _can_be_pickled(value)}
    for form in (error, _Parts(type(error), error.args, attributes)):
        try:
            data = by_value(form)
            made_again = pickle.loads(data)
        except Exception:  # noqa: S112 - the next form is tried
            continue
        if type(made_again) is type(form):
            return data
    return None


def _can_be_pickled(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # an action may raise anything
        return False
    return True


def argument_error(method: str, args: tuple[Any, ...], error: Exception) -> PicklingError:
    """Return the error to raise if a request cannot be pickled.

    Args:
        method: method that the request names.
        args: its arguments.
        error: the exception that pickling has raised.
    """
    call = "reset" if method == PREPARE_RESET else method
    what = _unpicklable_part(_arguments(method, args)) or "an argument"
    return PicklingError(
        f"{call}: {what} cannot be sent to a worker: {describe(error, 200)}. Pass something "
        "that can be pickled and create the rest in the env (venv.apply(function) runs a function "
        f"where each env lives), {_WAY_OUT}."
    )


def result_error(
    batch: Batch, method: str, args: tuple[Any, ...], result: Any, error: Exception
) -> PicklingError:
    """Return the error to raise if the result of a request cannot be pickled.

    Args:
        batch: the envs.
        method: method that was called.
        args: its arguments.
        result: the result.
        error: the exception that pickling has raised.
    """
    call, pairs = method, [(batch.ids[0], result)]
    if method == "call":
        call, pairs = f"call of {args[0]!r}", list(zip(batch.ids, result, strict=False))
    elif method == "apply":
        call, pairs = "apply", result
    for env_id, value in pairs:
        what = _unpicklable_part(iter([("result", value)]))
        if what is not None:
            return PicklingError(
                f"Env {env_id}: what {call} returned cannot be sent to the calling process, "
                f"because of {what}: {describe(error, 200)}. Return something that can be "
                f"pickled, {_WAY_OUT}."
            )
    return PicklingError(
        f"What {call} returned cannot be sent to the calling process: {describe(error)}"
    )


def description_error(batch: Batch, description: Description, error: Exception) -> PicklingError:
    """Return the error to raise if a description of envs cannot be pickled.

    Args:
        batch: the envs.
        description: their description.
        error: the exception that pickling has raised.
    """
    for env_id, pair in zip(batch.ids, description.spaces, strict=False):
        names = ("observation_space", "action_space")
        named = [
            *zip(names, pair, strict=True),
            ("metadata", description.metadata),
            ("spec", description.spec),
        ]
        what = _unpicklable_part(iter(named))
        if what is not None:
            return PicklingError(
                f"Env {env_id}: its description cannot be sent to the calling process, "
                f"because of {what}: {describe(error, 200)}. Remove that part, {_WAY_OUT}."
            )
    return PicklingError(
        f"The description of the envs cannot be sent to the calling process: {describe(error)}"
    )


def _arguments(method: str, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments as the user gave them, with their names."""
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


def _unpicklable_part(named: Iterator[tuple[str, Any]]) -> str | None:
    """Return the path and type of the first part that cannot be pickled, if any."""
    for name, value in named:
        found = find_unpicklable(value, name)
        if found is not None:
            path, part = found
            kind = f"{type(part).__module__}.{type(part).__qualname__}"
            return f"{path} ({kind.removeprefix('builtins.')})"
    return None


def oom_kills(events: Path = Path("/sys/fs/cgroup/memory.events")) -> int | None:
    """Return how many processes of this container were killed out of memory; None if unknown."""
    try:
        counters = dict(line.split() for line in events.read_text().splitlines())
    except (OSError, ValueError):
        return None
    return int(counters.get("oom_kill", 0))


def exit_in_words(exitcode: int | None, out_of_memory: bool = False) -> str:
    """Return what an exit code of ``multiprocessing`` means, as the end of a sentence.

    Args:
        exitcode: the exit code; negative for a signal; None if unknown.
        out_of_memory: whether the system has counted an out-of-memory kill while the process ran.
    """
    if out_of_memory and exitcode == -_SIGKILL:
        return "was killed by SIGKILL: the system's out-of-memory killer killed it"
    if exitcode is None:
        return "exited in an unknown way"
    if exitcode >= 0:
        return f"exited with exit code {exitcode}{_ENDS_ON_WINDOWS.get(exitcode, '')}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    hints = {
        "SIGKILL": ", probably out of memory (or killed by the command kill -9)",
        "SIGSEGV": ", a crash in native code",
        "SIGABRT": ", an abort in native code",
        "SIGBUS": ", a bus error (often a full /dev/shm or a truncated file)",
    }
    return f"was killed by {name}{hints.get(name, '')}"
