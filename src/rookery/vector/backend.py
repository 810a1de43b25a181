"""Backend: the interface between a vector env and the code that steps its envs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rookery.common.resources import ProcessUse
from rookery.errors import RookeryError
from rookery.shared.row_buffer import RowShape
from rookery.shared.row_reader import RowReader
from rookery.worker.fault_policy import RestartCause
from rookery.worker.orders import Order


class Backend(Protocol):
    """Runs a batch of consecutive envs in this process, a thread, a worker or on a node.

    Orders ask for steps and resets; see :mod:`rookery.worker.orders`. Requests ask for everything
    else, such as calls of methods.

    Attributes:
        env_ids: indices of the envs.
        pid: id of the process that runs the envs.
        node: machine that runs the envs; None is this one.
        busy_s: seconds spent stepping.
        steps_made: steps of all its envs.
        restarts: number of times the worker was replaced.
        causes: reasons of the latest replacements.
        steps_in_caller: the calling thread steps the envs while it waits for them.
        is_replaceable: the worker may be replaced.
        needs_poll: answers may be incomplete until ``poll`` is called. Only True if replaceable.
        is_torn: an interruption left a state that only a reset can repair.
        has_extras: the latest answers contain more than their columns, such as infos.
        failures: errors in the latest answers, by env id.
        reader: receives values that have no column; set by the vector env.
    """

    env_ids: range
    steps_in_caller: bool
    is_replaceable: bool
    has_extras: bool
    failures: dict[int, RookeryError]
    reader: RowReader | None

    @property
    def pid(self) -> int: ...

    @property
    def node(self) -> str | None: ...

    @property
    def busy_s(self) -> float: ...

    @property
    def steps_made(self) -> int: ...

    @property
    def restarts(self) -> int: ...

    @property
    def causes(self) -> tuple[RestartCause, ...]: ...

    def since_restart(self, env_id: int) -> tuple[int | None, int] | None:
        """Return the history of an env since its worker was replaced; None if it never was.

        Returns:
            The seed of its first reset if no other was passed, and its number of orders since then.
        """

    def process_use(self, looks: bool) -> ProcessUse:
        """Return the resources that the worker's process uses; empty without a process.

        Args:
            looks: measure now, instead of returning the last measurement.
        """

    @property
    def needs_poll(self) -> bool: ...

    @property
    def is_torn(self) -> bool: ...

    def begin_step(self, buffer: int, number: int) -> None:
        """Begin a step of all envs. This is the fast path of ``begin``."""

    def begin(self, order: Order) -> None:
        """Send an order to envs. Sending it twice has no further effect. Raises nothing."""

    def poll(self, deadline: float | None = None) -> None:
        """Receive messages, and notice exits and missed deadlines.

        Raises:
            NotFinishedError: the deadline passed during a message.
        """

    def finish(self, deadline: float | None = None) -> bool:
        """Wait until all envs have answered; return True if ``failures`` is not empty.

        Raises:
            NotFinishedError: the deadline passed.
        """

    def forget(self) -> None:
        """Drop failures and messages of earlier orders."""

    def note_seeds(self, seeds: Sequence[int | None], mask: Sequence[bool] | None) -> None:
        """Remember the seeds of a reset."""

    def prepare_reset(self, prepared: dict[int, tuple[int | None, Any]]) -> Any:
        """Return a request with seed and options of the next reset, by env."""

    def tell_reset(self, request: Any) -> None:
        """Send the request of ``prepare_reset`` before the reset is ordered.

        Raises:
            WorkerError: the worker exited and is not replaced.
        """

    def request(self, method: str, *args: Any) -> Any:
        """Return a request to call a method of the batch, without sending it."""

    def begin_call(self, request: Any) -> None:
        """Send a request."""

    def finish_call(self, deadline: float | None = None) -> Any:
        """Wait for the answer to a request and return its result."""

    def adopt_larger_rows(self, shape: RowShape) -> None:
        """Switch to the larger block of rows that the arrays now have."""

    def begin_close(self, deadline: float) -> bool:
        """Begin to close the envs; return False if that is impossible by ``deadline``."""

    def stop(self, deadline: float) -> None:
        """Release all resources. The envs are closed already, or cannot be closed."""
