"""Every exception that rookery raises on purpose.

    RookeryError
    ├── UsageError                  the caller did something that cannot work
    │   ├── ClosedError             the vector env was closed      (ClosedEnvironmentError)
    │   ├── PendingCallError        a call is still under way      (AlreadyPendingCallError)
    │   ├── NoPendingCallError      nothing was sent               (NoAsyncCallError)
    │   ├── PicklingError           an argument cannot travel      (pickle.PicklingError)
    │   ├── SpaceError              a space or a value outside it  (CustomSpaceError, RuntimeError)
    │   │   ├── SpaceValueError     too many values, another shape, too large   (ValueError)
    │   │   └── SpaceTypeError      a value of a type that cannot be            (TypeError)
    │   ├── UnknownEnvError         no such env id                 (gymnasium NameNotFound)
    │   └── ConfigError             a setting that cannot be       (ValueError)
    ├── WorkerError                 the world did: an env or its process failed
    │   ├── EnvFailed               the env raised; its traceback is the cause
    │   ├── WorkerDied              the process ended
    │   └── WorkerTimeout           a deadline passed              (both TimeoutErrors)
    ├── LearnerDied                 one of several learners failed or ended
    ├── TrainingDiverged            learning met numbers that are not finite, again and again
    ├── StorageError                a file of a run cannot be written  (OSError)
    ├── SharedMemoryError           no room for the arrays that processes share  (MemoryError)
    └── MissingExtra                an optional library is not installed (ImportError)

The names in brackets are the foreign classes that the error is an instance of too, so that code
written for them goes on catching it.
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
    """The root of every error of this library."""

    def __str__(self) -> str:
        # Types that EnvFailed is combined with may have a __str__ of their own, as KeyError has.
        return str(self.args[0]) if self.args else ""


class UsageError(RookeryError):
    """The caller asked for something that cannot work: a wrong argument, or a call out of turn.

    The call that raises it was refused; what earlier calls did stays done.
    """


class ClosedError(UsageError, ClosedEnvironmentError):
    """The vector env was closed before this call."""


class PendingCallError(UsageError, AlreadyPendingCallError):
    """A call came while an earlier one is still under way."""

    def __init__(self, message: str, name: str = "") -> None:
        AlreadyPendingCallError.__init__(self, message, name)


class NoPendingCallError(UsageError, NoAsyncCallError):
    """A result was asked for that no call had started."""

    def __init__(self, message: str, name: str = "") -> None:
        NoAsyncCallError.__init__(self, message, name)


class PicklingError(UsageError, pickle.PicklingError):
    """An argument cannot be sent to a worker process; the message names the path to it."""


class SpaceError(UsageError, CustomSpaceError, RuntimeError):
    """A space is not supported, or a value does not fit its space; the message names the path."""


class SpaceValueError(SpaceError, ValueError):
    """There are too many or too few values, they have another shape, or one is out of range."""


class SpaceTypeError(SpaceError, TypeError):
    """A value has a type that its space cannot hold, such as one number for several envs."""


class UnknownEnvError(UsageError, NameNotFound):
    """No environment is registered under this id; the message lists the nearest ids."""


class ConfigError(UsageError, ValueError):
    """A setting has a value that cannot be."""


class WorkerError(RookeryError):
    """An env, or the process that runs it, failed.

    Attributes:
        env_ids: indices of the envs concerned, the one that was busy first.
        command: what they were doing ("make", "reset", "step", ...).
        seed: the seed of the env's last seeded reset, if there was one.
        steps_since_reset: steps that the env had made in its episode, if known.
        last_action: the action of the failing step, if it was one.
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
    """A value, or what kind it is of if it cannot be pickled: an action may be anything."""
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - pickling runs code of the value's type
        return object.__repr__(value)
    return value


class EnvFailed(WorkerError):
    """The env itself raised. Its own exception, with the remote traceback, is the ``__cause__``.

    Attributes:
        env_name: the id, or the name of the callable, that the env was made from.
        envs_in_process: indices of the envs that share the process in which an env could not be
            built; empty if it was the first env there, and for all other failures.
    """

    env_name: str = ""
    envs_in_process: tuple[int, ...] = ()


class WorkerDied(WorkerError):
    """A worker process ended; the message has its exit code or signal in words."""


class WorkerTimeout(WorkerError, multiprocessing.TimeoutError, TimeoutError):
    """A deadline passed; the message has the Python stack of the process that hangs."""


class SharedMemoryError(RookeryError, MemoryError):
    """The system gives no memory that processes could share; the message has size and way out."""


class MissingExtra(RookeryError, ImportError):
    """An optional library is not installed; the message has the pip command."""


class StorageError(RookeryError, OSError):
    """A file of a run cannot be written, for a full disk or so. What was there before stays."""


class LearnerDied(RookeryError):
    """One of several learners failed, or its process ended; the cause is its own error.

    The run has ended; its last checkpoint can be resumed with any number of learners.
    """


class TrainingDiverged(RookeryError):
    """Losses, gradients, rewards or observations were not finite again and again.

    The run has ended; its last checkpoint holds finite weights.
    """
