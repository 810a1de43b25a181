"""The exceptions of rookery.

    RookeryError
    ├── UsageError                  the caller made a mistake
    │   ├── ClosedError             the vector env was closed      (ClosedEnvironmentError)
    │   ├── PendingCallError        an earlier call is pending     (AlreadyPendingCallError)
    │   ├── NoPendingCallError      wait without a pending call    (NoAsyncCallError)
    │   ├── PicklingError           an argument cannot be pickled  (pickle.PicklingError)
    │   ├── SpaceError              unsupported space or bad value (CustomSpaceError, RuntimeError)
    │   │   ├── SpaceValueError     wrong number, shape or range of values      (ValueError)
    │   │   └── SpaceTypeError      a value of the wrong type                   (TypeError)
    │   ├── UnknownEnvError         unknown env id                 (gymnasium NameNotFound)
    │   └── ConfigError             an invalid setting             (ValueError)
    ├── WorkerError                 an env or its process failed
    │   ├── EnvFailed               the env raised; its traceback is the cause
    │   ├── WorkerDied              the worker process exited
    │   └── WorkerTimeout           a deadline passed              (both TimeoutErrors)
    ├── LearnerDied                 one of several learner processes failed
    ├── TrainingDiverged            losses or data were repeatedly not finite
    ├── StorageError                a file of a run cannot be written  (OSError)
    ├── SharedMemoryError           shared memory could not be allocated  (MemoryError)
    └── MissingExtra                an optional library is not installed (ImportError)

The names in brackets are further base classes of the error. Code that catches these classes also
catches the error.
"""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Sequence
from typing import Any

from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    CustomSpaceError,
    NameNotFound,
    NoAsyncCallError,
)


class RookeryError(Exception):
    """The base class of all errors of this library."""

    def __str__(self) -> str:
        # EnvFailed is combined with other types. Some define __str__, such as KeyError.
        return str(self.args[0]) if self.args else ""


class UsageError(RookeryError):
    """A mistake of the caller: an invalid argument, or a call in the wrong order.

    The call that raises it has no effect. The effects of earlier calls remain.
    """


class ClosedError(UsageError, ClosedEnvironmentError):
    """A call on a vector env that was closed before."""


class PendingCallError(UsageError, AlreadyPendingCallError):
    """A call while an earlier one is still pending."""

    def __init__(self, message: str, name: str = "") -> None:
        AlreadyPendingCallError.__init__(self, message, name)


class NoPendingCallError(UsageError, NoAsyncCallError):
    """A request for a result without a pending call."""

    def __init__(self, message: str, name: str = "") -> None:
        NoAsyncCallError.__init__(self, message, name)


class PicklingError(UsageError, pickle.PicklingError):
    """An argument that cannot be pickled; the message names the path to it."""


class SpaceError(UsageError, CustomSpaceError, RuntimeError):
    """An unsupported space, or a value outside its space; the message names the path."""


class SpaceValueError(SpaceError, ValueError):
    """A wrong number of values, a wrong shape, or a value out of range."""


class SpaceTypeError(SpaceError, TypeError):
    """A value of the wrong type for its space, such as one number for several envs."""


class UnknownEnvError(UsageError, NameNotFound):
    """An env id that is not registered; the message lists similar ids."""


class ConfigError(UsageError, ValueError):
    """A setting with an invalid value."""


class WorkerError(RookeryError):
    """A failure of an env or of the process that runs it.

    Attributes:
        env_ids: indices of the affected envs; the env that was running comes first.
        command: the operation that failed ("make", "reset", "step", ...).
        seed: the seed of the env's last seeded reset, or None.
        steps_since_reset: number of steps in the current episode, or None if unknown.
        last_action: the action of the failing step; None for other commands.
    """

    def __init__(
        self,
        message: str,
        *,
        env_ids: Sequence[int] = (),
        command: str = "",
        seed: int | None = None,
        steps_since_reset: int | None = None,
        last_action: Any = None,
    ) -> None:
        super().__init__(message)
        self.env_ids = tuple(int(i) for i in env_ids)
        self.command = command
        self.seed = seed
        self.steps_since_reset = steps_since_reset
        self.last_action = last_action

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args[:1], {k: _portable(v) for k, v in vars(self).items()}

    def __copy__(self) -> Any:
        return self._twin(vars(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._twin(copy.deepcopy(vars(self), memo))

    def _twin(self, attributes: dict[str, Any]) -> Any:
        twin = type(self).__new__(type(self), *self.args[:1])
        Exception.__init__(twin, *self.args)
        vars(twin).update(attributes)
        twin.__cause__ = self.__cause__
        return twin


def _portable(value: Any) -> Any:
    """Return the value, or its default repr if it cannot be pickled."""
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - pickling runs code of the value's type
        return object.__repr__(value)
    return value


class EnvFailed(WorkerError):
    """An exception that an env raised.

    The ``__cause__`` is the exception of the env, with the traceback of the worker process.

    Attributes:
        env_name: the env id, or the name of the callable that makes the env.
        envs_in_process: indices of the envs that share the process in which an env could not be
            built. Empty if it was the first env there, and for all other failures.
    """

    env_name: str = ""
    envs_in_process: tuple[int, ...] = ()


class WorkerDied(WorkerError):
    """An unexpected exit of a worker process; the message has the exit code or signal."""


class WorkerTimeout(WorkerError, multiprocessing.TimeoutError, TimeoutError):
    """A missed deadline; the message has the Python stack of the process that hangs."""


class SharedMemoryError(RookeryError, MemoryError):
    """A failed allocation of shared memory; the message has the size and possible remedies."""


class MissingExtra(RookeryError, ImportError):
    """A missing optional library; the message has the pip command that installs it."""


class StorageError(RookeryError, OSError):
    """A file of a run that cannot be written; the previous version of the file remains."""


class LearnerDied(RookeryError):
    """The failure of one of several learner processes; the ``__cause__`` is its error, if any.

    The run has ended. Its last checkpoint can be resumed with any number of learners.
    """


class TrainingDiverged(RookeryError):
    """Losses, gradients, rewards or observations that were not finite repeatedly.

    The run has ended. Its last checkpoint holds finite weights.
    """
