"""RayWorker: a worker process on some node of a Ray cluster, as its caller sees it.

An actor there, a :class:`~rookery.cluster.node_agent.NodeAgent`, keeps the process. What is written
on the board here is sent to it, and what it tells is written on the board, by one thread that all
workers of this process share; a step costs a message each way.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rookery.cluster.mirror import Mirror
from rookery.cluster.node_agent import Columns, NodeAgent, Told
from rookery.cluster.ray_cluster import Cluster, end_actor, in_words, require_ray
from rookery.common.pickling import by_value, pickled_for_workers
from rookery.common.resources import NOTHING_KNOWN, ProcessUse
from rookery.shared import SharedBlock
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.slab import SlabShape
from rookery.worker import orders
from rookery.worker.orders import Orders
from rookery.worker.pipes import ChannelClosedError
from rookery.worker.protocol import Assignment, Events
from rookery.worker.thread import MessageQueue, QueueChannel
from rookery.worker.wait.thread_event import ThreadEvent

_END_WAIT_S = 2.0  # for the agent's word that its process has ended
_STACK_WAIT_S = 30.0
_GROUPS = {"answers": 1, "stack": 1}  # threads of an agent, beside that which does what it is told


class RayBoard:
    """All arrays of a vector env whose workers are elsewhere; see `SharedArrays`.

    Args:
        spaces: of the envs.
        num_workers: how many workers there are.

    Attributes:
        arrays: of the envs.
        orders: to the envs.
        views: all of it, by name.
        columns: what each view is.
        slab: shape and columns of a larger slab, if there is one.
    """

    def __init__(self, spaces: BatchSpaces, num_workers: int) -> None:
        self._spaces = spaces
        self.columns: Columns = {
            **spaces.columns(),
            **orders.columns(spaces.num_envs, num_workers),
        }
        self.views = _zeros(self.columns)
        self.arrays = BatchArrays(spaces, self.views)
        self.orders = Orders(self.views)
        self.slab: tuple[SlabShape, Columns] | None = None

    def enlarge_slab(self, shape: SlabShape) -> None:
        """Make a larger slab; the workers still have the smaller one."""
        self.slab = shape, self._spaces.slab_columns(shape)
        views = _zeros(self.slab[1])
        self.views |= views
        self.arrays.slab.enlarge(shape, views)

    def send_slab(self, channel: RayChannel) -> None:
        """Have a worker go on with the larger slab, too."""
        channel.send_slab(self)


class RayWorker:
    """A worker process that serves a batch of envs on a node of a Ray cluster.

    Args:
        cluster: where.
        spec: what to build, pickled.
        threads: cap on the threads of numerical libraries.
        name: of the process.
        arrivals: the event that all workers of a vector env share.
        shows_stack: whether it is to show where it hangs.
        check: called ten times a second while a message is waited for; what it raises ends that.

    Attributes:
        events: between the worker and its caller.
        channel: to the worker.
        use: what its process uses.
    """

    kind, fate = "process", "was killed"

    def __init__(
        self,
        cluster: Cluster,
        spec: bytes,
        threads: int | None,
        name: str,
        arrivals: ThreadEvent,
        shows_stack: bool,
        check: Callable[[], None],
    ) -> None:
        incoming = MessageQueue()
        cluster.require_session()
        options = cluster.options
        if cluster.is_own and cluster.shares_cpus(cluster.num_cpus):
            options = {**options, "num_cpus": 0}  # nobody but this process is going to free some
        self._cluster, self._name = cluster, f"Worker {name}"
        self._task = spec, threads, name, shows_stack
        agent = cluster.hire(NodeAgent, _GROUPS, options)
        self._line = line = _Line(cluster, agent, incoming, arrivals)
        self._waiting = cluster.waiting(self._name, options)
        self.use = line.use
        self.events = Events(_OrderEvent(line), line.done, arrivals)  # type: ignore[arg-type]
        self.channel = RayChannel(line, incoming, partial(self._look, check))
        line.begin(self._task)

    @property
    def pid(self) -> int:
        """Of the process, on its node; 0 while it is not known."""
        return self._line.pid

    @property
    def node(self) -> str:
        """Address and id of the node."""
        return self._line.node or "a node of Ray"

    def greet(self) -> None:
        """It was told what to build."""

    def has_built(self) -> None:
        """Nothing was kept until now."""

    def assign(self, assignment: Assignment, board: RayBoard) -> None:
        """Give it its part of the board."""
        self.channel.require_line()
        mirror = Mirror(
            board.views, board.orders.part(assignment.env_ids, assignment.index), assignment.index
        )
        self._line.assign(mirror, assignment.index, board, by_value(assignment))

    def send_block(self, block: SharedBlock) -> None:
        """Memory of this machine is not lent to another one."""
        raise NotImplementedError("a worker on another machine is lent no blocks")

    def is_alive(self) -> bool:
        """Whether it runs, or is about to."""
        return not self._line.is_over

    def end_in_words(self) -> str:
        """How it has ended."""
        return self._line.end or "was killed"

    def python_stack(self) -> str:
        """The stack of every Python thread of the process, if its node still answers."""
        return self._line.stack()

    def kill(self) -> None:
        """End the process at once; twice is fine."""
        self._line.cut()

    def stop(self, deadline: float) -> None:
        """End the process by ``deadline``, gently if it lets us."""
        patience_s = max(deadline - time.perf_counter(), 0.0)
        self._line.say("stop", patience_s)
        self._line.wait_for_end(patience_s + _END_WAIT_S)
        self.kill()
        self.channel.close()

    def _look(self, check: Callable[[], None]) -> None:
        if not self._line.node:  # it has no place yet, or is about to be there
            self._waiting.look()
            if self._waiting.had_better_share():
                self._share_cpus()
        check()

    def _share_cpus(self) -> None:
        """Have another agent take CPUs that others use."""
        cluster = self._cluster
        warnings.warn(
            f"{self._name} finds no free CPU in the Ray cluster; it shares those of others",
            RuntimeWarning,
            stacklevel=2,
        )
        options = {**cluster.options, "num_cpus": 0}
        self._waiting = cluster.waiting(self._name, options)
        self._line.begin_anew(cluster.hire(NodeAgent, _GROUPS, options), self._task)


class RayChannel(QueueChannel):
    """A channel to a worker on another machine.

    Args:
        line: to the worker's agent.
        incoming: messages of the worker.
        check: see :class:`~rookery.worker.thread.QueueChannel`.
    """

    def __init__(self, line: _Line, incoming: MessageQueue, check: Callable[[], None]) -> None:
        super().__init__(_Outgoing(line), incoming, check)  # type: ignore[arg-type]
        self._line = line

    def encode(self, content: Any) -> bytes:
        return pickled_for_workers(content)

    def decode(self, payload: bytes) -> Any:
        return pickle.loads(payload)

    def send(self, number: int, payload: Any, wake: Callable[[], None] = lambda: None) -> None:
        self.require_line()
        super().send(number, payload)

    def send_slab(self, board: RayBoard) -> None:
        """Have the worker go on with the board's larger slab."""
        self.require_line()
        self._line.enlarge(board)

    def require_line(self) -> None:
        """Raise ChannelClosedError where nobody hears us."""
        if self._line.is_over:
            raise ChannelClosedError


class RemoteUse:
    """What a process on another machine uses, as it was told last."""

    def __init__(self) -> None:
        self.told = NOTHING_KNOWN

    def sample(self) -> None:
        """Samples are taken there."""

    def last(self) -> ProcessUse:
        """What was told last."""
        return self.told

    def look(self) -> ProcessUse:
        """The same: it is told every second."""
        return self.told

    def rss_bytes(self) -> int | None:
        """Likewise."""
        return self.told.rss_bytes


class _Outgoing:
    """Where a channel puts its messages."""

    def __init__(self, line: _Line) -> None:
        self._line = line

    def put(self, message: tuple[int, bytes]) -> None:
        self._line.say("tell", *message)


class _OrderEvent:
    """Rung when orders were written: sends them."""

    def __init__(self, line: _Line) -> None:
        self.set = self.set_if_clear = line.send_orders

    def take(self) -> bool:
        return False


class _Line:
    """Speaks with one agent: what is said here is called there, in order; what it tells, is noted.

    Everything that Ray is asked for is asked by one thread, which no signal interrupts.

    Args:
        cluster: where the agent is.
        agent: an actor.
        incoming: takes messages of the worker.
        arrivals: rung when envs have answered, or never will.

    Attributes:
        done: the event that the worker sets.
        pid, node: where the process is.
        use: what it uses.
        is_over: whether the process, or the agent, has ended.
        end: how, in words.
    """

    def __init__(
        self, cluster: Cluster, agent: Any, incoming: MessageQueue, arrivals: ThreadEvent
    ) -> None:
        self._ray, self._cluster = require_ray(), cluster
        self._agent, self._incoming, self._arrivals = agent, incoming, arrivals
        self.done = ThreadEvent()
        self.pid, self.node, self.end = 0, "", ""
        self.use = RemoteUse()
        self.is_over = False
        self._mirror: Mirror | None = None
        self._turn = 0
        self._is_cut = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._speaker = _speaker_of_all()

    # ---------------------------------------------------------------- the caller's side

    def begin(self, task: tuple[Any, ...]) -> None:
        """Have the agent start its process, and listen to it."""
        self.say("start", *task)
        asyncio.run_coroutine_threadsafe(self._listen(self._agent), self._speaker.loop)

    def begin_anew(self, agent: Any, task: tuple[Any, ...]) -> None:
        """Speak with another agent from now on; the first one may be about to start."""
        before = self._agent
        self._speaker.loop.call_soon_threadsafe(self._change, agent)
        end_actor(before, "stack")
        self.say("start", *task)

    def say(self, method: str, *args: Any) -> None:
        """Have the agent do something."""
        self._speaker.loop.call_soon_threadsafe(self._say, method, args)

    def assign(self, mirror: Mirror, index: int, board: RayBoard, assignment: bytes) -> None:
        """Have the worker begin with its part of a board."""
        slab, env_ids = board.slab, mirror.part.env_ids
        columns = {**board.columns, **(slab[1] if slab else {})}
        snapshot = mirror.snapshot()
        self._mirror = mirror  # before anything can be answered
        self.say("assign", index, env_ids, columns, slab, snapshot, assignment)

    def enlarge(self, board: RayBoard) -> None:
        """Have it go on with a larger slab."""
        assert board.slab is not None and self._mirror is not None
        self._mirror.follow(board.views)
        self.say("enlarge", *board.slab)

    def send_orders(self) -> None:
        """Send what envs were asked; sending it twice does no harm."""
        mirror = self._mirror
        if mirror is None or self.is_over:
            return
        orders = mirror.orders()
        if orders is not None:
            self.say("ask", orders)
            mirror.sent(orders)

    def stack(self) -> str:
        """The stacks of the process."""
        if not self.pid or not self._cluster.is_joined:
            return "(the cluster does not run it)"
        call = self._agent.stack.options(concurrency_group="stack")
        try:
            stack = self._ray.get(call.remote(), timeout=_STACK_WAIT_S)
        except self._ray.exceptions.GetTimeoutError:
            return "(its node did not answer)"
        except self._ray.exceptions.RayError as error:
            return f"(its node cannot say: {in_words(error)})"
        return str(stack)

    def cut(self) -> None:
        """Hear nothing more, and end the agent and with it the process."""
        with self._lock:
            self._is_cut = self.is_over = True
        if self._cluster.is_joined:
            end_actor(self._agent, "stack")

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the agent has said that its process has ended."""
        if not self._is_cut:
            self._over.wait(seconds)

    # ---------------------------------------------------------------- the thread's side

    def _say(self, method: str, args: tuple[Any, ...]) -> None:
        if self.is_over:
            return
        try:
            self._require_session()
            self._agent.do.remote(self._turn, method, args)
            self._turn += 1
        except Exception as error:  # nobody waits for it: whoever waits for the worker hears of it
            self._has_ended(f"cannot be reached any more ({in_words(error)})")

    def _change(self, agent: Any) -> None:
        self._agent, self._turn = agent, 0
        self._listening = self._speaker.loop.create_task(self._listen(agent))

    async def _listen(self, agent: Any) -> None:
        try:
            call = agent.answers.options(concurrency_group="answers")
            self.node = await agent.node.options(concurrency_group="answers").remote()
            while agent is self._agent and self._take(await call.remote()):
                self._require_session()
        except Exception as error:  # likewise
            if agent is self._agent:
                self._has_ended(in_words(error))

    def _require_session(self) -> None:
        if not self._cluster.is_joined:
            raise ChannelClosedError("Ray was shut down")

    def _take(self, told: Told) -> bool:
        """Note what was told; whether there will be more."""
        with self._lock:
            if self._is_cut:
                return False
            self.pid = told.pid
            if told.use is not None:
                self.use.told = told.use
            mirror = self._mirror
            if mirror is not None and told.words is not None:
                mirror.take_words(told.words)
                for answers in told.answers:
                    mirror.take_answers(answers)
        for message in told.messages:
            self._incoming.put(message)
        if told.end is not None:
            self._has_ended(f"{told.end} on node {self.node}")
            return False
        if told.answers:
            self._ring()
        return True

    def _has_ended(self, end: str) -> None:
        self.end = self.end or end
        self.is_over = True
        self._over.set()
        self._ring()

    def _ring(self) -> None:
        self.done.set()
        self._arrivals.set()


class _Speaker:
    """A thread with an event loop, which ends with the last one who holds this.

    Attributes:
        loop: it runs.
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


# By process: a fork has no thread of its own.
_speakers: weakref.WeakValueDictionary[int, _Speaker] = weakref.WeakValueDictionary()
_starting = threading.Lock()


def _speaker_of_all() -> _Speaker:
    """Who speaks with all agents."""
    with _starting:
        speaker = _speakers.get(os.getpid())
        if speaker is None:
            speaker = _speakers[os.getpid()] = _Speaker()
    return speaker


def _zeros(columns: Columns) -> dict[str, Any]:
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in columns.items()}
