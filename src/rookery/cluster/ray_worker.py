"""RayWorker: a worker process on a node of a Ray cluster, as its caller sees it.

An actor on the node, a :class:`~rookery.cluster.node_agent.NodeAgent`, runs the process. The orders
that the caller writes into its arrays are sent to the agent, and the answers of the envs come back
and are written into the caller's arrays; see :mod:`rookery.cluster.agent_link` and
:mod:`rookery.cluster.mirror`. A step costs one message in each direction.
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from rookery.cluster.agent_link import AGENT_GROUPS, AgentLink
from rookery.cluster.mirror import Mirror
from rookery.cluster.node_agent import NodeAgent
from rookery.cluster.ray_cluster import Cluster
from rookery.common.pickling import by_value, pickled_for_workers
from rookery.shared import SharedBlock
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.block import ColumnSizes, zeros
from rookery.shared.row_buffer import RowShape
from rookery.worker import orders
from rookery.worker.orders import Orders
from rookery.worker.pipes import ChannelClosedError
from rookery.worker.protocol import Assignment, Events
from rookery.worker.thread import MessageQueue, QueueChannel
from rookery.worker.wait.thread_event import ThreadEvent

_END_WAIT_S = 2.0  # for the agent to report the end of its process


class RayArrays:
    """All arrays of a vector env with workers on other machines.

    Args:
        spaces: spaces and sizes of the arrays.
        num_workers: number of workers.

    Attributes:
        arrays: arrays of the envs.
        orders: orders to the envs.
        views: all arrays by name.
        columns: name -> (shape, dtype) of the arrays before the row buffer was enlarged.
        larger_rows: shape and columns of the row buffer, if it was enlarged.
    """

    def __init__(self, spaces: BatchSpaces, num_workers: int) -> None:
        self._spaces = spaces
        self.columns: ColumnSizes = {
            **spaces.columns(),
            **orders.columns(spaces.num_envs, num_workers),
        }
        self.views = zeros(self.columns)
        self.arrays = BatchArrays(spaces, self.views)
        self.orders = Orders(self.views)
        self.larger_rows: tuple[RowShape, ColumnSizes] | None = None

    def enlarge_rows(self, shape: RowShape) -> None:
        """Enlarge the row buffer here. The workers still have the smaller one."""
        self.larger_rows = shape, self._spaces.row_columns(shape)
        views = zeros(self.larger_rows[1])
        self.views |= views
        self.arrays.row_buffer.enlarge(shape, views)

    def send_larger_rows(self, channel: RayChannel) -> None:
        """Enlarge the row buffer in a worker."""
        assert self.larger_rows is not None
        channel.enlarge_rows(self.views, *self.larger_rows)


class RayWorker:
    """A worker process that serves a batch of envs on a node of a Ray cluster.

    Args:
        cluster: cluster that the process runs on.
        spec: the pickled `WorkerSpec`.
        threads: limit of the threads of numerical libraries, or None.
        name: name of the process.
        arrivals: event that all workers of the vector env share.
        shows_stack: True if the process shall be able to show its Python stack.
        check: called ten times a second while a message is awaited. An exception ends the waiting.

    Attributes:
        events: events between the worker and its caller.
        channel: channel to the worker.
        use: resource use of the process.
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
        if cluster.is_own and cluster.lacks_free_cpus(cluster.num_cpus):
            options = {**options, "num_cpus": 0}  # no other program will free CPUs of this cluster
        self._cluster, self._name = cluster, f"Worker {name}"
        self._task = spec, threads, name, shows_stack
        agent = cluster.create_actor(NodeAgent, AGENT_GROUPS, options)
        self._link = link = AgentLink(cluster, agent, incoming.put, arrivals)
        self._waiting = cluster.waiting(self._name, options)
        self.use = link.use
        self.events = Events(_OrderEvent(link), link.done, arrivals)  # type: ignore[arg-type]
        self.channel = RayChannel(link, incoming, partial(self._look, check))
        link.begin(self._task)

    @property
    def pid(self) -> int:
        """Process id on the node; 0 until it is known."""
        return self._link.pid

    @property
    def node(self) -> str:
        """Address and id of the node."""
        return self._link.node or "a node of Ray"

    def greet(self) -> None:
        """Do nothing: the agent has received the spec."""

    def has_built(self) -> None:
        """Do nothing: the caller keeps nothing until the envs are built."""

    def assign(self, assignment: Assignment, board: RayArrays) -> None:
        """Send the worker its part of the arrays."""
        self.channel.require_link()
        part = board.orders.part(assignment.env_ids, assignment.index)
        mirror = Mirror(board.views, part, assignment.index)
        larger = board.larger_rows
        columns = {**board.columns, **(larger[1] if larger else {})}
        self._link.assign(mirror, assignment.index, columns, larger, by_value(assignment))

    def send_block(self, block: SharedBlock) -> None:
        """Raise, because memory of this machine cannot be mapped on another one."""
        raise NotImplementedError("a worker on another machine cannot map a block")

    def is_alive(self) -> bool:
        """Return True if the process runs or is about to start."""
        return not self._link.is_over

    def end_in_words(self) -> str:
        """Return how the process has ended."""
        return self._link.end or "was killed"

    def python_stack(self) -> str:
        """Return the stack of every Python thread of the process, if its node still answers."""
        return self._link.stack()

    def kill(self) -> None:
        """End the process at once. Further calls do nothing."""
        self._link.cut()

    def stop(self, deadline: float) -> None:
        """End the process by ``deadline``, gracefully if possible."""
        patience_s = max(deadline - time.perf_counter(), 0.0)
        self._link.call("stop", patience_s)
        self._link.wait_for_end(patience_s + _END_WAIT_S)
        self.kill()
        self.channel.close()

    def _look(self, check: Callable[[], None]) -> None:
        if not self._link.node:  # the agent waits for a node, or is about to start
            self._waiting.look()
            if self._waiting.should_share_cpus():
                self._share_cpus()
        check()

    def _share_cpus(self) -> None:
        """Replace the agent by one that uses CPUs which other actors have reserved."""
        cluster = self._cluster
        warnings.warn(
            f"{self._name} finds no free CPU in the Ray cluster; it shares CPUs with other workers",
            RuntimeWarning,
            stacklevel=2,
        )
        options = {**cluster.options, "num_cpus": 0}
        self._waiting = cluster.waiting(self._name, options)
        agent = cluster.create_actor(NodeAgent, AGENT_GROUPS, options)
        self._link.begin_with(agent, self._task)


class RayChannel(QueueChannel):
    """A channel to a worker on another machine.

    Args:
        link: link to the worker's agent.
        incoming: messages of the worker.
        check: see :class:`~rookery.worker.channel.QueueChannel`.
    """

    def __init__(self, link: AgentLink, incoming: MessageQueue, check: Callable[[], None]) -> None:
        super().__init__(link, incoming, check)  # type: ignore[arg-type]
        self._link = link

    def encode(self, content: Any) -> bytes:
        return pickled_for_workers(content)

    def decode(self, payload: bytes) -> Any:
        return pickle.loads(payload)

    def send(self, number: int, payload: Any, wake: Callable[[], None] = lambda: None) -> None:
        self.require_link()
        super().send(number, payload)

    def enlarge_rows(self, views: dict[str, Any], shape: RowShape, columns: ColumnSizes) -> None:
        """Enlarge the row buffer in the worker."""
        self.require_link()
        self._link.enlarge(views, shape, columns)

    def require_link(self) -> None:
        """Raise ChannelClosedError if the worker has ended."""
        if self._link.is_over:
            raise ChannelClosedError


class _OrderEvent:
    """The event with which a caller announces orders: setting it sends them."""

    def __init__(self, link: AgentLink) -> None:
        self.set = self.set_if_clear = link.send_orders

    def take(self) -> bool:
        return False
