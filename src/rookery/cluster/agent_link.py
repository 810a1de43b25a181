"""AgentLink: the caller's connection to one `NodeAgent`, and the thread that serves all of them."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from rookery.cluster.mirror import Array, Mirror
from rookery.cluster.node_agent import AgentReport
from rookery.cluster.ray_actors import describe_loss, end_actor
from rookery.cluster.ray_cluster import Cluster
from rookery.cluster.ray_session import require_ray
from rookery.common.resources import NOTHING_KNOWN, ProcessUse
from rookery.shared.block import ColumnSizes
from rookery.shared.row_buffer import RowShape
from rookery.worker.pipes import ChannelClosedError
from rookery.worker.wait.thread_event import ThreadBell

# Concurrency groups of an agent: extra threads beside the one that runs `NodeAgent.do`.
AGENT_GROUPS = {"reports": 1, "stack": 1}
_STACK_WAIT_S = 30.0


class RemoteUse:
    """The resource use of a process on another machine, as its agent last reported it."""

    def __init__(self) -> None:
        self.reported = NOTHING_KNOWN

    def sample(self) -> None:
        """Do nothing: the agent takes the samples."""

    def last(self) -> ProcessUse:
        """Return the use that was reported last."""
        return self.reported

    def look(self) -> ProcessUse:
        """Return the use that was reported last; the agent reports once a second."""
        return self.reported

    def rss_bytes(self) -> int | None:
        """Return the memory that was reported last."""
        return self.reported.rss_bytes


class AgentLink:
    """Calls the methods of one agent in order, and receives its reports.

    One thread makes all calls to Ray, because a signal cannot interrupt it.

    Args:
        cluster: cluster with the agent.
        agent: the actor.
        on_message: called with each message of the worker, a number and a payload.
        arrivals: event of the vector env. It is set when envs have answered or the worker has
            ended.

    Attributes:
        done: event that is set together with ``arrivals``.
        pid: process id of the worker on its node; 0 until it is known.
        node: node of the agent; empty until it is known.
        use: resource use of the worker process.
        is_over: True if the process or the agent has ended.
        end: how the process has ended, in words.
    """

    def __init__(
        self,
        cluster: Cluster,
        agent: Any,
        on_message: Callable[[tuple[int, bytes]], None],
        arrivals: ThreadBell,
    ) -> None:
        self._ray, self._cluster = require_ray(), cluster
        self._agent, self._on_message, self._arrivals = agent, on_message, arrivals
        self.done = ThreadBell()
        self.pid, self.node, self.end = 0, "", ""
        self.use = RemoteUse()
        self.is_over = False
        self._mirror: Mirror | None = None
        self._turn = 0
        self._is_cut = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = _shared_thread()

    # ---------------------------------------------------------------- called by the caller

    def begin(self, task: tuple[Any, ...]) -> None:
        """Make the agent start its process, and receive its reports."""
        self.call("start", *task)
        asyncio.run_coroutine_threadsafe(self._listen(self._agent), self._thread.loop)

    def begin_with(self, agent: Any, task: tuple[Any, ...]) -> None:
        """Replace the agent by another one. The first agent may just be starting."""
        before = self._agent
        self._thread.loop.call_soon_threadsafe(self._change, agent)
        end_actor(before, "stack")
        self.call("start", *task)

    def call(self, method: str, *args: Any) -> None:
        """Call a method of the agent, after all earlier calls."""
        self._thread.loop.call_soon_threadsafe(self._call, method, args)

    def put(self, message: tuple[int, bytes]) -> None:
        """Send a request to the worker, given its number and its payload."""
        self.call("request", *message)

    def assign(
        self,
        mirror: Mirror,
        index: int,
        columns: ColumnSizes,
        larger_rows: tuple[RowShape, ColumnSizes] | None,
        assignment: bytes,
    ) -> None:
        """Send the worker its part of the arrays.

        Args:
            mirror: the worker's part of the caller's arrays.
            index: index of the worker.
            columns: name -> (shape, dtype) of all arrays.
            larger_rows: shape and columns of the row buffer, if it was enlarged.
            assignment: the pickled `Assignment`.
        """
        snapshot = mirror.snapshot()
        self._mirror = mirror  # before the first answer can arrive
        self.call("assign", index, mirror.part.env_ids, columns, larger_rows, snapshot, assignment)

    def enlarge(self, views: Mapping[str, Array], shape: RowShape, columns: ColumnSizes) -> None:
        """Use a larger row buffer, here and in the worker."""
        assert self._mirror is not None
        self._mirror.bind(views)
        self.call("enlarge", shape, columns)

    def send_orders(self) -> None:
        """Send the new orders to envs. A repeated call sends nothing twice."""
        mirror = self._mirror
        if mirror is None or self.is_over:
            return
        orders = mirror.orders()
        if orders is not None:
            self.call("order", orders)
            mirror.sent(orders)

    def stack(self) -> str:
        """Return the stacks of the process, or in parentheses why they are not known."""
        if not self.pid or not self._cluster.is_joined:
            return "(the cluster does not run it)"
        call = self._agent.stack.options(concurrency_group="stack")
        try:
            stack = self._ray.get(call.remote(), timeout=_STACK_WAIT_S)
        except self._ray.exceptions.GetTimeoutError:
            return "(its node did not answer)"
        except self._ray.exceptions.RayError as error:
            return f"(its node is not available: it {describe_loss(error)})"
        return str(stack)

    def cut(self) -> None:
        """Ignore all later reports, and end the agent together with its process."""
        with self._lock:
            self._is_cut = self.is_over = True
        if self._cluster.is_joined:
            end_actor(self._agent, "stack")

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the agent has reported the end of its process."""
        if not self._is_cut:
            self._over.wait(seconds)

    # ---------------------------------------------------------------- called by the thread

    def _call(self, method: str, args: tuple[Any, ...]) -> None:
        if self.is_over:
            return
        try:
            self._require_session()
            self._agent.do.remote(self._turn, method, args)
            self._turn += 1
        except Exception as error:  # raised where the caller waits for the worker
            self._has_ended(f"cannot be reached any more ({describe_loss(error)})")

    def _change(self, agent: Any) -> None:
        self._agent, self._turn = agent, 0
        self._listening = self._thread.loop.create_task(self._listen(agent))

    async def _listen(self, agent: Any) -> None:
        try:
            call = agent.report.options(concurrency_group="reports")
            self.node = await agent.node.options(concurrency_group="reports").remote()
            while agent is self._agent and self._take(await call.remote()):
                self._require_session()
        except Exception as error:  # raised where the caller waits for the worker
            if agent is self._agent:
                self._has_ended(describe_loss(error))

    def _require_session(self) -> None:
        if not self._cluster.is_joined:
            raise ChannelClosedError("Ray was shut down")

    def _take(self, report: AgentReport) -> bool:
        """Process a report; return True if another one will follow."""
        with self._lock:
            if self._is_cut:
                return False
            self.pid = report.pid
            if report.use is not None:
                self.use.reported = report.use
            mirror = self._mirror
            if mirror is not None and report.words is not None:
                mirror.take_words(report.words)
                for answers in report.answers:
                    mirror.take_answers(answers)
        for message in report.messages:
            self._on_message(message)
        if report.end is not None:
            self._has_ended(f"{report.end} on node {self.node}")
            return False
        if report.answers:
            self._wake_caller()
        return True

    def _has_ended(self, end: str) -> None:
        self.end = self.end or end
        self.is_over = True
        self._over.set()
        self._wake_caller()

    def _wake_caller(self) -> None:
        self.done.ring()
        self._arrivals.ring()


class _LoopThread:
    """A thread with an event loop. It ends with the last reference to this object.

    Attributes:
        loop: the event loop.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=(self.loop,), name="rookery-ray", daemon=True).start()
        weakref.finalize(self, _stop, self.loop, os.getpid()).atexit = False


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop, owner: int) -> None:
    if os.getpid() == owner:
        loop.call_soon_threadsafe(loop.stop)


# By process id, because a forked process does not have the thread.
_threads: weakref.WeakValueDictionary[int, _LoopThread] = weakref.WeakValueDictionary()
_starting = threading.Lock()


def _shared_thread() -> _LoopThread:
    """Return the thread that all links of this process use."""
    with _starting:
        thread = _threads.get(os.getpid())
        if thread is None:
            thread = _threads[os.getpid()] = _LoopThread()
    return thread
