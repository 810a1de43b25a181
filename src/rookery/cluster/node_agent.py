"""NodeAgent: has a worker process on its machine serve a caller on another one.

The process is that of any vector env of worker processes; the agent is its caller there. What the
true caller orders is written on a board here, and what the process answers goes back, see
:mod:`rookery.cluster.mirror`. The agent knows nothing of envs, unpickles nothing that belongs to
them.

Two threads call it: one :meth:`NodeAgent.do`, the other :meth:`NodeAgent.answers`, which waits for
something to tell. A third one may ask for a stack at any time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, NamedTuple

from rookery.cluster.mirror import AnswerRows, Array, Bytes, Mirror, OrderRows, WordRows
from rookery.cluster.ray_cluster import be_like_the_caller, this_node
from rookery.common.resources import ProcessUse
from rookery.errors import WorkerDied
from rookery.shared import Column, Layout, SharedBlock
from rookery.shared.slab import SlabShape
from rookery.worker.channel import PipeChannel, TornError
from rookery.worker.orders import SINGLY, Orders
from rookery.worker.pipes import ChannelClosedError
from rookery.worker.process import WorkerProcess
from rookery.worker.start.launch import resolve_start_method
from rookery.worker.wait.event import Arrivals, forget_all_names

_TELL_S = 0.5  # how long nothing is told while nothing happens
_USE_S = 1.0  # between two looks at what the process uses

Columns = dict[str, tuple[tuple[int, ...], Any]]


class Told(NamedTuple):
    """What an agent tells its caller.

    Attributes:
        pid: of the process.
        answers: of envs that have answered.
        words: what the process notes; None before it has its part of the board.
        messages: number and payload, in order.
        use: what the process uses, now and then.
        end: how the process has ended; None while it runs.
    """

    pid: int
    answers: list[AnswerRows]
    words: WordRows | None
    messages: list[tuple[int, bytes]]
    use: ProcessUse | None
    end: str | None


class NodeAgent:
    """Serves one worker process of its machine to a caller elsewhere.

    Args:
        version: see :func:`~rookery.cluster.ray_cluster.be_like_the_caller`.
        folders: likewise.

    Raises:
        ConfigError: when this machine has another one.
    """

    def __init__(self, version: str, folders: list[str]) -> None:
        be_like_the_caller(version, folders)
        self._lock = threading.Lock()
        self._early: dict[int, tuple[str, tuple[Any, ...]]] = {}  # that came before their turn
        self._turn = 0
        self._error: Exception | None = None
        self._arrivals = Arrivals(keeps_name=False)
        self._process: WorkerProcess | None = None
        self._messages: deque[tuple[int, bytes]] = deque()
        self._mirror: Mirror | None = None
        self._sent: list[SharedBlock] = []  # which the process may not have received yet
        self._end: str | None = None
        self._stops = False
        self._looked = 0.0

    def do(self, turn: int, method: str, args: tuple[Any, ...]) -> None:
        """Do what the caller says, in the order in which it was said, which need not be kept."""
        with self._lock:
            self._early[turn] = method, args
            while self._turn in self._early:
                method, args = self._early.pop(self._turn)
                self._turn += 1
                try:
                    getattr(self, f"_{method}")(*args)
                except (ChannelClosedError, TornError):
                    continue  # the process has ended, as is told in a moment
                except Exception as error:
                    self._error = error
                    self._arrivals.set()

    def answers(self) -> Told:
        """Wait for something to tell, but not for long.

        Raises:
            Exception: what went wrong here.
        """
        deadline = time.perf_counter() + _TELL_S
        while not self._has_news() and time.perf_counter() < deadline:
            self._arrivals.wait_asleep(lambda: not self._has_news(), deadline)
        if self._error is not None:
            raise self._error
        return self._told()

    def node(self) -> str:
        """Address and id of this node of the cluster."""
        return this_node()

    def leave(self) -> None:
        """Leave no name in the system: what has no name yet is ended with this process."""
        forget_all_names()

    def stack(self) -> str:
        """Where the process is."""
        return "(it has not begun)" if self._process is None else self._process.python_stack()

    def _has_news(self) -> bool:
        has_answers = self._mirror is not None and self._mirror.has_answers()
        return bool(has_answers or self._messages or self._end is not None or self._error)

    def _told(self) -> Told:
        end, mirror, process, use = self._end, self._mirror, self._process, None
        messages = [self._messages.popleft() for _ in range(len(self._messages))]
        answers = [] if mirror is None else mirror.answers()
        now = time.perf_counter()
        if process is not None and now - self._looked > _USE_S and not self._stops:
            self._looked, use = now, process.use.look()
        return Told(
            pid=0 if process is None else process.pid,
            answers=answers,
            words=None if mirror is None else mirror.words(),
            messages=messages,
            use=use,
            end=end,
        )

    # ---------------------------------------------------------------- what the caller says

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
        columns: Columns,
        slab: tuple[SlabShape, Columns] | None,
        snapshot: Bytes,
        assignment: bytes,
    ) -> None:
        """Make a board like the caller's, and give the process its part of it."""
        process = self._started()
        block, self._views = _board(columns)
        part = Orders(self._views).part(env_ids, index)
        process.channel.send(0, assignment)
        self._sent.append(block)
        process.channel.send_block(block)
        process.channel.send(0, process.channel.encode(None if slab is None else slab[0]))
        if slab is not None:
            self._enlarge(*slab)
        # Every answer sets the event that is waited for here.
        self._mirror = Mirror(self._views, part, index, added=SINGLY)
        self._mirror.become(snapshot)
        process.events.go.set()

    def _enlarge(self, shape: SlabShape, columns: Columns) -> None:
        """Go on with a larger slab, and give it to the process."""
        process = self._started()
        block, views = _board(columns)
        for name, view in views.items():
            before = self._views[name]
            view[..., : before.shape[-1]] = before
        self._views |= views
        if self._mirror is not None:
            self._mirror.follow(self._views)
        self._sent.append(block)
        process.channel.send_block(block)

    def _ask(self, orders: OrderRows) -> None:
        """Have envs do something."""
        if self._mirror is not None:
            self._mirror.take_orders(orders)
            self._started().events.go.set()

    def _tell(self, number: int, payload: bytes) -> None:
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

    # ---------------------------------------------------------------- what the process says

    def _started(self) -> WorkerProcess:
        if self._process is None:
            raise ChannelClosedError
        return self._process

    def _read(self, process: WorkerProcess) -> None:
        """Take messages, until there is nobody who could send one."""
        # One object writes to the pipe, this one reads: neither is asked what the other is amid.
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


def _board(columns: Columns) -> tuple[SharedBlock, dict[str, Array]]:
    """Memory for all envs of a vector env, of which a few are here and take some."""
    layout = Layout({name: Column(*column) for name, column in columns.items()})
    block = SharedBlock(layout.size_bytes, is_sparse=True)
    return block, layout.views(block.memory)
