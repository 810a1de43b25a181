"""Backend: the seam between a vector env and what steps its envs."""

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
    """Runs a batch of consecutive envs somewhere.

    An order is begun, and carried out when its envs have answered, see
    :mod:`rookery.worker.orders`. Requests are for what is no step and no reset.

    Attributes:
        env_ids: the indices of its envs.
        pid: the process in which they are.
        node: the machine on which that is; None is this one.
        busy_s: seconds spent stepping.
        steps_made: steps of all its envs together.
        restarts: how often the worker was replaced.
        causes: why, the latest times.
        steps_in_caller: whether envs are stepped while the caller waits for them, and only then.
        is_replaceable: whether what steps its envs may be replaced.
        needs_poll: whether answers are not complete before ``poll`` was called; never, unless it is
            replaceable.
        is_torn: whether an interruption has left something that only a reset can mend.
        has_told: whether what was finished last has told anything beside its columns.
        failures: what went wrong in answers that have come, by env id.
        reader: is told what answers tell beside the arrays; set by the vector env.
    """

    env_ids: range
    steps_in_caller: bool
    is_replaceable: bool
    has_told: bool
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
        """How an env began with what steps it now, if that has replaced something.

        Returns:
            The seed of its first reset, should that be given none, and how many orders were carried
            out for it, see :meth:`rookery.worker.reports.Reports.since_restart`; or None.
        """

    def process_use(self, looks: bool) -> ProcessUse:
        """What the worker's process uses; nothing where it has none of its own.

        Args:
            looks: whether to look now; else what the last look has told.
        """

    @property
    def needs_poll(self) -> bool: ...

    @property
    def is_torn(self) -> bool: ...

    def begin_step(self, buffer: int, number: int) -> None:
        """Begin a step of all envs, as ``begin`` does: the way that must be short."""

    def begin(self, order: Order) -> None:
        """Have envs carry out an order; giving it twice is giving it once. Raises nothing."""

    def poll(self, deadline: float | None = None) -> None:
        """Take in what has come, and notice what keeps envs from answering.

        Raises:
            NotFinishedError: when the deadline passed amid something that is still coming.
        """

    def finish(self, deadline: float | None = None) -> bool:
        """Wait until all envs have answered; whether anything lies in ``failures``.

        Raises:
            NotFinishedError: when the deadline passed.
        """

    def forget(self) -> None:
        """Drop all that has come and was not asked for."""

    def note_seeds(self, seeds: Sequence[int | None], mask: Sequence[bool] | None) -> None:
        """Remember the seeds of a reset."""

    def prepare_reset(self, prepared: dict[int, tuple[int | None, Any]]) -> Any:
        """A request that says, by env, seed and options of the reset that will be ordered."""

    def tell_reset(self, request: Any) -> None:
        """Have envs know what ``prepare_reset`` has prepared before the reset is ordered.

        Raises:
            WorkerError: when their worker ends meanwhile, and is not replaced.
        """

    def request(self, method: str, *args: Any) -> Any:
        """Prepare a call of a method of the batch; nothing happens yet."""

    def begin_call(self, request: Any) -> None:
        """Begin what was prepared."""

    def finish_call(self, deadline: float | None = None) -> Any:
        """Wait for what was begun and return its result."""

    def adopt_larger_rows(self, shape: RowShape) -> None:
        """Go on with the larger rows that the arrays have."""

    def begin_close(self, deadline: float) -> bool:
        """Begin to close the envs by a ``time.perf_counter()`` time; False if that cannot be."""

    def stop(self, deadline: float) -> None:
        """Give back everything; the envs are closed already, or cannot be."""
