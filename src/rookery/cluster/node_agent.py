"""NodeAgent: an actor that runs a worker process on its machine for a caller on another one.

The process is an ordinary worker process, and the agent is its caller there. The agent writes the
true caller's orders into arrays that it shares with the process, and sends the answers back; see
:mod:`rookery.cluster.mirror`. It unpickles nothing that belongs to envs.

Two threads call the agent: one calls :meth:`NodeAgent.do`, the other :meth:`NodeAgent.report`,
which waits until there is something to report. A third thread may ask for a stack at any time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, NamedTuple

from rookery.cluster.mirror import AnswerRows, Array, Bytes, Mirror, OrderRows, WordRows
from rookery.cluster.ray_actors import match_caller, this_node
from rookery.common.resources import ProcessUse
from rookery.errors import WorkerDied
from rookery.shared import Layout, SharedBlock
from rookery.shared.block import ColumnSizes
from rookery.shared.row_buffer import RowShape
from rookery.worker.channel import PipeChannel, TornError
from rookery.worker.orders import SINGLY, Orders
from rookery.worker.pipes import ChannelClosedError
from rookery.worker.process import WorkerProcess
from rookery.worker.start.launch import resolve_start_method
from rookery.worker.wait.event import Arrivals, forget_all_names

_REPORT_S = 0.5  # longest time between two reports
_USE_S = 1.0  # time between two samples of the process's resource use


class AgentReport(NamedTuple):
    """One report of an agent to its caller.

    Attributes:
        pid: process id; 0 before the process starts.
        answers: new answers of envs.
        words: counters and times. None before the process has its part of the arrays.
        messages: number and payload of new messages, in order.
        use: resource use of the process, about once a second, otherwise None.
        end: how the process has ended; None while it runs.
    """

    pid: int
    answers: list[AnswerRows]
    words: WordRows | None
    messages: list[tuple[int, bytes]]
    use: ProcessUse | None
    end: str | None


class NodeAgent:
    """Runs one worker process for a caller on another machine.

    Args:
        version: version of the caller's rookery.
        folders: folders in which the caller finds modules.

    Raises:
        ConfigError: this machine has another version of rookery.
    """

    def __init__(self, version: str, folders: list[str]) -> None:
        match_caller(version, folders)
        self._lock = threading.Lock()
        self._early: dict[int, tuple[str, tuple[Any, ...]]] = {}  # calls that arrived too early
        self._turn = 0
        self._error: Exception | None = None
        self._arrivals = Arrivals(keeps_name=False)
        self._process: WorkerProcess | None = None
        self._messages: deque[tuple[int, bytes]] = deque()
        self._mirror: Mirror | None = None
        self._sent: list[SharedBlock] = []  # blocks that the process may not have received yet
        self._end: str | None = None
        self._stops = False
        self._looked = 0.0

    def do(self, turn: int, method: str, args: tuple[Any, ...]) -> None:
        """Carry out the caller's calls in the order of ``turn``; Ray may deliver them unordered."""
        with self._lock:
            self._early[turn] = method, args
            while self._turn in self._early:
                method, args = self._early.pop(self._turn)
                self._turn += 1
                try:
                    getattr(self, f"_{method}")(*args)
                except (ChannelClosedError, TornError):
                    continue  # the process has ended, which the next report says
                except Exception as error:
                    self._error = error
                    self._arrivals.set()

    def report(self) -> AgentReport:
        """Wait at most half a second for something to report, and report it.

        Raises:
            Exception: the error of a call of :meth:`do`.
        """
        deadline = time.perf_counter() + _REPORT_S
        while not self._has_report() and time.perf_counter() < deadline:
            self._arrivals.wait_asleep(lambda: not self._has_report(), deadline)
        if self._error is not None:
            raise self._error
        return self._make_report()

    def node(self) -> str:
        """Return address and id of this node of the cluster."""
        return this_node()

    def leave(self) -> None:
        """Remove the names of semaphores from the system, before this process is killed."""
        forget_all_names()

    def stack(self) -> str:
        """Return the Python stack of the process."""
        return "(it has not begun)" if self._process is None else self._process.python_stack()

    def _has_report(self) -> bool:
        has_answers = self._mirror is not None and self._mirror.has_answers()
        return bool(has_answers or self._messages or self._end is not None or self._error)

    def _make_report(self) -> AgentReport:
        end, mirror, process, use = self._end, self._mirror, self._process, None
        messages = [self._messages.popleft() for _ in range(len(self._messages))]
        answers = [] if mirror is None else mirror.answers()
        now = time.perf_counter()
        if process is not None and now - self._looked > _USE_S and not self._stops:
            self._looked, use = now, process.use.look()
        return AgentReport(
            pid=0 if process is None else process.pid,
            answers=answers,
            words=None if mirror is None else mirror.words(),
            messages=messages,
            use=use,
            end=end,
        )

    # ---------------------------------------------------------------- the caller's calls

    def _start(self, spec: bytes, threads: int | None, name: str, shows_stack: bool) -> None:
        """Start the process."""
        method = resolve_start_method(None)
        self._process = process = WorkerProcess(
            method, threads, spec, name, self._arrivals, shows_stack, (), False, self._check
        )
        process.greet()
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    def _assign(
        self,
        index: int,
        env_ids: range,
        columns: ColumnSizes,
        larger_rows: tuple[RowShape, ColumnSizes] | None,
        snapshot: Bytes,
        assignment: bytes,
    ) -> None:
        """Make arrays like the caller's, and give the process its part of them."""
        process = self._started()
        block, self._views = _allocate(columns)
        part = Orders(self._views).part(env_ids, index)
        process.channel.send(0, assignment)
        self._sent.append(block)
        process.channel.send_block(block)
        shape = None if larger_rows is None else larger_rows[0]
        process.channel.send(0, process.channel.encode(shape))
        if larger_rows is not None:
            self._enlarge(*larger_rows)
        # With SINGLY every answer sets the event that this agent waits for.
        self._mirror = Mirror(self._views, part, index, added=SINGLY)
        self._mirror.load(snapshot)
        process.events.go.set()

    def _enlarge(self, shape: RowShape, columns: ColumnSizes) -> None:
        """Make a larger row buffer, and give it to the process."""
        process = self._started()
        block, views = _allocate(columns)
        for name, view in views.items():
            before = self._views[name]
            view[..., : before.shape[-1]] = before
        self._views |= views
        if self._mirror is not None:
            self._mirror.bind(self._views)
        self._sent.append(block)
        process.channel.send_block(block)

    def _order(self, orders: OrderRows) -> None:
        """Pass on orders to envs."""
        if self._mirror is not None:
            self._mirror.take_orders(orders)
            self._started().events.go.set()

    def _request(self, number: int, payload: bytes) -> None:
        """Pass on a request."""
        process = self._started()
        process.channel.send(number, payload, process.events.go.set)
        if self._mirror is not None:
            self._mirror.part.requests[0] += 1
            process.events.go.set()

    def _stop(self, patience_s: float) -> None:
        """End the process."""
        deadline = time.perf_counter() + patience_s
        self._stops = True
        if self._process is not None:
            self._reader.join()
            self._process.stop(deadline)
        self._arrivals.forget_name()
        self._end = self._end or "ended"
        self._arrivals.set()

    # ---------------------------------------------------------------- the process's messages

    def _started(self) -> WorkerProcess:
        if self._process is None:
            raise ChannelClosedError
        return self._process

    def _read(self, process: WorkerProcess) -> None:
        """Read messages until the process has ended."""
        # A second channel object, because another thread writes through the first one.
        channel = PipeChannel(process.channel.pipe, self._check)
        messages: dict[int, bytes] = {}
        try:
            channel.receive_into(messages)
            process.has_built()
            self._arrivals.forget_name()
            while True:
                self._messages.append(messages.popitem())
                self._arrivals.set()
                channel.receive_into(messages)
        except (ChannelClosedError, WorkerDied):
            if not self._stops:
                self._end = process.end_in_words()
                self._arrivals.set()

    def _check(self) -> None:
        if self._stops:
            raise ChannelClosedError
        if not self._started().is_alive():
            raise WorkerDied("It has ended")


def _allocate(columns: ColumnSizes) -> tuple[SharedBlock, dict[str, Array]]:
    """Allocate arrays for all envs of the vector env; only the rows of envs here take memory."""
    layout = Layout(columns)
    block = SharedBlock(layout.size_bytes, is_sparse=True)
    return block, layout.views(block.memory)
